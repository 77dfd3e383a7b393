"""Replies in a place that other processes have too: what is the same of Redis and of databases.

A place that is away costs nobody more than a moment: whoever finds that it does not answer in time
says so, and until it is back, which one task looks for, nobody asks.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Protocol, TypeVar

import msgspec
from msgspec import Struct

from llama_compat.going_on import going_on
from llama_compat.off_loop import off_loop
from llama_compat.types import Usage
from routing.cache.replies.store import Entry, age_of
from routing.storage.outage import Outage
from routing.waiting import cancelled

log = logging.getLogger(__name__)

ANSWER_SECONDS = 0.05
"""A place that takes longer to answer is away."""

PROBE_SECONDS = 0.5
"""So long one waits before one looks again whether it is back."""

MAX_WRITING = 64
"""So many replies are on their way there at a time; of what is more nothing is kept."""

STOP_SECONDS = 2.0
"""So long the end of the process waits for those."""

_T = TypeVar("_T")


class PlaceAway(Exception):
    """The place can't be used now; the message says why."""


class ReplyPlace(Protocol):
    """Where bytes are kept by several keys. Every method may raise `PlaceAway`.

    Attributes:
        shown: how to name it to people.
    """

    shown: str

    async def start(self) -> None:
        """Open it, as far as that goes; may be called again.

        Raises:
            ProviderStartError: it can't ever be opened, as a package is missing.
        """
        ...

    async def stop(self) -> None:
        """Close it."""
        ...

    async def probe(self) -> None:
        """Find out whether it is there."""
        ...

    async def find(self, keys: Sequence[bytes]) -> bytes | None:
        """What is kept by the first of `keys` by which there is something that is young enough."""
        ...

    async def keep(self, keys: Sequence[bytes], data: bytes, kept_at: float) -> None:
        """Keep `data` by `keys`, in the place of what was there, and make room for it."""
        ...

    async def find_each(self, keys: Sequence[bytes]) -> Mapping[bytes, bytes]:
        """What is kept by each of `keys`, of what was kept by one key alone."""
        ...


class SharedReplies:
    """Replies in a place that other processes have too; see `ReplyStore`.

    Args:
        place: that.
        max_bytes: no reply is kept that is longer.
        answer_seconds: how long it may take to answer.
        clock: tells the time, in seconds since 1970.
    """

    is_shared = True

    def __init__(
        self,
        place: ReplyPlace,
        max_bytes: int,
        answer_seconds: float = ANSWER_SECONDS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._place = place
        self._max_bytes = max_bytes
        self._answer_seconds = answer_seconds
        self._clock = clock
        self._is_away = True
        self._outage = Outage(
            f"no reply is given again, the cache in {place.shown} is away",
            f"the cache in {place.shown} is back",
        )
        self._probing: asyncio.Task[None] | None = None
        self._writing: set[asyncio.Task[None]] = set()

    @property
    def is_away(self) -> bool:
        """Whether it can't be asked at the moment."""
        return self._is_away

    async def start(self) -> None:
        """Open the place; where it is away, later.

        Raises:
            ProviderStartError: it can't ever be opened.
        """
        try:
            await self._place.start()
            self._is_away = False
        except PlaceAway as error:
            self._lose(str(error))

    async def stop(self) -> None:
        """Keep what was given, if that takes no longer than a moment, and close it."""
        if self._writing:
            await asyncio.wait(self._writing, timeout=STOP_SECONDS)
        await cancelled([*self._writing, *([] if self._probing is None else [self._probing])])
        self._is_away = True
        await self._place.stop()

    async def find(self, keys: Sequence[bytes], max_age: float | None = None) -> Entry | None:
        """What is kept by the first of `keys` by which there is something."""
        if self._is_away:
            return None
        data = await self._ask(self._place.find(keys))
        entry = None if data is None else await off_loop(len(data), _read, data)
        return entry if self._is_wanted(entry, max_age) else None

    async def keep(self, entry: Entry) -> None:
        """Keep `entry`; who waits for that waits for a moment at most, and it goes on."""
        await self.keep_each((entry,))

    async def find_each(
        self, keys: Sequence[bytes], max_age: float | None = None
    ) -> Mapping[bytes, Entry]:
        """What is kept by each of `keys`."""
        if self._is_away:
            return {}
        found = await self._ask(self._place.find_each(keys)) or {}
        size = sum(map(len, found.values()))
        entries = await off_loop(size, lambda: {key: _read(data) for key, data in found.items()})
        return {
            key: entry
            for key, entry in entries.items()
            if entry is not None and self._is_wanted(entry, max_age)
        }

    async def keep_each(self, entries: Sequence[Entry]) -> None:
        """Keep all of `entries`, as `keep` does."""
        kept = [each for each in entries if each.size <= self._max_bytes]
        if self._is_away or not kept or len(self._writing) >= MAX_WRITING:
            return
        task = asyncio.create_task(self._write(kept))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)
        await asyncio.wait([task], timeout=self._answer_seconds)

    def _is_wanted(self, entry: Entry | None, max_age: float | None) -> bool:
        return entry is not None and (max_age is None or age_of(entry, self._clock()) <= max_age)

    async def _write(self, entries: Sequence[Entry]) -> None:
        try:
            for entry in entries:
                data = await off_loop(entry.size, _encode, _Kept.of(entry))
                await self._place.keep(entry.keys, data, entry.kept_at)
        except PlaceAway as error:
            self._lose(str(error))
        except Exception:
            log.exception("a reply is not kept in %s", self._place.shown)

    async def _ask(self, question: Awaitable[_T]) -> _T | None:
        """What comes of `question`; None where nothing does in time."""
        timer = asyncio.timeout(self._answer_seconds)
        try:
            async with timer:
                return await question
        except PlaceAway as error:
            self._lose(str(error))
        except TimeoutError:
            if not timer.expired():
                raise
            self._lose("it does not answer in time")
        return None

    def _lose(self, why: str) -> None:
        self._is_away = True
        self._outage.failed(why)
        if self._probing is None or self._probing.done():
            self._probing = asyncio.create_task(going_on("the shared cache", self._probe))

    async def _probe(self) -> None:
        while True:
            await asyncio.sleep(PROBE_SECONDS)
            with suppress(PlaceAway, TimeoutError):
                async with asyncio.timeout(10 * self._answer_seconds):
                    await self._place.probe()
                self._is_away = False
                self._outage.worked()
                return


def _read(data: bytes) -> Entry | None:
    """What was written as `data`; None where that was another version."""
    try:
        return _decode(data).entry()
    except msgspec.MsgspecError:
        return None


class _Kept(Struct, frozen=True, array_like=True):
    """An entry, as it is written."""

    keys: tuple[bytes, ...]
    wire: str
    body: bytes
    usage: Usage | None
    recording: bytes | None
    pays_each_choice: bool
    choices: int
    draws: bool
    headers: dict[str, str]
    dropped: tuple[str, ...]
    adapted: tuple[str, ...]
    kept_at: float

    @classmethod
    def of(cls, entry: Entry) -> _Kept:
        return cls(*(getattr(entry, name) for name in cls.__struct_fields__))

    def entry(self) -> Entry:
        return Entry(**{name: getattr(self, name) for name in self.__struct_fields__})


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Kept).decode
