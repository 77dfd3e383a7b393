"""The events of a message's stream (https://platform.claude.com/docs/en/build-with-claude/streaming).

`message_start`, then for each block of the content `content_block_start`, any number of
`content_block_delta` and `content_block_stop`, then `message_delta` and `message_stop`; a `ping`
may come anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Raw

from llama_compat.wire.json_fields import JSONFields, encode_json, from_raw, parse_objects, to_raw


def encode_event(name: str, data: bytes) -> bytes:
    """One event; `data` is JSON, in which a line break may stand only where a blank may."""
    if b"\n" in data or b"\r" in data:
        data = data.replace(b"\r", b" ").replace(b"\n", b" ")
    return b"event: %b\ndata: %b\n\n" % (name.encode(), data)


def encode(kind: str, **members: Any) -> bytes:
    """The event `kind` with these members."""
    return encode_event(kind, encode_json({"type": kind, **members}))


PING = encode("ping")

MESSAGE_STOP = encode("message_stop")


def block_start(index: int, block: Any) -> bytes:
    """The block `index` begins, as `block`."""
    return encode("content_block_start", index=index, content_block=block)


def block_stop(index: int) -> bytes:
    """The block `index` has ended."""
    return b'event: content_block_stop\ndata: {"type":"content_block_stop","index":%d}\n\n' % index


def _delta(kind: bytes, member: bytes) -> bytes:
    # Most of a stream is deltas: only what differs is encoded.
    return (
        b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%%d,'
        b'"delta":{"type":"%b","%b":%%b}}\n\n' % (kind, member)
    )


_TEXT = _delta(b"text_delta", b"text")
_THINKING = _delta(b"thinking_delta", b"thinking")
_SIGNATURE = _delta(b"signature_delta", b"signature")
_INPUT = _delta(b"input_json_delta", b"partial_json")


def text_delta(index: int, text: str) -> bytes:
    """More of a text block."""
    return _TEXT % (index, encode_json(text))


def citation_delta(index: int, citation: Any) -> bytes:
    """A place in a text block at which it names a source."""
    delta = {"type": "citations_delta", "citation": citation}
    return encode("content_block_delta", index=index, delta=delta)


def thinking_delta(index: int, text: str) -> bytes:
    """More of a thinking block."""
    return _THINKING % (index, encode_json(text))


def signature_delta(index: int, signature: str) -> bytes:
    """The signature of a thinking block."""
    return _SIGNATURE % (index, encode_json(signature))


def input_delta(index: int, text: str) -> bytes:
    """More of the text of a tool call's input."""
    return _INPUT % (index, encode_json(text))


# A whole message as the stream that it would have been -------------------------------------------

_EMPTY: dict[str, JSONFields] = {
    "text": {"text": Raw(b'""')},
    "thinking": {"thinking": Raw(b'""'), "signature": Raw(b'""')},
    "tool_use": {"input": Raw(b"{}")},
    "server_tool_use": {"input": Raw(b"{}")},
}
"""What a block of each type begins as; those of all others come whole."""

_LATE = ("stop_reason", "stop_sequence", "stop_details", "container")
"""Members of a message that are known at its end."""


def message_events(message: JSONFields) -> Iterator[bytes]:
    """The events of a whole message, whose values keep their bytes.

    Raises:
        ValueError: it is no message.
    """
    late = {name: message[name] for name in _LATE if name in message}
    null = Raw(b"null")
    begun = {**message, **dict.fromkeys(late, null), "content": Raw(b"[]")}
    yield encode("message_start", message=begun)
    for index, block in enumerate(parse_objects(message["content"])):
        yield from _block_events(index, block)
    usage = message.get("usage", Raw(b"{}"))
    yield encode("message_delta", delta=late, usage=usage)
    yield MESSAGE_STOP


def _block_events(index: int, block: JSONFields) -> Iterator[bytes]:
    kind = from_raw(block["type"]) if "type" in block else None
    empty = _EMPTY.get(kind, {}) if isinstance(kind, str) else {}
    begun = {**block, **empty}
    citations = block.get("citations", Raw(b"null"))
    if kind == "text" and bytes(citations) != b"null":
        begun["citations"] = Raw(b"[]")
    yield block_start(index, begun)
    for each in _deltas(kind, block):
        yield encode("content_block_delta", index=index, delta=each)
    if kind == "text" and bytes(citations) != b"null":
        for citation in parse_objects(citations):
            delta = {"type": "citations_delta", "citation": citation}
            yield encode("content_block_delta", index=index, delta=delta)
    yield block_stop(index)


def _deltas(kind: Any, block: JSONFields) -> Iterator[dict[str, Any]]:
    match kind:
        case "text":
            yield {"type": "text_delta", "text": block["text"]}
        case "thinking":
            yield {"type": "thinking_delta", "thinking": block["thinking"]}
            if "signature" in block:
                yield {"type": "signature_delta", "signature": block["signature"]}
        case "tool_use" | "server_tool_use":
            given = to_raw(bytes(block["input"]).decode()) if "input" in block else Raw(b'""')
            yield {"type": "input_json_delta", "partial_json": given}
