"""Messages, tools and formats of chat requests, both ways; `render_request` for the whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import structs

from llama_compat.dialects.members import (
    as_object,
    messages_of,
    optional_flag_in,
    optional_schema_in,
    optional_text_in,
    text_in,
)
from llama_compat.dialects.openai.chat.content import parse_content, render_content
from llama_compat.dialects.openai.chat.hosted import render_search
from llama_compat.dialects.openai.parameters import (
    SAMPLING_PARAMETERS,
    render_hints,
    render_sampling,
)
from llama_compat.dialects.sampling import rendered_parameters
from llama_compat.errors import invalid_parameter, missing_parameter
from llama_compat.media.audio import without_audio
from llama_compat.media.documents import seen_alone
from llama_compat.tools.answers import UnansweredCalls
from llama_compat.tools.calls import call_id_at, parse_tool_call
from llama_compat.tools.custom_tools import wrap
from llama_compat.tools.parameters import object_schema
from llama_compat.types import (
    AnyToolCall,
    ChatCompletionRequest,
    CompletionMessage,
    Content,
    ContentPart,
    DocumentContent,
    Message,
    ResponseFormat,
    SystemMessage,
    TextContent,
    ToolCall,
    ToolChoice,
    ToolDefinition,
    ToolResponseMessage,
    UserMessage,
    content_text,
    media_in,
)

# --------------------------------------------------------------------------------------------------
# Wire -> vocabulary
# --------------------------------------------------------------------------------------------------


def parse_messages(value: Any) -> tuple[Message, ...]:
    """The `messages` of a request.

    Raises:
        APIError: 400 with the path of what is malformed, such as `messages[2].content`.
    """
    unanswered = UnansweredCalls()
    return tuple(_parse_message(*each, unanswered) for each in messages_of(value))


def _parse_message(message: Mapping[str, Any], path: str, unanswered: UnansweredCalls) -> Message:
    """One of `messages`; `unanswered` are the calls before it that have no ids."""
    role, content = message.get("role"), message.get("content")
    match role:
        case "system" | "developer":
            return SystemMessage(
                parse_content(content, f"{path}.content"),
                role=role,
                name=optional_text_in(message, "name", path),
            )
        case "user":
            return UserMessage(
                parse_content(content, f"{path}.content"), optional_text_in(message, "name", path)
            )
        case "assistant":
            return _parse_assistant(message, path, unanswered)
        case "tool":
            # There are servers whose calls have empty ids, which clients send back.
            call_id = text_in(message, "tool_call_id", path) or unanswered.answer(
                None, optional_text_in(message, "name", path)
            )
            return ToolResponseMessage(call_id, parse_content(content, f"{path}.content"))
        case "function":
            # Older than calls' ids; what the function gave may be null.
            call_id = unanswered.answer(None, text_in(message, "name", path))
            said = "" if content is None else content
            return ToolResponseMessage(call_id, parse_content(said, f"{path}.content"))
        case None:
            raise missing_parameter(f"{path}.role")
    raise invalid_parameter(
        f"{path}.role",
        f"Invalid value: {role!r}. Supported values are: 'system', 'developer', 'user',"
        " 'assistant' and 'tool'.",
    )


def _parse_assistant(
    message: Mapping[str, Any], path: str, unanswered: UnansweredCalls
) -> CompletionMessage:
    content, calls = message.get("content"), message.get("tool_calls") or []
    refusal = optional_text_in(message, "refusal", path)
    reasoning = optional_text_in(message, "reasoning_content", path)
    if reasoning is None:
        reasoning = optional_text_in(message, "reasoning", path)
    older = message.get("function_call")
    if content is None and not calls and refusal is None and older is None:
        raise invalid_parameter(
            f"{path}.content", f"'{path}' needs 'content' or 'tool_calls'; it has neither."
        )
    if not isinstance(calls, list):
        raise invalid_parameter(f"{path}.tool_calls", f"'{path}.tool_calls' must be an array.")
    said = "" if content is None else parse_content(content, f"{path}.content")
    return CompletionMessage.of(
        content=seen_alone(said, f"{path}.content", "an assistant's message"),
        tool_calls=(
            *(
                _parse_call(call, f"{path}.tool_calls[{index}]", unanswered)
                for index, call in enumerate(calls)
            ),
            *([] if older is None else [_parse_older_call(older, path, unanswered)]),
        ),
        reasoning=reasoning,
        refusal=refusal,
        name=optional_text_in(message, "name", path),
    )


def _parse_call(value: Any, path: str, unanswered: UnansweredCalls) -> AnyToolCall:
    call = as_object(value, path)
    said = optional_text_in(call, "id", path)
    call_id = said or call_id_at(path)
    if call.get("type") == "custom":
        custom, at = as_object(call.get("custom"), f"{path}.custom"), f"{path}.custom"
        text = wrap(text_in({"input": "", **custom}, "input", at))
        parsed = parse_tool_call(call_id, text_in(custom, "name", at), text)
    else:
        parsed = _parse_function_call(call.get("function"), call_id, f"{path}.function")
    if not said:
        unanswered.add(parsed.call_id, parsed.tool_name)
    signature = thought_signature(call)
    if signature is not None and isinstance(parsed, ToolCall):
        return structs.replace(parsed, thought_signature=signature)
    return parsed


def _parse_function_call(value: Any, call_id: str, path: str) -> AnyToolCall:
    function = as_object(value, path)
    name = text_in(function, "name", path)
    text = text_in({"arguments": "", **function}, "arguments", path)
    return parse_tool_call(call_id, name, text)


def _parse_older_call(value: Any, path: str, unanswered: UnansweredCalls) -> AnyToolCall:
    """The `function_call` of a message, which has no id: the answer names the function."""
    at = f"{path}.function_call"
    call = _parse_function_call(value, call_id_at(at), at)
    unanswered.add(call.call_id, call.tool_name)
    return call


def thought_signature(call: Mapping[str, Any]) -> str | None:
    """The sealed reasoning in one of `tool_calls`, where Google's own OpenAI endpoint puts it.

    Source: https://ai.google.dev/gemini-api/docs/thought-signatures
    """
    match call.get("extra_content"):
        case {"google": {"thought_signature": str(signature)}}:
            return signature
    return None


def parse_tools(
    value: Any, others: Mapping[str, ToolDefinition] = {}
) -> tuple[ToolDefinition, ...]:
    """The `tools` of a request.

    Args:
        value: they.
        others: what those come to that are no functions, by path.

    Raises:
        APIError: 400 with the path of what is malformed.
    """
    if not value:
        return ()
    if not isinstance(value, list):
        raise invalid_parameter("tools", "'tools' must be an array.")
    return tuple(
        others.get(f"tools[{index}]") or _parse_tool(tool, f"tools[{index}]")
        for index, tool in enumerate(value)
        # Those the server runs, or they would have been taken out.
        if not (isinstance(tool, dict) and tool.get("type") in ("file_search", "mcp"))
    )


def _parse_tool(value: Any, path: str) -> ToolDefinition:
    tool = as_object(value, path)
    if tool.get("type") != "function":
        kind = tool.get("left_out") or tool.get("type")
        raise invalid_parameter(
            f"{path}.type",
            f"Invalid value: {kind!r}. Only 'function' and 'custom' are supported.",
        )
    return parse_function(as_object(tool.get("function"), f"{path}.function"), f"{path}.function")


def parse_function(function: Mapping[str, Any], path: str) -> ToolDefinition:
    """A function that the model may call, which stands at `path`.

    Raises:
        APIError: 400 with the path of what is malformed.
    """
    return ToolDefinition(
        tool_name=text_in(function, "name", path),
        description=optional_text_in(function, "description", path),
        parameters=optional_schema_in(function, "parameters", path),
        strict=optional_flag_in(function, "strict", path),
    )


def parse_response_format(value: Any) -> ResponseFormat | None:
    """The `response_format` of a request. A `json_object` may have a `schema`, which is how
    llama.cpp's server, Together and Fireworks were asked for one before OpenAI had a word for it.

    Raises:
        APIError: 400, it is none.
    """
    match value:
        case None:
            return None
        case {"type": "json_object", "schema": schema} if schema is not None:
            path = "response_format.schema"
            return ResponseFormat("json_schema", "response", as_object(schema, path), path=path)
        case {"type": "text" | "json_object" as kind}:
            return ResponseFormat(kind)
        case {"type": "json_schema", "json_schema": {"name": str(name)}}:
            path, wanted = "response_format.json_schema", value["json_schema"]
            schema = wanted.get("schema")
            return ResponseFormat(
                "json_schema",
                name,
                schema if schema is None else as_object(schema, f"{path}.schema"),
                optional_flag_in(wanted, "strict", path),
                optional_text_in(wanted, "description", path),
            )
    raise invalid_parameter(
        "response_format",
        "'response_format' must have the type 'text', 'json_object' or 'json_schema', the last"
        " with a 'json_schema' that has a 'name'.",
    )


# --------------------------------------------------------------------------------------------------
# Vocabulary -> wire
# --------------------------------------------------------------------------------------------------


RENDERED_PARAMETERS = rendered_parameters(
    SAMPLING_PARAMETERS, "logprobs", "top_logprobs", "verbosity"
)
"""What `render_request` has words for."""


def render_request(
    request: ChatCompletionRequest, *, max_tokens_name: str = "max_completion_tokens"
) -> dict[str, Any]:
    """The body of a request for one choice; what is at its default is left out.

    A stream is asked for with the usage in its last chunk. The address of a document is where its
    bytes would be: `llama_compat.dialects.openai.chat.files` finds it there.

    Args:
        request: what is asked; its `model` is the vendor's own name.
        max_tokens_name: what the vendor calls the limit: older servers know only `max_tokens`.
    """
    body: dict[str, Any] = {
        "model": request.model,
        "messages": _render_messages(with_json_said(request)),
        **render_sampling(request.sampling, max_tokens_name=max_tokens_name),
    }
    if request.tools:
        body["tools"] = [render_tool(tool) for tool in request.tools]
        # Both are "only allowed when 'tools' are specified" (Upsonic/Upsonic#323, 2026-11-28),
        # which other APIs leave open: Codex says of each request that calls come one by one.
        if request.tool_choice is not None:
            body["tool_choice"] = _render_tool_choice(request.tool_choice)
        if request.parallel_tool_calls is not None:
            body["parallel_tool_calls"] = request.parallel_tool_calls
    if request.vendor_search is not None:
        body["web_search_options"] = render_search(request.vendor_search)
    if request.response_format is not None:
        body["response_format"] = _render_response_format(request.response_format)
    if request.reasoning_effort is not None:
        body["reasoning_effort"] = request.reasoning_effort
    if request.verbosity is not None:
        body["verbosity"] = request.verbosity
    body.update(render_hints(request))
    if request.logprobs is not None:
        body["logprobs"] = True
        if request.logprobs:
            body["top_logprobs"] = request.logprobs
    if request.stream:
        body["stream"] = True
        body["stream_options"] = {"include_usage": True}
    return body


_IN_JSON = "Answer in JSON."


def with_json_said(request: ChatCompletionRequest) -> Sequence[Message]:
    """The messages, of which one says what OpenAI wants to be said: "'messages' must contain the
    word 'json' in some form, to use 'response_format' of type 'json_object'", and the same of the
    input of a response. In other APIs nobody has to say so."""
    messages, wanted = request.messages, request.response_format
    if wanted is None or wanted.type != "json_object":
        return messages
    if any("json" in content_text(message.content).lower() for message in messages):
        return messages
    first = messages[0] if messages else None
    if not isinstance(first, SystemMessage):
        return (SystemMessage(_IN_JSON), *messages)
    # There are chat templates that take no second one.
    said = first.content
    more = f"{said}\n\n{_IN_JSON}" if isinstance(said, str) else (*said, TextContent(_IN_JSON))
    return (structs.replace(first, content=more), *messages[1:])


def _render_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """The messages; images and documents that tools gave are the user's, from whom alone OpenAI
    takes them."""
    rendered: list[dict[str, Any]] = []
    given: list[ContentPart] = []
    for index, message in enumerate(messages):
        path = f"messages[{index}]"
        if not isinstance(message, ToolResponseMessage) and given:
            if isinstance(message, UserMessage):
                message = structs.replace(message, content=(*given, *_parts(message.content)))
            else:
                rendered.append(render_message(UserMessage(tuple(given)), path))
            given = []
        if isinstance(message, ToolResponseMessage) and media_in(message.content):
            without_audio(message.content, f"{path}.content", "a tool's message")
            media = media_in(message.content)
            files = any(isinstance(each, DocumentContent) for each in media)
            what = "files" if files else "images"
            given.append(TextContent(f"The {what} that the call {message.call_id} gave:"))
            given += media
            message = structs.replace(message, content=content_text(message.content))
        rendered.append(render_message(message, path))
    if given:
        rendered.append(render_message(UserMessage(tuple(given)), f"messages[{len(messages) - 1}]"))
    return rendered


def _parts(content: Content) -> Sequence[ContentPart]:
    return [TextContent(content)] if isinstance(content, str) else content


def render_message(message: Message, path: str = "messages") -> dict[str, Any]:
    """One of `messages`, which stands at `path` in the request.

    Raises:
        APIError: 400 naming `path`, there is a document in it that is none.
    """
    where = f"{path}.content"
    match message:
        case SystemMessage(role=role):
            rendered = {"role": role, "content": render_content(message.content, where)}
        case UserMessage():
            rendered = {"role": "user", "content": render_content(message.content, where)}
        case ToolResponseMessage():
            return {
                "role": "tool",
                "tool_call_id": message.call_id,
                "content": render_content(message.told, where),
            }
        case CompletionMessage():
            rendered = _render_assistant(message, where)
    if message.name is not None:
        rendered["name"] = message.name
    return rendered


def _render_assistant(message: CompletionMessage, path: str) -> dict[str, Any]:
    without_content = not message.content and (message.tool_calls or message.refusal is not None)
    rendered: dict[str, Any] = {
        "role": "assistant",
        "content": None if without_content else render_content(message.content, path),
    }
    if message.refusal is not None:
        rendered["refusal"] = message.refusal
    if message.unsealed_reasoning is not None:
        rendered["reasoning_content"] = message.unsealed_reasoning
    if message.tool_calls:
        rendered["tool_calls"] = [render_call(call) for call in message.tool_calls]
    return rendered


def render_call(call: AnyToolCall) -> dict[str, Any]:
    """One of a message's `tool_calls`."""
    return {
        "id": call.call_id,
        "type": "function",
        "function": {"name": call.tool_name, "arguments": call.arguments_json},
        **extra_content(call),
    }


def extra_content(call: AnyToolCall | None) -> dict[str, Any]:
    """The member of one of `tool_calls` that `thought_signature` reads; none where it has none."""
    if not isinstance(call, ToolCall) or call.thought_signature is None:
        return {}
    return {"extra_content": {"google": {"thought_signature": call.thought_signature}}}


def render_tool(tool: ToolDefinition) -> dict[str, Any]:
    """One of `tools`."""
    function: dict[str, Any] = {"name": tool.tool_name}
    if tool.description is not None:
        function["description"] = tool.description
    if tool.parameters is not None:
        function["parameters"] = object_schema(tool.parameters)
    if tool.strict is not None:
        function["strict"] = tool.strict
    return {"type": "function", "function": function}


def _render_tool_choice(choice: ToolChoice) -> str | dict[str, Any]:
    if choice.tool_name is None:
        return choice.mode
    return {"type": "function", "function": {"name": choice.tool_name}}


def _render_response_format(wanted: ResponseFormat) -> dict[str, Any]:
    if wanted.type != "json_schema":
        return {"type": wanted.type}
    described: dict[str, Any] = {"name": wanted.name or "response"}
    if wanted.schema is not None:
        described["schema"] = wanted.schema
    if wanted.strict is not None:
        described["strict"] = wanted.strict
    if wanted.description is not None:
        described["description"] = wanted.description
    return {"type": "json_schema", "json_schema": described}
