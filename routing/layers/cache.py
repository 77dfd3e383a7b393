"""Replies that were given before are given again: from the cache, or from a request that is on its
way already."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from hashlib import blake2b

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from llama_compat.distribution import ExactCacheSettings
from llama_compat.events import reply_events
from llama_compat.exchange import Call, Recording, Reply
from llama_compat.off_loop import off_loop
from llama_compat.translation import replayed
from llama_compat.types import (
    ImageDelta,
    StopReason,
    StreamComplete,
    StreamEvent,
    StreamProgress,
)
from routing.cache.control import cache_control
from routing.cache.flights import Flight
from routing.cache.keys import Meaning, Written, belongs_to, meaning, written
from routing.cache.store import Entry, ReplyCache
from routing.layers.chain import Owner
from routing.models import Route
from routing.policy.targets import LiveTarget
from routing.policy.wanted import PIN_HEADER
from routing.request import Handler, Request

log = logging.getLogger(__name__)

HEADER = "x-llama-compat-cache"

LARGEST_BYTES = 16 << 20
"""A reply that is longer is not kept."""

_FINISHED = (StopReason.end_of_turn, StopReason.end_of_message)
"""How a reply ends that may be kept: neither cut nor withheld."""

Landed = Callable[[Reply, bytes], Awaitable[None]]
"""Told of a reply that has come to its end, and of its bytes."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[list[StreamEvent]]).decode


class CacheableCall(Struct, frozen=True):
    """One request, as the cache sees it.

    Attributes:
        call: what is asked.
        written: how; None for one whose reply is not the same bytes twice, as that is kept for the
            client under a name of its own.
        meaning: what it means.
        where: whose it is, and where it goes.
    """

    call: Call
    written: Written | None
    meaning: Meaning
    where: Sequence[str]

    @property
    def wire(self) -> str:
        """By which call of a client API it is asked."""
        name = self.call.operation.name
        return name if self.written is not None else f"{name} kept"

    @property
    def keys(self) -> tuple[bytes, ...]:
        """By which its reply is found."""
        keys = (None if self.written is None else self.written.key, self.meaning.key)
        return tuple(key for key in keys if key is not None)


class ExactCache(Struct, eq=False):
    """One cache of a template.

    Attributes:
        settings: which replies are kept.
        store: where.
    """

    settings: ExactCacheSettings
    store: ReplyCache

    @classmethod
    def of(cls, settings: ExactCacheSettings) -> ExactCache:
        """An empty one."""
        return cls(settings, ReplyCache(settings.max_bytes, settings.ttl))


class CacheLayer:
    """Answers from the cache what is in it, and keeps what comes.

    Args:
        next: answers the others.
        caches: those of models that have one, or None, by the models' ids; by an empty name that
            of all others.
        owner: whose chain it is.
    """

    def __init__(
        self, next: Handler, caches: Mapping[str, ExactCache | None], owner: Owner
    ) -> None:
        self._next = next
        self._caches = caches
        self._owner = owner
        self._flights: dict[tuple[bytes, bytes], Flight] = {}
        self._airborne: set[Flight] = set()
        self._known_targets: dict[str, tuple[Route, list[str]]] = {}

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
        if cache is None or call.operation.kind not in ("chat", "completion"):
            return self._next(request)
        return self._answer(request, call, route, cache)

    async def stop(self) -> None:
        """End what is on its way."""
        await asyncio.gather(*(each.cancel() for each in self._airborne))

    # What is there --------------------------------------------------------------------------------

    async def _answer(self, request: Request, call: Call, route: Route, cache: ExactCache) -> Reply:
        control = cache_control(request.attempts.headers)
        if control.no_store:
            return _said(await self._next(request), "bypass")
        where = self._where(request, call, route, cache.settings)
        # Where replies are kept for clients, each has an id of its own, and another call for it.
        is_kept = call.operation is not request.operation
        as_written = None if is_kept else await off_loop(call.size, written, call, where)
        known: Entry | None = None
        if as_written is not None and not control.no_cache:
            known = cache.store.find(as_written.key, control.max_age)
            if known is not None and known.form == as_written.form:
                return self._hit(request, _same(known, call), known, cache)
            flight = self._flights.get((as_written.key, as_written.form))
            if flight is not None and not flight.is_full:
                reply = await self._boarded(request, flight)
                if reply is not None:
                    return reply
        meant = await off_loop(call.size, meaning, call, route.target.model, where)
        if meant is None or not meant.may_be_kept(cache.settings):
            return _said(await self._next(request), "bypass")
        asked = CacheableCall(call, as_written, meant, where)
        if not control.no_cache:
            reply = await self._translated(request, asked, known, cache, control.max_age)
            if reply is not None:
                return reply
        reply = await self._asked(request, asked, cache)
        return _said(reply, "bypass" if control.no_cache else "miss")

    def _where(
        self, request: Request, call: Call, route: Route, settings: ExactCacheSettings
    ) -> list[str]:
        """Whose a request is, and where it goes, as texts."""
        pins = [
            value.decode("latin-1")
            for name, value in request.attempts.headers
            if name == PIN_HEADER
        ]
        targets = self._told_apart(route)
        return [belongs_to(call.principal, settings.share), route.name, *targets, "pin", *pins]

    def _told_apart(self, route: Route) -> list[str]:
        """A route's targets, each by all that makes it another; what they are is made once."""
        known = self._known_targets.get(route.name)
        if known is None or known[0] is not route:
            told = [_told(each) for each in route.targets]
            known = self._known_targets[route.name] = (route, told)
        return known[1]

    def _hit(self, request: Request, reply: Reply, entry: Entry, cache: ExactCache) -> Reply:
        request.cached = True
        age = str(int(cache.store.age(entry)))
        reply.headers = {**reply.headers, **entry.headers, HEADER: "hit", "age": age}
        return reply

    async def _translated(
        self,
        request: Request,
        asked: CacheableCall,
        known: Entry | None,
        cache: ExactCache,
        max_age: float | None,
    ) -> Reply | None:
        """What is there in another form, or in another client's language, put into this one; None
        where there is nothing."""
        meant, call = asked.meaning, asked.call
        if meant.key is None:
            return None
        if known is None:
            known = cache.store.find(meant.key, max_age)
            # Two ways to write it in one API may be more than the vocabulary can tell apart.
            if known is None or (asked.written is not None and known.wire == asked.wire):
                return None
        if known.recording is None or known.choices != len(meant.translation.requests):
            return None
        if known.draws and not call.operation.shows_images:
            return None
        choices = await off_loop(len(known.recording), _decode, known.recording)
        pays_each_choice = known.pays_each_choice
        reply = await replayed(meant.translation, call, Recording(choices, pays_each_choice))
        if known.wire == asked.wire:
            reply.dropped, reply.adapted = known.dropped, known.adapted
        return self._hit(request, reply, known, cache)

    # What is on its way ---------------------------------------------------------------------------

    async def _boarded(self, request: Request, flight: Flight) -> Reply | None:
        """The reply that `flight` brings; None where it fails before there is any."""
        flight.board()
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

    async def _asked(self, request: Request, asked: CacheableCall, cache: ExactCache) -> Reply:
        """What the next layer answers, which is kept when it has come to its end."""
        request.call = replace(asked.call, recorded=True, counts_usage=True)
        landed = partial(self._landed, request, asked, cache)
        as_written = asked.written
        place = None if as_written is None else (as_written.key, as_written.form)
        if place is None or place in self._flights:
            return await _watched(await self._next(request), landed)

        async def ended(flight: Flight) -> None:
            self._airborne.discard(flight)
            if self._flights.get(place) is flight:
                del self._flights[place]
            if request.goes_on:
                try:
                    await request.went_on(replace(request, reply=flight.reply, error=flight.error))
                finally:
                    self._owner.release()

        most = min(LARGEST_BYTES, cache.settings.max_bytes)
        flight = Flight(lambda: self._next(request), landed, ended, most)
        self._flights[place] = flight
        self._airborne.add(flight)
        flight.board()
        try:
            reply = await flight.passenger()
        except BaseException:
            await flight.leave()
            self._left(request, flight)
            raise
        reply.headers = dict(reply.headers)
        reply.when_closed(lambda _: self._left(request, flight))
        return reply

    def _left(self, request: Request, flight: Flight) -> None:
        """Who began a flight has left it: where that goes on, for others, so does the request, as
        it is this one that is paid for."""
        if not flight.is_over and not request.goes_on:
            request.goes_on = True
            self._owner.hold()

    async def _landed(
        self, request: Request, asked: CacheableCall, cache: ExactCache, reply: Reply, body: bytes
    ) -> None:
        """Keep a reply that has come to its end, if it is one to be kept."""
        try:
            entry = await off_loop(len(body), _entry, asked, reply, body)
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
            told = {name.decode(): value.decode() for name, value in last.target.headers}
            entry.headers = {**told, **entry.headers}
        cache.store.keep(entry)


def _said(reply: Reply, what: str) -> Reply:
    reply.headers = {**reply.headers, HEADER: what}
    return reply


def _same(entry: Entry, call: Call) -> Reply:
    """The bytes that are kept."""
    usage = entry.usage
    streamed = call.stream
    return Reply(
        _nothing() if streamed else entry.body,
        entry.body if streamed else b"",
        dropped=entry.dropped,
        adapted=entry.adapted,
        read_usage=lambda: usage,
    )


async def _nothing() -> AsyncGenerator[bytes, None]:
    pieces: tuple[bytes, ...] = ()
    for piece in pieces:
        yield piece


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


def _entry(asked: CacheableCall, reply: Reply, body: bytes) -> Entry | None:
    """What is kept of a reply; None where nothing is.

    Raises:
        ValueError: it can't be read.
    """
    recording = _recording(asked, reply, body)
    if recording is None or not _is_finished(recording):
        return None
    said: bytes | None
    try:
        said = _encode(recording.choices)
    except (UnicodeEncodeError, TypeError):
        said = None  # half a character
    if asked.written is None and said is None:
        return None
    content_type = reply.headers.get("content-type")
    return Entry(
        asked.keys,
        asked.wire,
        b"" if asked.written is None else asked.written.form,
        body,
        reply.usage,
        said,
        recording.pays_each_choice,
        len(recording.choices),
        any(_draws(event) for events in recording.choices for event in events),
        {} if content_type is None else {"content-type": content_type},
        reply.dropped,
        reply.adapted,
    )


def _recording(asked: CacheableCall, reply: Reply, body: bytes) -> Recording | None:
    """What was said; None where nobody here can tell."""
    if reply.recording is not None:
        return reply.recording
    turns = asked.call.operation.turns
    if turns is None or asked.written is None or len(asked.meaning.translation.requests) != 1:
        return None
    response = turns.said(body, asked.call.stream)
    if response is None:
        return None
    # A client that did not ask for the usage of a stream was not sent it.
    response = replace(response, usage=reply.usage or response.usage)
    return Recording([list(reply_events(response))])


def _is_finished(recording: Recording) -> bool:
    """Whether every choice says something, and comes to the end that it was to come to."""
    for events in recording.choices:
        last = events[-1] if events else None
        if not isinstance(last, StreamComplete) or last.stop_reason not in _FINISHED:
            return False
        if not any(isinstance(event, StreamProgress) for event in events):
            return False
    return True


def _draws(event: StreamEvent) -> bool:
    return isinstance(event, StreamProgress) and isinstance(event.delta, ImageDelta)


def _told(target: LiveTarget) -> str:
    provider = target.provider
    kind = type(provider)
    told = (kind.__module__, kind.__qualname__, provider.config, target.target)
    digest = blake2b(repr(told).encode(errors="replace"), digest_size=16).hexdigest()
    return f"{target.id} {digest}"
