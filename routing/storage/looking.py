"""Work that is found in a storage, where others put it too: looked for again and again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from llama_compat.going_on import going_on
from routing.storage.outage import Outage
from routing.storage.storage import StorageError
from routing.waiting import first_of

LOOK_SECONDS = 0.5
"""How often it is seen what others have begun, or taken back."""

BEATS = 4
"""So often a worker says that it is alive while a lease lasts."""


class Looking:
    """Looks for work in a storage, from `start` to `stop`, however that goes.

    Args:
        what: what the work is about, in the plural and for the log.
        look: looks once, and has done what there is to be done.
        lease_seconds: for how long a worker is taken to be alive that has said so.

    Attributes:
        outage: tells the log that the storage is away; for those too who use it meanwhile.
        beat_seconds: so often a worker says that it is alive.
    """

    def __init__(
        self, what: str, look: Callable[[], Awaitable[None]], lease_seconds: float
    ) -> None:
        self.outage = Outage(f"{what} wait", f"{what} go on")
        self.beat_seconds = lease_seconds / BEATS
        self._what = what
        self._look = look
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def has_begun(self) -> bool:
        """Whether it was started, be it stopped by now or not."""
        return self._task is not None

    def start(self) -> None:
        """Look from now on, which may have begun."""
        if self._task is None:
            looking = going_on(self._what, self._look_on, self._wait)
            self._task = asyncio.create_task(looking, name=self._what)

    def wake(self) -> None:
        """See at once what there is to do."""
        self._woken.set()

    async def stop(self) -> None:
        """Look no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _look_on(self) -> None:
        while True:
            self._woken.clear()
            try:
                await self._look()
                self.outage.worked()
            except StorageError as error:
                self.outage.failed(str(error))
            await self._wait(LOOK_SECONDS)

    async def _wait(self, seconds: float) -> None:
        # Whoever looks says that it is alive, too, whatever went wrong the last time.
        await first_of(self._woken, min(seconds, self.beat_seconds))
