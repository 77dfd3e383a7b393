"""What a client sends over a WebSocket: `response.create`, a request with a few members more.

https://developers.openai.com/api/docs/guides/websocket-mode and
https://www.openresponses.org/specification (2026-04-24), both read on 2026-11-22.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from msgspec import Raw
from msgspec.structs import replace as replace_struct

from llama_compat.dialects.base import Asked, Labels
from llama_compat.dialects.openai_responses.input.requests import check_shapes
from llama_compat.dialects.openai_responses.input.tools import Toolbox
from llama_compat.dialects.openai_responses.keeping import Keeping
from llama_compat.dialects.openai_responses.operations import RESPONSES
from llama_compat.dialects.openai_responses.output.response_object import repeated
from llama_compat.dialects.openai_responses.output.streams import Shown, StreamRenderer
from llama_compat.errors import invalid_parameter
from llama_compat.types import Usage
from llama_compat.wire.json_fields import JSONFields, from_raw

CREATE = "response.create"

MAX_STREAM_ID = 128
"""Characters; every event repeats it."""

_TRUE = Raw(b"true")

_SHORT_BYTES = 1024
_TOO_LONG = object()


class Envelope(NamedTuple):
    """What has to be known of an event before its turn comes.

    Attributes:
        stream_id: the lane that it is for: events of one come one after the other, those of several
            side by side. None where it names none.
        previous_response_id: the response that it goes on from.
    """

    stream_id: str | None = None
    previous_response_id: str | None = None


def envelope(fields: JSONFields) -> Envelope:
    """Of an event with these members; what is malformed in it is for `look` to refuse."""
    stream_id, previous = (_member(fields, name) for name in Envelope._fields)
    return Envelope(
        stream_id if _is_stream_id(stream_id) else None,
        previous if isinstance(previous, str) else None,
    )


def _look(fields: JSONFields, path: Mapping[str, str]) -> Asked:
    kind = _member(fields, "type")
    if kind != CREATE:
        said = f"'{kind[:100]}'" if isinstance(kind, str) else "none"
        raise invalid_parameter(
            "type",
            f"The type of an event has to be '{CREATE}'; this one has {said}. Responses can't be"
            " steered here.",
            "unknown_event_type",
        )
    stream_id, generate = _member(fields, "stream_id"), _member(fields, "generate")
    if stream_id is not None and not _is_stream_id(stream_id):
        raise invalid_parameter(
            "stream_id",
            f"'stream_id' has to be a string of 1 to {MAX_STREAM_ID} characters.",
        )
    if not (generate is None or isinstance(generate, bool)):
        raise invalid_parameter("generate", "'generate' has to be true or false.", "invalid_type")
    if _member(fields, "stream") is False:
        raise invalid_parameter(
            "stream", "Over a WebSocket every response is streamed. Leave 'stream' out."
        )
    if _member(fields, "background"):
        raise invalid_parameter(
            "background",
            "Over a WebSocket nothing runs in the background. Leave 'background' out, or send a"
            " POST.",
            "unsupported_parameter",
        )
    asks = {name: raw for name, raw in fields.items() if name not in _ENVELOPE}
    asks["stream"] = _TRUE
    asked = RESPONSES.look(asks, path)
    operation = WARM_UP if generate is False else RESPONSES
    return replace_struct(asked, operation=operation, fields=asks)


_ENVELOPE = frozenset({"type", "stream_id", "generate", "background"})
"""Members that a request has over a WebSocket alone, or that mean nothing there."""

RESPONSE_CREATE = replace(RESPONSES, look=_look)
"""An event of a client; by its look it comes down to one of the other two."""

WARM_UP = replace(RESPONSES)
"""`generate: false`: a response without output, which the next one goes on from."""


def warmed_up(body: Mapping[str, Any], labels: Labels, keeping: Keeping) -> bytes:
    """All events of the response to a request that wants nothing generated.

    Raises:
        APIError: 400, the request is malformed.
    """
    check_shapes(body)
    shown = Shown(
        repeated(body), Toolbox([]), previous_response_id=body.get("previous_response_id")
    )
    return StreamRenderer(shown, labels, keeping).finish(Usage())


def _member(fields: JSONFields, name: str) -> Any:
    """A member of which the value is short; one that is not is in any case none that is known."""
    raw = fields.get(name)
    if raw is None:
        return None
    return from_raw(raw) if memoryview(raw).nbytes <= _SHORT_BYTES else _TOO_LONG


def _is_stream_id(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= MAX_STREAM_ID
