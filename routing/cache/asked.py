"""Requests whose replies may be kept, among which others they are, and what is known of them: how
they are written, and, where somebody had to know, what they mean."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

from llama_compat.distribution import ExactCacheSettings
from llama_compat.exchange import Call
from llama_compat.off_loop import off_loop
from routing.cache.flights import Errand, Flight
from routing.cache.keys import Meaning, Written, belongs_to, meaning, written
from routing.models import Route

if TYPE_CHECKING:
    from routing.cache.exact import ExactCache
    from routing.layers.guardrails import Guardrails
    from routing.policy.targets import LiveTarget

Whose = tuple[str, ...]
"""Whose replies a request may be given, and what those have passed, where there are guardrails."""

Place = tuple[Any, ...]
"""What it depends on, besides a request's bytes, what that asks for."""


class CacheScope(Struct, eq=False):
    """The requests of one owner to one model, as it is in the template.

    As long as all of them come by the same API, nobody asks what they mean.

    Attributes:
        where: whose they are, and where they go.
        unpinned: the same, of those whose client names no target.
        wires: by which calls of client APIs there were any.
        waiting: the numbers of the entries whose requests have not been read for their meaning.
        flights: of requests that have not been, with what they ask.
    """

    where: tuple[str, ...]
    unpinned: tuple[str, ...]
    wires: set[str] = field(default_factory=set)
    waiting: set[int] = field(default_factory=set)
    flights: dict[Flight | Errand, CacheableCall] = field(default_factory=dict)


class CacheableCall(Struct, eq=False, gc=False):
    """One request, as the cache sees it.

    Attributes:
        call: what is asked.
        route: where it goes.
        scope: among which requests it is.
        where: whose it is, and where it goes, and may.
        written: how it is; None for one whose reply is not the same bytes twice, as that is kept
            for the client under a name of its own.
        may_be_kept: whether its reply may be; None where only its meaning can tell.
        keys: by which its reply is found, the closest first.
        size: bytes of what is asked, about.
        meaning: what it means; None where nobody knows yet, or can tell.
        is_read: whether somebody has looked.
    """

    call: Call
    route: Route
    scope: CacheScope
    where: tuple[str, ...]
    written: Written | None
    may_be_kept: bool | None
    keys: tuple[bytes, ...]
    size: int
    meaning: Meaning | None = None
    is_read: bool = False

    @property
    def wire(self) -> str:
        """By which call of a client API it is asked."""
        name = self.call.operation.name
        return name if self.written is not None else f"{name} kept"

    @property
    def meant(self) -> bytes | None:
        """The key of what it means; None where that is not known, or has no words."""
        return None if self.meaning is None else self.meaning.key

    async def read(self, settings: ExactCacheSettings) -> None:
        """Find out what it means, and by `settings` whether its reply may be kept."""
        if self.is_read:
            return
        self.meaning = meant = await self._read()
        self.is_read = True
        if meant is not None and meant.key is not None:
            self.keys = (*self.keys, meant.key)
        if self.may_be_kept is None:
            self.may_be_kept = meant is not None and meant.may_be_kept(settings)

    async def key_of_meaning(self) -> bytes | None:
        """The key of what it means, of which nothing else is wanted."""
        meant = self.meaning if self.is_read else await self._read()
        return None if meant is None else meant.key

    async def _read(self) -> Meaning | None:
        call, model = self.call, self.route.target.model
        return await off_loop(call.size, meaning, call, model, self.where)


class CacheScopes:
    """The scopes of the requests that come to one runtime.

    Args:
        guardrails: what replies have passed that come to the cache; None for nothing.
    """

    def __init__(self, guardrails: Guardrails | None) -> None:
        self._guardrails = guardrails
        self._targets: dict[str, tuple[Route, tuple[str, ...]]] = {}
        self._scopes: dict[tuple[str, Whose], tuple[Route, CacheScope]] = {}

    def place(self, call: Call, route: Route, cache: ExactCache, pin: str | None) -> Place:
        """What it depends on, besides a request's bytes, what that asks for."""
        return (self._whose(call, route, cache), pin, *call.headers.items())

    def of(self, call: Call, route: Route, cache: ExactCache) -> CacheScope:
        """That of a request."""
        return self._of(route, cache, self._whose(call, route, cache))

    def asks(
        self,
        call: Call,
        route: Route,
        cache: ExactCache,
        pin: str | None,
        *,
        is_kept: bool = False,
        body_bytes: int | None = None,
        whose: Whose | None = None,
    ) -> CacheableCall:
        """What `call` asks for, as far as that is known without its meaning.

        Args:
            call, route, cache: where it goes, and where its reply may be.
            pin: the target that its client names.
            is_kept: whether its reply is kept for the client under a name of its own.
            body_bytes: of what it was read from; None where nobody knows.
            whose: the first of its `place`, where that is known.
        """
        scope = self._of(route, cache, whose or self._whose(call, route, cache))
        where = scope.unpinned if pin is None else (*scope.unpinned, pin)
        as_written: Written | None = None
        may_be: bool | None = None
        keys: tuple[bytes, ...] = ()
        size = call.size if body_bytes is None else body_bytes
        if not is_kept:
            settings, elsewhere = cache.settings, cache.store.is_shared
            as_written = written(call, where, settings, leaves_memory=elsewhere)
            may_be, keys = as_written.may_be_kept, as_written.keys
            size += len(as_written.exact) + len(as_written.key)
        if call.operation.lasts(call.fields):
            may_be = False
        asked = CacheableCall(call, route, scope, where, as_written, may_be, keys, size)
        scope.wires.add(asked.wire)
        return asked

    def _whose(self, call: Call, route: Route, cache: ExactCache) -> Whose:
        owner = belongs_to(call.principal, cache.settings.share)
        # What a tool has found for one key is not shown to one that may not have it run.
        tools = call.principal.tools
        may = () if tools is None else ("tools", *tools)
        if self._guardrails is None:
            return (owner, *may)
        return (owner, self._guardrails.told_apart(call, route), *may)

    def _of(self, route: Route, cache: ExactCache, whose: Whose) -> CacheScope:
        known = self._scopes.get((route.name, whose))
        if known is not None and known[0] is route:
            return known[1]
        owner, *passed = whose
        scope = cache.scope((owner, route.name, *passed, *self._told_apart(route)))
        self._scopes[route.name, whose] = (route, scope)
        return scope

    def _told_apart(self, route: Route) -> tuple[str, ...]:
        """A route's targets, each by all that makes it another; what they are is made once."""
        known = self._targets.get(route.name)
        if known is None or known[0] is not route:
            told = tuple(dict.fromkeys(map(_told, route.targets)))
            known = self._targets[route.name] = (route, told)
        return known[1]


def _told(target: LiveTarget) -> str:
    provider = target.provider
    kind = type(provider)
    # What one replica says, all of them do.
    asked = replace(target.target, place="")
    told = (kind.__module__, kind.__qualname__, provider.config, asked)
    digest = blake2b(repr(told).encode(errors="replace"), digest_size=16).hexdigest()
    return f"{target.state.name} {digest}"
