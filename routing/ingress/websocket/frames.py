"""The answer to one message, sent as frames: each event that a stream would have is a text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from llama_compat.dialects.openai_responses.output.events import LAST_EVENTS
from llama_compat.off_loop import off_loop
from llama_compat.wire import sse
from llama_compat.wire.json_fields import encode_fields, encode_json, parse_fields
from routing.layers.keeping.recall import Recall

ENDS = frozenset(map(str.encode, LAST_EVENTS))
"""The last event of a response; `error` is it where there is no response yet."""

_HTTP_ONLY = frozenset(
    {b"content-type", b"content-length", b"cache-control", b"x-accel-buffering", b"connection"}
)

_UNFINISHED = b'{"status":502,"code":"upstream_error","message":"The response has no end."}'


_NUMBER = "sequence_number"


class Outlet(Protocol):
    """Where frames go."""

    async def send(self, message: bytes) -> None:
        """Send one frame of text."""


class _Typed(msgspec.Struct):
    type: str = ""


class _Ended(msgspec.Struct):
    response: dict[str, Any]


class Frames:
    """ASGI's `send` for one request that came as a message.

    A client gets the same events as over HTTP, and one last event in any case. What would be a
    header comes in the first event, as `headers`; an error's status in `status`.

    Args:
        outlet: the WebSocket.
        stream_id: repeated in each event; None where the client named none.
        recall: is told what the request came to.
    """

    def __init__(self, outlet: Outlet, stream_id: str | None, recall: Recall) -> None:
        self._outlet = outlet
        self._recall = recall
        self._lane = b"" if stream_id is None else b'"stream_id":%b,' % encode_json(stream_id)
        self._status = 0
        self._headers: dict[str, str] = {}
        self._events: sse.EventDecoder | None = None
        self._whole: list[bytes] = []
        self._begun = False
        self._ended = False
        self._error: bytes | None = None

    async def __call__(self, message: dict[str, Any]) -> None:
        """Send what an ASGI message says."""
        if message["type"] == "http.response.start":
            self._status = message["status"]
            raw = dict(message["headers"])
            if raw.get(b"content-type", b"").startswith(b"text/event-stream"):
                self._events = sse.EventDecoder()
            self._headers = {
                name.decode("latin-1"): value.decode("latin-1")
                for name, value in raw.items()
                if name not in _HTTP_ONLY
            }
            return
        body, more = message.get("body", b""), message.get("more_body", False)
        if self._events is None:
            self._whole.append(body)
            if not more:
                await self._send_whole(b"".join(self._whole))
            return
        for event in self._events.feed(body):
            await self._event(event)
        if not more:
            last = self._events.flush()
            if last is not None:
                await self._event(last)
            await self._end()

    async def _event(self, event: sse.Event) -> None:
        data = event.data
        if data is None or event.is_done or self._ended:
            return
        name = event.name or _type_of(data)
        if name == b"error":
            # Where a response has begun, that it failed is said in its own event, which follows.
            self._error = data
            return
        if name in ENDS:
            if name == b"response.failed":
                self._recall.failed()
                if not self._begun and self._error is not None:
                    return
                data = self._in_place_of_error(data)
            else:
                await off_loop(len(data), self._answered, data)
            self._ended = True
        await self._send(data)

    def _in_place_of_error(self, data: bytes) -> bytes:
        """The event that a response failed, with the number of the error that was not sent: clients
        look for gaps."""
        try:
            fields = parse_fields(data)
            fields[_NUMBER] = parse_fields(self._error or b"")[_NUMBER]
        except (ValueError, KeyError):
            return data
        return encode_fields(fields)

    def _answered(self, data: bytes) -> None:
        try:
            self._recall.answered(msgspec.json.decode(data, type=_Ended).response)
        except msgspec.MsgspecError:
            return  # a vendor's; nothing is gone on from it

    async def _end(self) -> None:
        """See that there is a last event: an error of which no other has told, if need be that
        there is none."""
        if self._ended:
            return
        self._ended = True
        self._recall.failed()
        try:
            said = msgspec.json.decode(self._error or _UNFINISHED, type=dict[str, Any])
        except msgspec.MsgspecError:
            said = {}
        await self._send_error(said.get("error"), said.get("status") or 500, said)

    async def _send_whole(self, body: bytes) -> None:
        """An error, or a response that a vendor gave as one."""
        try:
            said = msgspec.json.decode(body, type=dict[str, Any])
        except msgspec.MsgspecError:
            said = {}
        if self._status < 400:
            event = {"type": "response.completed", "sequence_number": 0, "response": said}
            self._recall.answered(said)
            await self._send(encode_json(event))
            return
        self._recall.failed()
        await self._send_error(said.get("error"), self._status, said)

    async def _send_error(self, error: object, status: int, said: Mapping[str, Any]) -> None:
        """The event `error`, in the form that it has over a WebSocket."""
        members = ("message", "type", "param", "code")
        told = {name: said.get(name) for name in members if name != "type"}
        if isinstance(error, dict):
            told |= error
        told.setdefault("type", "server_error" if status >= 500 else "invalid_request_error")
        told["code"] = told.get("code") or told["type"]
        if self._headers:
            told["headers"] = self._headers
        await self._send(encode_json({"type": "error", "status": status, "error": told}))

    async def _send(self, data: bytes) -> None:
        if self._lane:
            data = b"{" + self._lane + data.lstrip()[1:]
        if not self._begun:
            self._begun = True
            if self._headers:
                data = b'%b,"headers":%b}' % (data.rstrip()[:-1], encode_json(self._headers))
        await self._outlet.send(data)


def _type_of(data: bytes) -> bytes:
    try:
        return msgspec.json.decode(data, type=_Typed).type.encode()
    except msgspec.MsgspecError:
        return b""
