"""What a vendor is asked for a response: vocabulary -> wire.

A conversation is sent whole, and nothing of it is kept there. Source: openai 3.52.0,
types/responses/response_create_params.py and response_input_item_param.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from llama_compat.dialects.openai.chat.requests import with_json_said
from llama_compat.dialects.openai.parameters import render_hints
from llama_compat.dialects.openai_responses.input.requests import LOGPROBS, SOURCES
from llama_compat.dialects.sampling import rendered_parameters, sampling_members
from llama_compat.hosted.vocabulary import WEB_SEARCH, WebSearchTool
from llama_compat.media.documents import file_name, parse_document_url
from llama_compat.media.images import is_remote
from llama_compat.tools.calls import bounded_call_id
from llama_compat.tools.parameters import object_schema
from llama_compat.types import (
    AudioContent,
    ChatCompletionRequest,
    CompletionMessage,
    CompletionRequest,
    Content,
    ContentPart,
    DocumentContent,
    ImageContent,
    Message,
    RefusalContent,
    ResponseFormat,
    SamplingParams,
    SystemMessage,
    TextContent,
    ToolCall,
    ToolChoice,
    ToolDefinition,
    ToolResponseMessage,
    TopKSamplingStrategy,
    UnparseableToolCall,
    UserMessage,
    media_in,
)

_SAID = {
    "temperature": "temperature",
    "top_p": "top_p",
    "max_tokens": "max_output_tokens",
}
"""All that a response can be told of how tokens are chosen, by OpenAI's names of chats."""

RENDERED_PARAMETERS = rendered_parameters(_SAID, "logprobs", "top_logprobs", "verbosity")
"""What `render_request` has words for."""

_FEWEST_TOKENS = 16
"""`Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16`."""

_MAX_CALL_ID = 64


def unsupported_values(
    request: ChatCompletionRequest | CompletionRequest,
) -> Mapping[str, str]:
    """OpenAI's names of what a response can't be asked for with this value: why."""
    limit = request.sampling.max_tokens
    if limit is None or limit >= _FEWEST_TOKENS:
        return {}
    why = f"a response has {_FEWEST_TOKENS} tokens at least"
    return {"max_tokens": why, "max_completion_tokens": why}


def has_words_for(request: ChatCompletionRequest) -> bool:
    """Whether a request for a response can say all that `request` says, which was made for chats:
    there are no stop strings, no seeds, no penalties, no sound, and no images that a model has
    drawn."""
    sampling = request.sampling
    said = SamplingParams(
        sampling.strategy,
        sampling.max_tokens,
        stated=sampling.stated,
        priority=sampling.priority,
    )
    return (
        sampling == said
        and not isinstance(sampling.strategy, TopKSamplingStrategy)
        and (sampling.max_tokens is None or sampling.max_tokens >= _FEWEST_TOKENS)
        and all(map(_has_words_for, request.messages))
    )


def _has_words_for(message: Message) -> bool:
    if isinstance(message, CompletionMessage):
        return not any(isinstance(part, ImageContent) for part in message.parts)
    return not any(isinstance(each, AudioContent) for each in media_in(message.content))


def render_request(request: ChatCompletionRequest) -> dict[str, Any]:
    """The body of a request for one response, which says all that `has_words_for` lets through;
    what is at its default is left out.

    Args:
        request: what is asked; its `model` is the vendor's own name.
    """
    body: dict[str, Any] = {
        "model": request.model,
        "input": [item for message in with_json_said(request) for item in _render_message(message)],
        "store": False,
        **sampling_members(request.sampling, _SAID),
    }
    include = []
    tools = [_render_tool(tool) for tool in request.tools]
    search, most = request.vendor_search, request.max_hosted_calls
    if search is not None:
        tools.append(_render_search(search))
        include.append(SOURCES)
        most = min((each for each in (most, search.max_uses) if each is not None), default=None)
    if tools:
        body["tools"] = tools
    if request.tool_choice is not None:
        body["tool_choice"] = _render_choice(request.tool_choice, search)
    if request.parallel_tool_calls is not None:
        body["parallel_tool_calls"] = request.parallel_tool_calls
    if most is not None:
        body["max_tool_calls"] = most
    if text := _render_text(request.response_format, request.verbosity):
        body["text"] = text
    if request.reasoning_effort is not None:
        body["reasoning"] = {"effort": request.reasoning_effort}
    body.update(render_hints(request))
    if request.logprobs is not None:
        include.append(LOGPROBS)
        body["top_logprobs"] = request.logprobs
    if include:
        body["include"] = include
    if request.stream:
        body["stream"] = True
    return body


def _render_search(tool: WebSearchTool) -> dict[str, Any]:
    rendered: dict[str, Any] = {"type": WEB_SEARCH, "search_context_size": tool.context_size}
    if tool.allowed_domains:
        rendered["filters"] = {"allowed_domains": list(tool.allowed_domains)}
    if tool.location is not None:
        rendered["user_location"] = {"type": "approximate", **tool.location.members}
    return rendered


def _render_tool(tool: ToolDefinition) -> dict[str, Any]:
    # A function that says nothing of `strict` is held to its schema there, and is not in chats.
    return {
        "type": "function",
        "name": tool.tool_name,
        "description": tool.description,
        "parameters": object_schema(tool.parameters),
        "strict": bool(tool.strict),
    }


def _render_choice(choice: ToolChoice, search: WebSearchTool | None) -> Any:
    if choice.tool_name is None:
        return choice.mode
    if search is not None and choice.tool_name == search.name:
        # By its type alone only the older search can be named.
        return {"type": "allowed_tools", "mode": "required", "tools": [{"type": WEB_SEARCH}]}
    return {"type": "function", "name": choice.tool_name}


def _render_text(wanted: ResponseFormat | None, verbosity: str | None) -> dict[str, Any]:
    text: dict[str, Any] = {}
    if wanted is not None and wanted.type == "json_schema":
        text["format"] = {
            "type": "json_schema",
            "name": wanted.name,
            "schema": wanted.schema or {},
            "strict": bool(wanted.strict),
        }
        if wanted.description is not None:
            text["format"]["description"] = wanted.description
    elif wanted is not None:
        text["format"] = {"type": wanted.type}
    if verbosity is not None:
        text["verbosity"] = verbosity
    return text


# --------------------------------------------------------------------------------------------------
# Messages
# --------------------------------------------------------------------------------------------------


def _render_message(message: Message) -> Iterator[dict[str, Any]]:
    """The items that a message comes to: one for each of a model's texts and calls, in their
    order."""
    match message:
        case CompletionMessage():
            yield from _render_said(message)
        case ToolResponseMessage():
            yield {
                "type": "function_call_output",
                "call_id": bounded_call_id(message.call_id, _MAX_CALL_ID),
                "output": _render_content(message.told),
            }
        case UserMessage():
            yield _message("user", _render_content(message.content))
        case SystemMessage():
            yield _message(message.role, _render_content(message.content))


def _render_said(message: CompletionMessage) -> Iterator[dict[str, Any]]:
    for part in message.parts:
        if isinstance(part, TextContent | RefusalContent):
            yield _message("assistant", part.text)
        elif isinstance(part, ToolCall | UnparseableToolCall):
            yield {
                "type": "function_call",
                "call_id": bounded_call_id(part.call_id, _MAX_CALL_ID),
                "name": part.tool_name,
                "arguments": part.arguments_json,
            }


def _message(role: str, content: str | list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": content}


def _render_content(content: Content) -> str | list[dict[str, Any]]:
    return content if isinstance(content, str) else [_render_part(part) for part in content]


def _render_part(part: ContentPart) -> dict[str, Any]:
    if isinstance(part, ImageContent):
        return {"type": "input_image", "image_url": part.url, "detail": part.detail or "auto"}
    if isinstance(part, DocumentContent):
        if is_remote(part.url):
            return {"type": "input_file", "file_url": part.url}
        name = file_name(part.name, parse_document_url(part.url, "input").media_type)
        return {"type": "input_file", "filename": name, "file_data": part.url}
    assert isinstance(part, TextContent)
    return {"type": "input_text", "text": part.text}
