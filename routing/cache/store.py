"""Where replies are kept: in this process, bounded in bytes and time."""

from __future__ import annotations

import itertools
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping

from msgspec import Struct

from llama_compat.types import Usage

ENTRY_BYTES = 1024
"""What a reply takes besides its bytes: its keys, its counts and its place among the others."""


class Entry(Struct, eq=False):
    """One reply.

    Attributes:
        keys: by which it is found.
        wire: the client API's call that it was asked by, as `Operation.name`.
        form: names the bytes' form: streamed or not, and what else makes other bytes of the same.
        body: of a stream all of it, but for the dialect's own end.
        usage: as it was counted then.
        recording: what was said, encoded; None where nobody here can read it.
        pays_each_choice: as in `llama_compat.exchange.Recording`.
        choices: how many were said.
        draws: whether there are images in it.
        headers: the reply's own, and whose it was.
        dropped, adapted: as in `llama_compat.exchange.Reply`.
        kept_at: when, on the clock of the store.
        number: which of the store's entries it is.
    """

    keys: tuple[bytes, ...]
    wire: str
    form: bytes
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
    number: int = 0

    @property
    def size(self) -> int:
        """What it takes, in bytes."""
        said = 0 if self.recording is None else len(self.recording)
        return len(self.body) + said + ENTRY_BYTES


class ReplyCache:
    """Replies by the requests that they answer.

    Args:
        max_bytes: what all of them may come to; what nobody asked for for longest makes room.
        ttl: seconds after which one is forgotten.
        clock: tells the time, in seconds.

    Attributes:
        size: what all of them come to, in bytes.
    """

    def __init__(
        self, max_bytes: int, ttl: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.max_bytes = max_bytes
        self._ttl = ttl
        self._clock = clock
        self._numbers = itertools.count()
        self._entries: OrderedDict[int, Entry] = OrderedDict()
        self._by_key: dict[bytes, Entry] = {}
        self.size = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    def keep(self, entry: Entry) -> None:
        """Keep `entry`, in the place of what was found by its keys."""
        if entry.size > self.max_bytes:
            return
        for key in entry.keys:
            before = self._by_key.get(key)
            # What was found by another key as well is found by that one still.
            if before is not None and set(before.keys) <= set(entry.keys):
                self._forget(before)
        entry.kept_at, entry.number = self._clock(), next(self._numbers)
        self._entries[entry.number] = entry
        self._by_key.update(dict.fromkeys(entry.keys, entry))
        self.size += entry.size
        while self.size > self.max_bytes:
            self._forget(next(iter(self._entries.values())))

    def find(self, key: bytes, max_age: float | None = None) -> Entry | None:
        """What is kept by `key`, if it is no older than `max_age` seconds; None for nothing."""
        entry = self._by_key.get(key)
        if entry is None:
            return None
        age = self.age(entry)
        if age >= self._ttl:
            self._forget(entry)
            return None
        if max_age is not None and age > max_age:
            return None
        self._entries.move_to_end(entry.number)
        return entry

    def age(self, entry: Entry) -> float:
        """For how many seconds `entry` has been kept."""
        return self._clock() - entry.kept_at

    def _forget(self, entry: Entry) -> None:
        del self._entries[entry.number]
        self.size -= entry.size
        for key in entry.keys:
            if self._by_key.get(key) is entry:
                del self._by_key[key]
