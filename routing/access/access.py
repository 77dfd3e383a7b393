"""What lets requests in: stored keys, counters of limits, and what budgets have come to.

A reloaded template that says the same of these goes on with what there is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from llama_compat.distribution import Distribution, FleetSettings
from routing.access.keys.keeper import Keeper
from routing.access.keys.ring import Key
from routing.access.limits.limiter import Limiter
from routing.access.limits.memory import Counters, MemoryCounters


class Access:
    """From `start` to `stop`.

    Args:
        distribution: whose it is.
        waits: whether to start where the storage is away, and to know its keys once it is there.
        gateways: how many there are that serve the same, this one among them.

    Attributes:
        settings: what it depends on.
        counters: of limits.
        limiter: where requests are held against limits.
        keeper: of what is in the storage; None where nothing is.
    """

    def __init__(
        self,
        distribution: Distribution,
        *,
        waits: bool = True,
        gateways: Callable[[], int] = lambda: 1,
    ) -> None:
        self._waits = waits
        server = distribution.server
        self.settings = access_settings(distribution)
        self.counters = _counters(server.counting)
        self.keeper = (
            Keeper(server.storage.get_secret_value(), self.counters)
            if _keeps(distribution)
            else None
        )
        self.limiter = Limiter(
            self.counters,
            server.counting.on_outage,
            on_spent=self.keeper.spent if self.keeper else lambda charge, cost: None,
            gateways=gateways,
        )

    @property
    def keys(self) -> Mapping[str, Key]:
        """The keys that are stored, by digest."""
        return self.keeper.keys if self.keeper else {}

    @property
    def is_away(self) -> bool:
        """Whether stored keys can't be read at the moment."""
        return self.keeper is not None and self.keeper.is_away

    async def start(self) -> None:
        """Connect and read.

        Raises:
            ProviderStartError: a package is missing, or the storage can't be used.
        """
        await self.counters.start()
        if self.keeper is not None:
            await self.keeper.start(waits=self._waits)

    async def stop(self) -> None:
        """Write what is not written yet, and disconnect."""
        # First the counters: the keeper is told at their end what they could not count.
        await self.counters.stop()
        if self.keeper is not None:
            await self.keeper.stop()


def access_settings(distribution: Distribution) -> object:
    """What an `Access` depends on, to be compared."""
    server = distribution.server
    return server.counting, server.storage if _keeps(distribution) else None


def _keeps(distribution: Distribution) -> bool:
    return distribution.server.stored_keys or distribution.has_budgets


def _counters(settings: FleetSettings) -> Counters:
    store = settings.store.get_secret_value()
    if store == "memory":
        return MemoryCounters()
    if store.startswith(("postgres://", "postgresql://")):
        from routing.access.limits.postgres import PostgresCounters

        return PostgresCounters(store, answer_seconds=settings.timeout)
    from routing.access.limits.redis import RedisCounters

    return RedisCounters(store, answer_seconds=settings.timeout)
