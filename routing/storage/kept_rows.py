"""Replies that are kept, as rows: the tables, what each column of a reply says, and whose those are
that run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct

from routing.storage.kept import AtVendor, api_of
from routing.storage.outage import unavailable
from routing.storage.storage import Migrations, Row, Storage

ALIVE_SECONDS = 30.0
"""A response in the background whose process says nothing of it for so long is another's to see to:
what a vendor makes is followed on, what was made in that process has failed."""

RUNNING = ("queued", "in_progress")
"""The statuses of a reply that is not there yet."""

RESPONSES = Migrations(
    "responses",
    [
        [
            "CREATE TABLE stored_responses ("
            " id TEXT PRIMARY KEY,"
            " owner TEXT NOT NULL,"
            " previous TEXT,"
            " created DOUBLE PRECISION NOT NULL,"
            " status TEXT NOT NULL,"
            " alive_until DOUBLE PRECISION,"
            " input {blob} NOT NULL,"
            " response {blob} NOT NULL,"
            " input_bytes BIGINT NOT NULL,"
            " size BIGINT NOT NULL)",
            "CREATE INDEX stored_responses_by_age ON stored_responses (created)",
            "CREATE TABLE stored_items ("
            " id TEXT NOT NULL,"
            " response TEXT NOT NULL REFERENCES stored_responses (id) ON DELETE CASCADE,"
            " PRIMARY KEY (id, response))",
            "CREATE INDEX stored_items_by_response ON stored_items (response)",
            "CREATE TABLE stored_total (bytes BIGINT NOT NULL)",
            "INSERT INTO stored_total VALUES (0)",
        ],
        ["ALTER TABLE stored_responses ADD COLUMN at_vendor {blob}"],
        [
            "ALTER TABLE stored_responses ADD COLUMN worker TEXT",
            "CREATE INDEX stored_responses_running ON stored_responses (alive_until)"
            " WHERE alive_until IS NOT NULL",
        ],
    ],
)

Items = list[dict[str, Any]]


TAKEN_OVER = (
    "INSERT INTO stored_responses (id, owner, previous, created, status, alive_until, input,"
    " response, input_bytes, size) SELECT id, owner, previous, created, status, alive_until, input,"
    " response, length(input), size FROM responses",
    "INSERT INTO stored_items SELECT id, response FROM items",
    "UPDATE stored_total SET bytes = (SELECT bytes FROM total)",
    "DROP TABLE items",
    "DROP TABLE responses",
    "DROP TABLE total",
)
"""What brings in a file that was made before there was one scheme for all."""


def item_ids(input: Sequence[Mapping[str, Any]], response: Mapping[str, Any]) -> list[str]:
    """The ids by which items of a reply, and of what it answers, can be asked for."""
    if not api_of(response["id"]).names_items:
        return []
    # A vendor's items may lack one.
    items = (*input, *output_of(response["id"], response))
    return [item["id"] for item in items if isinstance(item.get("id"), str)]


def output_of(response_id: str, response: Mapping[str, Any]) -> Items:
    """What the model said; nothing in a reply that a vendor has hardly begun."""
    return response.get(api_of(response_id).output) or []


class ReplyRow(Struct, frozen=True):
    """The columns, in their order."""

    id: str
    owner: str
    previous: str | None
    created: float
    status: str
    alive_until: float | None
    input: bytes
    response: bytes
    input_bytes: int
    size: int
    at_vendor: bytes | None

    @classmethod
    def of(
        cls,
        owner: str,
        response: Mapping[str, Any],
        input: Sequence[Mapping[str, Any]],
        previous: str | None,
        now: float,
        at_vendor: AtVendor | None,
    ) -> ReplyRow:
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
            len(items),
            len(encoded) + len(items),
            None if at_vendor is None else msgspec.json.encode(at_vendor),
        )


def placed(column: bytes | None) -> AtVendor | None:
    """Where a reply is made, as its column says; None if here."""
    return None if column is None else msgspec.json.decode(column, type=AtVendor)


def marks(values: Sequence[object]) -> str:
    """As many question marks; for none, what is in no table."""
    return ", ".join("?" * len(values)) or "NULL"


replies_unavailable = partial(unavailable, "Stored responses", ", or with 'store' false")
"""Where they are used for a client, or go on in the background."""


class LeftReply(Struct, frozen=True):
    """A reply in the background whose process has said nothing of it for too long.

    Attributes:
        owner: whose it is.
        age: seconds since it was begun.
        reply: as it is kept.
        at_vendor: who makes it, if that is a vendor.
    """

    owner: str
    age: float
    reply: dict[str, Any]
    at_vendor: AtVendor | None


_WORKERS = "(worker IS NULL OR worker = ?)"
"""A reply that no other worker has claimed; who began it says so with its first word."""


class RunningReplies:
    """Who works on replies in the background, which are theirs as long as they say so.

    All raise 503 where the storage is away.

    Args:
        storage: where they are.
        clock: the time in seconds since 1970.
    """

    def __init__(self, storage: Storage, clock: Callable[[], float]) -> None:
        self._storage = storage
        self._clock = clock

    async def keep_alive(self, ids: Sequence[str], worker: str) -> set[str]:
        """Say that `worker` still works on these replies; those of them of which it is not wanted
        any more, for they were cancelled or deleted, or another has claimed them."""
        alive = await self._changed(
            "UPDATE stored_responses SET alive_until = ?, worker = ?, status = 'in_progress'"
            f" WHERE id IN ({marks(ids)}) AND status IN {RUNNING} AND {_WORKERS} RETURNING id",
            self._clock() + ALIVE_SECONDS,
            worker,
            *ids,
            worker,
        )
        return set(ids) - {reply_id for (reply_id,) in alive}

    async def let_go(self, reply_id: str, worker: str) -> None:
        """Have others claim a reply at once, on which `worker` works no more."""
        await self._changed(
            "UPDATE stored_responses SET alive_until = 0"
            f" WHERE id = ? AND status IN {RUNNING} AND {_WORKERS}",
            reply_id,
            worker,
        )

    async def left(self) -> dict[str, AtVendor | None]:
        """The ids of the replies whose workers have said nothing of them for too long, and the
        vendor that makes each; None for what was made in a process that is gone."""
        with replies_unavailable():
            rows = await self._storage.fetch(
                "SELECT id, at_vendor FROM stored_responses"
                f" WHERE alive_until < ? AND status IN {RUNNING} ORDER BY alive_until",
                self._clock(),
            )
        return {reply_id: placed(place) for reply_id, place in rows}

    async def claim(self, ids: Sequence[str], worker: str) -> list[LeftReply]:
        """Have those of these replies that are left be `worker`'s; nobody else gets them."""
        now = self._clock()
        rows = await self._changed(
            "UPDATE stored_responses SET alive_until = ?, worker = ?"
            f" WHERE id IN ({marks(ids)}) AND alive_until < ? AND status IN {RUNNING}"
            " RETURNING owner, created, response, at_vendor",
            now + ALIVE_SECONDS,
            worker,
            *ids,
            now,
        )
        return [
            LeftReply(owner, max(0.0, now - created), msgspec.json.decode(reply), placed(place))
            for owner, created, reply, place in rows
        ]

    async def _changed(self, statement: str, *values: Any) -> list[Row]:
        with replies_unavailable():
            async with self._storage.transaction() as transaction:
                return await transaction.fetch(statement, *values)
