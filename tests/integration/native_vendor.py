"""A vendor with an API of its own: a real HTTP server that answers with what a test gives it."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.server_thread import WebServerThread


@dataclass
class Received:
    """One request as it arrived."""

    method: str
    path: str
    headers: Mapping[str, str]
    content: bytes

    @property
    def body(self) -> Any:
        return json.loads(self.content)

    @property
    def wants_stream(self) -> bool:
        """Anthropic's clients say so in the body, Gemini's and Bedrock's in the path."""
        in_path = ":stream" in self.path or self.path.endswith("-stream")
        return in_path or bool(self.content and self.body.get("stream"))


@dataclass
class Answer:
    """What to answer with: a body, or the pieces of a stream, as bytes.

    Attributes:
        pieces: sent one after another, each in a chunk of its own.
        break_off: close the connection after them instead of ending the answer.
        hold: keep the connection open after them, until the peer closes it.
        after: answer only when this is set.
    """

    pieces: list[bytes]
    status: int = 200
    content_type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)
    break_off: bool = False
    hold: bool = False
    after: threading.Event | None = None


class NativeVendor(WebServerThread):
    """The server; a context manager that runs it in a thread of its own.

    Attributes:
        received: the requests so far.
        hung_up: set when the peer has closed the connection of an answer that is held.
    """

    handler_cancellation = True

    def __init__(self) -> None:
        self._whole = self._streamed = Answer([b"nothing to say"], status=500)
        self.received: list[Received] = []
        self.hung_up = threading.Event()

    @property
    def last(self) -> Received:
        """The latest request."""
        return self.received[-1]

    def will_answer(self, answer: Answer, *, streamed: Answer | None = None) -> None:
        """Answer from now on with `answer`, and those who want a stream with `streamed`."""
        self._whole = answer
        self._streamed = streamed or answer
        self.received.clear()
        self.hung_up.clear()

    def _add_routes(self, router: web.UrlDispatcher) -> None:
        router.add_route("*", "/{path:.*}", self._answer)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        content = await request.read()
        received = Received(request.method, request.path_qs, request.headers.copy(), content)
        self.received.append(received)
        answer = self._streamed if received.wants_stream else self._whole
        if answer.after is not None:
            await asyncio.to_thread(answer.after.wait, 20)
        headers = {"content-type": answer.content_type, **answer.headers}
        response = web.StreamResponse(status=answer.status, headers=headers)
        await response.prepare(request)
        for piece in answer.pieces:
            await response.write(piece)
        if answer.hold:
            await self._hold()
        if answer.break_off:
            assert request.transport is not None
            request.transport.close()
        return response

    async def _hold(self) -> None:
        try:
            await self._stop.wait()
        except asyncio.CancelledError:
            self.hung_up.set()
            raise
