"""One request to the provider that serves its model, for as long as the client is there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType

from routing.asgi import Receive, Watch

CLIENT_LEFT = 499
"""The status of a request whose client left before there was one (nginx's number for it)."""


class ClientGone(Exception):
    """The client went away: there is nobody to answer."""


WATCH_AFTER_SECONDS = 0.02
"""Under a server that only `receive` tells of a client: a request that is answered sooner costs no
watching, which takes a task."""


class ClientWatch:
    """While entered, cancels its block when the client disconnects, and raises `ClientGone`.

    Whatever the block awaits (an upstream's first byte, the engine's next token, room in the
    client's socket) is cancelled at once. A cancellation from elsewhere passes through untouched.

    Args:
        receive: the ASGI channel of a request whose body has been read to the end.
        watch: the server's way to tell that the client goes, if it has one.
        stays: says, when the client has left, whether the block goes on for others, and calls what
            it is given when none of them is left.
    """

    def __init__(
        self,
        receive: Receive,
        watch: Watch | None = None,
        stays: Callable[[Callable[[], None]], bool] | None = None,
    ) -> None:
        self._receive = receive
        self._watch = watch
        self._stays = stays
        self._gone = False
        self._stayed = False
        self._timer: asyncio.TimerHandle | None = None
        self._watcher: asyncio.Task[None] | None = None

    def __enter__(self) -> ClientWatch:
        block = asyncio.current_task()
        assert block is not None
        self._block = block
        if self._watch is not None:
            self._watch(self._leave)
        else:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(WATCH_AFTER_SECONDS, self._begin)
        return self

    def _begin(self) -> None:
        self._watcher = asyncio.create_task(self._receive_until_gone())

    async def _receive_until_gone(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._leave()

    def _leave(self) -> None:
        if self._stays is not None and self._stays(self._give_up):
            self._stayed = True
        else:
            self._give_up()

    def _give_up(self) -> None:
        self._gone = True
        self._block.cancel()

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._watch is not None:
            self._watch(None)
        if self._timer is not None:
            self._timer.cancel()
        if self._watcher is not None:
            # Not awaited: it ends in the loop's next round, for which no request has to wait.
            self._watcher.cancel()
        if self._gone and isinstance(exc, asyncio.CancelledError):
            self._block.uncancel()
            raise ClientGone
        if self._stayed and exc is None:
            raise ClientGone
