"""Records as lines of JSON or of CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import AsyncGenerator, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from llama_compat.catalog.prices import NANO_DOLLARS
from routing.observability.records.headers import read_headers
from routing.observability.records.record import COLUMNS, Record
from routing.observability.records.reports import PAGE, record_pages
from routing.observability.records.trail import steps_of
from routing.storage.storage import Storage

Format = Literal["jsonl", "csv"]

FIELDS = tuple("cost_usd" if name == "cost" else name for name in COLUMNS)
"""The names of what is exported of a record."""

_TRUTH = ("stream", "cancelled", "estimated")


def exported(record: Record) -> dict[str, Any]:
    """A record as others read it: time in ISO 8601, cost in dollars, truth as such, the trail as a
    list."""
    members = msgspec.structs.asdict(record)
    cost = members.pop("cost")
    for name in _TRUTH:
        members[name] = bool(members[name])
    members["time"] = datetime.fromtimestamp(record.time, UTC).isoformat(timespec="milliseconds")
    members["trail"] = msgspec.to_builtins(steps_of(record.trail))
    members["cost_usd"] = None if cost is None else cost / NANO_DOLLARS
    return members


async def export(storage: Storage, since: float, format: Format) -> AsyncGenerator[str, None]:
    """All records since then, as text of whole lines.

    Raises (from the generator):
        StorageError: it can't be read.
    """
    if format == "csv":
        yield csv_lines([FIELDS])
    async for page in record_pages(storage, since):
        members = [exported(record) for _, record in page]
        if format == "csv":
            for each, (_, record) in zip(members, page, strict=True):
                each["trail"] = record.trail
            yield csv_lines([[each[name] for name in FIELDS] for each in members])
        else:
            yield _json_lines(members)


async def export_bodies(storage: Storage, since: float) -> AsyncGenerator[str, None]:
    """All bodies that are kept since then, as lines of JSON.

    Raises (from the generator):
        StorageError: it can't be read.
    """
    last = 0
    while rows := await storage.fetch(
        "SELECT id, time, request_id, request, reply, headers FROM bodies"
        f" WHERE id > ? AND time >= ? ORDER BY id LIMIT {PAGE // 10}",
        last,
        since,
    ):
        last = rows[-1][0]
        yield _json_lines(
            [
                {
                    "time": datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds"),
                    "request_id": request_id,
                    "request": bytes(request).decode(errors="replace"),
                    "reply": bytes(reply).decode(errors="replace"),
                    "headers": read_headers(headers),
                }
                for _, at, request_id, request, reply, headers in rows
            ]
        )


def _json_lines(values: Sequence[dict[str, Any]]) -> str:
    return "".join(msgspec.json.encode(each).decode() + "\n" for each in values)


def csv_lines(rows: Sequence[Sequence[Any]]) -> str:
    """Rows as lines of CSV, none of whose cells a spreadsheet computes."""
    lines = io.StringIO()
    # All text in quotes: left to itself, the writer puts none around a carriage return.
    writer = csv.writer(lines, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
    writer.writerows([list(map(_cell, row)) for row in rows])
    return lines.getvalue()


_FORMULAS = ("=", "+", "-", "@", "＝", "＋", "－", "＠")
"""What a spreadsheet takes for the beginning of a formula."""

_SKIPPED = ("\t", "\r", "\n", "\0", "\ufeff")
"""What some of them leave out before they look."""


def _cell(value: Any) -> Any:
    """`value` as a cell that no spreadsheet computes: text that is somebody else's, a client's or a
    vendor's, has an apostrophe before what could begin a formula.

    Source: https://owasp.org/www-community/attacks/CSV_Injection
    """
    if not isinstance(value, str):
        return value
    risky = value.startswith(_SKIPPED) or value.lstrip().startswith(_FORMULAS)
    return f"'{value}" if risky else value
