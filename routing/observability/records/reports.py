"""What was used and what it cost, added up from the records."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncGenerator, Iterable, Sequence
from datetime import UTC, date, datetime
from typing import Any, Literal

from msgspec import Struct

from llama_compat.catalog.prices import NANO_DOLLARS
from routing.observability.records.record import COLUMNS, ROLLUP_KEYS, SUMS, Record
from routing.observability.records.recorder import DAY_SECONDS, daily_sums
from routing.storage.storage import Row, Storage

GroupBy = Literal["key", "model", "provider", "day"]
"""What use can be told apart by."""

PAGE = 1000
"""So many records are read at a time."""

_UNIT_SECONDS = {"m": 60, "h": 3600, "d": DAY_SECONDS, "w": 7 * DAY_SECONDS}


class Since(Struct, frozen=True):
    """From when on records count.

    Attributes:
        time: in seconds since 1970.
        whole_days: whether that is the beginning of a day (UTC).
    """

    time: float
    whole_days: bool


class Use(Struct):
    """What was used by those who have `keys` in common.

    Attributes:
        keys: the values of what it is told apart by, in that order; a day is a `date`.
        requests, errors, cancelled: how many there were, failed, and were left by their client.
        input_tokens, output_tokens: all of them.
        cached_tokens, cache_write_tokens: the part of the input that caches had or got.
        reasoning_tokens: the part of the output that was reasoning.
        estimated: requests whose tokens are estimated.
        cost: in billionths of a dollar, of those requests whose price is known.
        unpriced: requests with tokens whose price is not known.
        milliseconds: how long all requests took together.
    """

    keys: tuple[Any, ...]
    requests: int = 0
    errors: int = 0
    cancelled: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    estimated: int = 0
    cost: int = 0
    unpriced: int = 0
    milliseconds: int = 0

    @property
    def dollars(self) -> float | None:
        """What it cost; None where the price of some is not known and the others cost nothing."""
        return None if self.unpriced and not self.cost else self.cost / NANO_DOLLARS


def parse_since(text: str, now: float | None = None) -> Since:
    """`7d` (today and the six days before), `4w`, `12h`, `30m`, or a day such as `2026-03-01`.

    Raises:
        ValueError: it is none of these.
    """
    now = time.time() if now is None else now
    if re.fullmatch(r"\d{4}-\d{2}-\d{2}", text):
        day = datetime.fromisoformat(text).replace(tzinfo=UTC)
        return Since(day.timestamp(), True)
    match = re.fullmatch(r"([1-9]\d{0,5})([mhdw])", text)
    if match is None:
        raise ValueError(f"'{text}' is no time such as 7d, 4w, 12h, 30m or 2026-03-01")
    count, unit = int(match[1]), match[2]
    if unit in "mh":
        return Since(now - count * _UNIT_SECONDS[unit], False)
    days = count * _UNIT_SECONDS[unit] // DAY_SECONDS
    return Since((now // DAY_SECONDS - days + 1) * DAY_SECONDS, True)


async def usage(storage: Storage, by: Sequence[GroupBy], since: Since) -> list[Use]:
    """What was used since then, told apart by `by`; the dearest first, days in their order.

    Whole days come from the sums that are kept for ever, hours from the records themselves.

    Raises:
        StorageError: it can't be read.
    """
    if since.whole_days:
        columns = ", ".join(ROLLUP_KEYS + SUMS)
        day = int(since.time // DAY_SECONDS)
        rows = await storage.fetch(f"SELECT {columns} FROM rollups WHERE day >= ?", day)
    else:
        rows = []
        async for page in record_pages(storage, since.time):
            rows += daily_sums(record for _, record in page)
    return sorted(_grouped(rows, by), key=lambda use: _place(use, by))


async def record_pages(
    storage: Storage, since: float
) -> AsyncGenerator[list[tuple[int, Record]], None]:
    """All records since then, in the order in which they were written, with their numbers.

    Raises (from the generator):
        StorageError: it can't be read.
    """
    last = 0
    while True:
        rows = await storage.fetch(
            f"SELECT id, {', '.join(COLUMNS)} FROM records WHERE id > ? AND time >= ?"
            f" ORDER BY id LIMIT {PAGE}",
            last,
            since,
        )
        if not rows:
            return
        last = rows[-1][0]
        yield [(row[0], Record(**dict(zip(COLUMNS, row[1:], strict=True)))) for row in rows]


def _grouped(rows: Iterable[Row], by: Sequence[GroupBy]) -> Iterable[Use]:
    places = [ROLLUP_KEYS.index(each) for each in by]
    groups: dict[tuple[Any, ...], Use] = {}
    for row in rows:
        keys = tuple(_shown(row, place) for place in places)
        use = groups.setdefault(keys, Use(keys))
        for name, value in zip(SUMS, row[len(ROLLUP_KEYS) :], strict=True):
            setattr(use, name, getattr(use, name) + value)
    return groups.values()


def _shown(row: Row, place: int) -> Any:
    if ROLLUP_KEYS[place] == "day":
        return date(1970, 1, 1) + row[place] * date.resolution
    return row[place]


def _place(use: Use, by: Sequence[GroupBy]) -> tuple[Any, ...]:
    days = tuple(value for value, name in zip(use.keys, by, strict=True) if name == "day")
    return (*days, -use.cost, -use.requests, *map(str, use.keys))
