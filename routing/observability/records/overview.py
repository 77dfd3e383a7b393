"""What records tell over time, and of the last requests that went wrong, for a page."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from llama_compat.catalog.prices import NANO_DOLLARS
from llama_compat.text.durations import seconds_of
from routing.observability.records.partitions import DAY_SECONDS
from routing.observability.records.record import SUMS_OF_RECORDS
from routing.observability.records.reports import (
    Since,
    Use,
    UseBy,
    parse_since,
    summed,
    usage,
    usage_by,
)
from routing.storage.storage import Row, Storage

SPANS: Mapping[str, int] = {
    "1h": 60,
    "6h": 300,
    "24h": 1800,
    "7d": DAY_SECONDS,
    "30d": DAY_SECONDS,
    "90d": DAY_SECONDS,
}
"""What can be looked back on, and how many seconds one point of its series stands for.

Days come from the sums that are kept for ever, which know of latency its mean alone."""

GROUPS: Sequence[UseBy] = ("model", "team", "key", "provider")
MOST_GROUPS = 50
MOST_ERRORS = 10
MOST = 50
"""Requests of a kind that are told of."""

_NAMES = ("requests", "errors", "input_tokens", "output_tokens", "cost", "unpriced")
_SUMS = [SUMS_OF_RECORDS[name] for name in _NAMES]

_ERROR_COLUMNS = (
    "time",
    "request_id",
    "key",
    "api",
    "model",
    "target",
    "attempts",
    "status",
    "error",
    "message",
    "guardrails",
)

_VERDICT_COLUMNS = ("time", "request_id", "key", "api", "model", "status", "guardrails")


async def overview(
    storage: Storage,
    span: str,
    now: float | None = None,
    team_of: Callable[[str], str] = lambda key: "",
) -> dict[str, Any]:
    """What happened in the last `span`, one of `SPANS`: points in time, sums by `GROUPS`, the same
    sums of the period `before`, and the errors that there were most of.

    A point has `time` (its beginning, in seconds since 1970), counts, `cost` in US dollars (None
    where no price is known) and latencies in seconds: `mean`, and where they come from records
    themselves `median`, `p95` and `first_content` (the median); None where there are none. `before`
    ends as long before now as it began before `from`, and is None where the records do not reach
    back so far.

    Args:
        storage: of the records.
        span: one of `SPANS`.
        now: in seconds since 1970.
        team_of: the team of a key, by its id; empty for none.

    Raises:
        StorageError: it can't be read.
    """
    now = time.time() if now is None else now
    step = SPANS[span]
    since = parse_since(span, now)
    if since.whole_days:
        points = [_of_day(each) for each in await usage(storage, ["day"], since)]
    else:
        points = await _points(storage, since.time, step)
    before, top, *groups = await asyncio.gather(
        _before(storage, since, seconds_of(span), now),
        top_errors(storage, since.time),
        *(usage_by(storage, [by], since, team_of=team_of) for by in GROUPS),
    )
    return {
        "span": span,
        "from": since.time // step * step,
        "to": now,
        "step": step,
        "points": points,
        "before": before,
        "errors": top,
        "by": {
            by: [{"name": use.keys[0], **_of_use(use)} for use in uses[:MOST_GROUPS]]
            for by, uses in zip(GROUPS, groups, strict=True)
        },
    }


async def _before(
    storage: Storage, since: Since, length: float, now: float
) -> dict[str, Any] | None:
    """The sums of the period before, up to the same time of day."""
    begin, end = since.time - length, now - length
    [(first,)] = await storage.fetch("SELECT MIN(day) FROM rollups")
    if first is None or first * DAY_SECONDS > begin:
        return None
    if since.whole_days:
        # Days are kept for ever, the hours of the last of them as long as records are.
        midnight = end // DAY_SECONDS * DAY_SECONDS
        parts = [
            *await usage(storage, [], Since(begin, True), Since(midnight, True)),
            *await usage(storage, [], Since(midnight, False), Since(end, False)),
        ]
    else:
        parts = await usage(storage, [], Since(begin, False), Since(end, False))
    return {"from": begin, "to": end, **_of_use(summed(parts, ()) if parts else Use(()))}


async def top_errors(storage: Storage, since: float) -> list[dict[str, Any]]:
    """What went wrong most since then: of each class, status, model and provider how many requests,
    and the last of them.

    Raises:
        StorageError: it can't be read.
    """
    rows = await storage.fetch(
        "SELECT error, status, route, provider, COUNT(*), MAX(id) FROM records"
        " WHERE time >= ? AND error <> '' GROUP BY error, status, route, provider"
        f" ORDER BY COUNT(*) DESC, MAX(id) DESC LIMIT {MOST_ERRORS}",
        since,
    )
    if not rows:
        return []
    lasts = await storage.fetch(
        "SELECT id, time, request_id, message FROM records"
        f" WHERE time >= ? AND id IN ({', '.join('?' * len(rows))})",
        since,
        *(row[-1] for row in rows),
    )
    last = {number: told for number, *told in lasts}
    return [
        {
            **dict(zip(("error", "status", "model", "provider", "requests"), row, strict=False)),
            **dict(zip(("last", "request_id", "message"), last.get(row[-1], ()), strict=False)),
        }
        for row in rows
    ]


async def traffic(storage: Storage, since: float) -> dict[tuple[str, str], tuple[int, int]]:
    """By model and target, how many requests there were since then, and how many went wrong.

    Raises:
        StorageError: it can't be read.
    """
    rows = await storage.fetch(
        f"SELECT route, target, {SUMS_OF_RECORDS['requests']}, {SUMS_OF_RECORDS['errors']}"
        " FROM records"
        " WHERE time >= ? AND target <> '' GROUP BY route, target",
        since,
    )
    return {(route, target): (requests, failed) for route, target, requests, failed in rows}


async def last_errors(storage: Storage) -> list[dict[str, Any]]:
    """The last requests that went wrong, the newest first, but for those whose client left.

    Raises:
        StorageError: it can't be read.
    """
    return await _last(storage, _ERROR_COLUMNS, "error <> ''")


async def last_verdicts(storage: Storage) -> list[dict[str, Any]]:
    """The last requests in which a guardrail came to a verdict, the newest first.

    Raises:
        StorageError: it can't be read.
    """
    return await _last(storage, _VERDICT_COLUMNS, "guardrails <> ''")


async def _last(storage: Storage, columns: Sequence[str], which: str) -> list[dict[str, Any]]:
    rows = await storage.fetch(
        f"SELECT {', '.join(columns)} FROM records WHERE {which} ORDER BY time DESC LIMIT {MOST}"
    )
    return [dict(zip(columns, row, strict=True)) for row in rows]


async def _points(storage: Storage, since: float, step: int) -> list[dict[str, Any]]:
    bucket = f"CAST(time AS BIGINT) / {step}"
    sums = ", ".join(f"CAST({each} AS BIGINT)" for each in _SUMS)
    counted = await storage.fetch(
        f"SELECT {bucket}, {sums}, AVG(duration) FROM records WHERE time >= ?"
        f" GROUP BY {bucket} ORDER BY {bucket}",
        since,
    )
    durations = await _quantiles(storage, "duration", bucket, since)
    contents = await _quantiles(storage, "first_content", bucket, since)
    points = []
    for place, *values, mean in counted:
        point = dict(zip(_NAMES, values, strict=True))
        median, p95 = durations.get(place, (None, None))
        points.append(
            {
                "time": place * step,
                **point,
                "cost": _dollars(point["cost"], point.pop("unpriced")),
                "mean": mean,
                "median": median,
                "p95": p95,
                "first_content": contents.get(place, (None, None))[0],
            }
        )
    return points


async def _quantiles(
    storage: Storage, column: str, bucket: str, since: float
) -> dict[int, tuple[float, float]]:
    """The median and the 95th percentile of a column, by bucket."""
    rows: list[Row] = await storage.fetch(
        "SELECT bucket, MIN(CASE WHEN share >= 0.5 THEN value END),"
        " MIN(CASE WHEN share >= 0.95 THEN value END)"
        f" FROM (SELECT {bucket} AS bucket, {column} AS value,"
        f" CUME_DIST() OVER (PARTITION BY {bucket} ORDER BY {column}) AS share"
        f" FROM records WHERE time >= ? AND {column} IS NOT NULL AND error = '') AS ranked"
        " GROUP BY bucket",
        since,
    )
    return {place: (median, p95) for place, median, p95 in rows}


def _of_day(use: Use) -> dict[str, Any]:
    [day] = use.keys
    point = _of_use(use)
    return {
        "time": (day.toordinal() - _EPOCH) * DAY_SECONDS,
        **point,
        "median": None,
        "p95": None,
        "first_content": None,
    }


_EPOCH = 719163
"""The ordinal of 1970-01-01."""


def _of_use(use: Use) -> dict[str, Any]:
    return {
        "requests": use.requests,
        "errors": use.errors,
        "input_tokens": use.input_tokens,
        "output_tokens": use.output_tokens,
        "cost": _dollars(use.cost, use.unpriced),
        "mean": use.milliseconds / 1000 / use.requests if use.requests else None,
    }


def _dollars(cost: int, unpriced: int) -> float | None:
    return None if unpriced and not cost else cost / NANO_DOLLARS
