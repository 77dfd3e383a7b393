"""Replies that are kept, as rows: the tables, and what each column of a reply says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from routing.storage.kept import AtVendor, api_of
from routing.storage.storage import Migrations

ALIVE_SECONDS = 30.0
"""A response in the background whose process says nothing of it for so long is given up."""

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
