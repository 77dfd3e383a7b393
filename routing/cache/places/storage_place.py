"""Replies in the template's storage: SQLite or PostgreSQL."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from providers.base import ProviderStartError
from routing.cache.places.shared import PlaceAway
from routing.cache.replies.store import ENTRY_BYTES
from routing.storage.storage import Migrations, RowRefused, StorageError, open_storage

CACHED_REPLIES = Migrations(
    "cached_replies",
    [
        [
            "CREATE TABLE cached_replies ("
            " id {identity},"
            " cache TEXT NOT NULL,"
            " kept_at DOUBLE PRECISION NOT NULL,"
            " size BIGINT NOT NULL,"
            " reply {blob} NOT NULL)",
            "CREATE INDEX cached_replies_by_age ON cached_replies (cache, kept_at)",
            "CREATE TABLE cached_keys ("
            " key TEXT PRIMARY KEY,"
            " reply BIGINT NOT NULL REFERENCES cached_replies (id) ON DELETE CASCADE)",
            "CREATE INDEX cached_keys_by_reply ON cached_keys (reply)",
            "CREATE TABLE cached_totals (cache TEXT PRIMARY KEY, bytes BIGINT NOT NULL)",
        ]
    ],
)


FOUND_TOGETHER = 500
"""So many keys are looked for by one statement."""


class StoragePlace:
    """One cache in a storage; see `ReplyPlace`. Of what is too much the oldest goes first.

    Args:
        address: of the storage.
        name: tells the cache from others in the same storage.
        max_bytes: what all replies may come to, of all who have it.
        ttl: seconds after which one is forgotten.
        clock: tells the time, in seconds since 1970.
    """

    def __init__(
        self,
        address: str,
        name: str,
        max_bytes: int,
        ttl: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        try:
            self._storage = open_storage(address, [CACHED_REPLIES])
        except StorageError as error:
            raise ProviderStartError(f"`server.storage`: {error}.") from None
        self.shown = "`server.storage`"
        self._name = name
        self._max_bytes = max_bytes
        self._ttl = ttl
        self._clock = clock

    async def start(self) -> None:
        """Open it."""
        try:
            await self._storage.start()
        except StorageError as error:
            raise PlaceAway(str(error)) from None

    async def stop(self) -> None:
        """Close it."""
        await self._storage.stop()

    async def probe(self) -> None:
        """Ask it for nothing."""
        await self.find((b"",))

    async def find(self, keys: Sequence[bytes]) -> bytes | None:
        """What is kept by the first of `keys` by which there is something."""
        found = await self.find_each(keys)
        return next((found[key] for key in keys if key in found), None)

    async def find_each(self, keys: Sequence[bytes]) -> Mapping[bytes, bytes]:
        """What is kept by each of `keys`."""
        found: dict[bytes, bytes] = {}
        try:
            for begin in range(0, len(keys), FOUND_TOGETHER):
                names = [key.hex() for key in keys[begin : begin + FOUND_TOGETHER]]
                rows = await self._storage.fetch(
                    "SELECT cached_keys.key, cached_replies.reply FROM cached_keys"
                    " JOIN cached_replies ON cached_keys.reply = cached_replies.id"
                    f" WHERE cached_keys.key IN ({', '.join('?' * len(names))})"
                    " AND cached_replies.kept_at > ?",
                    *names,
                    self._clock() - self._ttl,
                )
                found |= {bytes.fromhex(name): bytes(reply) for name, reply in rows}
        except StorageError as error:
            raise PlaceAway(str(error)) from None
        return found

    async def keep(self, keys: Sequence[bytes], data: bytes, kept_at: float) -> None:
        """Keep `data`, in one transaction."""
        size = len(data) + ENTRY_BYTES
        try:
            await self._keep([key.hex() for key in keys], data, size, kept_at)
        except RowRefused:
            return  # it will never be taken
        except StorageError as error:
            raise PlaceAway(str(error)) from None

    async def _keep(self, names: Sequence[str], data: bytes, size: int, kept_at: float) -> None:
        name, marks = self._name, ", ".join("?" * len(names))
        async with self._storage.transaction() as transaction:
            # Who has the total writes; the others wait, so that no two wait for each other.
            await transaction.fetch(
                "INSERT INTO cached_totals VALUES (?, 0) ON CONFLICT (cache)"
                " DO UPDATE SET bytes = cached_totals.bytes",
                name,
            )
            freed = await transaction.fetch(
                "DELETE FROM cached_replies WHERE cache = ? AND (kept_at <= ? OR id IN"
                " (SELECT reply FROM cached_keys WHERE key = ?)) RETURNING size",
                name,
                kept_at - self._ttl,
                names[0],
            )
            ((reply,),) = await transaction.fetch(
                "INSERT INTO cached_replies (cache, kept_at, size, reply) VALUES (?, ?, ?, ?)"
                " RETURNING id",
                name,
                kept_at,
                size,
                data,
            )
            await transaction.fetch(f"DELETE FROM cached_keys WHERE key IN ({marks})", *names)
            await transaction.execute_many(
                "INSERT INTO cached_keys VALUES (?, ?)", [(each, reply) for each in names]
            )
            more = size - sum(each for (each,) in freed)
            ((total,),) = await transaction.fetch(
                "UPDATE cached_totals SET bytes = bytes + ? WHERE cache = ? RETURNING bytes",
                more,
                name,
            )
            while total > self._max_bytes:
                gone = await transaction.fetch(
                    "DELETE FROM cached_replies WHERE id IN (SELECT id FROM cached_replies"
                    " WHERE cache = ? ORDER BY kept_at, id LIMIT 1) RETURNING size",
                    name,
                )
                total = total - gone[0][0] if gone else 0
                await transaction.fetch(
                    "UPDATE cached_totals SET bytes = ? WHERE cache = ?", total, name
                )
