"""Requests to Converse and ConverseStream: vocabulary -> wire."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from msgspec import Struct, field, structs

from llama_compat.dialects.alternating import (
    OPENING,
    AlternatingTurns,
    called_tools,
    content_blocks,
    empty_message,
)
from llama_compat.dialects.anthropic_messages import (
    RenderedRequest,
    dropping_unbound,
    no_room_to_think,
)
from llama_compat.dialects.anthropic_messages.versions import THINKING_BINDING
from llama_compat.dialects.bedrock_converse.cache_points import with_cache_points
from llama_compat.dialects.bedrock_converse.documents import (
    ATTACHED,
    DocumentNames,
    render_document,
)
from llama_compat.dialects.bedrock_converse.families import (
    ModelFamily,
    claudes_thinking,
    family_of,
    has_top_k,
    render_effort,
    render_top_k,
    takes_thoughts,
    untold_effort,
)
from llama_compat.dialects.bedrock_converse.seals import render_thought
from llama_compat.dialects.bedrock_converse.told_calls import CALLS_TOLD, with_calls_told
from llama_compat.dialects.sampling import (
    rendered_parameters,
    sampling_members,
    too_warm,
)
from llama_compat.dialects.stop_lists import CLAUDES_STOPS, StopBound
from llama_compat.fitting.forced_reply import thought_before_forced_call
from llama_compat.hosted.vocabulary import HostedCall
from llama_compat.media.audio import without_audio
from llama_compat.media.documents import seen_alone
from llama_compat.media.images import images_in, misplaced_image, no_such_image, parse_data_url
from llama_compat.tools.calls import arguments_object, bounded_call_id
from llama_compat.tools.closed_schemas import closed_schema
from llama_compat.tools.parameters import object_schema
from llama_compat.types import (
    EARLIER_THOUGHTS,
    AnyToolCall,
    ChatCompletionRequest,
    CompletionMessage,
    Content,
    ImageContent,
    Message,
    MessagePart,
    ReasoningContent,
    RefusalContent,
    TextContent,
    ToolChoice,
    ToolDefinition,
    ToolResponseMessage,
    TopKSamplingStrategy,
)
from llama_compat.wire.json_fields import to_raw

IMAGE_FORMATS = {
    "image/png": "png",
    "image/jpeg": "jpeg",
    "image/gif": "gif",
    "image/webp": "webp",
}

_MAX_ID = 64


class Extras(Struct, frozen=True):
    """What a provider has sent besides what is asked.

    Attributes:
        family: whose models' words the model knows; None for what its name says.
        members: of the request: `guardrailConfig`.
        for_model: `additionalModelRequestFields`, under those that a request comes to.
    """

    family: ModelFamily | None = None
    members: Mapping[str, Any] = field(default_factory=dict)
    for_model: Mapping[str, Any] = field(default_factory=dict)

    def family_of(self, model: str) -> ModelFamily | None:
        """Whose models' words `model` knows."""
        return self.family or family_of(model)


_NO_EXTRAS = Extras()


def render_request(request: ChatCompletionRequest, extras: Extras = _NO_EXTRAS) -> RenderedRequest:
    """The request that is sent to `POST /model/{modelId}/converse` and `/converse-stream`.

    Images and documents have to be there as `data:` URLs: the API takes no others. Claude's
    thoughts that are bound to what came before them are seen to as over Anthropic's own API
    (https://docs.aws.amazon.com/bedrock/latest/userguide/claude-messages-thinking-block-binding.html,
    2026-11-23).

    Raises:
        APIError: 400 naming what the API has no form for.
    """
    family = extras.family_of(request.model)
    adapted: tuple[str, ...] = ()
    if family != "claude" and _forbids_tools(request):
        if called_tools(request.messages):
            adapted = (CALLS_TOLD,)
        # Nothing forbids a call but that there is no tool, which the API takes only where there is
        # no call in the conversation either.
        request = structs.replace(request, messages=with_calls_told(request.messages), tools=())
    said = _conversation(request, thoughts=takes_thoughts(family))
    own, effort = _render_for_model(request, family)
    for_model = {**extras.for_model, **own}
    dropped: tuple[str, ...] = ()
    if request.thinking is not None and request.thinking.bound and _have_thoughts(said.turns):
        block = dropping_unbound(for_model.get("thinking"))
        if block is None:
            said = _conversation(request, thoughts=False)
            dropped = (EARLIER_THOUGHTS,)
        else:
            betas = dict.fromkeys((*for_model.get("anthropic_beta", ()), THINKING_BINDING))
            for_model |= {"thinking": block, "anthropic_beta": list(betas)}
    body: dict[str, Any] = {"messages": said.turns, **extras.members}
    if said.system:
        body["system"] = said.system
    config = sampling_members(request.sampling, _SAMPLING)
    if config:
        body["inferenceConfig"] = config
    tools = _render_tools(request)
    if tools:
        body["toolConfig"] = tools
    if for_model:
        body["additionalModelRequestFields"] = for_model
    output = _render_output(request, effort)
    if output:
        body["outputConfig"] = output
    if family == "claude" and request.sampling.stop:
        # Which of them ended the text, Converse says only when asked.
        body["additionalModelResponseFieldPaths"] = ["/stop_sequence"]
    if request.metadata is not None:
        body["requestMetadata"] = request.metadata
    if request.marks_prompt:
        with_cache_points(body, family)
    return RenderedRequest(body, dropped=dropped, adapted=adapted)


_SAMPLING = {
    "temperature": "temperature",
    "top_p": "topP",
    "max_tokens": "maxTokens",
    "stop": "stopSequences",
}
"""Its words for OpenAI's, but for those that are said elsewhere."""

RENDERED_PARAMETERS = rendered_parameters(_SAMPLING, "top_k")
"""What `render_request` has words for."""


def stop_bound(model: str, extras: Extras = _NO_EXTRAS) -> StopBound:
    """Which stop strings `model` takes."""
    return CLAUDES_STOPS if extras.family_of(model) == "claude" else _STOPS


_STOPS = StopBound(4)
"""The API itself took no more until 2025 (boto/botocore#3354; botocore 1.44.5 has 2500), and hardly
any of the models behind it says how many it takes (2026-11-28)."""

_COUNTED = ("messages", "system", "toolConfig", "additionalModelRequestFields")


def render_count_request(
    request: ChatCompletionRequest, extras: Extras = _NO_EXTRAS
) -> dict[str, Any]:
    """The body of `POST /model/{modelId}/count-tokens`.

    Raises:
        APIError: as `render_request`.
    """
    body = render_request(request, extras).body
    return {"input": {"converse": {name: body[name] for name in _COUNTED if name in body}}}


def unsupported_values(
    request: ChatCompletionRequest, extras: Extras = _NO_EXTRAS
) -> Mapping[str, str]:
    """OpenAI's names of what the API, or the model, has no form for with this value: why."""
    family = extras.family_of(request.model)
    refused = {**too_warm(request.sampling, "Bedrock")}
    if isinstance(request.sampling.strategy, TopKSamplingStrategy) and not has_top_k(family):
        refused["top_k"] = "nothing says how this model is told so on Bedrock"
    effort = request.reasoning_effort
    if effort is not None and (why := untold_effort(request.model, family, effort)) is not None:
        refused["reasoning_effort"] = why
    if family == "claude":
        refused |= thought_before_forced_call(request)
        refused |= no_room_to_think(request, claudes_thinking(request))
    return refused


def _forbids_tools(request: ChatCompletionRequest) -> bool:
    """Whether the model may call none: it is told so, or is offered none any more."""
    return not request.tools or (request.tool_choice or ToolChoice()).mode == "none"


# Messages -----------------------------------------------------------------------------------------


def _have_thoughts(turns: Sequence[Mapping[str, Any]]) -> bool:
    return any("reasoningContent" in block for turn in turns for block in turn["content"])


def _conversation(request: ChatCompletionRequest, *, thoughts: bool) -> AlternatingTurns:
    bound = request.thinking is not None and request.thinking.bound
    return AlternatingTurns(
        request.messages,
        vendor="Bedrock",
        render_text=_render_text,
        render_message=partial(_render_message, thoughts=thoughts, names=DocumentNames()),
        is_result=lambda block: "toolResult" in block,
        fit_id=_call_id,
        in_place=bound,
        # "A conversation must start with a user message", which Anthropic's own need not
        # (anthropics/anthropic-sdk-typescript#622, 2026-11-28).
        opening={"text": OPENING},
    )


def _render_message(
    message: Message, path: str, *, thoughts: bool, names: DocumentNames
) -> list[dict[str, Any]]:
    if isinstance(message, CompletionMessage):
        parts = message.parts
        return [block for part in parts for block in _render_said(part, path, thoughts=thoughts)]
    if isinstance(message, ToolResponseMessage):
        return [_render_tool_result(message, path, names)]
    blocks = _render_content(message.content, path, names)
    if not blocks:
        raise empty_message(path, "Bedrock")
    return blocks


def _render_said(part: MessagePart, path: str, *, thoughts: bool) -> list[dict[str, Any]]:
    match part:
        case TextContent() | ImageContent():
            return _render_text((part,), path)
        case RefusalContent(text):
            return _render_text(text, path)
        case ReasoningContent():
            thought = render_thought(part) if thoughts else None
            return [thought] if thought is not None else []
        case HostedCall():
            return []  # It is in replies alone: here it is a call and its answer.
        case _:
            return [_render_call(part)]


def _render_content(content: Content, path: str, names: DocumentNames) -> list[dict[str, Any]]:
    content = without_audio(content, path, "Bedrock's API")
    blocks = content_blocks(
        content,
        lambda text: {"text": text},
        lambda each: _render_image(each, path),
        lambda each: render_document(each, path, names),
    )
    if any("document" in block for block in blocks) and not any("text" in each for each in blocks):
        # A message with a document has to have a text, too.
        blocks.append({"text": ATTACHED})
    return blocks


def _render_text(content: Content, path: str) -> list[dict[str, Any]]:
    if images_in(seen_alone(content, path, "a system prompt of Bedrock's API")):
        raise misplaced_image(path, "Bedrock's API")
    return _render_content(content, path, DocumentNames())


def _render_image(image: ImageContent, path: str) -> dict[str, Any]:
    encoded = parse_data_url(image.url, path)
    if encoded.media_type not in IMAGE_FORMATS:
        raise no_such_image(path, encoded.media_type, "Bedrock's API", IMAGE_FORMATS)
    source = {"bytes": encoded.base64}
    return {"image": {"format": IMAGE_FORMATS[encoded.media_type], "source": source}}


def _render_call(call: AnyToolCall) -> dict[str, Any]:
    return {
        "toolUse": {
            "toolUseId": _call_id(call.call_id),
            "name": call.tool_name,
            "input": arguments_object(call),
        }
    }


def _render_tool_result(
    message: ToolResponseMessage, path: str, names: DocumentNames
) -> dict[str, Any]:
    result: dict[str, Any] = {
        "toolUseId": _call_id(message.call_id),
        "content": _render_content(message.content, path, names),
    }
    if message.is_error:
        result["status"] = "error"
    return {"toolResult": result}


def _call_id(call_id: str) -> str:
    # Calls of a conversation that began with another vendor may have ids that this one refuses.
    return re.sub(r"[^a-zA-Z0-9_.:-]", "_", bounded_call_id(call_id, _MAX_ID)) or "_"


# Tools --------------------------------------------------------------------------------------------


def _render_tools(request: ChatCompletionRequest) -> dict[str, Any] | None:
    called = called_tools(request.messages)
    if _forbids_tools(request) and not called:
        return None
    tools = request.tools or tuple(map(ToolDefinition, called))
    if not tools:
        return None
    config: dict[str, Any] = {"tools": [_render_tool(tool) for tool in tools]}
    choice = _render_tool_choice(request.tool_choice) if request.tools else None
    if choice is not None:
        config["toolChoice"] = choice
    return config


def _render_tool(tool: ToolDefinition) -> dict[str, Any]:
    rendered: dict[str, Any] = {"name": tool.tool_name}
    if tool.description:
        rendered["description"] = tool.description
    schema = object_schema(tool.parameters)
    rendered["inputSchema"] = {"json": closed_schema(schema) if tool.strict else schema}
    if tool.strict:
        rendered["strict"] = True
    return {"toolSpec": rendered}


def _render_tool_choice(choice: ToolChoice | None) -> dict[str, Any] | None:
    if choice is None or choice.mode == "none":
        return None
    if choice.tool_name is not None:
        return {"tool": {"name": choice.tool_name}}
    return {"any": {}} if choice.mode == "required" else {"auto": {}}


# Generation ---------------------------------------------------------------------------------------


def _render_for_model(
    request: ChatCompletionRequest, family: ModelFamily | None
) -> tuple[dict[str, Any], str | None]:
    if family is None:
        return {}, None
    members, effort = render_effort(request, family)
    strategy = request.sampling.strategy
    if isinstance(strategy, TopKSamplingStrategy) and has_top_k(family):
        members |= render_top_k(strategy.top_k, family)
    if family == "claude" and _forbids_tools(request) and called_tools(request.messages):
        members["tool_choice"] = {"type": "none"}
    return members, effort


def _render_output(request: ChatCompletionRequest, effort: str | None) -> dict[str, Any]:
    config: dict[str, Any] = {} if effort is None else {"effort": effort}
    wanted = request.response_format
    if wanted is not None and wanted.type == "json_schema":
        schema = bytes(to_raw(closed_schema(wanted.told_schema or {"type": "object"}))).decode()
        named = {"name": wanted.name} if wanted.name else {}
        structure = {"jsonSchema": {"schema": schema, **named}}
        config["textFormat"] = {"type": "json_schema", "structure": structure}
    return config
