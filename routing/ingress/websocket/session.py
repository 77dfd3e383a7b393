"""A client's WebSocket: each of its messages is a request, answered on the way of all requests."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from llama_compat.dialects.openai_responses.client_events import (
    RESPONSE_CREATE,
    Envelope,
    envelope,
)
from llama_compat.errors import APIError, internal_error
from llama_compat.off_loop import off_loop
from routing.asgi import UPGRADE, WATCH, Scope
from routing.ingress.answer import request_id_of
from routing.ingress.body import parse_body
from routing.ingress.edge import refuse, serve
from routing.ingress.websocket.frames import Frames
from routing.ingress.websocket.offer import check_origin
from routing.layers.keeping.recall import ConnectionMemory, Recall

if TYPE_CHECKING:
    from routing.http.websocket import WebSocket
    from routing.runtime import Runtime

log = logging.getLogger(__name__)

NORMAL, GOING_AWAY, POLICY, INTERNAL, LATER = 1000, 1001, 1008, 1011, 1013
"""Why a WebSocket is closed (RFC 6455, section 7.4.1, and its registry)."""

_CODES = {
    "websocket_connection_limit_reached": NORMAL,
    "request_timeout": POLICY,
    "server_busy": LATER,
}


def open_websocket(scope: Scope, current: Callable[[], Runtime]) -> Awaitable[None]:
    """Make a WebSocket of the connection of a request whose key is good.

    Args:
        scope: of the request that offers it.
        current: tells from what to answer now: a reload changes that.

    Returns:
        What serves it to its end.

    Raises:
        APIError: 400 or 426, it is not offered as it should be; 403, by a web page that may not.
    """
    runtime = current()
    check_origin(scope, runtime.settings)
    request_id = request_id_of(scope)
    limit, waiting = runtime.settings.max_body_bytes, runtime.bodies.one()
    socket = scope["extensions"][UPGRADE](request_id, limit, waiting)
    memory = ConnectionMemory(limit, runtime.bodies.one())
    return Session(scope, socket, memory, current, request_id).run()


class Session:
    """Answers the messages of one WebSocket.

    Those of one lane (`stream_id`; none is a lane as well) are answered one after the other, lanes
    side by side. Each is a request of its own: whose key it is is looked up again, it has a line in
    the log and a record, and the limits hold for it.
    """

    def __init__(
        self,
        scope: Scope,
        socket: WebSocket,
        memory: ConnectionMemory,
        current: Callable[[], Runtime],
        request_id: str,
    ) -> None:
        self._scope = scope
        self._socket = socket
        self._memory = memory
        self._current = current
        self._request_id = request_id
        self._messages = 0
        self._lanes: dict[str | None, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Serve it until it is closed."""
        code, reason = GOING_AWAY, "the server is ending"
        try:
            while (message := await self._socket.receive()) is not None:
                await self._begin(message)
            if self._tasks and not self._socket.gone:
                await asyncio.wait(self._tasks)
        except APIError as error:
            code, reason = _CODES.get(error.code or "", INTERNAL), error.code or ""
            await self._tell(error)
        except asyncio.CancelledError:
            # The server ends, and the time for what runs is over: each of them says so.
            await self._cancel()
            raise
        finally:
            self._socket.close(code, reason)
            if self._tasks:
                await asyncio.wait(self._tasks)
            self._memory.clear()

    async def _cancel(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _tell(self, error: APIError) -> None:
        """What is no answer to any message."""
        frames = Frames(self._socket, None, Recall(self._memory, None, None))
        body = error.json()
        headers = [(name.encode(), value.encode()) for name, value in error.headers.items()]
        await frames({"type": "http.response.start", "status": error.status, "headers": headers})
        await frames({"type": "http.response.body", "body": body})

    async def _begin(self, message: bytes) -> None:
        """Have `message` answered when it is its turn."""
        self._messages += 1
        number, about = self._messages, await _envelope_of(message)
        before = self._lanes.get(about.stream_id)
        task = asyncio.create_task(self._turn(message, number, about, before))
        self._lanes[about.stream_id] = task
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        for lane in [lane for lane, last in self._lanes.items() if last is task]:
            del self._lanes[lane]
        self._socket.done()
        if not task.cancelled() and task.exception() is not None:
            log.error("a message of a WebSocket failed", exc_info=task.exception())

    async def _turn(
        self, message: bytes, number: int, about: Envelope, before: asyncio.Task[None] | None
    ) -> None:
        if before is not None:
            await asyncio.wait([before])
        if self._socket.gone:
            return
        runtime = self._current()
        runtime.hold()
        try:
            await self._answer(message, number, about, runtime)
        finally:
            runtime.release()

    async def _answer(self, message: bytes, number: int, about: Envelope, runtime: Runtime) -> None:
        recall = Recall(self._memory, runtime.responses, about.previous_response_id)
        frames = Frames(self._socket, about.stream_id, recall)
        one = _Message(self._socket, message)
        scope = {
            **self._scope,
            "method": "POST",
            "request_id": f"{self._request_id}-{number}",
            "extensions": {WATCH: one.watch},
        }
        try:
            principal = await runtime.principal(scope["headers"])
        except APIError as error:
            dialect = RESPONSE_CREATE.dialect
            await refuse(scope, frames, runtime, RESPONSE_CREATE, dialect, error, None)
            self._socket.close(POLICY, error.code or "")
            return
        try:
            await serve(
                scope,
                one.receive,
                frames,
                runtime,
                RESPONSE_CREATE,
                principal,
                recall=recall,
            )
        except Exception:
            log.exception("%s failed", scope["request_id"])
            await self._tell(internal_error())
        finally:
            one.watch(None)


class _Message:
    """A message as the body of a request."""

    def __init__(self, socket: WebSocket, message: bytes) -> None:
        self._socket = socket
        self._message = message
        self._watcher: Callable[[], None] | None = None

    async def receive(self) -> dict[str, Any]:
        """ASGI's: all of it, which is the request's to account for from then on."""
        message, self._message = self._message, b""
        self._socket.taken(len(message))
        return {"type": "http.request", "body": message, "more_body": False}

    def watch(self, on_leaving: Callable[[], None] | None) -> None:
        """Have `on_leaving` called when the client goes; None ends that."""
        if self._watcher is not None:
            self._socket.watch(self._watcher, ends=True)
        self._watcher = on_leaving
        if on_leaving is not None:
            self._socket.watch(on_leaving)


async def _envelope_of(message: bytes) -> Envelope:
    if b'"stream_id"' not in message and b'"previous_response_id"' not in message:
        return Envelope()
    try:
        return await off_loop(len(message), lambda: envelope(parse_body(message)))
    except APIError:
        return Envelope()  # what it is answered says why
