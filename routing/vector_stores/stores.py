"""Vector stores, each its key's alone."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, get_args

import msgspec
from msgspec import Struct

from llama_compat.distribution import VectorStoresSettings
from llama_compat.errors import APIError
from routing.batches.files import FileStore
from routing.batches.tables import MIGRATIONS as FILES
from routing.storage.outage import unavailable
from routing.storage.pages import Cursor, PageStart, page_of
from routing.storage.storage import Storage, StorageError, Transaction, open_storage
from routing.vector_stores.tables import MIGRATIONS

DAY_SECONDS = 86400

ACTIVE_SECONDS = 60.0
"""What is done with a store within so long is one activity: not every search writes."""

Status = Literal["in_progress", "completed", "failed", "cancelled"]
"""How far files may have come."""


class VectorStoreRow(Struct, frozen=True):
    """A store: the columns of the table, in their order.

    Attributes:
        owner: the id of the key that it belongs to.
        metadata: JSON.
        expires_days: after so many without any use it expires; None for never.
        created, active: when it was made and last used, in seconds since 1970.
        model: makes its vectors.
    """

    id: str
    owner: str
    name: str
    description: str | None
    metadata: bytes
    expires_days: int | None
    created: float
    active: float
    model: str

    @property
    def expires(self) -> float | None:
        """When it expires unless it is used before, in seconds since 1970."""
        days = self.expires_days
        return None if days is None else self.active + days * DAY_SECONDS

    def has_expired(self, now: float) -> bool:
        """Whether it has."""
        return self.expires is not None and self.expires <= now

    def shown(self, counts: FileCounts, now: float) -> dict[str, Any]:
        """As OpenAI's API shows it.

        Args:
            counts: its files.
            now: in seconds since 1970.
        """
        status = "in_progress" if counts.by_status.get("in_progress") else "completed"
        days, expires = self.expires_days, self.expires
        return {
            "id": self.id,
            "object": "vector_store",
            "created_at": int(self.created),
            "name": self.name,
            "description": self.description,
            "usage_bytes": counts.bytes,
            "file_counts": counts.shown(),
            "status": "expired" if self.has_expired(now) else status,
            "expires_after": None if days is None else {"anchor": "last_active_at", "days": days},
            "expires_at": None if expires is None else int(expires),
            "last_active_at": int(self.active),
            "metadata": msgspec.json.decode(self.metadata),
        }


class FileCounts(Struct):
    """How many files there are by their status, and what they come to in bytes."""

    by_status: dict[str, int] = {}
    bytes: int = 0

    def shown(self) -> dict[str, int]:
        """As OpenAI's API shows it."""
        counts = {status: self.by_status.get(status, 0) for status in get_args(Status)}
        return {**counts, "total": sum(counts.values())}


STORE_COLUMNS = VectorStoreRow.__struct_fields__
_COLUMNS = ", ".join(STORE_COLUMNS)


class StoreTable:
    """The stores, from `start` to `stop`.

    Args:
        settings: of the template.
        files: whose contents they have.
        address: of the storage of the template.
        clock: the time in seconds since 1970; that of the storage if none is given.

    Attributes:
        settings: they.
        files: those.
        storage: where all of it is.

    Raises:
        ProviderStartError: a package is missing.
    """

    def __init__(
        self,
        settings: VectorStoresSettings,
        files: FileStore,
        address: str,
        clock: Callable[[], float] | None = None,
    ) -> None:
        from providers.base import ProviderStartError

        self.settings = settings
        self.files = files
        try:
            self.storage: Storage = open_storage(address, [FILES, MIGRATIONS])
        except StorageError as error:
            raise ProviderStartError(f"`server.storage`: {error}.") from None
        self._clock = clock or self.storage.now

    def now(self) -> float:
        """In seconds since 1970."""
        return self._clock()

    async def create(
        self,
        owner: str,
        *,
        name: str,
        description: str | None,
        metadata: Any,
        expires_days: int | None,
    ) -> VectorStoreRow:
        """Make a store.

        Args:
            owner: the id of a key.
            name, description, metadata: what the client calls it.
            expires_days: after so many without any use it expires; None for never.

        Raises:
            APIError: 413, the key has too many; 503.
        """
        now = self.now()
        store = VectorStoreRow(
            f"vs_{os.urandom(16).hex()}",
            owner,
            name,
            description,
            msgspec.json.encode(metadata),
            expires_days,
            now,
            now,
            self.settings.embedding_model,
        )
        with stores_unavailable():
            async with self.storage.transaction() as transaction:
                await transaction.alone(f"vector stores of {owner}")
                ((count,),) = await transaction.fetch(
                    "SELECT count(*) FROM vector_stores WHERE owner = ?", owner
                )
                if count >= self.settings.max_key_stores:
                    raise too_many_stores(self.settings.max_key_stores)
                row = tuple(getattr(store, column) for column in STORE_COLUMNS)
                await transaction.insert("vector_stores", STORE_COLUMNS, [row])
        return store

    async def get(self, owner: str, store_id: str) -> VectorStoreRow:
        """A store.

        Raises:
            APIError: 404, the owner has none of this id; 503.
        """
        found = await self.owned(owner, [store_id])
        if not found:
            raise store_not_found(store_id)
        return found[0]

    async def owned(self, owner: str, store_ids: Sequence[str]) -> list[VectorStoreRow]:
        """Those of `store_ids` that are stores of the owner, in their order.

        Raises:
            APIError: 503.
        """
        if not store_ids:
            return []
        marks = ", ".join("?" * len(store_ids))
        with stores_unavailable():
            rows = await self.storage.fetch(
                f"SELECT {_COLUMNS} FROM vector_stores WHERE owner = ? AND id IN ({marks})",
                owner,
                *store_ids,
            )
        stores = {row[0]: VectorStoreRow(*row) for row in rows}
        return [stores[each] for each in store_ids if each in stores]

    async def page(
        self, owner: str, *, cursor: Cursor | None, limit: int, ascending: bool
    ) -> tuple[list[VectorStoreRow], bool]:
        """Up to `limit` stores of the owner by age, and whether there are more.

        Args:
            owner: the id of a key.
            cursor: beside which store they are.
            limit: how many.
            ascending: the oldest first.

        Raises:
            APIError: 404, there is no such store; 503.
        """
        place = None
        if cursor is not None:
            beside = await self.get(owner, cursor.row)
            place = PageStart(beside.created, beside.id, cursor.backwards)
        with stores_unavailable():
            rows, more = await page_of(
                self.storage,
                f"SELECT {_COLUMNS} FROM vector_stores WHERE owner = ?",
                [owner],
                limit=limit,
                ascending=ascending,
                place=place,
            )
        return [VectorStoreRow(*row) for row in rows], more

    async def modify(self, owner: str, store_id: str, changes: dict[str, Any]) -> VectorStoreRow:
        """Change what a client calls a store, or when it expires.

        Args:
            owner: the id of a key.
            store_id: the store's id.
            changes: by column, `name`, `metadata` (encoded) and `expires_days`.

        Raises:
            APIError: 404, the owner has none of this id; 503.
        """
        changes = {**changes, "active": self.now()}
        columns = ", ".join(f"{column} = ?" for column in changes)
        with stores_unavailable():
            async with self.storage.transaction() as transaction:
                rows = await transaction.fetch(
                    f"UPDATE vector_stores SET {columns} WHERE id = ? AND owner = ?"
                    f" RETURNING {_COLUMNS}",
                    *changes.values(),
                    store_id,
                    owner,
                )
        if not rows:
            raise store_not_found(store_id)
        return VectorStoreRow(*rows[0])

    async def used(self, stores: Sequence[VectorStoreRow]) -> None:
        """Stores were searched.

        Raises:
            APIError: 503.
        """
        now = self.now()
        stale = [each.id for each in stores if now - each.active > ACTIVE_SECONDS]
        if not stale:
            return
        marks = ", ".join("?" * len(stale))
        with stores_unavailable():
            async with self.storage.transaction() as transaction:
                await transaction.fetch(
                    f"UPDATE vector_stores SET active = ? WHERE id IN ({marks})", now, *stale
                )

    async def delete(self, owner: str, store_id: str) -> None:
        """Forget a store; its files are files all the same.

        Raises:
            APIError: 404, the owner has none of this id; 503.
        """
        with stores_unavailable():
            async with self.storage.transaction() as transaction:
                gone = await transaction.fetch(
                    "DELETE FROM vector_stores WHERE id = ? AND owner = ? RETURNING id",
                    store_id,
                    owner,
                )
                if not gone:
                    raise store_not_found(store_id)
                await transaction.fetch(
                    "UPDATE vector_store_files SET status = 'deleted' WHERE store = ?", store_id
                )
                await transaction.fetch(
                    "DELETE FROM vector_store_batches WHERE store = ?", store_id
                )

    async def counts(self, store_ids: Sequence[str]) -> dict[str, FileCounts]:
        """The files of each store.

        Raises:
            APIError: 503.
        """
        counts = {each: FileCounts({}) for each in store_ids}
        if not store_ids:
            return counts
        marks = ", ".join("?" * len(store_ids))
        with stores_unavailable():
            rows = await self.storage.fetch(
                "SELECT store, status, count(*), sum(bytes) FROM vector_store_files"
                f" WHERE store IN ({marks}) AND status <> 'deleted' GROUP BY store, status",
                *store_ids,
            )
        for store, status, count, size in rows:
            counts[store].by_status[status] = int(count)
            counts[store].bytes += int(size)
        return counts

    async def expire(self) -> None:
        """Take the files out of stores that have expired: they are not found any more."""
        async with self.storage.transaction() as transaction:
            await transaction.fetch(
                "UPDATE vector_store_files SET status = 'deleted' WHERE status <> 'deleted'"
                " AND store IN (SELECT id FROM vector_stores WHERE expires_days IS NOT NULL"
                f" AND active + expires_days * {float(DAY_SECONDS)} <= ?)",
                self.now(),
            )


async def owned_store(storage: Storage | Transaction, owner: str, store_id: str) -> VectorStoreRow:
    """A store, for who holds a transaction.

    Raises:
        StorageError: it can't be read.
        APIError: 404, the owner has none of this id.
    """
    rows = await storage.fetch(
        f"SELECT {_COLUMNS} FROM vector_stores WHERE id = ? AND owner = ?", store_id, owner
    )
    if not rows:
        raise store_not_found(store_id)
    return VectorStoreRow(*rows[0])


def store_not_found(store_id: str, param: str = "vector_store_id") -> APIError:
    """404: the caller has no store of this id."""
    return APIError(
        404,
        f"No such vector store: '{store_id[:100]}'. It was never made with this key, or was"
        " deleted.",
        type="invalid_request_error",
        param=param,
        code="vector_store_not_found",
    )


def store_has_expired(store_id: str) -> APIError:
    """400: nothing is found in it any more."""
    return APIError(
        400,
        f"Vector store '{store_id}' has expired: it was not used for as long as its"
        " 'expires_after' says. Make another of the same files.",
        type="invalid_request_error",
        param="vector_store_id",
        code="vector_store_expired",
    )


def too_many_stores(limit: int) -> APIError:
    """413: the key has as many as it may."""
    return APIError(
        413,
        f"This key may have {limit} vector stores. Delete some that are not needed any more, or"
        " have `server.vector_stores` `max_key_stores` raised.",
        code="too_many_vector_stores",
    )


stores_unavailable = partial(unavailable, "Vector stores")
"""Where the storage is used: what goes wrong with it is logged, and told as 503."""
