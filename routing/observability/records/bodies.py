"""The bodies of requests and replies, as they are kept where the template wants them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from llama_compat.wire import sse
from llama_compat.wire.json_fields import encode_json
from routing.asgi import RawHeaders
from routing.observability.records.headers import kept_headers

REDACTED = b"[redacted]"

CUT = b"[cut]"
"""What follows the beginning of a body that was too long."""

MARGIN_BYTES = 4096
"""So much more than what is kept is looked through, as what has to be redacted may lie across the
cut."""


CUT_CHARACTERS = 256
"""The same for the end of each text of a stream that was cut."""


class Body(Struct):
    """The bodies of one request, until they are kept.

    Attributes:
        time: as in its record.
        request_id: as in its record.
        request: what the client sent, or the beginning of it.
        reply: how the answer began.
        request_cut, reply_cut: whether there was more.
        streamed: whether the answer is a stream of events.
        headers: the request's, with names in lower case.
    """

    time: float
    request_id: str
    request: bytes
    reply: bytes
    request_cut: bool
    reply_cut: bool
    streamed: bool
    headers: RawHeaders = ()


class Redaction:
    """What is kept of bodies.

    Args:
        patterns: regular expressions; what they match is not kept.
        max_bytes: what is longer is cut off.
    """

    def __init__(self, patterns: Iterable[str], max_bytes: int) -> None:
        self._patterns = [re.compile(each.encode()) for each in patterns]
        self._max_bytes = max_bytes

    @property
    def sample_bytes(self) -> int:
        """How much of a body's beginning has to be there."""
        return self._max_bytes + MARGIN_BYTES

    def row(self, body: Body) -> tuple[Any, ...]:
        """`time`, `request_id`, `request`, `reply`, `headers`: what is kept."""
        if body.streamed and self._patterns:
            # A stream's words come in pieces, in which no pattern would find anything.
            members = joined_events(body.reply)
            for path, text in members.items():
                members[path] = self._redacted_text(text, cut=body.reply_cut)
            reply = self._kept(encode_json(members), cut=False)
        else:
            reply = self._kept(body.reply, cut=body.reply_cut)
        request = self._kept(body.request, cut=body.request_cut)
        headers = kept_headers(body.headers, self._redacted)
        return body.time, body.request_id, request, reply, headers

    def _redacted_text(self, text: Any, *, cut: bool) -> Any:
        if not isinstance(text, str):
            return text
        redacted = self._redacted(text.encode(errors="replace")).decode(errors="replace")
        return redacted[:-CUT_CHARACTERS] if cut else redacted

    def _redacted(self, text: bytes) -> bytes:
        for pattern in self._patterns:
            text = pattern.sub(REDACTED, text)
        return text

    def _kept(self, text: bytes, *, cut: bool) -> bytes:
        redacted = self._redacted(text)
        # The end of what was cut may be half of something that a pattern would have matched.
        end = len(redacted) - MARGIN_BYTES if cut else len(redacted)
        if end < len(redacted) or end > self._max_bytes:
            return redacted[: max(min(end, self._max_bytes), 0)] + CUT
        return redacted


def joined_events(stream: bytes) -> dict[str, Any]:
    """What each member of a stream's events said, by its path (`choices.0.delta.content`).

    Texts that come in pieces are joined; of other values the last one is there.
    """
    members: dict[str, Any] = {}
    for data in _event_data(stream):
        try:
            _join(msgspec.json.decode(data), "", members)
        except (ValueError, RecursionError):
            continue  # cut off, or `[DONE]`
    return members


_JOINED = frozenset(
    {
        "arguments",
        "content",
        "delta",
        "partial_json",
        "reasoning",
        "reasoning_content",
        "refusal",
        "response",
        "text",
        "thinking",
    }
)
"""Members that come in pieces, in any client API."""


def _event_data(stream: bytes) -> Sequence[bytes]:
    if b"data:" not in stream[:MARGIN_BYTES]:
        return stream.splitlines()  # Ollama's lines
    return [event.data for event in sse.EventDecoder().feed(stream) if event.data is not None]


def _join(value: Any, path: str, members: dict[str, Any]) -> None:
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for name, each in items:
            _join(each, f"{path}.{name}" if path else str(name), members)
    elif isinstance(value, str) and path.rpartition(".")[2] in _JOINED:
        members[path] = (members.get(path) or "") + value
    elif value is not None or path not in members:
        members[path] = value
