"""What was used and what it cost, added up from the records."""

from __future__ import annotations

import math
import re
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from datetime import UTC, date, datetime
from typing import Any, Literal, TypeVar, get_args

from msgspec import Struct, structs

from llama_compat.catalog.prices import NANO_DOLLARS
from llama_compat.text.durations import seconds_of
from routing.observability.records.partitions import DAY_SECONDS
from routing.observability.records.record import (
    COLUMNS,
    ROLLUP_KEYS,
    SUMS,
    SUMS_OF_RECORDS,
    Record,
)
from routing.observability.records.recorder import HOUR_SECONDS
from routing.storage.storage import Row, Storage

GroupBy = Literal["key", "model", "provider", "day"]
"""What records are told apart by."""

UseBy = Literal["key", "team", "model", "provider", "day"]
"""What use can be told apart by: a team is what its keys are together."""

USE_BY: tuple[UseBy, ...] = get_args(UseBy)

PAGE = 1000
"""So many records are read at a time."""


class Since(Struct, frozen=True):
    """From when on records count, or until when.

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
        searches: what is paid for by the search.
        tool_calls: of tools that the server ran.
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
    searches: int = 0
    tool_calls: int = 0

    @property
    def dollars(self) -> float | None:
        """What it cost; None where the price of some is not known and the others cost nothing."""
        return None if self.unpriced and not self.cost else self.cost / NANO_DOLLARS


Parsed = TypeVar("Parsed")


class WrongFilter(ValueError):
    """What somebody looks for is said wrongly.

    Args:
        name: of what: `since`, `until` or `status`.
        message: what is wrong with it, to go on behind that name.
    """

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


def parse_since(text: str, now: float | None = None) -> Since:
    """`7d` (today and the six days before), `4w`, `12h`, `30m`, or a day such as `2026-03-01`.

    Raises:
        ValueError: it is none of these.
    """
    now = time.time() if now is None else now
    if _DAY.fullmatch(text):
        return Since(_midnight(text), True)
    if not _AGO.fullmatch(text):
        raise ValueError(f"'{text}' is no time such as 7d, 4w, 12h, 30m or 2026-03-01")
    seconds = seconds_of(text)
    if text[-1] in "mh":
        return Since(now - seconds, False)
    days = seconds // DAY_SECONDS
    return Since((now // DAY_SECONDS - days + 1) * DAY_SECONDS, True)


def parse_until(text: str, now: float | None = None) -> Since:
    """The end of a day such as `2026-03-01`, or as `parse_since`: what begins at `7d` with that
    ends there with this.

    Raises:
        ValueError: it is none of these.
    """
    if _DAY.fullmatch(text):
        return Since(_midnight(text) + DAY_SECONDS, True)
    return parse_since(text, now)


def parse_span(since: str, until: str | None) -> tuple[Since, Since | None]:
    """From when on, and until when, by words; without an end up to now.

    Raises:
        WrongFilter: one of them can't be read, or there is nothing between them.
    """
    begin = parsed("since", parse_since, since)
    end = parsed("until", parse_until, until) if until else None
    if end is not None and end.time <= begin.time:
        raise WrongFilter("until", f"{until} is before 'since': nothing lies between")
    return begin, end


def parsed(name: str, parse: Callable[[str], Parsed], text: str) -> Parsed:
    """What somebody says of `name`.

    Raises:
        WrongFilter: it can't be read.
    """
    try:
        return parse(text)
    except ValueError as error:
        raise WrongFilter(name, str(error)) from None


_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
_AGO = re.compile(r"[1-9]\d{0,5}[mhdw]")


def _midnight(day: str) -> float:
    return datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp()


async def usage(
    storage: Storage,
    by: Sequence[GroupBy],
    since: Since,
    until: Since | None = None,
    keys: Sequence[str] | None = None,
) -> list[Use]:
    """What was used since then, told apart by `by`; the dearest first, days in their order.

    Whole days come from the sums that are kept for ever, hours from those of hours, and the part of
    an hour from the records themselves: it takes no longer the more records there are.

    Args:
        storage: of the records.
        by: what it is told apart by.
        since: from when on.
        until: before when; None for no end.
        keys: of whom alone, by id; None for everybody.

    Raises:
        StorageError: it can't be read.
    """
    source, values = _source(since, until)
    sums = [f"CAST(SUM({each}) AS BIGINT)" for each in SUMS]
    where = ""
    if keys is not None:
        where = f" WHERE key IN ({', '.join('?' * len(keys))})" if keys else " WHERE 1 = 0"
        values += keys
    grouped = f" GROUP BY {', '.join(by)}" if by else ""
    rows = await storage.fetch(
        f"SELECT {', '.join([*by, *sums])} FROM ({source}) AS found{where}{grouped}", *values
    )
    # Where nothing is told apart, nothing comes to one row of nothing.
    uses = [_use(row, by) for row in rows if row[len(by)]]
    return in_order(uses, [name == "day" for name in by])


async def usage_by(
    storage: Storage,
    by: Sequence[UseBy],
    since: Since,
    until: Since | None = None,
    keys: Sequence[str] | None = None,
    *,
    team_of: Callable[[str], str],
) -> list[Use]:
    """As `usage`, by team too.

    Args:
        storage, since, until, keys: as in `usage`.
        by: what it is told apart by.
        team_of: the team of a key, by its id; empty for none. Records know of no teams.

    Raises:
        StorageError: it can't be read.
    """
    of_records = list(dict.fromkeys(_of_records(name) for name in by))
    uses = await usage(storage, of_records, since, until, keys)
    if "team" not in by:
        return uses
    merged: dict[tuple[Any, ...], list[Use]] = {}
    for use in uses:
        found = dict(zip(of_records, use.keys, strict=True))
        together = tuple(
            team_of(found["key"]) if name == "team" else found[_of_records(name)] for name in by
        )
        merged.setdefault(together, []).append(use)
    days = [name == "day" for name in by]
    return in_order([summed(each, together) for together, each in merged.items()], days)


def _of_records(name: UseBy) -> GroupBy:
    return "key" if name == "team" else name


def use_rows(
    uses: Sequence[Use], by: Sequence[UseBy], name_of: Callable[[str], str]
) -> list[dict[str, Any]]:
    """Uses for programs; `name_of` is what people call a key."""
    return [
        {
            **_members(use, by, name_of),
            "requests": use.requests,
            "errors": use.errors,
            "cancelled": use.cancelled,
            "input_tokens": use.input_tokens,
            "cached_tokens": use.cached_tokens,
            "cache_write_tokens": use.cache_write_tokens,
            "output_tokens": use.output_tokens,
            "reasoning_tokens": use.reasoning_tokens,
            "searches": use.searches,
            "tool_calls": use.tool_calls,
            "estimated_requests": use.estimated,
            "cost_usd": use.dollars,
            "unpriced_requests": use.unpriced,
            "seconds": use.milliseconds / 1000,
        }
        for use in uses
    ]


def _members(use: Use, by: Sequence[UseBy], name_of: Callable[[str], str]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for name, value in zip(by, use.keys, strict=True):
        members[name] = value
        if name == "key":
            members["key_name"] = name_of(value)
    return members


async def last_uses(storage: Storage, now: float | None = None) -> dict[str, float]:
    """When each key was used last, in seconds since 1970: exact within the last day, and the
    beginning of the hour before that. Keys that nobody used as long as hours are kept are not
    there.

    Raises:
        StorageError: it can't be read.
    """
    now = time.time() if now is None else now
    hours = await storage.fetch("SELECT key, MAX(hour) FROM hourly_rollups GROUP BY key")
    found = {key: float(hour * HOUR_SECONDS) for key, hour in hours}
    recent = await storage.fetch(
        "SELECT key, MAX(time) FROM records WHERE time >= ? GROUP BY key", now - DAY_SECONDS
    )
    return {**found, **dict(recent)}


def in_order(uses: Sequence[Use], days: Sequence[bool]) -> list[Use]:
    """The dearest first, days in their order; `days` says which of the keys are days."""

    def place(use: Use) -> tuple[Any, ...]:
        dated = tuple(value for value, is_day in zip(use.keys, days, strict=True) if is_day)
        return (*dated, -use.cost, -use.requests, *map(str, use.keys))

    return sorted(uses, key=place)


def summed(uses: Sequence[Use], keys: tuple[Any, ...]) -> Use:
    """All of them as one, which has these `keys`."""
    sums = zip(*(structs.astuple(use)[1:] for use in uses), strict=True)
    return Use(keys, *map(sum, sums))


def _source(since: Since, until: Since | None) -> tuple[str, list[Any]]:
    """The sums of the time in between, as SQL, and its values."""
    values: list[Any]
    if since.whole_days and (until is None or until.whole_days):
        source = f"SELECT {', '.join(ROLLUP_KEYS + SUMS)} FROM rollups WHERE day >= ?"
        values = [int(since.time // DAY_SECONDS)]
        if until is not None:
            source += " AND day < ?"
            values.append(int(until.time // DAY_SECONDS))
        return source, values
    first = math.ceil(since.time / HOUR_SECONDS)
    source = (
        f"SELECT hour / 24 AS day, {', '.join(ROLLUP_KEYS[1:] + SUMS)} FROM hourly_rollups"
        " WHERE hour >= ?"
    )
    values = [first]
    begins = [(since.time, float(first * HOUR_SECONDS))]
    if until is not None:
        last = math.floor(until.time / HOUR_SECONDS)
        source += " AND hour < ?"
        values.append(last)
        begins.append((float(last * HOUR_SECONDS), until.time))
        if last < first:  # within an hour
            begins = [(since.time, until.time)]
    for begin, end in begins:
        source += (
            f" UNION ALL SELECT {int(begin // DAY_SECONDS)}, key, route, provider,"
            f" {', '.join(SUMS_OF_RECORDS.values())} FROM records WHERE time >= ? AND time < ?"
            " GROUP BY key, route, provider"
        )
        values += [begin, end]
    return source, values


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


def _use(row: Row, by: Sequence[GroupBy]) -> Use:
    keys = [
        date(1970, 1, 1) + value * date.resolution if name == "day" else value
        for name, value in zip(by, row[: len(by)], strict=True)
    ]
    return Use(tuple(keys), *row[len(by) :])
