"""One request for an interaction: what it asks, and the way back to the client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llama_compat.dialects.base import UNKNOWN, Labels
from llama_compat.dialects.choices import StreamedChoice
from llama_compat.dialects.gemini.requests import parse_tier
from llama_compat.dialects.gemini_interactions.generation import (
    asked_by_config,
    asked_by_format,
    asked_by_tools,
    config_in,
    hides_thoughts,
    parse_format,
    parse_functions,
    parse_sampling_config,
    parse_thinking,
    parse_tools,
)
from llama_compat.dialects.gemini_interactions.hosted import parse_hosted
from llama_compat.dialects.gemini_interactions.input import (
    hosted_steps,
    parse_input,
    parse_system,
)
from llama_compat.dialects.gemini_interactions.streams import ShownInteraction, StreamRenderer
from llama_compat.dialects.openai_responses.keeping import Keeping, refuse_unkept
from llama_compat.errors import UnsupportedHere
from llama_compat.types import ChatCompletionRequest

HOW_TO_KEEP = (
    "This server keeps no interactions. Send all steps of the conversation in 'input', or turn its"
    " store on in the template: `server: {responses_store: {}}`."
)


class InteractionCall(StreamedChoice, frozen=True):
    """One request as it came: what is asked of the model, and how to answer."""

    shown: ShownInteraction = ShownInteraction()
    keeping: Keeping | None = None

    def stream_renderer(self, labels: Labels) -> StreamRenderer:
        """A renderer of the interaction's events."""
        return StreamRenderer(self.shown, labels, self.keeping)

    def queued(self, labels: Labels) -> dict[str, Any]:
        """The interaction before anything has been done for it."""
        return self.stream_renderer(labels).object("in_progress")


def parse_request(
    body: Mapping[str, Any], model: str, *, keeping: Keeping | None = None
) -> InteractionCall:
    """The request `body` for the provider's `model`.

    Raises:
        APIError: 400 naming what is malformed, or what is not kept here.
    """
    if keeping is None:
        refuse_unkept(body, "interaction", HOW_TO_KEEP)
    if body.get("model") is None:
        raise UnsupportedHere(
            400,
            "Agents are Google's, and this model's provider has none. Name a 'model'.",
            param="agent",
            code="unsupported_parameter",
        )
    config = config_in(body)
    names = {each.tool_name for each in parse_functions(body)}
    tools, hosted, choice = parse_tools(body, parse_hosted(body, names))
    request = ChatCompletionRequest(
        model=model,
        messages=(
            *parse_system(body.get("system_instruction")),
            *parse_input(body.get("input"), keeping.earlier if keeping is not None else ()),
        ),
        sampling=parse_sampling_config(config),
        tools=tools,
        tool_choice=choice,
        response_format=parse_format(body),
        reasoning_effort=parse_thinking(config),
        stream=bool(body.get("stream")),
        service_tier=parse_tier(body.get("service_tier")),
        hosted=hosted,
    )
    shown = ShownInteraction(hides_thoughts(config), body.get("previous_interaction_id"))
    return InteractionCall(request, shown, keeping)


# What a request asks of the provider --------------------------------------------------------------

HINTS = {"labels": UNKNOWN, "safety_settings": UNKNOWN, "service_tier": "service_tier"}
"""OpenAI's names of the hints that are missed where they are gone."""

_NOTHING_ASKED = frozenset(
    {
        "model",
        "input",
        "system_instruction",
        "stream",
        # What this side of the provider sees to, or refuses itself.
        "store",
        "previous_interaction_id",
        "background",
        *HINTS,
    }
)

_LOOKED_INTO = frozenset(
    {
        "generation_config",
        "response_format",
        "response_mime_type",
        "response_modalities",
        "tools",
    }
)


def parameters(body: Mapping[str, Any]) -> Mapping[str, str]:
    """The members of a request that ask something of the provider, and chat's names for them.

    Raises:
        APIError: 400, one has another shape than it should.
    """
    asked = {
        name: UNKNOWN
        for name, value in body.items()
        if value is not None and name not in _NOTHING_ASKED | _LOOKED_INTO
    }
    asked.update(asked_by_config(body))
    asked.update(asked_by_format(body))
    asked.update(asked_by_tools(body))
    asked.update(dict.fromkeys(hosted_steps(body.get("input")), UNKNOWN))
    return asked
