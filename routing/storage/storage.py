"""The database that a template names, the same to those who use it whichever it is.

Statements are written once, for SQLite and PostgreSQL both: `?` stands for a value, whole numbers
are BIGINT (truth too, as 0 and 1), other numbers DOUBLE PRECISION, and `{identity}`, `{blob}` and
`{vector}` in a migration stand for what the two spell differently. A statement of one line that
begins with `{only_postgres}` is nothing to SQLite, and one with `{only_sqlite}` to PostgreSQL.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

Row = tuple[Any, ...]


class StorageError(Exception):
    """The storage can't be used now; the message says which, and why."""


class StorageAway(StorageError):
    """It can't be reached, or not be written, which may end by itself."""


class RowRefused(StorageError):
    """It is well, and will never take one of the values that it was given."""


_NO_TEXT = re.compile("[\x00\ud800-\udfff]")
"""What PostgreSQL takes in no text (https://www.postgresql.org/docs/current/datatype-character.html),
and halves of characters, which neither does."""

_LARGEST = (1 << 63) - 1


def storable(values: Iterable[Any]) -> Row:
    """The values as both databases take them.

    In a text, U+FFFD stands for each NUL and each half of a character, and a whole number beyond 64
    bits is the last before it. So what a client names by such a text is not found, and what it says
    is kept.
    """
    return tuple(map(_storable, values))


def _storable(value: Any) -> Any:
    if isinstance(value, str):
        if value.isascii() and "\x00" not in value:
            return value
        return _NO_TEXT.sub("\ufffd", value)
    if isinstance(value, int):
        return min(max(value, ~_LARGEST), _LARGEST)
    return value


def small(text: str) -> str:
    """A text in small letters, as both databases compare it: a letter is small in the same way
    wherever in a word it stands, which the Greek sigma is not in `str.lower`."""
    return text.lower().replace("ς", "σ")


@dataclass(frozen=True, slots=True)
class Migrations:
    """How the tables of one component came to be what they are.

    Attributes:
        component: whose tables they are.
        versions: the statements that lead from each version to the next, the first from nothing.
            One that has been released is never changed: what is new is one more at the end.
    """

    component: str
    versions: Sequence[Sequence[str]]


class Transaction(Protocol):
    """Statements that take effect together or not at all."""

    async def alone(self, name: str) -> None:
        """Wait until no other transaction goes on that has said `name`; from then on others wait
        that do. Who counts what there is of something, and adds to it, says its name before
        anything else, so that no two wait for each other."""
        ...

    async def fetch(self, statement: str, *values: Any) -> list[Row]:
        """Execute one statement; the rows that it gives (`SELECT`, `... RETURNING`)."""
        ...

    async def execute_many(self, statement: str, rows: Sequence[Row]) -> None:
        """Execute one statement for each of `rows`."""
        ...

    async def insert(self, table: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
        """Insert `rows`, in their order: the quickest way in for many."""
        ...


@lru_cache(maxsize=64)
def insertion(table: str, columns: Sequence[str], rows: int = 1) -> str:
    """The statement that inserts so many rows."""
    row = f"({', '.join('?' * len(columns))})"
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES {', '.join([row] * rows)}"


class Storage(Protocol):
    """A database, from `start` to `stop`. Several processes may use one.

    Every method raises `StorageError` where it can't be used. That need not last: each use tries
    again to open what is not open.

    Attributes:
        shown: how to name it to people: its address without a password.
        has_partitions: whether large tables are in partitions, which are dropped whole.
    """

    shown: str
    has_partitions: bool

    async def start(self) -> None:
        """Open it, and bring its tables up to date."""
        ...

    async def stop(self) -> None:
        """Finish what was begun, and close it. May be called without a `start`."""
        ...

    async def fetch(self, statement: str, *values: Any) -> list[Row]:
        """The rows of one `SELECT`, which does not hold up who writes."""
        ...

    def now(self) -> float:
        """The time in seconds since 1970, by a clock that is the same for all processes that use
        it, wherever they run: by it they say until when they are alive."""
        ...

    def lowered(self, column: str, text: str) -> str:
        """The expression for a column's text in which each letter is small, as in `small`, that
        `text` has too: what is looked for in it. Of a `text` of ASCII those of ASCII alone are."""
        ...

    def transaction(self) -> AbstractAsyncContextManager[Transaction]:
        """A transaction that may write: kept at the end of the block, undone if that raises."""
        ...


def open_storage(address: str, migrations: Sequence[Migrations]) -> Storage:
    """The storage at `address`, which is opened by its `start`.

    Args:
        address: `sqlite:PATH`, or `postgres://USER:PASSWORD@HOST/DATABASE`.
        migrations: of those whose tables are in it.

    Raises:
        StorageError: the address is of neither kind, or the package for it is not installed.
    """
    if address.startswith("sqlite:"):
        from routing.storage.sqlite import SQLiteStorage

        return SQLiteStorage(address.removeprefix("sqlite:"), migrations)
    if address.startswith(("postgres://", "postgresql://")):
        from routing.storage.postgres import PostgresStorage

        return PostgresStorage(address, migrations)
    raise StorageError("a storage is sqlite:PATH or postgres://USER:PASSWORD@HOST/DATABASE")


_VERSIONS = (
    "CREATE TABLE IF NOT EXISTS schema_versions"
    " (component TEXT PRIMARY KEY, version BIGINT NOT NULL)"
)


async def migrate(
    transaction: Transaction, migrations: Sequence[Migrations], words: dict[str, str]
) -> None:
    """Bring the tables of each component to its last version.

    Args:
        transaction: in which nobody else migrates.
        migrations: of all components.
        words: what stands for the words in braces.

    Raises:
        StorageError: a newer version of this software has been here.
    """
    await transaction.fetch(_VERSIONS)
    there = await versions_there(transaction)
    for each in missing(migrations, there):
        version, newest = there.get(each.component, 0), len(each.versions)
        for statements in each.versions[version:]:
            for statement in statements:
                await transaction.fetch(statement.format_map(words))
        await transaction.fetch(
            "INSERT INTO schema_versions VALUES (?, ?)"
            " ON CONFLICT (component) DO UPDATE SET version = excluded.version",
            each.component,
            newest,
        )


async def versions_there(transaction: Transaction) -> dict[str, int]:
    """The version of each component's tables, where some have been made."""
    return dict(await transaction.fetch("SELECT component, version FROM schema_versions"))


def missing(migrations: Sequence[Migrations], there: Mapping[str, int]) -> list[Migrations]:
    """Those whose tables are not up to date.

    Raises:
        StorageError: a newer version of this software has been here.
    """
    for each in migrations:
        version, newest = there.get(each.component, 0), len(each.versions)
        if version > newest:
            raise StorageError(
                f"its tables of {each.component} have version {version}, and this software knows"
                f" {newest}: a newer llama-compat made them. Install that, or name another storage"
            )
    return [each for each in migrations if there.get(each.component, 0) < len(each.versions)]


async def surely(work: asyncio.Future[Any]) -> None:
    """Wait for what has to be finished, however often the caller is cancelled meanwhile.

    Raises:
        asyncio.CancelledError: the caller was cancelled; `work` is finished all the same.
    """
    cancelled: asyncio.CancelledError | None = None
    while not work.done():
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError as error:
            cancelled = error
        except Exception:
            break
    if cancelled is not None:
        raise cancelled
