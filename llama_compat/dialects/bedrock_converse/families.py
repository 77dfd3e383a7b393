"""What each maker's models are told in `additionalModelRequestFields`, which Converse passes on."""

from __future__ import annotations

from typing import Any, Literal

from llama_compat.dialects.anthropic_messages import Thinking, render_thinking, thinks
from llama_compat.errors import invalid_parameter
from llama_compat.types import ChatCompletionRequest, ThinkingForm

ModelFamily = Literal["claude", "nova", "gpt-oss"]

_NAMED_BY: dict[ModelFamily, str] = {
    "claude": "anthropic.",
    "nova": "amazon.nova-",
    "gpt-oss": "openai.gpt-oss",
}
"""What their ids have in them, with the region before it (`us.anthropic.claude-...`) or not, and
the ARNs of inference profiles that AWS has made. Those of one's own say nothing."""

_EFFORTS = {
    "minimal": "low",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "high",
    "max": "high",
}
"""Nova's and gpt-oss's words for OpenAI's."""

_THINKING_NOVA = "nova-2"
"""Nova thinks from its second generation on."""


def family_of(model: str) -> ModelFamily | None:
    """Whose models' words the model that Bedrock calls `model` knows; None if nothing says it."""
    return next((family for family, part in _NAMED_BY.items() if part in model), None)


def takes_thoughts(family: ModelFamily | None) -> bool:
    """Whether models of the family are given back what they thought and sealed: Claude is, and what
    has a profile of one's own too, as nobody else's thoughts are sealed here."""
    return family in ("claude", None)


def untold_effort(model: str, family: ModelFamily | None, effort: str) -> str | None:
    """Why the model can't be told to think as hard as `effort`; None if it can."""
    if family == "gpt-oss" and effort == "none":
        return "the model always thinks"
    is_older = family == "nova" and _THINKING_NOVA not in model and family_of(model) is not None
    if family is None or is_older:
        return "nothing says how this model is told so on Bedrock"
    return None


def render_effort(
    request: ChatCompletionRequest, family: ModelFamily
) -> tuple[dict[str, Any], str | None]:
    """How hard to think: members for the model itself, and Converse's own word, if it is said so.

    Sources: https://docs.aws.amazon.com/bedrock/latest/userguide/claude-messages-adaptive-thinking.html
    and `OutputConfig` of the service's model; https://docs.aws.amazon.com/nova/latest/nova2-userguide/
    extended-thinking.html; https://docs.aws.amazon.com/bedrock/latest/userguide/
    model-parameters-openai.html (2026-11-23).

    Raises:
        APIError: 400, it is no such word, or there is no room to think.
    """
    wanted = request.reasoning_effort
    if family == "claude" and thinks(request):
        block, effort = render_thinking(request, claudes_thinking(request))
        return ({"thinking": block} if block else {}), effort
    if wanted is None:
        return {}, None
    if family == "nova" and wanted == "none":
        return {"reasoningConfig": {"type": "disabled"}}, None
    if wanted not in _EFFORTS:
        raise invalid_parameter(
            "reasoning_effort",
            f"Invalid value: {wanted!r}. Supported values are: {', '.join(map(repr, _EFFORTS))}.",
        )
    if family == "gpt-oss":
        return {"reasoning_effort": _EFFORTS[wanted]}, None
    config = {"type": "enabled", "maxReasoningEffort": _EFFORTS[wanted]}
    return {"reasoningConfig": config}, None


def claudes_thinking(request: ChatCompletionRequest) -> Thinking:
    """How Claude is told of the effort of `request`."""
    form = request.thinking or ThinkingForm()
    mode: Literal["adaptive", "budget"] = "budget" if form.how == "budget" else "adaptive"
    return Thinking(mode, off=form.off or "disabled")


def render_top_k(top_k: int, family: ModelFamily) -> dict[str, Any]:
    """The member for `top_k` of a family that has one: `has_top_k`."""
    # https://docs.aws.amazon.com/nova/latest/userguide/complete-request-schema.html (2026-11-23)
    return {"inferenceConfig": {"topK": top_k}} if family == "nova" else {"top_k": top_k}


def has_top_k(family: ModelFamily | None) -> bool:
    """Whether models of the family can be told `top_k`."""
    return family in ("claude", "nova")
