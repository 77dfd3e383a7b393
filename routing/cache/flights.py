"""Requests that are the same at the same time: one asks, and all get what comes, as it comes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import ClassVar

from msgspec import Struct

from llama_compat.errors import APIError, internal_error, shutting_down
from llama_compat.exchange import Reply

AHEAD_BYTES = 256 * 1024
"""So far a reply is read ahead of the client that is furthest."""

Ask = Callable[[], Awaitable[Reply]]


class Errand(Struct, eq=False):
    """One request for a whole reply, asked by who came first, in their own task. Nothing more is
    made of it as long as nobody else waits.

    Whoever wants the reply as well boards, as a `Flight`; who came first stays until it is there,
    even if their client leaves, while anybody else waits.

    Attributes:
        reply: the one that came; None where none did, or it is over for nobody yet.
        aboard: how many others wait.
        is_over: whether it has come to its end.
    """

    reply: Reply | None = None
    aboard: int = 0
    is_over: bool = False
    _waiting: list[asyncio.Future[None]] = []
    _desert: Callable[[], None] | None = None

    is_full: ClassVar = False

    def stays(self, desert: Callable[[], None]) -> bool:
        """Whether others wait, now that the client of who came first has left; when the last of
        them has, too, `desert` is called."""
        if not self.aboard:
            return False
        self._desert = desert
        return True

    def board(self) -> None:
        """One more wants the reply; `leave` is the end of that."""
        self.aboard += 1

    async def leave(self) -> None:
        """One of those on board leaves."""
        self.aboard -= 1
        if not self.aboard and self._desert is not None and not self.is_over:
            self._desert()

    async def over(self) -> None:
        """Wait for its end, whatever that is."""
        if not self.is_over:
            news = asyncio.get_running_loop().create_future()
            self._waiting.append(news)
            await news

    def end(self) -> None:
        """It has come to its end."""
        self.is_over = True
        for each in self._waiting:
            if not each.done():
                each.set_result(None)


class Flight:
    """One request on its way to its reply, in a task of its own, as it may outlive who began it.

    Whoever wants the reply boards; when nobody is left on board before its end, it is cancelled.

    Args:
        ask: asks for the reply.
        landed: told of a reply that came whole, with its bytes, before anybody knows of its end.
        ended: told when it is over, however that was.
        most_bytes: a reply that is longer is not kept, and nobody boards any more.
    """

    def __init__(
        self,
        ask: Ask,
        landed: Callable[[Reply, bytes], Awaitable[None]],
        ended: Callable[[Flight], Awaitable[None]],
        most_bytes: int,
    ) -> None:
        self._ask = ask
        self._landed = landed
        self._ended = ended
        self._most_bytes = most_bytes
        self.reply: Reply | None = None
        self.aboard = 0
        self.is_full = False
        self._error: Exception | None = None
        self._told: bytes | None = None
        self._pieces: list[bytes] = []
        self._size = 0
        self._furthest = 0
        self._over = False
        self._waiting: list[asyncio.Future[None]] = []
        self._room: asyncio.Event | None = None
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._fly())

    def board(self) -> None:
        """One more wants the reply; `leave` is the end of that."""
        self.aboard += 1

    async def leave(self) -> None:
        """One of those on board leaves, at the end or before. The last one waits until what was
        asked has been given up."""
        self.aboard -= 1
        if not self.aboard and not self._over:
            await self.cancel()

    async def cancel(self) -> None:
        """End it, whoever is on board."""
        self._task.cancel()
        await asyncio.wait([self._task])

    @property
    def is_over(self) -> bool:
        """Whether it has come to its end."""
        return self._over

    @property
    def error(self) -> APIError | None:
        """What it ended in, if that was an error."""
        error = self._error
        return error if error is None or isinstance(error, APIError) else internal_error()

    async def begun(self) -> Reply:
        """The reply as it was handed over, whose content has begun.

        Raises:
            Exception: what came in its place.
        """
        while self.reply is None:
            if self._error is not None:
                raise self._error
            await self._more()
        return self.reply

    async def passenger(self) -> Reply:
        """The reply for one of those on board, who boarded before; it leaves when that closes.

        Raises:
            Exception: what came in its place.
        """
        reply = await self.begun()
        body: bytes | AsyncGenerator[bytes, None] = reply.body
        first = b""
        if not isinstance(body, bytes):
            body = self._read()
            await anext(body)
            first = await anext(body)
        return Reply(
            body,
            first,
            status=reply.status,
            headers={**reply.headers},
            dropped=reply.dropped,
            adapted=reply.adapted,
            read_usage=reply.read_usage,
            render_error=None if reply.render_error is None else self._tell,
        )

    # What comes -----------------------------------------------------------------------------------

    async def _fly(self) -> None:
        try:
            reply = await self._ask()
            await self._follow(reply)
        except Exception as error:
            self._error = error
        except asyncio.CancelledError:
            self._error = shutting_down()  # for whoever is still on board
            raise
        finally:
            self._over = True
            self._tell_waiting()
            await self._ended(self)

    async def _follow(self, reply: Reply) -> None:
        try:
            body = reply.body
            if isinstance(body, bytes):
                self._pieces.append(body)
            else:
                self._add(reply.first)
                self.reply = reply
                async for piece in body:
                    self._add(piece)
                    while self._size - self._furthest > AHEAD_BYTES:
                        self._room = asyncio.Event()
                        await self._room.wait()
                        self._room = None
                reply.read_to_end = True
        except APIError as error:
            reply.error = self._error = error
            if reply.render_error is not None:
                self._told = reply.render_error(error)
        except Exception as error:
            reply.error, self._error = internal_error(), error
        finally:
            await reply.aclose()
        if self._error is None and not self.is_full:
            await self._landed(reply, b"".join(self._pieces))
        self.reply = reply

    def _add(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._size += len(piece)
        self.is_full = self._size > self._most_bytes
        self._tell_waiting()

    def _tell(self, error: APIError) -> bytes:
        """The error that the stream ends in; who tells of another comes here too."""
        if self._told is not None and error is self._error:
            return self._told
        assert self.reply is not None
        assert self.reply.render_error is not None
        return self.reply.render_error(error)

    # Who reads it ---------------------------------------------------------------------------------

    async def over(self) -> None:
        """Wait for its end, whatever that is."""
        while not self._over:
            await self._more()

    async def _more(self) -> None:
        news = self._loop.create_future()
        self._waiting.append(news)
        await news

    def _tell_waiting(self) -> None:
        waiting = self._waiting
        if waiting:
            self._waiting = []
            for each in waiting:
                if not each.done():
                    each.set_result(None)

    async def _read(self) -> AsyncGenerator[bytes, None]:
        """All of the stream, from its beginning.

        The first item is empty: a generator that has not begun would not leave when it is closed.
        """
        try:
            yield b""
            place = size = 0
            while True:
                while place < len(self._pieces):
                    piece = self._pieces[place]
                    place += 1
                    size += len(piece)
                    if size > self._furthest:
                        self._furthest = size
                        if self._room is not None:
                            self._room.set()
                    yield piece
                    if self.is_full and self.aboard == 1:
                        self._pieces[place - 1] = b""
                if self._over:
                    break
                await self._more()
            if self._error is not None:
                raise self._error
        finally:
            await self.leave()
