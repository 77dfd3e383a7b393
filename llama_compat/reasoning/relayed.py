"""Replies that are relayed: their bytes go by as they are, and are looked into once, at their end,
if they call a tool."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing

from llama_compat.dialects.base import Said, WireTurns
from llama_compat.exchange import Reply
from llama_compat.off_loop import off_loop
from llama_compat.reasoning.recollection import Recollection, TurnPlace

log = logging.getLogger(__name__)

MAX_BYTES = 16 << 20
"""Of a longer reply nothing is kept."""


async def watched(
    reply: Reply, turns: WireTurns, said: Said, recollection: Recollection, place: TurnPlace
) -> Reply:
    """`reply`, of which what was thought is kept before the client knows of its end.

    Args:
        reply: in the client's own language.
        turns: where that has what was thought.
        said: reads what was said in it.
        recollection: of the target that answered.
        place: where the conversation had come to.
    """
    watch = _Watch(turns, said, recollection, place)
    try:
        if isinstance(reply.body, bytes):
            await watch.whole(reply.body)
        else:
            first, reply.first = reply.first, b""
            await watch.look(first)
            reply.body = watch.stream(reply.body)
            # A generator that has not begun would not close what it reads from.
            reply.first = first + await anext(reply.body)
    except BaseException:
        await reply.aclose()
        raise
    return reply


class _Watch:
    """Remembers what has come of one reply until all of its calls are there."""

    def __init__(
        self, turns: WireTurns, said: Said, recollection: Recollection, place: TurnPlace
    ) -> None:
        self._turns = turns
        self._said = said
        self._recollection = recollection
        self._place = place
        self._pieces: list[bytes] | None = []
        self._size = 0
        self._called = False

    async def whole(self, body: bytes) -> None:
        if len(body) <= MAX_BYTES and self._turns.called.search(body):
            await off_loop(len(body), self._keep, body, False)

    async def look(self, piece: bytes) -> None:
        """See to the next piece of a stream, before the client gets it."""
        pieces = self._pieces
        if pieces is None:
            return
        pieces.append(piece)
        self._size += len(piece)
        self._called = self._called or self._turns.called.search(piece) is not None
        if self._size > MAX_BYTES or self._turns.ended.search(piece):
            self._pieces = None
            if self._called and self._size <= MAX_BYTES:
                await off_loop(self._size, self._keep, b"".join(pieces), True)

    async def stream(self, body: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
        async with aclosing(body):
            yield b""
            async for piece in body:
                if self._pieces is not None:
                    await self.look(piece)
                yield piece

    def _keep(self, said: bytes, streamed: bool) -> None:
        try:
            reply = self._said(said, streamed)
        except ValueError as error:
            # The client may make something of it all the same: it is no fault of the reply.
            log.debug("what was thought is not kept, as the reply can't be read: %s", error)
            return
        if reply is not None:
            self._recollection.keep(self._place, reply.completion_message)
