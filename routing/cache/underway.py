"""What has been asked, and is on its way: who asks for the same meanwhile gets it, too."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from llama_compat.exchange import Reply
from routing.cache.asked import CacheableCall
from routing.cache.flights import Errand, Flight
from routing.cache.lookup import Lookup
from routing.cache.replies.keeping import LARGEST_BYTES, ReplyKeeper
from routing.request import Handler, Request

if TYPE_CHECKING:
    from routing.layers.chain import Owner


class Underway:
    """The requests that have been sent on, and have not come to their end.

    Args:
        next: answers them.
        keeper: keeps what comes.
        owner: whose chain it is.
    """

    def __init__(self, next: Handler, keeper: ReplyKeeper, owner: Owner) -> None:
        self._next = next
        self._keeper = keeper
        self._owner = owner
        self._flights: dict[bytes, Flight | Errand] = {}
        self._airborne: set[Flight] = set()

    def __bool__(self) -> bool:
        """Whether anything is on its way that others may have."""
        return bool(self._flights or self._airborne)

    def at(self, key: bytes) -> Flight | Errand | None:
        """What is on its way that is found by `key`."""
        return self._flights.get(key)

    def has(self, keys: Sequence[bytes]) -> bool:
        """Whether anything is that is found by the first two of `keys`."""
        return keys[0] in self._flights or keys[1] in self._flights

    def find_by(self, meant: bytes, flight: Flight | Errand) -> None:
        """Have `flight` be found by what it means, too."""
        if not flight.is_over:
            self._flights.setdefault(meant, flight)

    async def stop(self) -> None:
        """End all of it."""
        await asyncio.gather(*(each.cancel() for each in self._airborne))

    async def boarded(self, flight: Flight | Errand) -> Reply | None:
        """The reply that `flight` brings; None where it fails before there is any."""
        flight.board()
        if isinstance(flight, Errand):
            try:
                await flight.over()
            finally:
                await flight.leave()
            return None if flight.reply is None else _again_of(flight.reply)
        try:
            return await flight.passenger()
        except Exception:
            await flight.leave()
            return None  # it is asked for once more, as if there had been no other
        except BaseException:
            await flight.leave()
            raise

    async def over(self, flight: Flight | Errand) -> None:
        """Wait for the end of `flight`, as one of those who want what it brings."""
        flight.board()
        try:
            await flight.over()
        finally:
            await flight.leave()

    async def ask(self, lookup: Lookup) -> Reply:
        """What the next layer answers, of which others get a copy as it comes, or when it is there,
        where that is the same bytes for all; it is kept."""
        call, as_written = lookup.call, lookup.asked.written
        if not call.stream and as_written is not None and as_written.exact not in self._flights:
            return await self.fetch(lookup)
        _counted(lookup)
        return await self._flown(lookup)

    async def fetch(self, lookup: Lookup) -> Reply:
        """The same, of a whole reply that nobody has asked for."""
        _counted(lookup)
        request, asked, flights = lookup.request, lookup.asked, self._flights
        errand = Errand()
        for key in asked.keys:
            flights.setdefault(key, errand)
        asked.scope.flights[errand] = asked
        request.stays = errand.stays
        try:
            reply = await self._next(request)
            body = reply.body
            if not isinstance(body, bytes):
                return await self._keeper.watch(lookup, reply)
            if not self._keeper.keep_unread(lookup, reply, body):
                await self._keeper.keep(lookup, reply, body)
            errand.reply = reply
            return reply
        finally:
            request.stays = None
            self._came_down(asked, errand)
            errand.end()

    async def _flown(self, lookup: Lookup) -> Reply:
        request, asked, flights = lookup.request, lookup.asked, self._flights
        as_written, keeper = asked.written, self._keeper
        if as_written is None or as_written.exact in flights:
            return await keeper.watch(lookup, await self._next(request))
        most = min(LARGEST_BYTES, lookup.cache.settings.max_bytes)
        landed = partial(keeper.keep, lookup)
        ended = partial(self._ended, request, asked)
        flight = Flight(partial(self._next, request), landed, ended, most)
        for key in asked.keys:
            flights.setdefault(key, flight)
        asked.scope.flights[flight] = asked
        self._airborne.add(flight)
        flight.board()
        try:
            reply = await flight.passenger()
        except BaseException:
            await flight.leave()
            self._left(request, flight)
            raise
        reply.when_closed(lambda _: self._left(request, flight))
        return reply

    def _came_down(self, asked: CacheableCall, flight: Flight | Errand) -> None:
        flights = self._flights
        asked.scope.flights.pop(flight, None)
        for key in asked.keys:
            if flights.get(key) is flight:
                del flights[key]

    async def _ended(self, request: Request, asked: CacheableCall, flight: Flight) -> None:
        self._airborne.discard(flight)
        self._came_down(asked, flight)
        if request.goes_on:
            try:
                await request.went_on(replace(request, reply=flight.reply, error=flight.error))
            finally:
                self._owner.release()

    def _left(self, request: Request, flight: Flight) -> None:
        """Who began a flight has left it: where that goes on, for others, so does the request, as
        it is this one that is paid for."""
        if not flight.is_over and not request.goes_on:
            request.goes_on = True
            self._owner.hold()


def _counted(lookup: Lookup) -> None:
    """Have the reply be recorded as it is made, with its usage."""
    request = lookup.request
    request.call = lookup.call = replace(lookup.call, recorded=True, counts_usage=True)


def _again_of(reply: Reply) -> Reply:
    """A whole reply that somebody else asked for."""
    return Reply(
        reply.body,
        status=reply.status,
        headers=reply.headers,
        dropped=reply.dropped,
        adapted=reply.adapted,
        read_usage=reply.read_usage,
    )
