"""The conversation of a request to the Messages API: wire -> vocabulary.

A user's turn becomes the answers to the model's calls, each a message of its own, and what the user
says besides.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from llama_compat.dialects.anthropic_messages.hosted_blocks import (
    CALLS,
    RESULTS,
    parse_use,
    result_text,
)
from llama_compat.dialects.anthropic_messages.input.deferred import REFERENCE, reference_text
from llama_compat.dialects.anthropic_messages.seals import parse_seal
from llama_compat.dialects.members import (
    as_object,
    messages_of,
    object_in,
    optional_flag_in,
    optional_text_in,
    text_in,
    wrong_type,
)
from llama_compat.dialects.seals import with_call_seals
from llama_compat.errors import APIError, invalid_parameter, missing_parameter, unsupported_content
from llama_compat.media.documents import document_at, document_of
from llama_compat.tools.calls import arguments_text
from llama_compat.types import (
    AnyToolCall,
    CompletionMessage,
    Content,
    ContentPart,
    ImageContent,
    Message,
    MessagePart,
    SystemMessage,
    TextContent,
    ToolCall,
    ToolResponseMessage,
    UnparseableToolCall,
    UserMessage,
    media_in,
)

_ATTRIBUTION = re.compile(r"\A\s*x-anthropic-billing-header:[^\n]*\n*")
"""What Claude Code puts at the head of its system prompt: another one for each request, so that no
cache of prompts would ever find the rest again."""


def parse_system(value: Any) -> tuple[SystemMessage, ...]:
    """The system prompt of a request, as no more than one message.

    Raises:
        APIError: 400 with the path of what is malformed.
    """
    if value is None:
        return ()
    text = _system_text(value, "system")
    return (SystemMessage(text),) if text else ()


def _system_text(value: Any, path: str) -> str:
    if isinstance(value, str):
        texts = [value]
    else:
        texts = [_only_text(block, where) for block, where in _blocks(value, path)]
    return "\n\n".join(filter(None, (_ATTRIBUTION.sub("", text) for text in texts)))


def _only_text(block: Mapping[str, Any], path: str) -> str:
    if block.get("type") != "text":
        raise _unsupported(f"{path}.type", f"{block.get('type')!r} can't be here, only 'text'")
    return text_in(block, "text", path)


def parse_messages(value: Any) -> tuple[Message, ...]:
    """The `messages` of a request.

    Raises:
        APIError: 400 with the path of what is malformed, or of what only Anthropic's own models
            could make something of.
    """
    return tuple(
        message for turn, path in messages_of(value) for message in _parse_turn(turn, path)
    )


def _parse_turn(turn: Mapping[str, Any], path: str) -> Sequence[Message]:
    content, where = turn.get("content"), f"{path}.content"
    if content is None:
        raise missing_parameter(where)
    match turn.get("role"):
        case "user":
            return _parse_user(content, where)
        case "assistant":
            return _parse_assistant(content, where)
        case "system":
            text = _system_text(content, where)
            return [SystemMessage(text)] if text else []
        case None:
            raise missing_parameter(f"{path}.role")
        case role:
            raise invalid_parameter(
                f"{path}.role",
                f"Invalid value for '{path}.role': {role!r}. Supported values are: 'user',"
                " 'assistant' and 'system'.",
            )


def _parse_user(content: Any, path: str) -> Sequence[Message]:
    if isinstance(content, str):
        return [UserMessage(content)]
    results: list[Message] = []
    parts: list[ContentPart] = []
    for block, where in _blocks(content, path):
        if block.get("type") == "tool_result":
            results.append(_parse_result(block, where))
        else:
            parts += _parse_part(block, where)
    said = [UserMessage(_content(parts))] if parts or not results else []
    return [*results, *said]


def _parse_result(block: Mapping[str, Any], path: str) -> ToolResponseMessage:
    content = block.get("content")
    given: Content = ""
    if isinstance(content, str):
        given = content
    elif content is not None:
        blocks = _blocks(content, f"{path}.content")
        parts = [part for each, where in blocks for part in _parse_given(each, where)]
        given = tuple(parts) if media_in(tuple(parts)) else _joined(parts)
    return ToolResponseMessage(
        text_in(block, "tool_use_id", path),
        given,
        is_error=optional_flag_in(block, "is_error", path) or False,
    )


def _parse_given(block: Mapping[str, Any], path: str) -> list[ContentPart]:
    if block.get("type") == REFERENCE:
        return [TextContent(reference_text(block, path))]
    return _parse_part(block, path)


def _joined(parts: Sequence[ContentPart]) -> str:
    return "\n".join(part.text for part in parts if isinstance(part, TextContent))


def _content(parts: Sequence[ContentPart]) -> Content:
    if len(parts) == 1 and isinstance(parts[0], TextContent):
        return parts[0].text
    return tuple(parts)


def _parse_part(block: Mapping[str, Any], path: str) -> list[ContentPart]:
    match block.get("type"):
        case "text":
            text = text_in(block, "text", path)
            return [TextContent(text)] if text else []
        case "image":
            return [_parse_image(object_in(block, "source", path), f"{path}.source")]
        case "document":
            return _parse_document(block, path)
        case "search_result":
            return _parse_found(block, path)
        case None:
            raise missing_parameter(f"{path}.type")
        case kind:
            raise _unsupported(f"{path}.type", f"a block of the type {kind!r}")


def _parse_image(source: Mapping[str, Any], path: str) -> ImageContent:
    match source.get("type"):
        case "base64":
            media_type = text_in(source, "media_type", path)
            return ImageContent(f"data:{media_type};base64,{text_in(source, 'data', path)}")
        case "url":
            return ImageContent(text_in(source, "url", path))
        case kind:
            raise _unsupported(f"{path}.type", f"an image with a source of the type {kind!r}")


def _parse_document(block: Mapping[str, Any], path: str) -> list[ContentPart]:
    """A document after its context, or what it says where it is text, after its title too."""
    source, where = object_in(block, "source", path), f"{path}.source"
    title, context = (optional_text_in(block, name, path) for name in ("title", "context"))
    told: list[ContentPart] = [TextContent(f"{context}\n")] if context else []
    match source.get("type"):
        case "base64":
            media_type, data = text_in(source, "media_type", where), text_in(source, "data", where)
            return [*told, document_of(media_type, data, title, f"{where}.data")]
        case "url":
            return [*told, document_at(text_in(source, "url", where), title, f"{where}.url")]
    parts = [TextContent(f"{title}\n"), *told] if title else told
    match source.get("type"):
        case "text":
            return [*parts, TextContent(text_in(source, "data", where))]
        case "content" if isinstance(source.get("content"), str):
            return [*parts, TextContent(source["content"])]
        case "content":
            blocks = _blocks(source.get("content"), f"{where}.content")
            return parts + [part for each, at in blocks for part in _parse_part(each, at)]
        case kind:
            raise _unsupported(f"{where}.type", f"a document with a source of the type {kind!r}")


def _parse_found(block: Mapping[str, Any], path: str) -> list[ContentPart]:
    """What a client's own search has found: its title, where it is, and what it says.

    Source: https://platform.claude.com/docs/en/build-with-claude/search-results
    """
    title, source = text_in(block, "title", path), text_in(block, "source", path)
    blocks = _blocks(block.get("content"), f"{path}.content")
    said = [part for each, at in blocks for part in _parse_part(each, at)]
    return [TextContent(f"{title}\n{source}\n"), *said]


def _parse_assistant(content: Any, path: str) -> Sequence[Message]:
    if isinstance(content, str):
        return [CompletionMessage.of(content)]
    said = _Said()
    for block, where in _blocks(content, path):
        kind = block.get("type")
        if kind == "fallback":
            continue  # It marks where one model gave way to another, and is shown to none.
        if kind in RESULTS:
            said.answer(text_in(block, "tool_use_id", where), *result_text(block))
        else:
            said.add(_parse_said(block, where), is_hosted=kind in CALLS)
    return said.ended()


class _Said:
    """One turn of the model's, in which a server has run calls of its: what is behind a result is
    another message of the same turn."""

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._parts: list[MessagePart] = []
        self._answers: list[ToolResponseMessage] = []
        self._waiting: dict[str, None] = {}

    def add(self, part: MessagePart, *, is_hosted: bool) -> None:
        if self._answers and not (isinstance(part, ToolCall) and self._waiting):
            self._end_message()
        self._parts.append(part)
        if is_hosted and isinstance(part, ToolCall | UnparseableToolCall):
            self._waiting[part.call_id] = None

    def answer(self, call_id: str, text: str, is_error: bool) -> None:
        if call_id in self._waiting:
            del self._waiting[call_id]
            self._answers.append(ToolResponseMessage(call_id, text, is_error))

    def ended(self) -> list[Message]:
        self._end_message()
        return self._messages

    def _end_message(self) -> None:
        for call_id in self._waiting:
            self._answers.append(ToolResponseMessage(call_id, "It was not run.", is_error=True))
        if self._parts:
            self._messages.append(CompletionMessage(tuple(with_call_seals(self._parts))))
            self._messages += self._answers
        self._parts, self._answers, self._waiting = [], [], {}


def _parse_said(block: Mapping[str, Any], path: str) -> MessagePart:
    match block.get("type"):
        case "text":
            return TextContent(text_in(block, "text", path))
        case "thinking":
            signature = optional_text_in(block, "signature", path) or ""
            return parse_seal(text_in(block, "thinking", path), signature)
        case "redacted_thinking":
            return parse_seal("", text_in(block, "data", path), redacted=True)
        case "tool_use":
            return _parse_call(block, path)
        case kind if kind in CALLS:
            return parse_use(block, _parse_call(block, path))
        case None:
            raise missing_parameter(f"{path}.type")
        case kind:
            raise _unsupported(f"{path}.type", f"a block of the type {kind!r}")


def _parse_call(block: Mapping[str, Any], path: str) -> AnyToolCall:
    call_id, name = text_in(block, "id", path), text_in(block, "name", path)
    match object_in(block, "input", path):
        case {"INVALID_JSON": str(text), **others} if not others:
            return UnparseableToolCall(call_id, name, text)
        case arguments:
            return ToolCall(call_id, name, arguments, arguments_text(arguments))


def _blocks(value: Any, path: str) -> list[tuple[dict[str, Any], str]]:
    """The blocks of a content, each with its path."""
    if not isinstance(value, list):
        raise wrong_type(path, "a string or an array of content blocks")
    return [
        (as_object(block, f"{path}[{index}]"), f"{path}[{index}]")
        for index, block in enumerate(value)
    ]


def _unsupported(path: str, what: str) -> APIError:
    return unsupported_content(
        path,
        f"'{path}': {what} is for Anthropic's own models and what relays to them; this model's"
        " provider can't be given it. Leave it out, or choose another model.",
    )
