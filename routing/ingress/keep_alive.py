"""Keeps the connection of a stream open while there is nothing to say."""

from __future__ import annotations

import asyncio
import time

from routing.ingress.answer import Answer


class KeepAlive:
    """While entered, sends the dialect's keep-alive whenever nothing has been sent for `seconds`.

    It is an idle timer: a stream that speaks more often costs it nothing but a look at the clock.
    Before the first token it sends the headers too: the status is 200 then, and an error comes
    inside the stream.
    """

    def __init__(self, answer: Answer, seconds: float) -> None:
        self._answer = answer
        self._seconds = seconds
        self._sending: asyncio.Task[None] | None = None

    async def __aenter__(self) -> KeepAlive:
        self._loop = asyncio.get_running_loop()
        self._answer.last_sent = time.monotonic()
        self._timer = self._loop.call_later(self._seconds, self._look)
        return self

    def _look(self) -> None:
        silent = time.monotonic() - self._answer.last_sent
        if silent < self._seconds:
            self._timer = self._loop.call_later(self._seconds - silent, self._look)
            return
        self._sending = asyncio.create_task(self._send())
        self._answer.keep(self._sending)

    async def _send(self) -> None:
        await self._answer.keep_alive()
        self._timer = self._loop.call_later(self._seconds, self._look)

    async def __aexit__(self, exc_type: type[BaseException] | None, *_: object) -> None:
        self._timer.cancel()
        if self._sending is None:
            return
        # What comes next may be an error for the same stream: nothing is left half-sent.
        if exc_type is not None and issubclass(exc_type, asyncio.CancelledError):
            self._sending.cancel()
        await asyncio.gather(self._sending, return_exceptions=True)
        self._timer.cancel()
