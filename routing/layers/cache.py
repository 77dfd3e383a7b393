"""Replies that were given before are given again: from the cache, or from a request that is on its
way already.

A request is looked for by its bytes, then by what is written in them, and by what it means only
where it might be that another of a client's APIs has asked the same. What a reply says is read when
somebody wants it in another form.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING

from llama_compat.exchange import Call, Reply
from llama_compat.hosted.asked.named import NAMING, act
from llama_compat.off_loop import off_loop
from llama_compat.translation import replayed
from routing.cache.asked import CacheableCall, CacheScopes
from routing.cache.control import HEADER as CONTROL_HEADER
from routing.cache.control import USUAL, CacheControl, cache_control
from routing.cache.embeddings import CacheableEmbedding, Vectors
from routing.cache.exact import ExactCache
from routing.cache.flights import Errand, Flight
from routing.cache.lookup import Lookup
from routing.cache.questions.alike import AlikeQuestions
from routing.cache.readings import Reading
from routing.cache.replies.entries import keep_copy, read_back, same_bytes
from routing.cache.replies.keeping import ReplyKeeper
from routing.cache.replies.store import Entry, MemoryHit, MemoryReplies, age_of
from routing.cache.underway import Underway
from routing.layers.chain import Owner
from routing.layers.guardrails import Guardrails
from routing.models import Route
from routing.policy.wanted import PIN_HEADER, header
from routing.request import Handler, Request

if TYPE_CHECKING:
    from routing.cache.questions.semantic import AskedQuestion

HEADER = "x-llama-compat-cache"

SIMILARITY = "x-llama-compat-cache-similarity"

MAX_KNOWN = 8
"""Of so many keys, or versions of an API, it is known what the same bytes ask for."""


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
        self._alike = AlikeQuestions(next, owner, guardrails)
        self._clock = clock
        self._underway = Underway(next, ReplyKeeper(clock), owner)
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
            known: CacheableCall | None = None
            # Where replies are kept for clients, each has an id of its own, and another call for
            # it, of which nothing has been read.
            if (
                reading is not None
                and reading.fields is call.fields
                and call.operation is request.operation
            ):
                known = self._known(request, call, route, cache, pin, reading)
                if control is USUAL:
                    reply = self._at_once(request, call, known, cache)
                    if reply is not None:
                        return Ready(reply)
                    if self._is_new(call, known, cache):
                        return self._new(Lookup(request, call, known, cache))
            return self._answer(request, call, route, cache, control, pin, known)
        if kind == "embedding":
            return self._embedded(request, call, route, cache)
        return self._next(request)

    async def stop(self) -> None:
        """End what is on its way."""
        await self._underway.stop()

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
        known: CacheableCall,
        cache: ExactCache,
    ) -> Reply | None:
        """What is in the memory of this process for who has asked with the same bytes before, and
        wants nothing else of the cache; None where more has to be looked at."""
        store = cache.store
        if known.may_be_kept is False or not isinstance(store, MemoryReplies):
            return None
        assert known.written is not None
        entry = store.at(known.written.exact)
        if entry is None:
            return None
        request.hit = MemoryHit(store, entry)
        return self._hit(request, same_bytes(entry, call), entry)

    def _known(
        self,
        request: Request,
        call: Call,
        route: Route,
        cache: ExactCache,
        pin: str | None,
        reading: Reading,
    ) -> CacheableCall:
        """What `call` asks for, which may be known from others with the same bytes."""
        place = self._scopes.place(call, route, cache, pin)
        known = reading.known
        if known is None:
            known = reading.known = {}
        else:
            found: CacheableCall | None = known.get(place)
            if found is not None and found.route is route:
                return found
            if len(known) >= MAX_KNOWN:
                known.clear()
        asked = known[place] = self._scopes.asks(
            call, route, cache, pin, body=request.body, whose=place[0]
        )
        return asked

    def _is_new(self, call: Call, asked: CacheableCall, cache: ExactCache) -> bool:
        """Whether nobody can have asked for the same, as far as anybody here would know, and
        nothing but the memory of this process is to be looked at."""
        return (
            asked.may_be_kept is True
            and not call.stream
            and NAMING.isdisjoint(call.fields)
            and cache.questions is None
            and isinstance(cache.store, MemoryReplies)
            and not self._may_be_found(asked, cache)
        )

    async def _answer(
        self,
        request: Request,
        call: Call,
        route: Route,
        cache: ExactCache,
        control: CacheControl,
        pin: str | None,
        asked: CacheableCall | None,
    ) -> Reply:
        is_kept = call.operation is not request.operation
        # A vendor knows the responses of a WebSocket on that alone; what is said of files comes of
        # those of the key, and they change; what a tool of a server does is done each time.
        of_a_socket = request.recall is not None and not is_kept
        if control.no_store or of_a_socket or await off_loop(call.size, act, call.fields):
            return _said(await self._next(request), "bypass")
        if asked is None:
            asks = self._scopes.asks
            asked = await off_loop(call.size, asks, call, route, cache, pin, is_kept=is_kept)
        if asked.may_be_kept is False:
            return _said(await self._next(request), "bypass")
        lookup = Lookup(request, call, asked, cache)
        if not control.no_cache and self._may_be_found(asked, cache):
            reply = await self._found(lookup, control.max_age)
            if reply is not None:
                return reply
        if asked.may_be_kept is None:
            await asked.read(cache.settings)
        if not asked.may_be_kept:
            return _said(await self._next(request), "bypass")
        if cache.questions is not None and not control.no_cache:
            lookup.compared = await self._alike.compared(request, call, asked, cache)
            if lookup.compared is not None:
                reply = await self._like(lookup, lookup.compared, control.max_age)
                # The same may have been asked meanwhile.
                reply = reply or await self._found(lookup, control.max_age)
                if reply is not None:
                    return reply
        reply = await self._underway.ask(lookup)
        return _said(reply, "bypass" if control.no_cache else "miss")

    async def _new(self, lookup: Lookup) -> Reply:
        return _said(await self._underway.fetch(lookup), "miss")

    def _may_be_found(self, asked: CacheableCall, cache: ExactCache) -> bool:
        """Whether anything may be there, or on its way, for who comes by the only API of all."""
        store, keys = cache.store, asked.keys
        if len(asked.scope.wires) > 1 or asked.written is None or asked.meaning is not None:
            return True
        if not isinstance(store, MemoryReplies) or store.has(keys):
            return True
        return self._underway.has(keys)

    async def _found(self, lookup: Lookup, max_age: float | None) -> Reply | None:
        """What is there, or on its way; None where there is nothing."""
        request, asked, cache = lookup.request, lookup.asked, lookup.cache
        as_written, store, scope = asked.written, cache.store, asked.scope
        if as_written is not None:
            if isinstance(store, MemoryReplies):
                entry = store.look(as_written.keys, max_age)
            else:
                entry = await store.find(as_written.keys, max_age)
            if entry is not None:
                if entry.keys[0] == as_written.exact:
                    return self._hit(request, same_bytes(entry, lookup.call), entry)
                await asked.read(cache.settings)
                reply = await self._translated(lookup, entry)
                if reply is not None:
                    return reply
            flight = self._underway.at(as_written.exact)
            if flight is not None and not flight.is_full:
                return await self._boarded(request, flight)
        # As long as all come by one API, nobody need know what any of it means.
        if len(scope.wires) > 1 or as_written is None or store.is_shared:
            await self._read_others(asked, cache)
        if asked.meant is not None and asked.may_be_kept:
            entry = await store.find((asked.meant,), max_age)
            # Two ways to write it in one API may be more than the vocabulary can tell apart.
            if entry is not None and (as_written is None or entry.wire != asked.wire):
                return await self._translated(lookup, entry)
        for key in asked.keys[1:] if as_written is not None else asked.keys:
            flight = self._underway.at(key)
            if flight is not None:
                return await self._landing(lookup, flight, key, max_age)
        return None

    async def _read_others(self, asked: CacheableCall, cache: ExactCache) -> None:
        """Find out what `asked` means, and all others that might mean the same."""
        scope = asked.scope
        await asked.read(cache.settings)
        for flight, other in list(scope.flights.items()):
            await other.read(cache.settings)
            if other.meant is not None:
                self._underway.find_by(other.meant, flight)
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
        self, lookup: Lookup, entry: Entry, *, is_same: bool = True
    ) -> Reply | None:
        """What is there in another form, or in another client's language, put into this one; None
        where nobody can.

        Args:
            lookup: who wants it.
            entry: what is there.
            is_same: whether it answers the same question, and not one that is alike.
        """
        call, asked = lookup.call, lookup.asked
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
        store = lookup.cache.store
        if is_same and asked.written is not None and isinstance(store, MemoryReplies):
            await keep_copy(store, entry, asked, reply)
        return self._hit(lookup.request, reply, entry)

    async def _like(
        self, lookup: Lookup, compared: AskedQuestion, max_age: float | None
    ) -> Reply | None:
        """The reply to a question that is so much alike that it may be given; None for none."""
        found = self._alike.found(lookup.request, lookup.cache, compared, max_age)
        async with aclosing(found) as entries:
            async for entry, similarity in entries:
                reply = await self._translated(lookup, entry, is_same=False)
                if reply is not None:
                    reply.headers = {**reply.headers, SIMILARITY: f"{similarity:.4f}"}
                    return reply
        return None

    async def _boarded(self, request: Request, flight: Flight | Errand) -> Reply | None:
        """The reply that `flight` brings; None where it fails before there is any."""
        reply = await self._underway.boarded(flight)
        if reply is None:
            return None
        request.cached = True
        headers = {"content-type": reply.headers.get("content-type", "application/json")}
        reply.headers = {**headers, HEADER: "hit", "age": "0"}
        return reply

    async def _landing(
        self, lookup: Lookup, flight: Flight | Errand, key: bytes, max_age: float | None
    ) -> Reply | None:
        """What `flight` brings to another form of the same request, in this one's; None where that
        is not kept."""
        await self._underway.over(flight)
        entry = await lookup.cache.store.find((key,), max_age)
        if entry is None:
            return None
        await lookup.asked.read(lookup.cache.settings)
        return await self._translated(lookup, entry)


class Ready:
    """A reply that is there already, for who awaits one."""

    __slots__ = ("_reply",)

    def __init__(self, reply: Reply) -> None:
        self._reply = reply

    def __await__(self) -> Generator[None, None, Reply]:
        return self._reply
        yield


def _said(reply: Reply, what: str) -> Reply:
    reply.headers = {**reply.headers, HEADER: what}
    return reply
