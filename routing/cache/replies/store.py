"""Where replies are kept: what one is, and what a place for them does. The place in this process's
own memory is here too."""

from __future__ import annotations

import itertools
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, MutableSet, Sequence
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from llama_compat.types import Usage

if TYPE_CHECKING:
    from routing.cache.asked import CacheableCall

ENTRY_BYTES = 1024
"""What a reply takes besides its bytes: its keys, its counts and its place among the others."""


class Entry(Struct, eq=False, gc=False):
    """One reply.

    Attributes:
        keys: by which it is found; the first is that of its bytes.
        wire: the client API's call that it was asked by, as `Operation.name`.
        body: of a stream all of it, but for the dialect's own end.
        usage: as it was counted then.
        recording: what was said, encoded; None where nobody here can read it, or nobody has yet.
        pays_each_choice: as in `llama_compat.exchange.Recording`.
        choices: how many were said.
        draws: whether there are images in it.
        headers: the reply's own, and whose it was.
        dropped, adapted: as in `llama_compat.exchange.Reply`.
        kept_at: when, in seconds since 1970.
        asked: what it answers, where that is in the memory of this process.
        number: which of the entries of this process it is.
        waiting: the numbers of entries whose requests nobody has read, this one's among them.
        held: what it was counted for where it is kept, in bytes.
        copies: the numbers of the entries that were made of it, in other forms.
        unread: says, once, whether it is one to be kept, and has the rest of this be so; None where
            somebody has looked. Until then nobody knows more of it than its bytes.
    """

    keys: tuple[bytes, ...]
    wire: str
    body: bytes
    usage: Usage | None
    recording: bytes | None = None
    pays_each_choice: bool = False
    choices: int = 1
    draws: bool = False
    headers: Mapping[str, str] = {}
    dropped: tuple[str, ...] = ()
    adapted: tuple[str, ...] = ()
    kept_at: float = 0.0
    asked: CacheableCall | None = None
    number: int = 0
    waiting: MutableSet[int] | None = None
    copies: list[int] = []
    held: int = 0
    unread: Callable[[Entry], bool] | None = None

    @property
    def size(self) -> int:
        """What it takes, in bytes."""
        said = 0 if self.recording is None else len(self.recording)
        asked = 0 if self.asked is None else self.asked.size
        return len(self.body) + said + asked + ENTRY_BYTES


class ReplyStore(Protocol):
    """A place for replies, from `start` to `stop`. It never fails: one that is away has nothing,
    and takes nothing.

    Attributes:
        is_away: whether it can't be asked at the moment.
        is_shared: whether other processes look there too.
    """

    is_shared: bool

    @property
    def is_away(self) -> bool: ...

    async def start(self) -> None:
        """Open it."""
        ...

    async def stop(self) -> None:
        """Keep what was given, and close it."""
        ...

    async def find(self, keys: Sequence[bytes], max_age: float | None = None) -> Entry | None:
        """What is kept by the first of `keys` by which there is something, if it is no older than
        `max_age` seconds; None for nothing."""
        ...

    async def keep(self, entry: Entry) -> None:
        """Keep `entry`, in the place of what was found by its keys."""
        ...

    async def find_each(
        self, keys: Sequence[bytes], max_age: float | None = None
    ) -> Mapping[bytes, Entry]:
        """What is kept by each of `keys`, of what was kept by one key alone."""
        ...

    async def keep_each(self, entries: Sequence[Entry]) -> None:
        """Keep all of `entries`."""
        ...


def age_of(entry: Entry, now: float) -> float:
    """For how many seconds `entry` has been kept; never less than none, whatever a clock does."""
    return max(0.0, now - entry.kept_at)


def _is_kept(entry: Entry) -> bool:
    """Whether what nobody has looked at is one to be kept."""
    look, entry.unread = entry.unread, None
    return look is None or look(entry)


class MemoryHit(Struct, frozen=True, eq=False, gc=False):
    """A reply that was found by its first key.

    Attributes:
        store: where.
        entry: it.
    """

    store: MemoryReplies
    entry: Entry

    def age(self) -> float | None:
        """For how many seconds it has been kept; None where it is there no more."""
        entry, store = self.entry, self.store
        return store.age(entry) if store.at(entry.keys[0]) is entry else None


class MemoryReplies:
    """Replies in the memory of this process.

    Args:
        max_bytes: what all of them may come to; what nobody asked for for longest makes room.
        ttl: seconds after which one is forgotten.
        clock: tells the time, in seconds.

    Attributes:
        size: what all of them come to, in bytes.
    """

    is_shared = False
    is_away = False

    def __init__(self, max_bytes: int, ttl: float, clock: Callable[[], float] = time.time) -> None:
        self.max_bytes = max_bytes
        self._ttl = ttl
        self._clock = clock
        self._numbers = itertools.count(1)
        self._entries: OrderedDict[int, Entry] = OrderedDict()
        self._by_key: dict[bytes, Entry] = {}
        self.size = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    async def start(self) -> None:
        """It is there."""

    async def stop(self) -> None:
        """It ends with the process."""

    async def keep(self, entry: Entry) -> None:
        """Keep `entry`, in the place of what was found by its keys."""
        self.put(entry)

    def put(self, entry: Entry) -> None:
        """The same, which takes no waiting."""
        entry.held = size = entry.size
        if size > self.max_bytes:
            return
        keys = entry.keys
        for key in keys:
            before = self._by_key.get(key)
            # What was found by another key as well is found by that one still.
            if before is not None and (before.keys == keys or set(before.keys) <= set(keys)):
                self._forget(before)
        entry.number = number = next(self._numbers)
        self._entries[number] = entry
        for key in keys:
            self._by_key[key] = entry
        self.size += size
        self._make_room()

    async def find(self, keys: Sequence[bytes], max_age: float | None = None) -> Entry | None:
        """What is kept by the first of `keys` by which there is something."""
        return self.look(keys, max_age)

    def look(self, keys: Sequence[bytes], max_age: float | None = None) -> Entry | None:
        """The same, which takes no waiting."""
        for key in keys:
            entry = self._by_key.get(key)
            if entry is None:
                continue
            age = self._clock() - entry.kept_at
            if age >= self._ttl or (entry.unread is not None and not _is_kept(entry)):
                self._forget(entry)
            elif max_age is None or age <= max_age:
                self._entries.move_to_end(entry.number)
                return entry
        return None

    def put_unread(self, entry: Entry, size: int) -> None:
        """Keep `entry`, of whose keys nothing is kept, before anybody has looked whether it is one
        to be kept.

        Args:
            entry: it; what it holds until then besides its body is as large as that.
            size: what it takes, in bytes, with that.
        """
        if size > self.max_bytes:
            return
        entry.held = size
        entry.number = number = next(self._numbers)
        self._entries[number] = entry
        by_key = self._by_key
        for key in entry.keys:
            by_key[key] = entry
        self.size += size
        if self.size > self.max_bytes:
            self._make_room()

    def _make_room(self) -> None:
        while self.size > self.max_bytes:
            self._forget(next(iter(self._entries.values())))

    def has(self, keys: Sequence[bytes]) -> bool:
        """Whether anything is kept by any of `keys`, be it to be forgotten."""
        by_key = self._by_key
        for key in keys:  # noqa: SIM110  (`any` makes a generator)
            if key in by_key:
                return True
        return False

    def age(self, entry: Entry) -> float:
        """As `age_of`, now."""
        return age_of(entry, self._clock())

    def at(self, key: bytes) -> Entry | None:
        """What is kept by `key`, however old; None for nothing, or what is to be forgotten."""
        entry = self._by_key.get(key)
        if entry is None or self._clock() - entry.kept_at >= self._ttl:
            return None
        if entry.unread is not None and not _is_kept(entry):
            self._forget(entry)
            return None
        self._entries.move_to_end(entry.number)
        return entry

    async def find_each(
        self, keys: Sequence[bytes], max_age: float | None = None
    ) -> Mapping[bytes, Entry]:
        """What is kept by each of `keys`."""
        found = {key: await self.find((key,), max_age) for key in keys}
        return {key: entry for key, entry in found.items() if entry is not None}

    async def keep_each(self, entries: Sequence[Entry]) -> None:
        """Keep all of `entries`."""
        for entry in entries:
            await self.keep(entry)

    def numbered(self, number: int) -> Entry | None:
        """The entry of this number, if it is kept still."""
        return self._entries.get(number)

    def add_key(self, entry: Entry, key: bytes) -> None:
        """Have `entry`, which is kept, be found by `key` as well."""
        entry.keys += (key,)
        self._by_key[key] = entry

    def _forget(self, entry: Entry) -> None:
        del self._entries[entry.number]
        self.size -= entry.held
        if entry.waiting is not None:
            entry.waiting.discard(entry.number)
        for key in entry.keys:
            if self._by_key.get(key) is entry:
                del self._by_key[key]
        for number in entry.copies:
            copy = self._entries.get(number)
            if copy is not None:
                self._forget(copy)
