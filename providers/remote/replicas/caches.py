"""What the caches of replicas hold, asked again and again while it changes.

A replica is asked by short requests rather than by one that waits for news: Ray Serve counts what
is in flight, and one that somebody always waits at would never sleep.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress

from llama_compat.errors import APIError
from llama_compat.going_on import going_on
from llama_compat.prefixes.held import CacheNews
from providers.base import TellOfCache
from providers.followers import Followers

SOONEST_SECONDS = 0.25
"""So long changes gather before they are asked for."""

MOST_A_SECOND = 200
"""Replicas that one gateway asks: where there are more than 50, changes gather for longer."""

LATEST_SECONDS = 5.0
"""A replica without news is asked half as often each time, down to once in so many seconds; as
soon as a request goes there it is asked again at the shortest."""

SILENT_SECONDS = 600.0
"""One that has no cache to tell of, or is of a version that tells nothing, is asked that rarely."""

ANSWER_SECONDS = 2.0
"""One that has said nothing for so long is asked another time."""

Place = tuple[str, str]
"""A model, and the address of one of its replicas."""

Ask = Callable[[Place, str, int], Awaitable[CacheNews]]
"""Gives what is new there since the last change that is known."""


class _Known:
    """Where one replica's news have come to.

    Attributes:
        log, number: as in `CacheNews`, of what was heard last.
        pause: seconds until it is asked again.
        due: when that is.
    """

    __slots__ = ("due", "log", "number", "pause")

    def __init__(self) -> None:
        self.log, self.number = "", 0
        self.pause = SOONEST_SECONDS
        self.due = 0.0


class ReplicaCaches:
    """Asks all replicas, while somebody wants to know.

    Args:
        places: gives those that there are.
        ask: asks one.
    """

    def __init__(self, places: Callable[[], Iterable[Place]], ask: Ask) -> None:
        self._places = places
        self._ask = ask
        self._known: dict[Place, _Known] = {}
        self._followers: Followers[[str, str, CacheNews]] = Followers("caches of replicas")
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._soonest = SOONEST_SECONDS

    def follow(self, tell: TellOfCache) -> Callable[[], None]:
        """As `Provider.follow_caches`."""
        leave = self._followers.add(tell)
        self._known.clear()  # who is new is told all there is, and who is not hears it again
        if self._task is None:
            self._task = asyncio.create_task(
                going_on("caches of replicas", self._run), name="caches of replicas"
            )
        self._wake.set()
        return leave

    def used(self, place: Place) -> None:
        """A request goes there: what its cache holds will change."""
        known = self._known.get(place)
        if known is not None and self._soonest < known.pause < SILENT_SECONDS:
            known.pause = self._soonest
            known.due = asyncio.get_running_loop().time() + self._soonest
            self._wake.set()

    async def stop(self) -> None:
        """Ask no more."""
        self._followers.clear()
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _run(self) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            self._wake.clear()
            there = list(self._places()) if self._followers else []
            self._soonest = max(SOONEST_SECONDS, len(there) / MOST_A_SECOND)
            self._known = {each: self._known.get(each) or _Known() for each in there}
            now = clock()
            due = [(each, known) for each, known in self._known.items() if known.due <= now]
            await asyncio.gather(*(self._look(*each) for each in due))
            soonest = min((each.due for each in self._known.values()), default=now + LATEST_SECONDS)
            # New replicas are found soon, whoever else has nothing to say.
            seconds = min(max(soonest - clock(), SOONEST_SECONDS / 2), 4 * SOONEST_SECONDS)
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._wake.wait()

    async def _look(self, place: Place, known: _Known) -> None:
        before = known.log, known.number
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                news = await self._ask(place, known.log, known.number)
        except TimeoutError:
            known.pause = LATEST_SECONDS
        except APIError as error:
            known.pause = SILENT_SECONDS if error.status == 404 else LATEST_SECONDS
        else:
            known.log, known.number = news.log, news.number
            is_new = (news.log, news.number) != before
            longer = min(2 * known.pause, LATEST_SECONDS)
            known.pause = self._soonest if is_new else max(longer, self._soonest)
            if is_new:
                self._followers.tell(*place, news)
        known.due = asyncio.get_running_loop().time() + known.pause
