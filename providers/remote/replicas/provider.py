"""A local provider whose models run as replicas elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Protocol

from llama_compat.errors import APIError
from llama_compat.exchange import Call, Reply, Target
from llama_compat.going_on import going_on
from llama_compat.prefixes.held import CacheNews
from providers.base import (
    WAKING_KEEPALIVE_SECONDS,
    Provider,
    ProviderConfig,
    ProviderModel,
    TellOfCache,
)
from providers.remote.replicas.caches import ReplicaCaches
from providers.remote.replicas.server import OwnServer

if TYPE_CHECKING:
    from providers.local.engine import Stats

LISTEN_SECONDS = 5.0
"""How often each replica is asked how its engine is. It counts as a request while it is answered,
and one that nobody asks anything else is to end some time."""


class ReplicaSet(Protocol):
    """The replicas of one model, which somebody else starts, counts and ends."""

    @property
    def may_sleep(self) -> bool:
        """Whether there may be none, which one who asks waits for."""
        ...

    @property
    def places(self) -> Sequence[str]:
        """The addresses of those that take requests now."""
        ...

    async def start(self) -> None:
        """Have them run; there is one when this returns, unless there need be none.

        Raises:
            ProviderStartError: why there is none.
        """
        ...

    async def stop(self) -> None:
        """They are not needed here any more."""
        ...

    async def awake(self) -> str:
        """The address of one, which is waited for if there is none now.

        Raises:
            APIError: 503, none starts.
        """
        ...

    def lost(self, place: str) -> None:
        """The replica at `place` could not be reached."""
        ...

    def when_moved(self, tell: Callable[[], None]) -> Callable[[], None]:
        """As for a `Provider`."""
        ...


class ReplicatedProvider(Provider):
    """Relays calls to the replica that was chosen for them, all of them in the client's language.

    Args:
        provider_id, config, models: as for every provider; the config is the local engine's, which
            the replicas have.
        replicas: of each model, by the provider's name for it.
    """

    relays: Set[str] = frozenset()
    keeps_responses = False

    def __init__(
        self,
        provider_id: str,
        config: ProviderConfig,
        models: Sequence[ProviderModel],
        replicas: Mapping[str, ReplicaSet],
    ) -> None:
        self._given = config
        # What the model does not take is refused, dropped or adapted where the model is.
        super().__init__(provider_id, config.model_copy(update={"unsupported": None}), models)
        self._replicas = replicas
        self._servers: dict[str, OwnServer] = {}
        any_of_them = OwnServer(provider_id, "http://replica.invalid")
        self.relays = any_of_them.relays
        self.parameters = any_of_them.parameters
        self.embedding_parameters = any_of_them.embedding_parameters
        self.rerank_parameters = any_of_them.rerank_parameters
        if any(each.may_sleep for each in replicas.values()):
            self.keepalive_seconds = WAKING_KEEPALIVE_SECONDS
        self._leave: list[Callable[[], None]] = []
        self._heard: dict[tuple[str, str], Stats] = {}
        self._listening: asyncio.Task[None] | None = None
        self._caches = ReplicaCaches(self._there, self._cache_news)
        self._ending: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Wait for the first replica of each model.

        Raises:
            ProviderStartError: one has none.
        """
        await asyncio.gather(*(each.start() for each in self._replicas.values()))
        self._leave = [each.when_moved(self._end_gone) for each in self._replicas.values()]
        self._listening = asyncio.create_task(
            going_on(f"replicas of {self.id}", self._listen), name=f"replicas of {self.id}"
        )

    async def stop(self) -> None:
        """Close the connections, and give the replicas up."""
        await self._caches.stop()
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)
        for leave in self._leave:
            leave()
        servers, self._servers = self._servers, {}
        await asyncio.gather(
            *(each.stop() for each in servers.values()),
            *(each.stop() for each in self._replicas.values()),
            *self._ending,
        )

    def serves(self, config: ProviderConfig, models: Sequence[ProviderModel]) -> bool:
        """Whether a new provider with these settings would be no other."""
        return config == self._given and tuple(models) == self.models

    def places(self, model: str) -> Sequence[str]:
        """Where the replicas of `model` are now."""
        found = self._replicas.get(model)
        return () if found is None else found.places

    def when_moved(self, tell: Callable[[], None]) -> Callable[[], None]:
        """Have `tell` called whenever replicas came or went."""
        ends = [each.when_moved(tell) for each in self._replicas.values()]

        def leave() -> None:
            for end in ends:
                end()

        return leave

    def replica_stats(self) -> Mapping[tuple[str, str], Stats]:
        """What was heard last of the engines, by model and address."""
        return self._heard

    def stats(self) -> dict[str, int]:
        """What runs and waits in the engines of all replicas together."""
        heard = self.replica_stats().values()
        return {
            "running": sum(each.running for each in heard),
            "waiting": sum(each.waiting for each in heard),
        }

    def follow_caches(self, tell: TellOfCache) -> Callable[[], None]:
        """Have `tell` called with what the caches of the replicas hold."""
        return self._caches.follow(tell)

    def _there(self) -> list[tuple[str, str]]:
        return [(name, place) for name in self._replicas for place in self.places(name)]

    async def _cache_news(self, place: tuple[str, str], log: str, after: int) -> CacheNews:
        model, address = place
        return await (await self._server_at(address)).cache_news(model, log, after)

    async def _listen(self) -> None:
        """Ask every replica now and then how its engine is."""
        while True:
            there = self._there()
            heard = await asyncio.gather(*(self._engine(*each) for each in there))
            self._heard = {
                each: stats for each, stats in zip(there, heard, strict=True) if stats is not None
            }
            await asyncio.sleep(LISTEN_SECONDS)

    async def _engine(self, model: str, place: str) -> Stats | None:
        try:
            engines = await (await self._server_at(place)).engines()
        except APIError:
            return None
        return engines.get(model)

    # Calls ----------------------------------------------------------------------------------------

    async def relay(self, call: Call, target: Target) -> Reply:
        """Pass a call on to the replica that is meant, as it came.

        Raises:
            APIError: what the replica says, or that it can't be reached.
        """
        server = await self._server(target)
        try:
            return await server.relay(call, target)
        except APIError as error:
            if error.status == 502 and target.place:
                self._replicas[target.model].lost(target.place)
            raise

    async def openai_completion(self, call: Call, target: Target) -> Reply:
        """Ask it what has to be translated: a call whose reply is kept here."""
        return await (await self._server(target)).openai_completion(call, target)

    async def openai_chat_completion(self, call: Call, target: Target) -> Reply:
        """As `openai_completion`."""
        return await (await self._server(target)).openai_chat_completion(call, target)

    async def openai_embeddings(self, call: Call, target: Target) -> Reply:
        """As `openai_completion`."""
        return await (await self._server(target)).openai_embeddings(call, target)

    async def openai_rerank(self, call: Call, target: Target) -> Reply:
        """As `openai_completion`."""
        return await (await self._server(target)).openai_rerank(call, target)

    async def _server(self, target: Target) -> OwnServer:
        """The replica that is meant; one that is waited for, if there was none to be meant."""
        place = target.place or await self._replicas[target.model].awake()
        self._caches.used((target.model, place))
        return await self._server_at(place)

    async def _server_at(self, place: str) -> OwnServer:
        server = self._servers.get(place)
        if server is None:
            server = self._servers[place] = OwnServer(self.id, place)
            await server.start()  # which makes a pool, and waits for nothing
        return server

    def _end_gone(self) -> None:
        """Close what is open to replicas that are gone. One that drains has requests yet, and is
        closed when they have ended."""
        there = {place for each in self._replicas.values() for place in each.places}
        for place in [each for each in self._servers if each not in there]:
            if not self._servers[place].upstream.connections.leased:
                task = asyncio.create_task(self._servers.pop(place).stop())
                self._ending.add(task)
                task.add_done_callback(self._ending.discard)
