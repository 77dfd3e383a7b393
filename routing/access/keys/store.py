"""Keys that are made while a server runs, and what budgets have come to, in the storage."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC
from typing import Any

from pydantic import ValidationError

from llama_compat.dialects.moments import utc_text
from llama_compat.distribution import KeyGrant
from routing.access.keys.ring import Key
from routing.access.keys.secret import (
    PREFIX,
    digest_of,
    new_id,
    new_secret,
    visible_prefix,
)
from routing.storage.once import FORGOTTEN_SECONDS, BatchWriter, table_of_writers
from routing.storage.storage import Migrations, Row, Storage, Transaction

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
        ],
        [
            "CREATE TABLE key_revisions (newest BIGINT NOT NULL)",
            "INSERT INTO key_revisions SELECT COALESCE(MAX(revision), 0) FROM keys",
            table_of_writers("spending_writers"),
        ],
    ],
)

FORGOTTEN_BATCHES = 1000
"""Once in so many batches what budgets came to is forgotten whose period ended long ago."""

_COLUMNS = "id, digest, settings, created, revoked, revision"


Change = Mapping[str, Any] | Callable[[KeyGrant], Mapping[str, Any]]


class NoSuchKey(LookupError):
    """There is no key of this id or name, or there are several; the message says which."""


class KeyChanged(Exception):
    """A key is no longer as it was when somebody read it; the message says so."""


class KeyRefused(ValueError):
    """A key that would open nothing, or more than it says, is not made; the message says why.

    Args:
        member: of the grant, which is wrong.
        message: what to do.
    """

    def __init__(self, member: str, message: str) -> None:
        super().__init__(message)
        self.member = member


@dataclass(frozen=True, slots=True)
class StoredKey:
    """A key as it is kept.

    Attributes:
        id: by which it is named; requests' records have it too.
        digest: the hash of the key.
        grant: what it opens.
        created, revoked: when, in seconds since 1970.
        revision: becomes larger with each change of any key: who sees a change sees those with
            smaller ones too.
        is_readable: whether this version knows all that the grant says. A key that says more opens
            nothing here, as it might open less than is read of it, and only its name is known.
    """

    id: str
    digest: str
    grant: KeyGrant
    created: float
    revoked: float | None
    revision: int
    is_readable: bool = True

    @property
    def prefix(self) -> str:
        """The beginning of the key, which may be shown."""
        return visible_prefix(self.id.removeprefix("key-"))

    def key(self) -> Key:
        """As it is looked up."""
        is_closed = self.revoked is not None or not self.is_readable
        return Key.of(self.id, self.grant, is_revoked=is_closed)

    def shown(self) -> dict[str, Any]:
        """As JSON for people; times are ISO 8601 in UTC."""
        return {
            "id": self.id,
            "prefix": self.prefix,
            "created": utc_text(self.created),
            "revoked": None if self.revoked is None else utc_text(self.revoked),
            "version": self.revision,
            **({} if self.is_readable else {"readable": False}),
            **self.grant.model_dump(mode="json"),
        }


class KeyStore:
    """The keys in a storage. Every method raises `StorageError` where that can't be used.

    Args:
        storage: opened with the migrations `KEYS`.
        clock: seconds since 1970.
        teams: those that keys may belong to; None where nobody knows, and a key to no team.
    """

    def __init__(
        self,
        storage: Storage,
        clock: Callable[[], float] = time.time,
        teams: Collection[str] | None = None,
    ) -> None:
        self._storage = storage
        self._clock = clock
        self._spending = BatchWriter("spending_writers", clock)
        self._teams = teams

    def of_teams(self, teams: Collection[str]) -> KeyStore:
        """The same for keys of `teams`."""
        return KeyStore(self._storage, self._clock, teams)

    async def create(self, grant: KeyGrant) -> tuple[StoredKey, str]:
        """Make a key; it, and its secret, which is kept nowhere.

        Raises:
            KeyRefused: it has expired, or is of a team that there is not.
        """
        self._check(grant, None)
        plain_id = new_id()
        secret = new_secret(plain_id)
        values = (f"key-{plain_id}", digest_of(secret.encode()), _settings(grant))
        async with self._changing() as (transaction, revision):
            rows = await transaction.fetch(
                f"INSERT INTO keys ({_COLUMNS}) VALUES (?, ?, ?, ?, NULL, ?) RETURNING {_COLUMNS}",
                *values,
                self._clock(),
                revision,
            )
        return _stored(rows[0]), secret

    async def list(self, since_revision: int = 0) -> list[StoredKey]:
        """All keys, or those that have changed from a revision on; the oldest first."""
        rows = await self._storage.fetch(
            f"SELECT {_COLUMNS} FROM keys WHERE revision >= ? ORDER BY created", since_revision
        )
        return [_stored(row) for row in rows]

    async def change(self, name: str, change: Change, version: int | None = None) -> StoredKey:
        """Change what a key opens.

        Args:
            name: its id, its prefix or its name.
            change: members of the grant that become others, or what makes them of the grant as it
                is; what is not among them stays.
            version: the revision that it has to have still; None for whichever.

        Raises:
            NoSuchKey: no key, or no one key, has this id or name.
            KeyChanged: somebody has changed it since.
            KeyRefused: it would have expired, or be of a team that there is not, or a newer version
                has written it.
            ValidationError: pydantic's, of `KeyGrant`.
        """
        async with self._changing() as (transaction, revision):
            found = await _find(transaction, name)
            if version is not None and version != found.revision:
                raise KeyChanged(
                    f"Somebody has changed the key '{found.grant.name}' since it was read: read it"
                    " again. `If-Match` has to be the `version` that was read."
                )
            _check_readable(found)
            members = change(found.grant) if callable(change) else change
            changed = KeyGrant.model_validate({**found.grant.model_dump(mode="json"), **members})
            self._check(changed, found.grant)
            settings = _settings(changed)
            return await _update(transaction, found, revision, "settings = ?", settings)

    async def revoke(self, name: str) -> StoredKey:
        """Let nobody in with a key any more; it stays in lists.

        Raises:
            NoSuchKey: no key, or no one key, has this id or name.
        """
        async with self._changing() as (transaction, revision):
            found = await _find(transaction, name)
            return await _update(
                transaction, found, revision, "revoked = COALESCE(revoked, ?)", self._clock()
            )

    async def rotate(self, name: str) -> tuple[StoredKey, str]:
        """Put a new secret in the place of a key's; the old one opens nothing any more.

        Raises:
            NoSuchKey: no key, or no one key, has this id or name, or it is revoked.
            KeyRefused: it has expired, or a newer version has written it.
        """
        async with self._changing() as (transaction, revision):
            found = await _find(transaction, name)
            if found.revoked is not None:
                raise NoSuchKey(f"The key '{name}' is revoked; make a new one.")
            _check_readable(found)
            if not found.key().is_good(self._clock()):
                raise KeyRefused(
                    "expires",
                    f"The key '{name}' has expired, and a new secret would open nothing either."
                    " Make a new key, or let this one expire later first (`llama-compat keys change"
                    f" {found.id} --expires 30d`, or PATCH /admin/keys/{found.id}).",
                )
            secret = new_secret(found.id.removeprefix("key-"))
            digest = digest_of(secret.encode())
            return await _update(transaction, found, revision, "digest = ?", digest), secret

    def _check(self, grant: KeyGrant, before: KeyGrant | None) -> None:
        """Make sure that what is new in `grant` makes a key that opens what it says."""
        expires, team = grant.expires, grant.team
        is_new = before is None or before.expires != expires
        if expires is not None and is_new and expires.timestamp() <= self._clock():
            raise KeyRefused(
                "expires",
                f"'expires' is in the past ({expires.astimezone(UTC):%Y-%m-%d %H:%M} UTC), so that"
                " the key would open nothing. Give a later time; to end a key now, revoke it.",
            )
        for place, check in enumerate(grant.guardrails):
            if check.http is not None and check.http.headers:
                raise KeyRefused(
                    f"guardrails.{place}.http.headers",
                    f"The check '{check.name}' has 'headers', which may be secret, and would be"
                    " kept in clear. Have the template make that check, or the service take it"
                    " without.",
                )
        if team is None or (before is not None and before.team == team):
            return
        if self._teams is None:
            raise KeyRefused(
                "team",
                f"Whether there is a team '{team}' says a template, and none was given: add"
                " --template.",
            )
        if team not in self._teams:
            known = ", ".join(f"'{each}'" for each in sorted(self._teams)) or "none"
            raise KeyRefused(
                "team",
                f"The template has no team '{team}', and a key of it would have no team's limits."
                f" Teams that there are: {known}. Add it to `teams`, or leave 'team' out.",
            )

    @asynccontextmanager
    async def _changing(self) -> AsyncGenerator[tuple[Transaction, int], None]:
        """A transaction that changes keys, and the revision of what it changes.

        Nobody else's begins before it has ended: all who change keys first write the same row.
        So they are seen in their order, and none goes by what another is changing.
        """
        async with self._storage.transaction() as transaction:
            rows = await transaction.fetch(
                "UPDATE key_revisions SET newest = newest + 1 RETURNING newest"
            )
            yield transaction, rows[0][0]

    def next_batch(self) -> int:
        """The number of the next batch to `spend`, after the last one has been kept."""
        return self._spending.next_batch()

    async def spend(self, batch: int, amounts: Mapping[str, tuple[float, float]]) -> None:
        """Add to what budgets have come to; a batch that has been added before changes nothing.

        Args:
            batch: a number from `next_batch`, the same for each try with these amounts.
            amounts: by counter, in US dollars, and when its period ends (or 0).
        """
        async with self._storage.transaction() as transaction:
            if not await self._spending.is_new(transaction, batch):
                return
            if batch % FORGOTTEN_BATCHES == 1:
                await transaction.fetch(
                    "DELETE FROM spending WHERE ends > 0 AND ends < ?",
                    self._clock() - FORGOTTEN_SECONDS,
                )
            await transaction.execute_many(
                "INSERT INTO spending (counter, amount, ends) VALUES (?, ?, ?)"
                " ON CONFLICT (counter) DO UPDATE SET amount = spending.amount + excluded.amount",
                [(counter, *each) for counter, each in sorted(amounts.items())],
            )

    async def spent(self) -> dict[str, tuple[float, float]]:
        """What all processes have added to budgets that go on, by counter, and when each ends."""
        rows = await self._storage.fetch(
            "SELECT counter, amount, ends FROM spending WHERE ends = 0 OR ends > ?", self._clock()
        )
        return {counter: (amount, ends) for counter, amount, ends in rows}


async def _find(transaction: Transaction, name: str) -> StoredKey:
    key_id = f"key-{name.removeprefix(PREFIX)}" if name.startswith(PREFIX) else name
    rows = await transaction.fetch(f"SELECT {_COLUMNS} FROM keys WHERE id = ?", key_id)
    found = [_stored(row) for row in rows]
    if not found:
        rows = await transaction.fetch(f"SELECT {_COLUMNS} FROM keys WHERE revoked IS NULL")
        found = [each for each in map(_stored, rows) if each.grant.name == name]
    if not found:
        raise NoSuchKey(f"There is no key '{name}' that is not revoked.")
    if len(found) > 1:
        ids = ", ".join(each.id for each in found)
        raise NoSuchKey(f"Several keys have the name '{name}': say which of {ids}.")
    return found[0]


async def _update(
    transaction: Transaction, key: StoredKey, revision: int, assignment: str, value: Any
) -> StoredKey:
    rows: Sequence[Row] = await transaction.fetch(
        f"UPDATE keys SET {assignment}, revision = ? WHERE id = ? RETURNING {_COLUMNS}",
        value,
        revision,
        key.id,
    )
    return _stored(rows[0])


def _settings(grant: KeyGrant) -> str:
    # What says nothing is left out: a gateway of an earlier version knows fewer members.
    return json.dumps(grant.model_dump(mode="json", exclude_defaults=True))


def _stored(row: Row) -> StoredKey:
    key_id, digest, settings, created, revoked, revision = row
    members, is_readable = json.loads(settings), True
    try:
        grant = KeyGrant.model_validate(members)
    except ValidationError:
        grant, is_readable = KeyGrant.model_construct(name=str(members.get("name"))), False
    return StoredKey(key_id, digest, grant, created, revoked, revision, is_readable)


def _check_readable(key: StoredKey) -> None:
    if not key.is_readable:
        raise KeyRefused("name", f"{unreadable(key)} Change it there, or revoke it.")


def unreadable(key: StoredKey) -> str:
    """What is to be said of a key that is not readable."""
    return (
        f"The key '{key.grant.name}' ({key.id}) was written by a newer version of llama-compat,"
        " with members that this one does not know, so it opens nothing here."
    )
