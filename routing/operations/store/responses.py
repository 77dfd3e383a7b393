"""The responses of the Responses API that are kept, each its owner's alone."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Struct

from llama_compat.distribution import ResponsesStoreSettings
from llama_compat.errors import APIError, invalid_parameter
from providers.base import ProviderStartError
from routing.operations.store.database import Database, Found

log = logging.getLogger(__name__)

MAX_CHAIN = 1000
"""As many responses may go on from one another."""

MAX_HISTORY_BYTES = 64 << 20
"""As large may the conversation be that a response goes on from."""

SWEEP_SECONDS = 60.0

ALIVE_SECONDS = 30.0
"""A response in the background whose process says nothing of it for so long is given up."""

RUNNING = ("queued", "in_progress")

_SCHEMA = """
CREATE TABLE IF NOT EXISTS responses (
    id TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    previous TEXT,
    created REAL NOT NULL,
    status TEXT NOT NULL,
    alive_until REAL,
    input BLOB NOT NULL,
    response BLOB NOT NULL,
    size INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS responses_by_age ON responses (created);
CREATE TABLE IF NOT EXISTS items (
    id TEXT NOT NULL,
    response TEXT NOT NULL REFERENCES responses (id) ON DELETE CASCADE,
    PRIMARY KEY (id, response)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS items_by_response ON items (response);
CREATE TABLE IF NOT EXISTS total (only INTEGER PRIMARY KEY CHECK (only = 1), bytes INTEGER);
INSERT OR IGNORE INTO total VALUES (1, 0);
CREATE TRIGGER IF NOT EXISTS response_added AFTER INSERT ON responses BEGIN
    UPDATE total SET bytes = bytes + new.size;
END;
CREATE TRIGGER IF NOT EXISTS response_removed AFTER DELETE ON responses BEGIN
    UPDATE total SET bytes = bytes - old.size;
END;
CREATE TRIGGER IF NOT EXISTS response_changed AFTER UPDATE OF size ON responses BEGIN
    UPDATE total SET bytes = bytes + new.size - old.size;
END;
"""

Items = list[dict[str, Any]]


class StoredResponse(Struct, frozen=True):
    """A response, and the items that it was an answer to."""

    response: dict[str, Any]
    input: Items


class ResponseStore:
    """The store, from `start` to `stop`. Whoever is not the owner of a response finds none.

    Args:
        settings: where, how long and how much.
        clock: the time in seconds since 1970.
    """

    def __init__(
        self, settings: ResponsesStoreSettings, clock: Callable[[], float] = time.time
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._database = Database(settings.path, _SCHEMA)
        self._sweeping: asyncio.Task[None] | None = None
        self._saving: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Open the file.

        Raises:
            ProviderStartError: it can't be opened.
        """
        try:
            await self._database.start()
        except (OSError, sqlite3.Error) as error:
            raise ProviderStartError(
                f"`server.responses_store.path` {self._settings.path} can't be used"
                f" ({str(error).lower()}). It has to be an SQLite file of this server's own, or a"
                " place where one can be made."
            ) from None
        self._sweeping = asyncio.create_task(self._sweep())

    async def stop(self) -> None:
        """Close it."""
        if self._sweeping is not None:
            self._sweeping.cancel()
            await asyncio.gather(self._sweeping, return_exceptions=True)
        await asyncio.gather(*self._saving, return_exceptions=True)
        await self._database.stop()

    async def save(
        self,
        owner: str,
        response: Mapping[str, Any],
        input: Sequence[Mapping[str, Any]],
        previous: str | None = None,
    ) -> None:
        """Keep a response, and make room for it. A cancelled caller does not stop that.

        Args:
            owner: whose it is.
            response: the response object.
            input: the items that it answers.
            previous: the id of the response that it goes on from, if that is kept here.

        Raises:
            APIError: 503, it could not be kept.
        """
        row = _Row.of(owner, response, input, previous, self._clock())
        if row.size > self._settings.max_bytes:
            log.warning(
                "response %s is not kept: its %s bytes are more than max_bytes", row.id, row.size
            )
            return
        await self._surely(lambda connection: self._save(connection, row))

    async def complete(self, response: Mapping[str, Any]) -> None:
        """Put the end of a background response in the place of what is kept of it. A cancelled
        caller does not stop that.

        Nothing happens where it has been cancelled or deleted meanwhile.
        """
        await self._surely(lambda connection: self._complete(connection, response))

    async def get(self, owner: str, response_id: str) -> StoredResponse:
        """A response.

        Raises:
            APIError: 404, the owner has none of this id.
        """
        return await self._run(lambda each: self._get(each, owner, response_id))

    async def delete(self, owner: str, response_id: str) -> None:
        """Forget a response.

        Raises:
            APIError: 404, the owner has none of this id.
        """

        def work(connection: sqlite3.Connection) -> int:
            row = (response_id, owner, self._oldest())
            return connection.execute(
                "DELETE FROM responses WHERE id = ? AND owner = ? AND created >= ?", row
            ).rowcount

        if not await self._run(work):
            raise response_not_found(response_id)

    async def cancel(self, owner: str, response_id: str) -> dict[str, Any]:
        """Mark a background response as cancelled, if it still runs; the response as it is then.

        Raises:
            APIError: 404, the owner has none of this id; 400, somebody waits for it.
        """
        return await self._run(lambda each: self._cancel(each, owner, response_id))

    async def history(self, owner: str, response_id: str) -> Items:
        """The items of the conversation that ends with a response: input and output of each.

        Raises:
            APIError: 400, one of the chain is not there, or the chain is too long.
        """
        return await self._run(lambda each: self._history(each, owner, response_id))

    async def items(self, owner: str, ids: Iterable[str]) -> dict[str, dict[str, Any]]:
        """Those of the items with these ids that the owner's responses have."""
        wanted = list(dict.fromkeys(ids))
        return await self._run(lambda each: self._items(each, owner, wanted))

    async def keep_alive(self, ids: Sequence[str]) -> set[str]:
        """Say that these responses are still worked on; those of them that nobody wants any more,
        for they were cancelled or deleted."""
        return await self._run(lambda each: self._keep_alive(each, ids))

    async def _surely(self, work: Callable[[sqlite3.Connection], None]) -> None:
        """As `_run`, but a cancelled caller does not stop it."""
        saving = asyncio.create_task(self._run(work))
        self._saving.add(saving)
        saving.add_done_callback(self._saving.discard)
        await asyncio.shield(saving)

    async def _run(self, work: Callable[[sqlite3.Connection], Found]) -> Found:
        try:
            return await self._database.run(work)
        except sqlite3.Error as error:
            log.error("the store of responses can't be used: %s", error)
            raise APIError(
                503,
                "The store of responses can't be used now; the server's log says why. Ask again"
                " later, or with 'store' false.",
                code="store_unavailable",
            ) from None

    # In the thread --------------------------------------------------------------------------------

    def _oldest(self) -> float:
        return self._clock() - self._settings.ttl

    def _save(self, connection: sqlite3.Connection, row: _Row) -> None:
        connection.execute("DELETE FROM responses WHERE created < ?", (self._oldest(),))
        connection.execute(
            "INSERT INTO responses VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", msgspec.structs.astuple(row)
        )
        _index(connection, row.id, row.input, row.response)
        self._make_room(connection)

    def _make_room(self, connection: sqlite3.Connection) -> None:
        while True:
            (total,) = connection.execute("SELECT bytes FROM total").fetchone()
            if total <= self._settings.max_bytes:
                return
            connection.execute(
                "DELETE FROM responses WHERE id IN"
                " (SELECT id FROM responses ORDER BY created LIMIT 1)"
            )

    def _complete(self, connection: sqlite3.Connection, response: Mapping[str, Any]) -> None:
        encoded = msgspec.json.encode(response)
        changed = connection.execute(
            "UPDATE responses SET response = ?, status = ?, alive_until = NULL,"
            " size = length(input) + ? WHERE id = ? AND status IN ('queued', 'in_progress')",
            (encoded, response["status"], len(encoded), response["id"]),
        )
        if changed.rowcount:
            _index(connection, response["id"], b"[]", encoded)
            self._make_room(connection)

    def _get(self, connection: sqlite3.Connection, owner: str, response_id: str) -> StoredResponse:
        row = connection.execute(
            "SELECT response, input, status, alive_until FROM responses"
            " WHERE id = ? AND owner = ? AND created >= ?",
            (response_id, owner, self._oldest()),
        ).fetchone()
        if row is None:
            raise response_not_found(response_id)
        response, input, status, alive_until = row
        decoded = {**msgspec.json.decode(response), "status": status}
        if status in RUNNING and alive_until is not None and alive_until < self._clock():
            decoded |= {"status": "failed", "error": _GIVEN_UP}
            self._complete(connection, decoded)
        return StoredResponse(decoded, msgspec.json.decode(input))

    def _cancel(
        self, connection: sqlite3.Connection, owner: str, response_id: str
    ) -> dict[str, Any]:
        response = self._get(connection, owner, response_id).response
        if not response["background"]:
            raise invalid_parameter(
                "response_id",
                f"Only a response that runs in the background can be cancelled; close the"
                f" connection of '{response_id}' instead.",
            )
        if response["status"] in RUNNING:
            response["status"] = "cancelled"
            self._complete(connection, response)
        return response

    def _history(self, connection: sqlite3.Connection, owner: str, response_id: str) -> Items:
        turns: list[Items] = []
        size, next_id = 0, response_id
        while next_id:
            row = connection.execute(
                "SELECT response, input, previous, size, status FROM responses"
                " WHERE id = ? AND owner = ? AND created >= ?",
                (next_id, owner, self._oldest()),
            ).fetchone()
            if row is None:
                raise _previous_not_found(next_id)
            response, input, next_id, row_size, status = row
            size += row_size
            if len(turns) == MAX_CHAIN or size > MAX_HISTORY_BYTES:
                raise _too_long(response_id)
            if status in RUNNING:
                raise invalid_parameter(
                    "previous_response_id", f"The response '{response_id}' is still running."
                )
            turns.append(msgspec.json.decode(input) + msgspec.json.decode(response)["output"])
        return [item for turn in reversed(turns) for item in turn]

    def _items(
        self, connection: sqlite3.Connection, owner: str, ids: Sequence[str]
    ) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        for item_id in ids:
            if item_id in found:
                continue
            row = connection.execute(
                "SELECT responses.response, input FROM items JOIN responses"
                " ON items.response = responses.id"
                " WHERE items.id = ? AND owner = ? AND created >= ? LIMIT 1",
                (item_id, owner, self._oldest()),
            ).fetchone()
            if row is not None:
                held = msgspec.json.decode(row[1]) + msgspec.json.decode(row[0])["output"]
                found |= {item["id"]: item for item in held}
        wanted = set(ids)
        return {item_id: item for item_id, item in found.items() if item_id in wanted}

    def _keep_alive(self, connection: sqlite3.Connection, ids: Sequence[str]) -> set[str]:
        unwanted = set()
        until = self._clock() + ALIVE_SECONDS
        for response_id in ids:
            alive = connection.execute(
                "UPDATE responses SET alive_until = ?, status = 'in_progress'"
                " WHERE id = ? AND status IN ('queued', 'in_progress')",
                (until, response_id),
            )
            if not alive.rowcount:
                unwanted.add(response_id)
        return unwanted

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(min(SWEEP_SECONDS, self._settings.ttl))
            with suppress(sqlite3.Error):
                await self._run(
                    lambda connection: connection.execute(
                        "DELETE FROM responses WHERE created < ?", (self._oldest(),)
                    )
                )


class _Row(Struct, frozen=True):
    """The columns, in their order."""

    id: str
    owner: str
    previous: str | None
    created: float
    status: str
    alive_until: float | None
    input: bytes
    response: bytes
    size: int

    @classmethod
    def of(
        cls,
        owner: str,
        response: Mapping[str, Any],
        input: Sequence[Mapping[str, Any]],
        previous: str | None,
        now: float,
    ) -> _Row:
        encoded, items = msgspec.json.encode(response), msgspec.json.encode(input)
        return cls(
            response["id"],
            owner,
            previous,
            now,
            response["status"],
            now + ALIVE_SECONDS if response["status"] in RUNNING else None,
            items,
            encoded,
            len(encoded) + len(items),
        )


def _index(connection: sqlite3.Connection, response_id: str, input: bytes, response: bytes) -> None:
    held = msgspec.json.decode(input) + msgspec.json.decode(response)["output"]
    connection.executemany(
        "INSERT OR IGNORE INTO items VALUES (?, ?)", [(item["id"], response_id) for item in held]
    )


_GIVEN_UP = {
    "code": "server_error",
    "message": "The process that worked on this response has ended. Ask again.",
}


def response_not_found(response_id: str) -> APIError:
    """404: the caller has no response of this id."""
    return APIError(
        404,
        f"Response with id '{response_id}' not found among those that are kept here. What a vendor"
        " keeps can be asked for there.",
        type="invalid_request_error",
        param="response_id",
        code="response_not_found",
    )


def _previous_not_found(response_id: str) -> APIError:
    return invalid_parameter(
        "previous_response_id",
        f"The response '{response_id}' is not among the stored ones: it was never stored, was"
        " deleted, or had to make room. Send the whole conversation in 'input'.",
        "previous_response_not_found",
    )


def _too_long(response_id: str) -> APIError:
    return invalid_parameter(
        "previous_response_id",
        f"The conversation that ends with '{response_id}' is longer than {MAX_CHAIN} responses or"
        f" {MAX_HISTORY_BYTES} bytes. Compact it, and begin a new one with what that gives.",
        "conversation_too_long",
    )
