"""The events of one server, none missed: subscribed to, and asked for again where some are."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING

from llama_compat.text.one_line import one_line
from providers.remote.vllm.messages import EventBatch, MalformedBatch, batch_of
from providers.remote.vllm.settings import KVEventsSettings

if TYPE_CHECKING:
    import zmq.asyncio

log = logging.getLogger(__name__)

REPLAY_SECONDS = 5.0
"""So long the server may take to repeat what was missed."""

AGAIN_SECONDS = 1.0
"""After what failed it is tried again that much later."""

_END = (-1).to_bytes(8, "big", signed=True)


class KVEventSubscription:
    """Follows one server.

    A number that is missing is asked for at the replay endpoint, which remembers the last 10,000
    unless the server was told otherwise. What can't be had again leaves nothing known, but for what
    comes after it. A server that was started anew counts from 0 again.

    Args:
        provider: whose server it is, for messages.
        settings: where it publishes.
        take: is given each batch, once and in order.
        lost: is called when nothing is known any more.
    """

    def __init__(
        self,
        provider: str,
        settings: KVEventsSettings,
        take: Callable[[EventBatch], None],
        lost: Callable[[], None],
    ) -> None:
        self._provider = provider
        self._settings = settings
        self._take = take
        self._lost = lost
        self._next = 0
        self._time = float("-inf")
        self._has_complained = False

    async def run(self) -> None:
        """Follow it until the task is cancelled."""
        import zmq
        import zmq.asyncio

        context = zmq.asyncio.Context()
        try:
            while True:
                try:
                    await self._follow(context)
                except zmq.ZMQError as error:
                    self._complain(f"{error}")
                    await asyncio.sleep(AGAIN_SECONDS)
        finally:
            context.destroy(linger=0)

    async def _follow(self, context: zmq.asyncio.Context) -> None:
        import zmq

        with context.socket(zmq.SUB) as socket:
            socket.setsockopt(zmq.RCVHWM, 0)  # what is missed has to be asked for again
            socket.subscribe(self._settings.topic)
            # Whoever comes back after it was gone may be another.
            gone = socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
            socket.connect(self._settings.endpoint)
            while True:
                frames = await socket.recv_multipart()
                while await gone.poll(0):
                    await gone.recv_multipart()
                    self._forget()
                if len(frames) == 3:
                    await self._heard(context, int.from_bytes(frames[1], "big"), frames[2])

    async def _heard(self, context: zmq.asyncio.Context, number: int, payload: bytes) -> None:
        batch = self._read(payload)
        if batch is None:
            return
        if number < self._next:
            if batch.time <= self._time:
                return  # it was repeated already
            self._forget()  # and begins anew, with what it may have told before this
        if number > self._next:
            await self._catch_up(context, number)
        if number >= self._next:
            self._give(number, batch)

    async def _catch_up(self, context: zmq.asyncio.Context, number: int) -> None:
        """Have what is missing before `number` repeated, and what has come since."""
        try:
            async with (
                asyncio.timeout(REPLAY_SECONDS),
                aclosing(self._repeated(context, self._next)) as repeated,
            ):
                async for at, payload in repeated:
                    batch = self._read(payload)
                    if at < self._next or batch is None:
                        continue
                    if at > self._next:
                        self._forget()  # the server does not remember what comes before
                    self._give(at, batch)
        except TimeoutError:
            self._complain("it does not repeat what was missed")
        if self._next < number:
            self._forget()
            self._next = number

    async def _repeated(
        self, context: zmq.asyncio.Context, first: int
    ) -> AsyncGenerator[tuple[int, bytes], None]:
        if self._settings.replay_endpoint is None:
            return
        async with _asking(context, self._settings.replay_endpoint) as socket:
            await socket.send_multipart([b"", first.to_bytes(8, "big")])
            while True:
                _, number, payload = await socket.recv_multipart()
                if number == _END:
                    return
                yield int.from_bytes(number, "big"), payload

    def _read(self, payload: bytes) -> EventBatch | None:
        try:
            return batch_of(payload)
        except MalformedBatch as error:
            self._complain(f"what it publishes can't be read: {error}")
            return None

    def _give(self, number: int, batch: EventBatch) -> None:
        self._next, self._time = number + 1, batch.time
        self._take(batch)

    def _forget(self) -> None:
        self._next = 0
        self._lost()

    def _complain(self, why: str) -> None:
        if not self._has_complained:
            self._has_complained = True
            log.warning(
                "provider %s: the events of its KV cache at %s are not known: %s",
                self._provider,
                self._settings.endpoint,
                one_line(why),
            )


@asynccontextmanager
async def _asking(context: zmq.asyncio.Context, endpoint: str) -> AsyncIterator[zmq.asyncio.Socket]:
    import zmq

    with context.socket(zmq.DEALER) as socket:
        socket.setsockopt(zmq.LINGER, 0)
        socket.connect(endpoint)
        yield socket
