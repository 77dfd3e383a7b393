"""Replies that were given before are given again: from the cache, or from a request that is on its
way already.

A request is looked for by its bytes, then by what is written in them, and by what it means only
where it might be that another of a client's APIs has asked the same. What a reply says is read when
somebody wants it in another form.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextlib import aclosing
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from llama_compat.exchange import Call, Reply
from llama_compat.off_loop import LARGE_BYTES, off_loop
from llama_compat.translation import replayed
from routing.cache.alike import AlikeQuestions
from routing.cache.asked import CacheableCall, CacheScopes, Place
from routing.cache.control import HEADER as CONTROL_HEADER
from routing.cache.control import USUAL, CacheControl, cache_control
from routing.cache.embeddings import CacheableEmbedding, Vectors
from routing.cache.entries import entry_of, keep_copy, read_back, read_now, same_bytes
from routing.cache.exact import ExactCache
from routing.cache.flights import Errand, Flight
from routing.cache.store import Entry, MemoryHit, MemoryReplies, age_of
from routing.layers.chain import Owner
from routing.layers.guardrails import Guardrails
from routing.models import Route
from routing.policy.wanted import PIN_HEADER, header
from routing.request import Handler, Request

if TYPE_CHECKING:
    from routing.cache.semantic import AskedQuestion

log = logging.getLogger(__name__)

HEADER = "x-llama-compat-cache"

SIMILARITY = "x-llama-compat-cache-similarity"

LARGEST_BYTES = 16 << 20
"""A reply that is longer is not kept."""

MAX_KNOWN = 8
"""Of so many keys, or versions of an API, it is known what the same bytes ask for."""

Landed = Callable[[Reply, bytes], Awaitable[None]]
"""Told of a reply that has come to its end, and of its bytes."""


class CacheLayer:
    """Answers from the cache what is in it, and keeps what comes.

    Args:
        next: answers the others.
        caches: those of models that have one, or None, by the models' ids; by an empty name that
            of all others.
        owner: whose chain it is.
        clock: tells the time, in seconds since 1970.
        guardrails: what replies have passed that come here; None for nothing.
    """

    def __init__(
        self,
        next: Handler,
        caches: Mapping[str, ExactCache | None],
        owner: Owner,
        clock: Callable[[], float] = time.time,
        guardrails: Guardrails | None = None,
    ) -> None:
        self._next = next
        self._scopes = CacheScopes(guardrails)
        self._caches = caches
        self._owner = owner
        self._alike = AlikeQuestions(next, owner, guardrails)
        self._clock = clock
        self._flights: dict[bytes, Flight | Errand] = {}
        self._airborne: set[Flight] = set()
        self._vectors = Vectors()

    def __call__(self, request: Request) -> Awaitable[Reply]:
        """Answer a request.

        Raises:
            APIError: what the next layer raises.
        """
        call, route = request.call, request.route
        assert call is not None
        assert route is not None
        caches = self._caches
        cache = caches[route.name] if route.name in caches else caches.get("")
        if cache is None:
            return self._next(request)
        kind = call.operation.kind
        if kind in ("chat", "completion"):
            headers, reading = request.attempts.headers, request.reading
            named = dict(headers)
            control = cache_control(headers) if CONTROL_HEADER in named else USUAL
            pin = header(headers, PIN_HEADER) if PIN_HEADER in named else None
            place: Place | None = None
            # Where replies are kept for clients, each has an id of its own, and another call for
            # it, of which nothing has been read.
            if (
                reading is not None
                and reading.fields is call.fields
                and call.operation is request.operation
            ):
                place = self._scopes.place(call, route, cache, pin)
                if control is USUAL and reading.known:
                    reply = self._at_once(request, call, reading.known.get(place), route, cache)
                    if reply is not None:
                        return Ready(reply)
            return self._answer(request, call, route, cache, control, pin, place)
        if kind == "embedding":
            return self._embedded(request, call, route, cache)
        return self._next(request)

    async def stop(self) -> None:
        """End what is on its way."""
        await asyncio.gather(*(each.cancel() for each in self._airborne))

    # Vectors --------------------------------------------------------------------------------------

    async def _embedded(
        self, request: Request, call: Call, route: Route, cache: ExactCache
    ) -> Reply:
        control = cache_control(request.attempts.headers)
        scope = self._scopes.of(call, route, cache)
        pin = header(request.attempts.headers, PIN_HEADER)
        asked: CacheableEmbedding | None = None
        if not control.no_store:
            where = (*scope.where, "pin", pin or "")
            asked = await off_loop(
                call.size, CacheableEmbedding.of, call, route.target.model, where
            )
        if asked is None:
            return _said(await self._next(request), "bypass")

        async def ask(some: Call) -> Reply:
            request.call = some
            return await self._next(request)

        reply, age = await self._vectors.answer(
            asked,
            cache.store,
            ask,
            self._clock(),
            max_age=control.max_age,
            anew=control.no_cache,
        )
        request.call = call
        request.cached = request.attempts.last is None
        if age is None:
            return _said(reply, "bypass" if control.no_cache else "miss")
        reply.headers = {
            **reply.headers,
            HEADER: "hit" if request.cached else "miss",
            "age": str(int(age)),
        }
        return reply

    # What is there --------------------------------------------------------------------------------

    def _at_once(
        self,
        request: Request,
        call: Call,
        known: CacheableCall | None,
        route: Route,
        cache: ExactCache,
    ) -> Reply | None:
        """What is in the memory of this process for who has asked with the same bytes before, and
        wants nothing else of the cache; None where more has to be looked at."""
        store = cache.store
        if known is None or known.route is not route or known.may_be_kept is False:
            return None
        if not isinstance(store, MemoryReplies):
            return None
        assert known.written is not None
        entry = store.at(known.written.exact)
        if entry is None:
            return None
        request.hit = MemoryHit(store, entry)
        return self._hit(request, same_bytes(entry, call), entry)

    async def _answer(
        self,
        request: Request,
        call: Call,
        route: Route,
        cache: ExactCache,
        control: CacheControl,
        pin: str | None,
        place: Place | None,
    ) -> Reply:
        is_kept = call.operation is not request.operation
        # A vendor knows the responses of a WebSocket on that alone; what is said of files comes of
        # those of the key, and they change; what a tool of a server does is done each time.
        of_a_socket = request.recall is not None and not is_kept
        if control.no_store or of_a_socket or _has_more_to_do(call):
            return _said(await self._next(request), "bypass")
        reading, asks = request.reading, self._scopes.asks
        if reading is None or place is None:
            asked = await off_loop(call.size, asks, call, route, cache, pin, is_kept=is_kept)
        else:
            known: CacheableCall | None = reading.known.get(place)
            if known is None or known.route is not route:
                size = len(request.body)
                known = asks(call, route, cache, pin, body_bytes=size, whose=place[0])
                if len(reading.known) >= MAX_KNOWN:
                    reading.known.clear()
                reading.known[place] = known
            asked = known
        if asked.may_be_kept is False:
            return _said(await self._next(request), "bypass")
        if not control.no_cache and self._may_be_found(asked, cache):
            reply = await self._found(request, call, asked, cache, control.max_age)
            if reply is not None:
                return reply
        if asked.may_be_kept is None:
            await asked.read(cache.settings)
        if not asked.may_be_kept:
            return _said(await self._next(request), "bypass")
        compared: AskedQuestion | None = None
        if cache.questions is not None and not control.no_cache:
            compared = await self._alike.compared(request, call, asked, cache)
            if compared is not None:
                reply = await self._like(request, call, asked, cache, compared, control.max_age)
                # The same may have been asked meanwhile.
                reply = reply or await self._found(request, call, asked, cache, control.max_age)
                if reply is not None:
                    return reply
        request.call = call = replace(call, recorded=True, counts_usage=True)
        as_written = asked.written
        if call.stream or as_written is None or as_written.exact in self._flights:
            landed = partial(self._landed, request, call, asked, cache, compared)
            reply = await self._flown(request, asked, cache, landed)
        else:
            reply = await self._fetched(request, call, asked, cache, compared)
        return _said(reply, "bypass" if control.no_cache else "miss")

    def _may_be_found(self, asked: CacheableCall, cache: ExactCache) -> bool:
        """Whether anything may be there, or on its way, for who comes by the only API of all."""
        store, flights, keys = cache.store, self._flights, asked.keys
        if len(asked.scope.wires) > 1 or asked.written is None or asked.meaning is not None:
            return True
        if not isinstance(store, MemoryReplies) or store.has(keys):
            return True
        return keys[0] in flights or keys[1] in flights

    async def _found(
        self,
        request: Request,
        call: Call,
        asked: CacheableCall,
        cache: ExactCache,
        max_age: float | None,
    ) -> Reply | None:
        """What is there, or on its way; None where there is nothing."""
        as_written, store, scope = asked.written, cache.store, asked.scope
        if as_written is not None:
            if isinstance(store, MemoryReplies):
                entry = store.look(as_written.keys, max_age)
            else:
                entry = await store.find(as_written.keys, max_age)
            if entry is not None:
                if entry.keys[0] == as_written.exact:
                    return self._hit(request, same_bytes(entry, call), entry)
                await asked.read(cache.settings)
                reply = await self._translated(request, call, asked, entry, cache)
                if reply is not None:
                    return reply
            flight = self._flights.get(as_written.exact)
            if flight is not None and not flight.is_full:
                return await self._boarded(request, flight)
        # As long as all come by one API, nobody need know what any of it means.
        if len(scope.wires) > 1 or as_written is None or store.is_shared:
            await self._read_others(asked, cache)
        if asked.meant is not None and asked.may_be_kept:
            entry = await store.find((asked.meant,), max_age)
            # Two ways to write it in one API may be more than the vocabulary can tell apart.
            if entry is not None and (as_written is None or entry.wire != asked.wire):
                return await self._translated(request, call, asked, entry, cache)
        for key in asked.keys[1:] if as_written is not None else asked.keys:
            flight = self._flights.get(key)
            if flight is not None:
                return await self._landing(request, call, asked, flight, key, cache, max_age)
        return None

    async def _read_others(self, asked: CacheableCall, cache: ExactCache) -> None:
        """Find out what `asked` means, and all others that might mean the same."""
        scope = asked.scope
        await asked.read(cache.settings)
        for flight, other in list(scope.flights.items()):
            await other.read(cache.settings)
            if other.meant is not None and not flight.is_over:
                self._flights.setdefault(other.meant, flight)
        store = cache.store
        if isinstance(store, MemoryReplies):
            while scope.waiting:
                number = scope.waiting.pop()
                entry = store.numbered(number)
                if entry is not None and entry.asked is not None:
                    meant = await entry.asked.key_of_meaning()
                    if meant is not None and store.numbered(number) is entry:
                        store.add_key(entry, meant)

    def _hit(self, request: Request, reply: Reply, entry: Entry) -> Reply:
        request.cached = True
        age = str(int(age_of(entry, self._clock())))
        reply.headers = {**reply.headers, **entry.headers, HEADER: "hit", "age": age}
        return reply

    async def _translated(
        self,
        request: Request,
        call: Call,
        asked: CacheableCall,
        entry: Entry,
        cache: ExactCache,
        *,
        is_same: bool = True,
    ) -> Reply | None:
        """What is there in another form, or in another client's language, put into this one; None
        where nobody can.

        Args:
            request, call, asked: the request.
            entry: what is there.
            cache: where.
            is_same: whether it answers the same question, and not one that is alike.
        """
        meant = asked.meaning
        if meant is None or entry.choices != len(meant.translation.requests):
            return None
        if entry.draws and not call.operation.shows_images:
            return None
        recording = await read_back(entry)
        if recording is None:
            return None
        reply = await replayed(meant.translation, call, recording)
        if entry.wire == asked.wire:
            reply.dropped, reply.adapted = entry.dropped, entry.adapted
        store = cache.store
        if is_same and asked.written is not None and isinstance(store, MemoryReplies):
            await keep_copy(store, entry, asked, reply)
        return self._hit(request, reply, entry)

    async def _like(
        self,
        request: Request,
        call: Call,
        asked: CacheableCall,
        cache: ExactCache,
        compared: AskedQuestion,
        max_age: float | None,
    ) -> Reply | None:
        """The reply to a question that is so much alike that it may be given; None for none."""
        found = self._alike.found(request, cache, compared, max_age)
        async with aclosing(found) as entries:
            async for entry, similarity in entries:
                reply = await self._translated(request, call, asked, entry, cache, is_same=False)
                if reply is not None:
                    reply.headers = {**reply.headers, SIMILARITY: f"{similarity:.4f}"}
                    return reply
        return None

    # What is on its way ---------------------------------------------------------------------------

    async def _boarded(self, request: Request, flight: Flight | Errand) -> Reply | None:
        """The reply that `flight` brings; None where it fails before there is any."""
        flight.board()
        if isinstance(flight, Errand):
            try:
                await flight.over()
            finally:
                await flight.leave()
            if flight.reply is None:
                return None
            reply = _again_of(flight.reply)
        else:
            try:
                reply = await flight.passenger()
            except Exception:
                await flight.leave()
                return None  # it is asked for once more, as if there had been no other
            except BaseException:
                await flight.leave()
                raise
        request.cached = True
        headers = {"content-type": reply.headers.get("content-type", "application/json")}
        reply.headers = {**headers, HEADER: "hit", "age": "0"}
        return reply

    async def _landing(
        self,
        request: Request,
        call: Call,
        asked: CacheableCall,
        flight: Flight | Errand,
        key: bytes,
        cache: ExactCache,
        max_age: float | None,
    ) -> Reply | None:
        """What `flight` brings to another form of the same request, in this one's; None where that
        is not kept."""
        flight.board()
        try:
            await flight.over()
        finally:
            await flight.leave()
        entry = await cache.store.find((key,), max_age)
        if entry is None:
            return None
        await asked.read(cache.settings)
        return await self._translated(request, call, asked, entry, cache)

    async def _flown(
        self, request: Request, asked: CacheableCall, cache: ExactCache, landed: Landed
    ) -> Reply:
        """What the next layer answers, which others who ask for the same meanwhile get as it
        comes, where that is the same bytes for all."""
        as_written, flights = asked.written, self._flights
        if as_written is None or as_written.exact in flights:
            return await _watched(await self._next(request), landed)
        most = min(LARGEST_BYTES, cache.settings.max_bytes)
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

    async def _fetched(
        self,
        request: Request,
        call: Call,
        asked: CacheableCall,
        cache: ExactCache,
        compared: AskedQuestion | None,
    ) -> Reply:
        """A whole reply, which others who ask for the same meanwhile get as well."""
        errand, flights = Errand(), self._flights
        for key in asked.keys:
            flights.setdefault(key, errand)
        asked.scope.flights[errand] = asked
        request.stays = errand.stays
        try:
            reply = await self._next(request)
            body = reply.body
            if not isinstance(body, bytes):
                landed = partial(self._landed, request, call, asked, cache, compared)
                return await _watched(reply, landed)
            if len(body) <= min(LARGEST_BYTES, cache.settings.max_bytes):
                await self._landed(request, call, asked, cache, compared, reply, body)
            errand.reply = reply
            return reply
        finally:
            request.stays = None
            self._came_down(asked, errand)
            errand.end()

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

    async def _landed(
        self,
        request: Request,
        call: Call,
        asked: CacheableCall,
        cache: ExactCache,
        compared: AskedQuestion | None,
        reply: Reply,
        body: bytes,
    ) -> None:
        """Keep a reply that has come to its end, if it is one to be kept."""
        store, scope = cache.store, asked.scope
        try:
            if len(scope.wires) > 1 or store.is_shared:
                await asked.read(cache.settings)
            if len(body) > LARGE_BYTES:
                entry = await off_loop(len(body), entry_of, call, asked, reply, body)
            else:
                entry = entry_of(call, asked, reply, body)
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
            entry.headers = _told_of(tuple(last.target.headers), *entry.headers.items())
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
        if compared is not None and cache.questions is not None:
            cache.questions.add(compared, entry.keys[0])


class Ready:
    """A reply that is there already, for who awaits one."""

    __slots__ = ("_reply",)

    def __init__(self, reply: Reply) -> None:
        self._reply = reply

    def __await__(self) -> Generator[None, None, Reply]:
        return self._reply
        yield


@lru_cache(maxsize=1024)
def _told_of(target: tuple[tuple[bytes, bytes], ...], *own: tuple[str, str]) -> Mapping[str, str]:
    """How a reply names its target, with its own headers."""
    return {**{name.decode(): value.decode() for name, value in target}, **dict(own)}


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


def _has_more_to_do(call: Call) -> bool:
    """Whether files are searched for a reply, or servers may be told to do something."""
    if bytes(call.fields.get("mcp_servers", b"null")) not in (b"null", b"[]"):
        return True
    tools = bytes(call.fields.get("tools", b""))
    return b'"file_search"' in tools or b'"mcp"' in tools


def _said(reply: Reply, what: str) -> Reply:
    reply.headers = {**reply.headers, HEADER: what}
    return reply


async def _watched(reply: Reply, landed: Landed) -> Reply:
    """`reply`, which `landed` is told of when it has come whole, before its client knows of it."""
    if isinstance(reply.body, bytes):
        await landed(reply, reply.body)
        return reply
    reply.body = _watched_stream(reply, reply.body, landed)
    # A generator that has not begun would not close what it reads from.
    await anext(reply.body)
    return reply


async def _watched_stream(
    reply: Reply, body: AsyncGenerator[bytes, None], landed: Landed
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
        await landed(reply, b"".join(pieces))
