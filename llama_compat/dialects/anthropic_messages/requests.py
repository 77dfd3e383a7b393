"""Requests to Anthropic's Messages API: vocabulary -> wire."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct, structs

from llama_compat.dialects.alternating import (
    AlternatingTurns,
    called_tools,
    content_blocks,
    empty_message,
)
from llama_compat.dialects.anthropic_messages.hosted_blocks import render_search
from llama_compat.dialects.anthropic_messages.seals import FAMILY
from llama_compat.dialects.anthropic_messages.versions import THINKING_BINDING
from llama_compat.dialects.sampling import rendered_parameters, sampling_members
from llama_compat.errors import invalid_parameter
from llama_compat.hosted.vocabulary import HostedCall
from llama_compat.media.audio import without_audio
from llama_compat.media.documents import PDF, no_such_document, parse_document_url, seen_alone
from llama_compat.media.images import (
    images_in,
    is_remote,
    misplaced_image,
    no_such_image,
    parse_data_url,
)
from llama_compat.tools.calls import arguments_object
from llama_compat.tools.closed_schemas import closed_schema
from llama_compat.tools.parameters import object_schema
from llama_compat.types import (
    EARLIER_THOUGHTS,
    AnyToolCall,
    ChatCompletionRequest,
    CompletionMessage,
    Content,
    DocumentContent,
    ImageContent,
    Message,
    MessagePart,
    ReasoningContent,
    RefusalContent,
    TextContent,
    ToolDefinition,
    ToolResponseMessage,
)

IMAGE_TYPES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})

EFFORTS = {
    "none": None,
    "minimal": "low",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "xhigh",
    "max": "max",
}
"""Anthropic's `effort` for OpenAI's `reasoning_effort`; None is no thinking at all."""

USUAL_EFFORT = "high"
"""What Anthropic's models do anyway (https://platform.claude.com/docs/en/build-with-claude/effort),
and Claude Code asks for with every request. Other vendors' models do not."""

MIN_THINKING_BUDGET = 1024

THINKING_BUDGETS = {
    "minimal": MIN_THINKING_BUDGET,
    "low": MIN_THINKING_BUDGET,
    "medium": 8192,
    "high": 24576,
    "xhigh": 32768,
    "max": 32768,
}
"""Tokens to think with for OpenAI's `reasoning_effort`, where a model takes a number."""

SERVICE_TIERS = {"auto": "auto", "priority": "auto", "default": "standard_only"}
"""Anthropic's `service_tier` for OpenAI's: `auto` is served with priority as far as that has been
paid for (https://platform.claude.com/docs/en/api/service-tiers, read on 2026-11-23). It has none
for `flex` and `scale`; the reply says in which tier it was served."""


USER_ID = re.compile(r"[A-Za-z0-9_-]{1,256}")
"""What is sent as `metadata.user_id`: it has to be opaque, "a uuid, hash value, or other opaque
identifier" and no name or address (https://platform.claude.com/docs/en/api/messages, 2026-11-28),
and others who speak the API take these characters alone (aattaran/deepclaude#17, 2026-11-28)."""


class Thinking(Struct, frozen=True):
    """How `reasoning_effort` is said.

    Attributes:
        mode: `adaptive`, the model decides how much (Claude 4.6 and later), or `budget`, a number
            of tokens (Claude 4.5 and earlier).
        display: whether thinking is shown, where that is not to be as the model has it by default.
        off: how a model is told not to think.
        bound: whether a thought is taken back only after what came before it when it was thought.
    """

    mode: Literal["adaptive", "budget"] = "adaptive"
    display: Literal["summarized", "omitted"] | None = None
    off: Literal["disabled", "between_tools", "omitted"] = "disabled"
    bound: bool = False


ADAPTIVE_THINKING = Thinking()


class RenderedRequest(Struct, frozen=True):
    """A request as it is sent.

    Attributes:
        body: what is posted.
        betas: what of `anthropic-beta` it needs besides.
        dropped, adapted: what of the request is not in it, and what in another way, by name.
    """

    body: dict[str, Any]
    betas: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    adapted: tuple[str, ...] = ()


def render_conversation(
    request: ChatCompletionRequest,
    *,
    default_max_tokens: int,
    thinking: Thinking = ADAPTIVE_THINKING,
) -> RenderedRequest:
    """A request that may give thoughts back to the model that had them.

    Where they are bound to what came before them, a client's change of it (other instructions, one
    tool more, a reply that is to be JSON now) would have the vendor refuse all of the request. So
    the vendor is asked to leave out what it does not take any more; what it says of that is in the
    reply. It takes that word only where the model may think: elsewhere the thoughts are left out
    here.

    Args:
        request, default_max_tokens, thinking: as for `render_request`.

    Raises:
        APIError: 400 naming what the API has no form for.
    """
    body = render_request(request, default_max_tokens=default_max_tokens, thinking=thinking)
    if not thinking.bound or not any(map(_has_thoughts, request.messages)):
        return RenderedRequest(body)
    block = dropping_unbound(body.get("thinking"))
    if block is not None:
        body["thinking"] = block
        return RenderedRequest(body, betas=(THINKING_BINDING,))
    messages = tuple(map(_without_thoughts, request.messages))
    plain = structs.replace(request, messages=messages)
    body = render_request(plain, default_max_tokens=default_max_tokens, thinking=thinking)
    return RenderedRequest(body, dropped=(EARLIER_THOUGHTS,))


def dropping_unbound(thinking: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The object `thinking` of a request, so that thoughts which are bound to what is no longer
    before them are left out by the vendor; None where that can't be said, as the model may not
    think, and they must not be sent. It takes the beta `THINKING_BINDING`."""
    block = thinking or {"type": "adaptive"}
    if block.get("type") not in ("adaptive", "enabled"):
        return None
    return {"block_binding": {"prefix_mismatch_behavior": "drop_block"}, **block}


def _has_thoughts(message: Message) -> bool:
    return isinstance(message, CompletionMessage) and any(map(is_sealed, message.parts))


def _without_thoughts(message: Message) -> Message:
    if not isinstance(message, CompletionMessage):
        return message
    parts = tuple(part for part in message.parts if not is_sealed(part))
    return structs.replace(message, parts=parts)


def render_request(
    request: ChatCompletionRequest,
    *,
    default_max_tokens: int,
    thinking: Thinking = ADAPTIVE_THINKING,
) -> dict[str, Any]:
    """The body of `POST /v1/messages`.

    Args:
        request: what to ask.
        default_max_tokens: the API wants a limit; this one where the caller set none.
        thinking: how to say how much to think.

    Raises:
        APIError: 400 naming what the API has no form for.
    """
    sampling = request.sampling
    said = AlternatingTurns(
        request.messages,
        vendor="Anthropic",
        render_text=_render_text,
        render_message=_render_message,
        is_result=_is_result,
        fit_id=_call_id,
        in_place=thinking.bound,
    )
    budget = _thinking_budget(request) if thinking.mode == "budget" else 0
    limit = sampling.max_tokens
    body: dict[str, Any] = {
        "model": request.model,
        # Thinking counts: a default that it could use up would leave nothing for the answer.
        "max_tokens": default_max_tokens + budget if limit is None else limit,
        "messages": said.turns,
    }
    if said.system:
        body["system"] = said.system
    body.update(sampling_members(sampling, _SAMPLING))
    body.update(_render_tools(request))
    output = _render_output_config(request, thinking)
    if output:
        body["output_config"] = output
    block = _render_thinking(request, thinking, budget)
    if block:
        body["thinking"] = block
    tier = SERVICE_TIERS.get(request.service_tier or "")
    if tier is not None:
        body["service_tier"] = tier
    user = request.safety_identifier or request.user
    if user is not None:
        body["metadata"] = {"user_id": user}
    if request.stream:
        body["stream"] = True
    return body


def _is_result(block: Mapping[str, Any]) -> bool:
    return bool(block["type"] == "tool_result")


def _render_message(message: Message, path: str) -> list[dict[str, Any]]:
    if isinstance(message, CompletionMessage):
        return [block for part in message.parts for block in render_said(part, path)]
    if isinstance(message, ToolResponseMessage):
        return [_render_tool_result(message, path)]
    blocks = _render_content(message.content, path)
    if not blocks:
        raise empty_message(path, "Anthropic")
    return blocks


def render_said(part: MessagePart, path: str) -> list[dict[str, Any]]:
    """The block of what the model said, if there is one: thoughts are for who sealed them alone."""
    match part:
        case TextContent() | ImageContent():
            return _render_text((part,), path)
        case RefusalContent(text):
            return _render_text(text, path)
        case ReasoningContent():
            return [_render_thinking_block(part)] if is_sealed(part) else []
        case HostedCall():
            return []  # It is in replies alone: here it is a call and its answer.
        case _:
            return [_render_call(part)]


def is_sealed(part: MessagePart) -> bool:
    """Whether `part` is reasoning that Anthropic's models take back."""
    return (
        isinstance(part, ReasoningContent)
        and part.sealed_by == FAMILY
        and part.signature is not None
    )


def _render_thinking_block(part: ReasoningContent) -> dict[str, Any]:
    if part.redacted:
        return {"type": "redacted_thinking", "data": part.signature}
    return {"type": "thinking", "thinking": part.text, "signature": part.signature}


def _render_content(content: Content, path: str) -> list[dict[str, Any]]:
    content = without_audio(content, path, "Anthropic's API")
    return content_blocks(
        content,
        lambda text: {"type": "text", "text": text},
        lambda each: _render_image(each, path),
        lambda each: _render_document(each, path),
    )


def _render_text(content: Content, path: str) -> list[dict[str, Any]]:
    if images_in(seen_alone(content, path, "a system prompt of Anthropic's API")):
        raise misplaced_image(path, "Anthropic's API")
    return _render_content(content, path)


def _render_image(image: ImageContent, path: str) -> dict[str, Any]:
    if is_remote(image.url):
        return {"type": "image", "source": {"type": "url", "url": image.url}}
    encoded = parse_data_url(image.url, path)
    if encoded.media_type not in IMAGE_TYPES:
        raise no_such_image(path, encoded.media_type, "Anthropic's API", IMAGE_TYPES)
    source = {"type": "base64", "media_type": encoded.media_type, "data": encoded.base64}
    return {"type": "image", "source": source}


def _render_document(document: DocumentContent, path: str) -> dict[str, Any]:
    source = {"type": "url", "url": document.url}
    if not is_remote(document.url):
        encoded = parse_document_url(document.url, path)
        if encoded.media_type != PDF:
            raise no_such_document(path, encoded.media_type, "Anthropic's API")
        source = {"type": "base64", "media_type": PDF, "data": encoded.base64}
    titled = {"title": document.name} if document.name else {}
    return {"type": "document", "source": source, **titled}


def _render_call(call: AnyToolCall) -> dict[str, Any]:
    return {
        "type": "tool_use",
        "id": _call_id(call.call_id),
        "name": call.tool_name,
        "input": arguments_object(call),
    }


def _render_tool_result(message: ToolResponseMessage, path: str) -> dict[str, Any]:
    result: dict[str, Any] = {"type": "tool_result", "tool_use_id": _call_id(message.call_id)}
    content = _render_content(message.content, path)
    if content:
        result["content"] = content
    if message.is_error:
        result["is_error"] = True
    return result


def _call_id(call_id: str) -> str:
    # Calls of a conversation that began with another vendor may have ids that this one refuses.
    return re.sub(r"[^a-zA-Z0-9_-]", "_", call_id)


def _render_tools(request: ChatCompletionRequest) -> dict[str, Any]:
    """The members of a request that are about tools.

    Where none is offered any more, those that have been called are named, and may not be called:
    "Requests which include `tool_use` or `tool_result` blocks must define tools"
    (anthropics/anthropic-sdk-python#494; 2026-11-28).
    """
    tools, choice = [_render_tool(tool) for tool in request.tools], _render_tool_choice(request)
    if request.vendor_search is not None:
        tools.append(render_search(request.vendor_search, request.max_hosted_calls))
    if not tools:
        tools = [_render_tool(ToolDefinition(name)) for name in called_tools(request.messages)]
        choice = {"type": "none"}
    if not tools:
        return {}
    return {"tools": tools, "tool_choice": choice} if choice else {"tools": tools}


def _render_tool(tool: ToolDefinition) -> dict[str, Any]:
    rendered: dict[str, Any] = {"name": tool.tool_name}
    if tool.description is not None:
        rendered["description"] = tool.description
    rendered["input_schema"] = object_schema(tool.parameters)
    if tool.strict:
        rendered |= {"input_schema": closed_schema(rendered["input_schema"]), "strict": True}
    return rendered


_SAMPLING = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "stop": "stop_sequences",
}
"""Its words for OpenAI's, but for those that are said elsewhere."""

RENDERED_PARAMETERS = rendered_parameters(_SAMPLING, "max_tokens")
"""What `render_request` has words for."""

_TOOL_CHOICES = {"auto": "auto", "required": "any", "none": "none"}


def _render_tool_choice(request: ChatCompletionRequest) -> dict[str, Any]:
    wanted = request.tool_choice
    choice: dict[str, Any] = {}
    if wanted is not None and wanted.tool_name is not None:
        choice = {"type": "tool", "name": wanted.tool_name}
    elif wanted is not None:
        choice = {"type": _TOOL_CHOICES[wanted.mode]}
    if request.parallel_tool_calls is False and choice.get("type") != "none":
        choice = {"type": "auto", **choice, "disable_parallel_tool_use": True}
    return choice


def render_thinking(
    request: ChatCompletionRequest, thinking: Thinking
) -> tuple[dict[str, Any], str | None]:
    """How hard Claude is to think, for other APIs that have its models: the object `thinking`,
    which may be empty, and the word for its effort where it takes one.

    Raises:
        APIError: 400, it is no such word, or there is no room to think.
    """
    budget = _thinking_budget(request) if thinking.mode == "budget" else 0
    effort = _effort(request)
    block = _render_thinking(request, thinking, budget)
    return block, effort if thinking.mode == "adaptive" else None


def _render_output_config(request: ChatCompletionRequest, thinking: Thinking) -> dict[str, Any]:
    config: dict[str, Any] = {}
    effort = _effort(request)
    if effort is not None and thinking.mode == "adaptive":
        config["effort"] = effort
    wanted = request.response_format
    if wanted is not None and wanted.type == "json_schema":
        schema = closed_schema(wanted.told_schema or {"type": "object"})
        config["format"] = {"type": "json_schema", "schema": schema}
    return config


def _effort(request: ChatCompletionRequest) -> str | None:
    wanted = request.reasoning_effort
    if wanted is None:
        return None
    if wanted not in EFFORTS:
        raise invalid_parameter(
            "reasoning_effort",
            f"Invalid value: {wanted!r}. Supported values are: {', '.join(map(repr, EFFORTS))}.",
        )
    return EFFORTS[wanted]


def _render_thinking(
    request: ChatCompletionRequest, thinking: Thinking, budget: int
) -> dict[str, Any]:
    if not thinks(request):
        return {}
    if request.reasoning_effort is not None and _effort(request) is None:
        return {} if thinking.off == "omitted" else {"type": thinking.off}
    block: dict[str, Any] = {"type": "adaptive"}
    if thinking.mode == "budget":
        if not budget:
            return {}
        block = {"type": "enabled", "budget_tokens": budget}
    if thinking.display is not None:
        block["display"] = thinking.display
    return block


def thinks(request: ChatCompletionRequest) -> bool:
    """Whether anything is said of how hard to think, if only that the model decides it."""
    return request.reasoning_effort is not None or request.adaptive_thinking


def _thinking_budget(request: ChatCompletionRequest) -> int:
    """The tokens to think with, 0 for none: fewer than `max_tokens`, which they are part of."""
    usual = USUAL_EFFORT if request.adaptive_thinking else ""
    budget = THINKING_BUDGETS.get(request.reasoning_effort or usual, 0)
    if not budget or _goes_on_without_thinking(request.messages):
        return 0
    limit = request.sampling.max_tokens
    if limit is None:
        return budget
    if limit <= MIN_THINKING_BUDGET and request.reasoning_effort is None:
        return 0
    if limit <= MIN_THINKING_BUDGET:
        raise invalid_parameter(
            "reasoning_effort", f"'reasoning_effort' needs room to think: {_no_room(limit)}."
        )
    return min(budget, limit - 1)


def no_room_to_think(request: ChatCompletionRequest, thinking: Thinking) -> Mapping[str, str]:
    """What Claude takes in no API where it is told how many tokens to think with, by OpenAI's name:
    why. It wants 1,024 at least, and fewer than the reply may have
    (https://platform.claude.com/docs/en/build-with-claude/extended-thinking)."""
    limit = request.sampling.max_tokens
    if thinking.mode != "budget" or limit is None or limit > MIN_THINKING_BUDGET:
        return {}
    if request.reasoning_effort not in THINKING_BUDGETS:
        return {}
    return {"reasoning_effort": _no_room(limit)}


def _no_room(limit: int) -> str:
    return f"max_tokens is {limit} and has to be over {MIN_THINKING_BUDGET}"


def _goes_on_without_thinking(messages: Sequence[Message]) -> bool:
    """Whether the model goes on with a turn that does not begin with its own thinking."""
    if not isinstance(messages[-1], ToolResponseMessage):
        return False
    said = [each for each in messages if isinstance(each, CompletionMessage)]
    return not (said and said[-1].parts and is_sealed(said[-1].parts[0]))
