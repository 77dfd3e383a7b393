"""Keys that are made while a server runs, and what budgets have come to, in the storage."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llama_compat.distribution import KeyGrant
from routing.operations.keys.ring import Key
from routing.operations.keys.secret import digest_of, new_id, new_secret, visible_prefix
from routing.operations.store.storage import Migrations, Row, Storage, Transaction

KEYS = Migrations(
    "keys",
    [
        [
            "CREATE TABLE keys ("
            " id TEXT PRIMARY KEY,"
            " digest TEXT NOT NULL UNIQUE,"
            " settings TEXT NOT NULL,"
            " created DOUBLE PRECISION NOT NULL,"
            " revoked DOUBLE PRECISION,"
            " revision BIGINT NOT NULL)",
            "CREATE INDEX keys_by_revision ON keys (revision)",
            "CREATE TABLE spending ("
            " counter TEXT PRIMARY KEY,"
            " amount DOUBLE PRECISION NOT NULL,"
            " ends DOUBLE PRECISION NOT NULL)",
        ]
    ],
)

_COLUMNS = "id, digest, settings, created, revoked, revision"


class NoSuchKey(LookupError):
    """There is no key of this id or name, or there are several; the message says which."""


@dataclass(frozen=True, slots=True)
class StoredKey:
    """A key as it is kept.

    Attributes:
        id: by which it is named; requests' records have it too.
        digest: the hash of the key.
        grant: what it opens.
        created, revoked: when, in seconds since 1970.
        revision: becomes larger with each change of any key.
    """

    id: str
    digest: str
    grant: KeyGrant
    created: float
    revoked: float | None
    revision: int

    @property
    def prefix(self) -> str:
        """The beginning of the key, which may be shown."""
        return visible_prefix(self.id.removeprefix("key-"))

    def key(self) -> Key:
        """As it is looked up."""
        return Key.of(self.id, self.grant, is_revoked=self.revoked is not None)

    def shown(self) -> dict[str, Any]:
        """As JSON for people; times are ISO 8601 in UTC."""
        return {
            "id": self.id,
            "prefix": self.prefix,
            "created": _iso(self.created),
            "revoked": None if self.revoked is None else _iso(self.revoked),
            **self.grant.model_dump(mode="json"),
        }


class KeyStore:
    """The keys in a storage. Every method raises `StorageError` where that can't be used.

    Args:
        storage: opened with the migrations `KEYS`.
        clock: seconds since 1970.
    """

    def __init__(self, storage: Storage, clock: Callable[[], float] = time.time) -> None:
        self._storage = storage
        self._clock = clock

    async def create(self, grant: KeyGrant) -> tuple[StoredKey, str]:
        """Make a key; it, and its secret, which is kept nowhere."""
        plain_id = new_id()
        secret = new_secret(plain_id)
        values = (f"key-{plain_id}", digest_of(secret.encode()), grant.model_dump_json())
        async with self._storage.transaction() as transaction:
            rows = await transaction.fetch(
                f"INSERT INTO keys ({_COLUMNS}) VALUES (?, ?, ?, ?, NULL, {_NEXT})"
                f" RETURNING {_COLUMNS}",
                *values,
                self._clock(),
            )
        return _stored(rows[0]), secret

    async def list(self, since_revision: int = 0) -> list[StoredKey]:
        """All keys, or those that have changed from a revision on; the oldest first."""
        rows = await self._storage.fetch(
            f"SELECT {_COLUMNS} FROM keys WHERE revision >= ? ORDER BY created", since_revision
        )
        return [_stored(row) for row in rows]

    async def change(self, name: str, grant: Mapping[str, Any]) -> StoredKey:
        """Change what a key opens; what `grant` does not name stays.

        Raises:
            NoSuchKey: no key, or no one key, has this id or name.
            ValidationError: pydantic's, of `KeyGrant`.
        """
        async with self._storage.transaction() as transaction:
            found = await _find(transaction, name)
            changed = KeyGrant.model_validate({**found.grant.model_dump(mode="json"), **grant})
            return await _update(transaction, found, "settings = ?", changed.model_dump_json())

    async def revoke(self, name: str) -> StoredKey:
        """Let nobody in with a key any more; it stays in lists.

        Raises:
            NoSuchKey: no key, or no one key, has this id or name.
        """
        async with self._storage.transaction() as transaction:
            found = await _find(transaction, name)
            return await _update(
                transaction, found, "revoked = COALESCE(revoked, ?)", self._clock()
            )

    async def rotate(self, name: str) -> tuple[StoredKey, str]:
        """Put a new secret in the place of a key's; the old one opens nothing any more.

        Raises:
            NoSuchKey: no key, or no one key, has this id or name, or it is revoked.
        """
        async with self._storage.transaction() as transaction:
            found = await _find(transaction, name)
            if found.revoked is not None:
                raise NoSuchKey(f"The key '{name}' is revoked; make a new one.")
            secret = new_secret(found.id.removeprefix("key-"))
            digest = digest_of(secret.encode())
            return await _update(transaction, found, "digest = ?", digest), secret

    async def spend(
        self, amounts: Mapping[str, tuple[float, float]]
    ) -> dict[str, tuple[float, float]]:
        """Add to what budgets have come to.

        Args:
            amounts: by counter, in US dollars, and when its period ends (or 0).

        Returns:
            The same of all that go on, with what all processes have added.
        """
        async with self._storage.transaction() as transaction:
            await transaction.execute_many(
                "INSERT INTO spending (counter, amount, ends) VALUES (?, ?, ?)"
                " ON CONFLICT (counter) DO UPDATE SET amount = spending.amount + excluded.amount",
                [(counter, *each) for counter, each in sorted(amounts.items())],
            )
            rows = await transaction.fetch(
                "SELECT counter, amount, ends FROM spending WHERE ends = 0 OR ends > ?",
                self._clock(),
            )
        return {counter: (amount, ends) for counter, amount, ends in rows}


_NEXT = "(SELECT COALESCE(MAX(revision), 0) + 1 FROM keys)"


async def _find(transaction: Transaction, name: str) -> StoredKey:
    rows = await transaction.fetch(f"SELECT {_COLUMNS} FROM keys")
    keys = [_stored(row) for row in rows]
    same_id = [each for each in keys if name in (each.id, each.prefix)]
    found = same_id or [each for each in keys if each.grant.name == name and each.revoked is None]
    if not found:
        raise NoSuchKey(f"There is no key '{name}' that is not revoked.")
    if len(found) > 1:
        ids = ", ".join(each.id for each in found)
        raise NoSuchKey(f"Several keys have the name '{name}': say which of {ids}.")
    return found[0]


async def _update(
    transaction: Transaction, key: StoredKey, assignment: str, value: Any
) -> StoredKey:
    rows: Sequence[Row] = await transaction.fetch(
        f"UPDATE keys SET {assignment}, revision = {_NEXT} WHERE id = ? RETURNING {_COLUMNS}",
        value,
        key.id,
    )
    return _stored(rows[0])


def _stored(row: Row) -> StoredKey:
    key_id, digest, settings, created, revoked, revision = row
    return StoredKey(
        key_id, digest, KeyGrant.model_validate(json.loads(settings)), created, revoked, revision
    )


def _iso(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
