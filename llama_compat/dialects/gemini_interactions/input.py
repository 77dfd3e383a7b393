"""The `input` of a client's request: wire -> vocabulary.

It is text, contents, or steps; clients that keep their conversation themselves send all steps of it
back as they got them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from llama_compat.dialects.gemini import FAMILY, parse_file, parse_inline, parse_seal
from llama_compat.dialects.gemini_interactions.hosted import (
    MCP_CALL,
    MCP_RESULT,
    SAID_ELSEWHERE,
    failed,
    parse_mcp_call,
)
from llama_compat.dialects.members import as_object, optional_text_in, text_in
from llama_compat.dialects.seals import with_call_seals
from llama_compat.errors import invalid_parameter, missing_parameter
from llama_compat.media.documents import PDF, seen_parts
from llama_compat.tools.calls import arguments_text, parse_tool_call
from llama_compat.types import (
    AnyToolCall,
    CompletionMessage,
    Content,
    ContentPart,
    Message,
    MessagePart,
    ReasoningContent,
    SystemMessage,
    TextContent,
    ToolResponseMessage,
    UserMessage,
)
from llama_compat.wire.json_fields import to_raw

_CONTENTS = ("text", "image", "audio", "document", "video")

_STEPS = ("user_input", "model_output", "thought", "function_call", "function_result")

_HOSTED = frozenset({MCP_CALL, MCP_RESULT, *SAID_ELSEWHERE})
"""Steps of tools that a server runs, which is asked for with them."""

InteractionStep = dict[str, Any]


def as_steps(value: Any) -> list[InteractionStep]:
    """The steps that an `input` comes to, for a store; what is malformed is left out."""
    if isinstance(value, str):
        return [_user_input([{"type": "text", "text": value}])]
    steps: list[InteractionStep] = []
    said: list[Any] = []
    for each in [value] if isinstance(value, dict) else value if isinstance(value, list) else ():
        if not isinstance(each, dict):
            continue
        if each.get("type") in _CONTENTS:
            if not said:
                steps.append(_user_input(said))
            said.append(each)
        else:
            said = []
            steps.append(each)
    return steps


def _user_input(content: list[Any]) -> InteractionStep:
    return {"type": "user_input", "content": content}


def hosted_steps(value: Any) -> list[str]:
    """Where in an `input` there are steps that only Google has, or who else runs tools: the type
    of what this server may run after its place."""
    return [
        f"input[{index}].{each['type']}" if each["type"] in _HOSTED else f"input[{index}]"
        for index, each in enumerate(value if isinstance(value, list) else ())
        if isinstance(each, dict)
        and isinstance(each.get("type"), str)
        and each["type"] not in (*_CONTENTS, *_STEPS)
    ]


def parse_system(value: Any) -> tuple[Message, ...]:
    """The `system_instruction` of a request, if it has one.

    Raises:
        APIError: 400, it is no text.
    """
    text = optional_text_in({"system_instruction": value}, "system_instruction")
    return (SystemMessage(text),) if text else ()


def parse_input(value: Any, earlier: Sequence[Mapping[str, Any]] = ()) -> tuple[Message, ...]:
    """The conversation: the steps that a store has of it, and the `input`.

    Steps that only Google has are left out; they must have been refused or dropped.

    Raises:
        APIError: 400 with the path of what is malformed, such as `input[0].content[1]`.
    """
    steps = value if isinstance(value, list) else ()
    conversation = _Conversation((*earlier, *steps))
    for index, step in enumerate(earlier):
        conversation.add(step, f"previous_interaction_id.steps[{index}]")
    if value is None or value == []:
        raise missing_parameter("input")
    if isinstance(value, str):
        conversation.show(TextContent(value))
    elif isinstance(value, dict):
        conversation.add(value, "input")
    elif isinstance(value, list):
        for index, each in enumerate(value):
            conversation.add(as_object(each, f"input[{index}]"), f"input[{index}]")
    else:
        raise invalid_parameter(
            "input", "'input' must be text, contents, or an array of steps.", "invalid_type"
        )
    return conversation.messages()


class _Conversation:
    """The messages that steps make: what the model said in a row is one.

    Args:
        steps: all that may come. Of a server's tool that was called the model is told where what
            it gave is among them: the reply may have been broken off before.
    """

    def __init__(self, steps: Sequence[Any]) -> None:
        self._answered = {
            each["call_id"]
            for each in steps
            if isinstance(each, dict)
            and each.get("type") == MCP_RESULT
            and isinstance(each.get("call_id"), str)
        }
        self._called: set[str] = set()
        self._messages: list[Message] = []
        self._shown: list[ContentPart] = []
        self._said: list[MessagePart] = []

    def messages(self) -> tuple[Message, ...]:
        """All of them."""
        self._end()
        return tuple(self._messages)

    def show(self, part: ContentPart) -> None:
        """Take a content that the user shows, beside others."""
        if self._said:
            self._end()
        self._shown.append(part)

    def add(self, step: Mapping[str, Any], path: str) -> None:
        """Take the next step, or a content that is the user's."""
        kind = text_in(step, "type", path)
        if kind in _CONTENTS:
            self.show(_parse_content(step, path))
        elif kind == "user_input":
            self._end()
            self._messages.append(UserMessage(_joined(_contents(step, "content", path))))
        elif kind == "function_result":
            self._end()
            self._messages.append(_parse_result(step, path))
        elif kind == MCP_RESULT:
            if (call_id := text_in(step, "call_id", path)) in self._called:
                self._end()
                self._messages.append(_parse_result(step, path))
                self._called.discard(call_id)
        elif kind in _STEPS or (kind == MCP_CALL and self._is_answered(step)):
            if self._shown:
                self._end()
            if kind == MCP_CALL:
                self._called.add(step["id"])
            self._said.extend(_parse_said(kind, step, path))

    def _is_answered(self, call: Mapping[str, Any]) -> bool:
        return isinstance(call.get("id"), str) and call["id"] in self._answered

    def _end(self) -> None:
        if self._shown:
            self._messages.append(UserMessage(_joined(self._shown)))
        if self._said:
            self._messages.append(CompletionMessage(tuple(with_call_seals(self._said))))
        self._shown, self._said = [], []


def _joined(parts: Sequence[ContentPart]) -> Content:
    match parts:
        case [TextContent(text)]:
            return text
    return tuple(parts) if parts else ""


def _contents(parent: Mapping[str, Any], name: str, path: str) -> list[ContentPart]:
    where, value = f"{path}.{name}", parent.get(name)
    if isinstance(value, str):
        return [TextContent(value)]
    if isinstance(value, dict):
        value = [value]
    if value is not None and not isinstance(value, list):
        raise invalid_parameter(where, f"'{where}' must be an array of contents.", "invalid_type")
    paths = [f"{where}[{index}]" for index in range(len(value or ()))]
    return [
        _parse_content(as_object(each, at), at) for at, each in zip(paths, value or (), strict=True)
    ]


def _parse_content(content: Mapping[str, Any], path: str) -> ContentPart:
    kind = text_in(content, "type", path)
    if kind == "text":
        return TextContent(text_in(content, "text", path))
    if kind not in ("image", "audio", "document"):
        raise invalid_parameter(
            f"{path}.type",
            f"Invalid value: {kind!r}. This model's provider takes text, images, audio and"
            " documents only.",
        )
    media_type = optional_text_in(content, "mime_type", path)
    if content.get("data") is not None or kind == "audio":
        data = text_in(content, "data", path)
        return parse_inline(media_type or "", data, f"{path}.mime_type", f"{path}.data")
    uri = text_in(content, "uri", path)
    usual = PDF if kind == "document" else "image/*"
    return parse_file(uri, media_type or usual, f"{path}.uri", inline="data")


# What tools answered, and what the model said -----------------------------------------------------


def _parse_result(step: Mapping[str, Any], path: str) -> ToolResponseMessage:
    call_id = text_in(step, "call_id", path)
    result = step.get("result")
    content: Content
    if isinstance(result, list) and all(map(_is_content, result)):
        content = _joined(_contents(step, "result", path))
    elif isinstance(result, str):
        content = result
    elif result is None:
        raise missing_parameter(f"{path}.result")
    else:
        content = bytes(to_raw(result)).decode()
    return ToolResponseMessage(call_id, content, failed(step, path))


def _is_content(value: Any) -> bool:
    return isinstance(value, dict) and value.get("type") in _CONTENTS


def _parse_said(kind: str, step: Mapping[str, Any], path: str) -> Iterator[MessagePart]:
    if kind == "model_output":
        said = seen_parts(_contents(step, "content", path), path, "what the model says")
        yield from (part for part in said if part != TextContent(""))
    elif kind == "function_call":
        yield _parse_call(step, path)
    elif kind == MCP_CALL:
        yield parse_mcp_call(step, path)
    else:
        yield from _parse_thought(step, path)


def _parse_call(step: Mapping[str, Any], path: str) -> AnyToolCall:
    arguments = step.get("arguments")
    arguments = {} if arguments is None else as_object(arguments, f"{path}.arguments")
    return parse_tool_call(
        text_in(step, "id", path), text_in(step, "name", path), arguments_text(arguments)
    )


def _parse_thought(step: Mapping[str, Any], path: str) -> Iterator[ReasoningContent]:
    shown = _contents(step, "summary", path)
    text = "".join(part.text for part in shown if isinstance(part, TextContent))
    thought = parse_seal(text, optional_text_in(step, "signature", path) or None)
    if thought.signature is None:
        if text:
            yield thought
    elif text or thought.redacted or thought.sealed_by != FAMILY:
        yield thought
    else:
        # Of most thoughts Google shows the seal alone.
        yield ReasoningContent("", thought.signature, thought.sealed_by, redacted=True)
