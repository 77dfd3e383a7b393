"""A reply that has come to its end is kept, if it is one to be kept."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from llama_compat.exchange import Reply
from llama_compat.off_loop import LARGE_BYTES, off_loop
from routing.cache.lookup import Lookup
from routing.cache.replies.entries import Unread, entry_of, own_headers, read_now, told_of
from routing.cache.replies.store import ENTRY_BYTES, Entry, MemoryReplies

log = logging.getLogger(__name__)

LARGEST_BYTES = 16 << 20
"""A reply that is longer is not kept."""


class ReplyKeeper:
    """Keeps replies.

    Args:
        clock: tells the time, in seconds since 1970.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock

    async def keep(self, lookup: Lookup, reply: Reply, body: bytes) -> None:
        """Keep the reply that came for `lookup`, whose bytes are `body`; it never fails."""
        asked, cache, request = lookup.asked, lookup.cache, lookup.request
        store, scope = cache.store, asked.scope
        if len(body) > min(LARGEST_BYTES, cache.settings.max_bytes):
            return
        try:
            if len(scope.wires) > 1 or store.is_shared:
                await asked.read(cache.settings)
            if len(body) > LARGE_BYTES:
                entry = await off_loop(len(body), entry_of, lookup.call, asked, reply, body)
            else:
                entry = entry_of(lookup.call, asked, reply, body)
        except ValueError as error:
            log.debug("%s is not kept, as it can't be read: %s", request.request_id, error)
            return
        except Exception:
            log.exception("the reply to %s is not kept", request.request_id)
            return
        if entry is None or not entry.keys:
            return
        last = request.attempts.last
        if last is not None:
            entry.headers = told_of(last.target, own_headers(reply))
        entry.kept_at = self._clock()
        if store.is_shared:
            await off_loop(len(body), read_now, entry)
        elif not asked.is_read:
            entry.waiting = scope.waiting
        if isinstance(store, MemoryReplies):
            store.put(entry)
        else:
            await store.keep(entry)
        if entry.waiting is not None and entry.number:
            entry.waiting.add(entry.number)
        if lookup.compared is not None and cache.questions is not None:
            cache.questions.add(lookup.compared, entry.keys[0])

    def keep_unread(self, lookup: Lookup, reply: Reply, body: bytes) -> bool:
        """Keep a whole reply without a look at it, if that may be; False where it may not."""
        asked, cache, last = lookup.asked, lookup.cache, lookup.request.attempts.last
        store, keys = cache.store, asked.keys
        if (
            lookup.compared is not None
            or not isinstance(store, MemoryReplies)
            or reply.recording is not None
            or last is None
            or len(body) > LARGE_BYTES
            or asked.written is None
            or reply.dropped
            or reply.adapted
            or len(asked.scope.wires) > 1
            or store.has(keys)
        ):
            return False
        unread = Unread(asked, reply.read_usage, own_headers(reply), last.target)
        entry = Entry(keys, asked.call.operation.name, body, None, asked=asked, unread=unread)
        entry.kept_at = self._clock()
        # What it was read from is there as long as nobody has looked at it.
        store.put_unread(entry, 2 * len(body) + asked.size + ENTRY_BYTES)
        if entry.number and not asked.is_read:
            entry.waiting = waiting = asked.scope.waiting
            waiting.add(entry.number)
        return True

    async def watch(self, lookup: Lookup, reply: Reply) -> Reply:
        """`reply`, which is kept when it has come whole, before its client knows of its end."""
        if isinstance(reply.body, bytes):
            await self.keep(lookup, reply, reply.body)
            return reply
        reply.body = self._watched(lookup, reply, reply.body)
        # A generator that has not begun would not close what it reads from.
        await anext(reply.body)
        return reply

    async def _watched(
        self, lookup: Lookup, reply: Reply, body: AsyncGenerator[bytes, None]
    ) -> AsyncGenerator[bytes, None]:
        async with aclosing(body):
            pieces, size = [reply.first], len(reply.first)
            yield b""
            async for piece in body:
                if size <= LARGEST_BYTES:
                    pieces.append(piece)
                    size += len(piece)
                yield piece
        if size <= LARGEST_BYTES:
            await self.keep(lookup, reply, b"".join(pieces))
