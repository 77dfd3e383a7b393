"""A simulated engine in real time: its steps are slept through."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress

from providers.local.simulation.config import SimulationConfig
from providers.local.simulation.engine import SimulatedEngine, SimulatedSequence


class SimulationRunner:
    """Drives one engine, by a task that is there while somebody wants something.

    Args:
        config: the engine's.

    Attributes:
        engine: it.
    """

    def __init__(self, config: SimulationConfig) -> None:
        self.engine = SimulatedEngine(config)
        self._told: dict[SimulatedSequence, asyncio.Event] = {}
        self._task: asyncio.Task[None] | None = None

    async def said(self, sequence: SimulatedSequence) -> AsyncGenerator[int, None]:
        """How many tokens of the reply are said, each time that there are more. Closing it gives
        the sequence's place to others."""
        told = self._told[sequence] = asyncio.Event()
        try:
            self.engine.add(sequence)
            if self._task is None:
                self._task = asyncio.create_task(self._run())
            while not sequence.is_done:
                await told.wait()
                told.clear()
                if self._task is None and not sequence.is_done:
                    raise RuntimeError("the simulated engine was stopped")
                yield sequence.said
        finally:
            del self._told[sequence]
            self.engine.drop(sequence)

    async def stop(self) -> None:
        """Stop what runs; nobody waits for it any more."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        engine, loop = self.engine, asyncio.get_running_loop()
        # Of a step that ended late the next one takes less, so that on the whole they take what
        # they should.
        at = loop.time()
        try:
            while (step := engine.next_step()) is not None:
                at += step.seconds
                await asyncio.sleep(max(0.0, at - loop.time()))
                for sequence in engine.done(step):
                    if (told := self._told.get(sequence)) is not None:
                        told.set()
        finally:
            self._task = None
            for told in self._told.values():
                told.set()
