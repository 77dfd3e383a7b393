"""An upstream that costs next to nothing: fixed chat completions, whole or streamed.

    python -m bench.load.upstream PORT EVENTS

A GET, with which routers of engines look at what is behind them, gets a list of models. A streamed
answer is EVENTS chunks, each a write of its own, one a turn of the event loop for every
stream that is open, so that many streams arrive interleaved as they do from a real engine. For the
user "paced" the events of a stream come one every 10 ms, as a fast engine sends them, and for the
user "slow" one a second.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from typing import Any, cast

import uvloop

_CONTENT_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_STREAM = re.compile(rb'"stream": ?true')
_PACE = re.compile(rb'"user": ?"(paced|slow)"')

PACE_SECONDS = {b"paced": 0.01, b"slow": 1.0}


def _chunk(event: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(event), event)


def _completion() -> dict[str, Any]:
    message = {"role": "assistant", "content": "Paris is the capital of France.", "refusal": None}
    return {
        "id": "chatcmpl-B9MBs8CjcvOU2jLn4n570S5qMJKcT",
        "object": "chat.completion",
        "created": 1741569952,
        "model": "upstream-model",
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 19, "completion_tokens": 10, "total_tokens": 29},
        "system_fingerprint": "fp_06737a9306",
    }


def _event(delta: dict[str, str], finish_reason: str | None) -> bytes:
    body = {
        "id": "chatcmpl-B9MBs8CjcvOU2jLn4n570S5qMJKcT",
        "object": "chat.completion.chunk",
        "created": 1741569952,
        "model": "upstream-model",
        "system_fingerprint": "fp_06737a9306",
        "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}],
    }
    return b"data: " + json.dumps(body, separators=(",", ":")).encode() + b"\n\n"


def _whole(body: dict[str, Any]) -> bytes:
    encoded = json.dumps(body, separators=(",", ":")).encode()
    head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(encoded)}\r\n\r\n".encode() + encoded


COMPLETION = _whole(_completion())
MODELS = _whole(
    {
        "object": "list",
        "data": [
            {"id": "model", "object": "model", "created": 1741569952, "owned_by": "upstream"},
        ],
    }
)
STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)
FIRST = _chunk(_event({"role": "assistant", "content": ""}, None))
MIDDLE = _chunk(_event({"content": " token"}, None))
LAST = _chunk(_event({}, "stop")) + _chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"


class Upstream(asyncio.Protocol):
    """One connection: requests one after the other, each answered at once."""

    def __init__(self, events: int) -> None:
        self._events = events
        self._received = b""
        self._left = 0
        self._paused = False
        self._pace: float | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._left = 0

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, blank, rest = self._received.partition(b"\r\n\r\n")
        if not blank:
            return
        length = _CONTENT_LENGTH.search(head)
        size = int(length[1]) if length else 0
        if len(rest) < size:
            return
        body, self._received = rest[:size], rest[size:]
        if head.startswith(b"GET "):
            self._transport.write(MODELS)
        elif _STREAM.search(body):
            self._transport.write(STREAM_HEAD + FIRST)
            self._left = self._events - 2
            pace = _PACE.search(body)
            self._pace = PACE_SECONDS[pace[1]] if pace else None
            self._schedule()
        else:
            self._transport.write(COMPLETION)

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        if self._left:
            self._schedule()

    def _schedule(self) -> None:
        loop = asyncio.get_running_loop()
        if self._pace:
            loop.call_later(self._pace, self._write_next)
        else:
            loop.call_soon(self._write_next)

    def _write_next(self) -> None:
        if self._paused or not self._left or self._transport.is_closing():
            return
        self._left -= 1
        if self._left:
            self._transport.write(MIDDLE)
            self._schedule()
        else:
            self._transport.write(LAST)


async def main(port: int, events: int) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Upstream(events), "127.0.0.1", port, backlog=512)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), int(sys.argv[2])))
