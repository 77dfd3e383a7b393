"""A response that was relayed, read back: wire -> vocabulary.

A stream's last event has the whole response, so nothing before it is looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Raw

from llama_compat.dialects.base import WireReplies
from llama_compat.dialects.openai_responses.input.items import item_type, parse_input
from llama_compat.dialects.openai_responses.output.response_object import parse_usage
from llama_compat.errors import APIError
from llama_compat.types import (
    ChatCompletionResponse,
    CompletionMessage,
    MessagePart,
    ReasoningContent,
    StopReason,
    Usage,
)
from llama_compat.wire import sse
from llama_compat.wire.json_fields import JSONFields, from_raw, parse_fields, parse_object
from llama_compat.wire.malformed import MALFORMED

_COMPLETED = Raw(b'"completed"')
_ENDED = Raw(b'"response.completed"')
_NULL = Raw(b"null")

_SAID = frozenset({"message", "function_call", "custom_tool_call"})
"""The items that say to another model what they said; a thought's summary does so too."""

_BESIDES = ("annotations", "logprobs")
"""Members of a text for which there are no words once they are in it."""


def _response(body: bytes, streamed: bool) -> JSONFields | None:
    """The members of the response that came to its end; None where none did."""
    if not streamed:
        return parse_fields(body)
    event = parse_fields(sse.last_data(body))
    return parse_object(event.get("response", _NULL)) if event.get("type") == _ENDED else None


def _finished(body: bytes, streamed: bool, choices: int) -> bool:
    response = _response(body, streamed)
    if response is None or response.get("status") != _COMPLETED:
        return False
    return response.get("error", _NULL) == _NULL


def _said(body: bytes, streamed: bool) -> ChatCompletionResponse | None:
    response = _response(body, streamed)
    if response is None:
        return None
    try:
        items = from_raw(response["output"])
        parts = [part for item in items for part in _parts(item)]
    except (APIError, *MALFORMED) as error:
        raise ValueError(f"the response can't be read: {error!r}") from error
    except _NoWordsError:
        return None
    called = any(item_type(item) != "message" for item in items if item_type(item) in _SAID)
    reason = StopReason.end_of_turn.with_calls(called)
    usage = parse_usage(from_raw(response.get("usage", _NULL))) or Usage()
    return ChatCompletionResponse(CompletionMessage(tuple(parts), reason), usage=usage)


class _NoWordsError(Exception):
    """The vocabulary has no words for it."""


def _parts(item: Mapping[str, Any]) -> Iterator[MessagePart]:
    kind = item_type(item)
    if kind == "reasoning":
        shown = item.get("content") or item.get("summary") or ()
        text = "\n\n".join(part["text"] for part in shown)
        if text:
            yield ReasoningContent(text)
        return
    if kind not in _SAID or _says_more(item):
        raise _NoWordsError
    for message in parse_input([item]):
        assert isinstance(message, CompletionMessage)
        yield from message.parts


def _says_more(item: Mapping[str, Any]) -> bool:
    return any(part.get(name) for part in item.get("content") or () for name in _BESIDES)


REPLIES = WireReplies(finished=_finished, said=_said)
