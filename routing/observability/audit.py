"""What whoever runs the server has done to it while it runs: who, what, and to what.

Each deed is a line in the log at once, and a row in the storage, which is opened with the first of
them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from msgspec import Struct, structs

from llama_compat.text.one_line import one_line
from routing.storage.storage import Migrations, Storage, StorageError, open_storage

log = logging.getLogger(__name__)

AUDIT = Migrations(
    "audit",
    [
        [
            "CREATE TABLE audit (id {identity}, time DOUBLE PRECISION NOT NULL,"
            " request_id TEXT NOT NULL, client TEXT NOT NULL, operator TEXT NOT NULL,"
            " action TEXT NOT NULL, subject TEXT NOT NULL, detail TEXT NOT NULL)",
            "CREATE INDEX audit_by_time ON audit (time)",
        ]
    ],
)

KEEP_SECONDS = 400 * 86400.0
"""A year and a month."""

MOST_TEXT = 300
"""Of a text so many characters are kept."""


class Deed(Struct, frozen=True):
    """One thing that was done.

    Attributes:
        time: in seconds since 1970.
        request_id: the request's by which it was done.
        client: the address that it came from.
        operator: who that was, by their own word; empty where nobody said.
        action: what, as in `target.drain`.
        subject: to what: a key's id, a target's.
        detail: what else there is to say of it.
    """

    time: float
    request_id: str
    client: str
    operator: str
    action: str
    subject: str
    detail: str = ""


class Audit:
    """The record of deeds. Nothing is opened before the first.

    Args:
        address: of the storage.
        clock: seconds since 1970.
    """

    def __init__(self, address: str, clock: Callable[[], float] = time.time) -> None:
        self._address = address
        self._clock = clock
        self._storage: Storage | None = None

    async def start(self) -> None:
        """Nothing has to be done."""

    async def stop(self) -> None:
        """Close the storage."""
        if self._storage is not None:
            await self._storage.stop()

    async def note(
        self,
        action: str,
        subject: str,
        *,
        request_id: str,
        client: str,
        operator: str = "",
        detail: str = "",
    ) -> None:
        """Something has been done. Where the storage can't be used it is in the log alone, which
        says so.

        Args:
            action, subject, request_id, client, operator, detail: as in `Deed`.
        """
        texts = (request_id, client, operator, action, subject, detail)
        deed = Deed(self._clock(), *(one_line(each, MOST_TEXT) for each in texts))
        log.info(
            "%s %s by %s%s (%s)%s",
            deed.action,
            deed.subject,
            deed.client,
            f" ({deed.operator})" if deed.operator else "",
            deed.request_id,
            f": {deed.detail}" if deed.detail else "",
        )
        names = Deed.__struct_fields__
        try:
            async with self._open().transaction() as transaction:
                await transaction.insert("audit", names, [structs.astuple(deed)])
                await transaction.fetch(
                    "DELETE FROM audit WHERE time < ? RETURNING id", deed.time - KEEP_SECONDS
                )
        except StorageError as error:
            log.error("that is in the log alone: %s", error)

    async def newest(self, limit: int, before: int | None = None) -> list[dict[str, Any]]:
        """The last deeds, the newest first, each with its `id`.

        Args:
            limit: how many at most.
            before: with smaller ids than this alone.

        Raises:
            StorageError: they can't be read.
        """
        names = Deed.__struct_fields__
        where, values = ("", []) if before is None else (" WHERE id < ?", [before])
        rows = await self._open().fetch(
            f"SELECT id, {', '.join(names)} FROM audit{where} ORDER BY id DESC LIMIT {int(limit)}",
            *values,
        )
        return [dict(zip(("id", *names), row, strict=True)) for row in rows]

    def _open(self) -> Storage:
        if self._storage is None:
            self._storage = open_storage(self._address, [AUDIT])
        return self._storage
