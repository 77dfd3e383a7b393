"""What records tell over time, and of the last requests that went wrong, for a page."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any

from llama_compat.catalog.prices import NANO_DOLLARS
from routing.observability.records.partitions import DAY_SECONDS
from routing.observability.records.reports import GroupBy, Use, parse_since, usage
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

GROUPS: Sequence[GroupBy] = ("model", "key", "provider")
MOST_GROUPS = 50
MOST = 50
"""Requests of a kind that are told of."""

_SUMS = (
    "COUNT(*)",
    "SUM(CASE WHEN error <> '' THEN 1 ELSE 0 END)",
    "COALESCE(SUM(input_tokens), 0)",
    "COALESCE(SUM(output_tokens), 0)",
    "COALESCE(SUM(cost), 0)",
    "SUM(CASE WHEN cost IS NULL AND input_tokens IS NOT NULL THEN 1 ELSE 0 END)",
)
_NAMES = ("requests", "errors", "input_tokens", "output_tokens", "cost", "unpriced")

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


async def overview(storage: Storage, span: str, now: float | None = None) -> dict[str, Any]:
    """What happened in the last `span`, one of `SPANS`: points in time, and sums by `GROUPS`.

    A point has `time` (its beginning, in seconds since 1970), counts, `cost` in US dollars (None
    where no price is known) and latencies in seconds: `mean`, and where they come from records
    themselves `median`, `p95` and `first_content` (the median); None where there are none.

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
    groups = await asyncio.gather(*(usage(storage, [by], since) for by in GROUPS))
    return {
        "span": span,
        "from": since.time // step * step,
        "to": now,
        "step": step,
        "points": points,
        "by": {
            by: [{"name": use.keys[0], **_of_use(use)} for use in uses[:MOST_GROUPS]]
            for by, uses in zip(GROUPS, groups, strict=True)
        },
    }


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
