"""OpenAI's chat completions (https://platform.openai.com/docs/api-reference/chat)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct, structs

from llama_compat.dialects.finish_reasons import finish_reason
from llama_compat.dialects.openai_parameters import parse_sampling
from llama_compat.errors import invalid_parameter, missing_parameter
from llama_compat.tool_calls import new_call_id, parse_tool_call
from llama_compat.types import (
    AnyToolCall,
    ChatCompletionRequest,
    ChatCompletionResponse,
    CompletionMessage,
    Content,
    ContentPart,
    ImageContent,
    Message,
    ReasoningDelta,
    ResponseFormat,
    StreamComplete,
    StreamEvent,
    StreamProgress,
    SystemMessage,
    TextContent,
    TextDelta,
    TokenLogProb,
    TokenLogProbs,
    ToolCall,
    ToolCallDelta,
    ToolChoice,
    ToolDefinition,
    ToolResponseMessage,
    Usage,
    UserMessage,
)

# --------------------------------------------------------------------------------------------------
# Requests: wire -> vocabulary
# --------------------------------------------------------------------------------------------------


class ChatCall(Struct, frozen=True):
    """One request as it came: what is asked of the model, how often, and how to answer."""

    request: ChatCompletionRequest
    n: int = 1
    stream: bool = False
    include_usage: bool = False

    def requests(self) -> list[ChatCompletionRequest]:
        """One request a choice; a seed counts up so that the choices differ."""
        return [
            structs.replace(self.request, sampling=self.request.sampling.for_choice(index))
            for index in range(self.n)
        ]


def parse_request(body: Mapping[str, Any], model: str) -> ChatCall:
    """The request `body`, its parameters already checked, for the provider's `model`.

    Raises:
        APIError: 400 naming the message or tool that is malformed.
    """
    wanted = body.get("logprobs")
    request = ChatCompletionRequest(
        model=model,
        messages=parse_messages(body.get("messages")),
        sampling=parse_sampling(body),
        tools=_parse_tools(body.get("tools")),
        tool_choice=_parse_tool_choice(body.get("tool_choice")),
        parallel_tool_calls=body.get("parallel_tool_calls"),
        response_format=_parse_response_format(body.get("response_format")),
        reasoning_effort=body.get("reasoning_effort"),
        logprobs=(body.get("top_logprobs") or 0) if wanted else None,
        stream=bool(body.get("stream")),
    )
    return ChatCall(
        request=request,
        n=body.get("n") or 1,
        stream=bool(body.get("stream")),
        include_usage=bool((body.get("stream_options") or {}).get("include_usage")),
    )


def parse_messages(value: Any) -> tuple[Message, ...]:
    """The `messages` of a request.

    Raises:
        APIError: 400 with the path of what is malformed, such as `messages[2].content`.
    """
    if value is None:
        raise missing_parameter("messages")
    if not isinstance(value, list) or not value:
        raise invalid_parameter("messages", "'messages' must be an array of at least one message.")
    return tuple(_parse_message(item, f"messages[{index}]") for index, item in enumerate(value))


def _parse_message(value: Any, path: str) -> Message:
    message = _object(value, path)
    role, content = message.get("role"), message.get("content")
    match role:
        case "system" | "developer":
            return SystemMessage(
                _parse_content(content, f"{path}.content"), role=role, name=message.get("name")
            )
        case "user":
            return UserMessage(_parse_content(content, f"{path}.content"), message.get("name"))
        case "assistant":
            return _parse_assistant(message, path)
        case "tool":
            return ToolResponseMessage(
                _text(message, "tool_call_id", path), _parse_content(content, f"{path}.content")
            )
        case "function":
            raise invalid_parameter(
                f"{path}.role", "The role 'function' is deprecated: send a 'tool' message instead."
            )
        case None:
            raise missing_parameter(f"{path}.role")
    raise invalid_parameter(
        f"{path}.role",
        f"Invalid value: {role!r}. Supported values are: 'system', 'developer', 'user',"
        " 'assistant' and 'tool'.",
    )


def _parse_assistant(message: Mapping[str, Any], path: str) -> CompletionMessage:
    content, calls = message.get("content"), message.get("tool_calls") or []
    if content is None and not calls and message.get("refusal") is None:
        raise invalid_parameter(
            f"{path}.content", f"'{path}' needs 'content' or 'tool_calls'; it has neither."
        )
    if not isinstance(calls, list):
        raise invalid_parameter(f"{path}.tool_calls", f"'{path}.tool_calls' must be an array.")
    return CompletionMessage(
        content="" if content is None else _parse_content(content, f"{path}.content"),
        tool_calls=tuple(
            _parse_call(call, f"{path}.tool_calls[{index}]") for index, call in enumerate(calls)
        ),
        reasoning=message.get("reasoning_content") or message.get("reasoning"),
        refusal=message.get("refusal"),
        name=message.get("name"),
    )


def _parse_call(value: Any, path: str) -> AnyToolCall:
    call = _object(value, path)
    function = _object(call.get("function"), f"{path}.function")
    parsed = parse_tool_call(
        call.get("id") or new_call_id(),
        _text(function, "name", f"{path}.function"),
        _text({"arguments": "", **function}, "arguments", f"{path}.function"),
    )
    match call.get("extra_content"):
        case {"google": {"thought_signature": str(signature)}} if isinstance(parsed, ToolCall):
            return structs.replace(parsed, thought_signature=signature)
    return parsed


def _parse_content(value: Any, path: str) -> Content:
    if isinstance(value, str):
        return value
    if value is None:
        raise missing_parameter(path)
    if not isinstance(value, list):
        raise invalid_parameter(path, f"'{path}' must be a string or an array of content parts.")
    return tuple(_parse_part(part, f"{path}[{index}]") for index, part in enumerate(value))


def _parse_part(value: Any, path: str) -> ContentPart:
    part = _object(value, path)
    match part.get("type"):
        case "text":
            return TextContent(_text(part, "text", path))
        case "refusal":
            return TextContent(_text(part, "refusal", path))
        case "image_url":
            image = part.get("image_url")
            if isinstance(image, str):
                return ImageContent(image)
            image = _object(image, f"{path}.image_url")
            return ImageContent(_text(image, "url", f"{path}.image_url"), image.get("detail"))
        case kind:
            raise invalid_parameter(
                f"{path}.type",
                f"Invalid value: {kind!r}. This model's provider takes content parts of the types"
                " 'text' and 'image_url'.",
            )


def _parse_tools(value: Any) -> tuple[ToolDefinition, ...]:
    if not value:
        return ()
    if not isinstance(value, list):
        raise invalid_parameter("tools", "'tools' must be an array.")
    return tuple(_parse_tool(tool, f"tools[{index}]") for index, tool in enumerate(value))


def _parse_tool(value: Any, path: str) -> ToolDefinition:
    tool = _object(value, path)
    if tool.get("type") != "function":
        raise invalid_parameter(
            f"{path}.type", f"Invalid value: {tool.get('type')!r}. Only 'function' is supported."
        )
    function = _object(tool.get("function"), f"{path}.function")
    parameters = function.get("parameters")
    if parameters is not None:
        _object(parameters, f"{path}.function.parameters")
    return ToolDefinition(
        tool_name=_text(function, "name", f"{path}.function"),
        description=function.get("description"),
        parameters=parameters,
        strict=function.get("strict"),
    )


def _parse_tool_choice(value: Any) -> ToolChoice | None:
    match value:
        case None:
            return None
        case "auto" | "required" | "none":
            return ToolChoice(value)
        case {"type": "function", "function": {"name": str(name)}}:
            return ToolChoice("required", name)
    raise invalid_parameter(
        "tool_choice",
        "'tool_choice' must be 'auto', 'required', 'none' or"
        ' {"type": "function", "function": {"name": ...}}.',
    )


def _parse_response_format(value: Any) -> ResponseFormat | None:
    match value:
        case None:
            return None
        case {"type": "text" | "json_object" as kind}:
            return ResponseFormat(kind)
        case {"type": "json_schema", "json_schema": {"name": str(name)}}:
            wanted = value["json_schema"]
            return ResponseFormat("json_schema", name, wanted.get("schema"), wanted.get("strict"))
    raise invalid_parameter(
        "response_format",
        "'response_format' must have the type 'text', 'json_object' or 'json_schema', the last"
        " with a 'json_schema' that has a 'name'.",
    )


def _object(value: Any, path: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise invalid_parameter(path, f"'{path}' must be an object.", "invalid_type")
    return value


def _text(value: Mapping[str, Any], name: str, path: str) -> str:
    text = value.get(name)
    if text is None:
        raise missing_parameter(f"{path}.{name}")
    if not isinstance(text, str):
        raise invalid_parameter(
            f"{path}.{name}", f"'{path}.{name}' must be a string.", "invalid_type"
        )
    return text


# --------------------------------------------------------------------------------------------------
# Replies: vocabulary -> wire
# --------------------------------------------------------------------------------------------------


def render_reply(
    responses: Sequence[ChatCompletionResponse],
    usage: Usage,
    *,
    reply_id: str,
    model: str,
    created: int,
) -> dict[str, Any]:
    """A `chat.completion` object with one choice a response."""
    return {
        "id": reply_id,
        "object": "chat.completion",
        "created": created,
        "model": model,
        "choices": [_render_choice(index, response) for index, response in enumerate(responses)],
        "usage": render_usage(usage),
    }


def _render_choice(index: int, response: ChatCompletionResponse) -> dict[str, Any]:
    message = response.completion_message
    calls = message.tool_calls
    rendered: dict[str, Any] = {
        "role": "assistant",
        "content": None if calls and not message.content else message.content,
        "refusal": message.refusal,
    }
    if message.reasoning is not None:
        rendered["reasoning_content"] = message.reasoning
    if calls:
        rendered["tool_calls"] = [render_call(call) for call in calls]
    assert message.stop_reason is not None
    return {
        "index": index,
        "message": rendered,
        "logprobs": _render_logprobs(response.logprobs),
        "finish_reason": finish_reason(message.stop_reason, called_tools=bool(calls)),
    }


def render_call(call: AnyToolCall) -> dict[str, Any]:
    """One of a message's `tool_calls`."""
    return {
        "id": call.call_id,
        "type": "function",
        "function": {"name": call.tool_name, "arguments": call.arguments_json},
        **_extra_content(call),
    }


def _extra_content(call: AnyToolCall | None) -> dict[str, Any]:
    # Where Google's own OpenAI endpoint puts it, so that its clients know to send it back:
    # https://ai.google.dev/gemini-api/docs/thought-signatures
    if not isinstance(call, ToolCall) or call.thought_signature is None:
        return {}
    return {"extra_content": {"google": {"thought_signature": call.thought_signature}}}


def render_usage(usage: Usage) -> dict[str, Any]:
    """OpenAI's `usage`; details that the provider did not tell are left out."""
    rendered: dict[str, Any] = {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }
    if usage.cached_tokens is not None:
        rendered["prompt_tokens_details"] = {"cached_tokens": usage.cached_tokens}
    if usage.reasoning_tokens is not None:
        rendered["completion_tokens_details"] = {"reasoning_tokens": usage.reasoning_tokens}
    return rendered


def _render_logprobs(logprobs: Sequence[TokenLogProbs] | None) -> dict[str, Any] | None:
    if logprobs is None:
        return None
    return {
        "content": [
            {
                **_render_token(token.chosen),
                "top_logprobs": [_render_token(alternative) for alternative in token.top],
            }
            for token in logprobs
        ],
        "refusal": None,
    }


def _render_token(token: TokenLogProb) -> dict[str, Any]:
    return {"token": token.token, "logprob": token.logprob, "bytes": list(token.token_bytes)}


class StreamRenderer:
    """Renders the events of one reply's choices as `chat.completion.chunk` objects.

    Args:
        reply_id, model, created: what every chunk says.
        include_usage: whether the client asked for a last chunk with the usage.
    """

    def __init__(self, *, reply_id: str, model: str, created: int, include_usage: bool) -> None:
        self._chunk = {
            "id": reply_id,
            "object": "chat.completion.chunk",
            "created": created,
            "model": model,
        }
        self._include_usage = include_usage
        self._calls: dict[int, _CallsSent] = {}

    def render(self, choice: int, event: StreamEvent) -> Iterator[dict[str, Any]]:
        """The chunks that `event` of the choice `choice` makes, none to two."""
        if isinstance(event, StreamProgress):
            delta = self._render_delta(choice, event.delta)
            if delta or event.logprobs:
                yield self._render_chunk(choice, delta, logprobs=event.logprobs)
        elif isinstance(event, StreamComplete):
            reason = finish_reason(event.stop_reason, called_tools=choice in self._calls)
            yield self._render_chunk(choice, {}, reason)
        else:
            yield self._render_chunk(choice, {"role": "assistant", "content": ""})

    def finish(self, usage: Usage) -> Iterator[dict[str, Any]]:
        """The chunk with the usage, if it was asked for."""
        if self._include_usage:
            yield {**self._chunk, "choices": [], "usage": render_usage(usage)}

    def _render_chunk(
        self,
        choice: int,
        delta: dict[str, Any],
        reason: str | None = None,
        logprobs: Sequence[TokenLogProbs] | None = None,
    ) -> dict[str, Any]:
        chunk: dict[str, Any] = {
            **self._chunk,
            "choices": [
                {
                    "index": choice,
                    "delta": delta,
                    "logprobs": _render_logprobs(logprobs),
                    "finish_reason": reason,
                }
            ],
        }
        if self._include_usage:
            chunk["usage"] = None
        return chunk

    def _render_delta(
        self, choice: int, delta: TextDelta | ReasoningDelta | ToolCallDelta
    ) -> dict[str, Any]:
        if isinstance(delta, TextDelta):
            return {"content": delta.text} if delta.text else {}
        if isinstance(delta, ReasoningDelta):
            return {"reasoning_content": delta.text} if delta.text else {}
        return self._calls.setdefault(choice, _CallsSent()).render(delta)


class _CallsSent:
    """What the client already has of one choice's tool calls.

    Each call's id and name go out once, and its arguments either as they come or, from a provider
    that gives only whole calls, at the end.
    """

    def __init__(self) -> None:
        self._started: set[int] = set()
        self._with_arguments: set[int] = set()

    def render(self, delta: ToolCallDelta) -> dict[str, Any]:
        call = delta.tool_call
        fragment: dict[str, Any] = {"index": delta.index}
        arguments = delta.arguments
        if call is not None:
            # succeeded or failed: all of it again, of which the client needs what it lacks
            arguments = "" if delta.index in self._with_arguments else call.arguments_json
        if arguments:
            self._with_arguments.add(delta.index)
        if delta.index not in self._started:
            self._started.add(delta.index)
            fragment["id"] = call.call_id if call else delta.call_id
            fragment["type"] = "function"
            name = call.tool_name if call else delta.tool_name
            fragment["function"] = {"name": name, "arguments": arguments}
            fragment.update(_extra_content(call))
        elif arguments:
            fragment["function"] = {"arguments": arguments}
        else:
            return {}
        return {"tool_calls": [fragment]}
