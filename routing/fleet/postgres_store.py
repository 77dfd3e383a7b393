"""The store of a fleet in PostgreSQL: tables, and LISTEN and NOTIFY for messages."""

from __future__ import annotations

import asyncio
from base64 import b64decode, b64encode
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from providers.base import ProviderStartError
from routing.fleet.store import StoreAway
from routing.storage.storage import Migrations, Row, StorageError, open_storage

CHANNEL = "llama_compat_fleet"

ANSWER_SECONDS = 2.0
"""How long PostgreSQL may take. No request waits for it."""

FLEET = Migrations(
    "fleet",
    [
        [
            "CREATE UNLOGGED TABLE fleet_reports (gateway TEXT PRIMARY KEY,"
            " report BYTEA NOT NULL, seen TIMESTAMPTZ NOT NULL)",
            "CREATE UNLOGGED TABLE fleet_claims (name TEXT PRIMARY KEY, gateway TEXT NOT NULL,"
            " until TIMESTAMPTZ NOT NULL)",
            "CREATE TABLE fleet_kept (name TEXT PRIMARY KEY, value BYTEA NOT NULL,"
            " kept TIMESTAMPTZ NOT NULL)",
        ]
    ],
)

_KEPT_FOR = "INTERVAL '30 days'"

_NOW = "clock_timestamp()"

_SECONDS = "make_interval(secs => ?::double precision)"


class PostgresFleetStore:
    """A PostgreSQL that all gateways of the fleet name. See `FleetStore`.

    Args:
        address: `postgres://...`; it may hold a password.
        answer_seconds: how long an answer may take.
    """

    def __init__(self, address: str, answer_seconds: float = ANSWER_SECONDS) -> None:
        self._address = address
        self._answer_seconds = answer_seconds
        try:
            self._storage = open_storage(address, [FLEET])
        except StorageError as error:
            raise ProviderStartError(f"`server.fleet`: {error}") from None

    async def start(self) -> None:
        """Nothing has to be done: it is opened when it is first asked."""

    async def stop(self) -> None:
        """Disconnect."""
        await self._storage.stop()

    async def exchange(self, gateway: str, report: bytes, seconds: float) -> dict[str, bytes]:
        """Leave a report and read the others'."""
        await self._ask(
            "INSERT INTO fleet_reports (gateway, report, seen)"
            f" VALUES (?, ?, {_NOW}) ON CONFLICT (gateway)"
            " DO UPDATE SET report = excluded.report, seen = excluded.seen",
            gateway,
            report,
        )
        await self._ask(f"DELETE FROM fleet_reports WHERE seen < {_NOW} - {_SECONDS}", seconds)
        rows = await self._ask(
            "SELECT gateway, report FROM fleet_reports WHERE gateway <> ?", gateway
        )
        return {name: bytes(found) for name, found in rows}

    async def leave(self, gateway: str) -> None:
        """Take a gateway's report away."""
        await self._ask("DELETE FROM fleet_reports WHERE gateway = ?", gateway)

    async def tell(self, message: bytes) -> None:
        """Send a message to all that listen."""
        await self._ask("SELECT pg_notify(?, ?)", CHANNEL, b64encode(message).decode())

    @asynccontextmanager
    async def heard(self) -> AsyncGenerator[AsyncIterator[bytes], None]:
        """The messages from now on."""
        import asyncpg

        try:
            connection = await asyncpg.connect(self._address, timeout=self._answer_seconds)
        except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            raise StoreAway(type(error).__name__) from None
        queue: asyncio.Queue[str | None] = asyncio.Queue()
        connection.add_termination_listener(lambda *_: queue.put_nowait(None))
        try:
            try:
                async with asyncio.timeout(self._answer_seconds):
                    await connection.add_listener(
                        CHANNEL, lambda *given: queue.put_nowait(str(given[-1]))
                    )
            except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
                raise StoreAway(type(error).__name__) from None
            yield _messages(queue)
        finally:
            # Nobody waits for the goodbye of one that hangs.
            connection.terminate()

    async def claim(self, name: str, gateway: str, seconds: float) -> bool:
        """Be the only one that has `name` for a while."""
        rows = await self._ask(
            "INSERT INTO fleet_claims (name, gateway, until)"
            f" VALUES (?, ?, {_NOW} + {_SECONDS}) ON CONFLICT (name)"
            " DO UPDATE SET gateway = excluded.gateway, until = excluded.until"
            " WHERE fleet_claims.gateway = excluded.gateway"
            f" OR fleet_claims.until <= {_NOW} RETURNING name",
            name,
            gateway,
            seconds,
        )
        return bool(rows)

    async def release(self, name: str, gateway: str) -> None:
        """Give it up."""
        await self._ask("DELETE FROM fleet_claims WHERE name = ? AND gateway = ?", name, gateway)

    async def read(self, name: str) -> bytes | None:
        """What is kept under `name`."""
        rows = await self._ask("SELECT value FROM fleet_kept WHERE name = ?", name)
        return bytes(rows[0][0]) if rows else None

    async def keep(self, name: str, value: bytes) -> None:
        """Keep it under `name`."""
        await self._ask(f"DELETE FROM fleet_kept WHERE kept < {_NOW} - {_KEPT_FOR}")
        await self._ask(
            f"INSERT INTO fleet_kept (name, value, kept) VALUES (?, ?, {_NOW})"
            " ON CONFLICT (name) DO UPDATE SET value = excluded.value, kept = excluded.kept",
            name,
            value,
        )

    async def _ask(self, statement: str, *values: Any) -> list[Row]:
        try:
            async with asyncio.timeout(self._answer_seconds):
                return await self._storage.fetch(statement, *values)
        except (StorageError, TimeoutError) as error:
            # What hangs keeps its connection: others are made once it is back.
            with suppress(TimeoutError):
                async with asyncio.timeout(self._answer_seconds):
                    await self._storage.stop()
            raise StoreAway(type(error).__name__) from None


async def _messages(queue: asyncio.Queue[str | None]) -> AsyncIterator[bytes]:
    while (found := await queue.get()) is not None:
        yield b64decode(found)
    raise StoreAway("the connection is closed")
