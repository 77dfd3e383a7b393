"""Requests whose replies may be kept, and what is known of them: how they are written, and, where
somebody had to know, what they mean."""

from __future__ import annotations

from msgspec import Struct, field

from llama_compat.distribution import ExactCacheSettings
from llama_compat.exchange import Call
from llama_compat.off_loop import off_loop
from routing.cache.flights import Errand, Flight
from routing.cache.keys import Meaning, Written, meaning
from routing.models import Route


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
