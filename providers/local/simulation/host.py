"""A simulated model that shares memory: it takes its time to be loaded, and holds nothing."""

from __future__ import annotations

import asyncio

from providers.local.residency.ledger import Sizes
from providers.local.simulation.config import SimulationConfig
from providers.local.simulation.runner import SimulationRunner


class SimulatedHost:
    """One simulated model, whether it is loaded or not. It is a `Loadable`.

    Args:
        provider: the id of its provider.
        name: what that calls it.
        config: how large it is, and how it runs.

    Attributes:
        runner: its engine; None while it is not loaded.
    """

    max_waiting: int | None = None

    def __init__(self, provider: str, name: str, config: SimulationConfig) -> None:
        self.provider = provider
        self.name = name
        self._config = config
        self.runner: SimulationRunner | None = None

    @property
    def needs(self) -> Sizes:
        """As much as its settings say."""
        return {self._config.device: int(self._config.memory)}

    @property
    def parks(self) -> Sizes:
        """As much again in main memory; nothing for what is there already."""
        return {} if self._config.device == "cpu" else {"cpu": int(self._config.memory)}

    async def load(self) -> Sizes:
        """Take the time that it takes, and have an engine that has computed nothing."""
        await asyncio.sleep(self._config.load_seconds)
        self.runner = SimulationRunner(self._config)
        return self.needs

    async def unpark(self) -> Sizes:
        """The same, sooner."""
        await asyncio.sleep(self._config.unpark_seconds)
        self.runner = SimulationRunner(self._config)
        return self.needs

    async def unload(self) -> None:
        """Stop the engine, which forgets what it has computed."""
        runner, self.runner = self.runner, None
        if runner is not None:
            await runner.stop()

    async def park(self) -> Sizes:
        """The same: only weights are parked."""
        await self.unload()
        return self.parks
