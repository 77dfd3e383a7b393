"""What lets requests in: stored keys, counters of limits, and what budgets have come to.

A reloaded template that says the same of these goes on with what there is.
"""

from __future__ import annotations

from collections.abc import Mapping

from llama_compat.distribution import Distribution
from routing.operations.keys.keeper import Keeper
from routing.operations.keys.ring import Key
from routing.operations.limits.limiter import Limiter
from routing.operations.limits.memory import Counters, MemoryCounters


class Access:
    """From `start` to `stop`.

    Args:
        distribution: whose it is.

    Attributes:
        settings: what it depends on.
        counters: of limits.
        limiter: where requests are held against limits.
        keeper: of what is in the storage; None where nothing is.
    """

    def __init__(self, distribution: Distribution) -> None:
        server = distribution.server
        self.settings = access_settings(distribution)
        self.counters = _counters(server.limits.store.get_secret_value())
        self.keeper = (
            Keeper(server.storage.get_secret_value(), self.counters)
            if _keeps(distribution)
            else None
        )
        self.limiter = Limiter(
            self.counters,
            server.limits.when_away,
            on_spent=self.keeper.spent if self.keeper else lambda charge, cost: None,
        )

    @property
    def keys(self) -> Mapping[str, Key]:
        """The keys that are stored, by digest."""
        return self.keeper.keys if self.keeper else {}

    async def start(self) -> None:
        """Connect and read.

        Raises:
            ProviderStartError: a package is missing, or the storage can't be used.
        """
        await self.counters.start()
        if self.keeper is not None:
            await self.keeper.start()

    async def stop(self) -> None:
        """Write what is not written yet, and disconnect."""
        if self.keeper is not None:
            await self.keeper.stop()
        await self.counters.stop()


def access_settings(distribution: Distribution) -> object:
    """What an `Access` depends on, to be compared."""
    server = distribution.server
    return server.limits, server.storage if _keeps(distribution) else None


def _keeps(distribution: Distribution) -> bool:
    return distribution.server.stored_keys or distribution.has_budgets


def _counters(store: str) -> Counters:
    if store == "memory":
        return MemoryCounters()
    from routing.operations.limits.shared import RedisCounters

    return RedisCounters(store)
