"""The table of requests over a million records: what each look at it takes.

    python -m bench.requests_table [--records 1000000] [--days 10] [--storages sqlite,postgres]

The records are those of `bench.records`. The table is asked as the page and `llama-compat requests`
ask it, each look several times, of which the median counts: its first page, one in the middle, the
last, what has come since, with each filter, and with filters that few or no records fit. Writes
`bench/results/requests-table.json`.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from bench.records import filled, run, seconds
from routing.observability.records.partitions import DAY_SECONDS
from routing.observability.records.search import (
    RecordFilter,
    later,
    newest,
    newest_number,
    whole,
)
from routing.storage.storage import Storage

PAGE = 100


def looks(storage: Storage, last: int, now: float) -> Mapping[str, Callable[[], Awaitable[Any]]]:
    """What people look for, by what it is called in the results.

    Args:
        storage: of the records.
        last: the number of the newest.
        now: when that is, in seconds since 1970.
    """
    day, all_days = now - DAY_SECONDS, now - 30 * DAY_SECONDS

    def found(
        since: float = all_days, before: int | None = None, **members: Any
    ) -> Callable[[], Awaitable[Any]]:
        return lambda: newest(storage, RecordFilter(since=since, **members), PAGE, before)

    return {
        "first page": found(),
        "first page of the last day": found(day),
        "page in the middle": found(before=last // 2),
        "last page": found(before=PAGE + 1),
        "what came since": lambda: later(storage, RecordFilter(since=all_days), last - 3),
        "newest number": lambda: newest_number(storage),
        "one model": found(model="model-3"),
        "one key": found(keys=["key-00000003"]),
        "errors": found(status=5),
        "errors of one key": found(keys=["key-00000003"], error="any"),
        "an old time": found(all_days, until=now - 9 * DAY_SECONDS),
        "text of one id": found(text="req-0123456789"),
        "a model that nobody asked, in a day": found(day, model="nobody"),
        "a model that nobody asked, in all": found(model="nobody"),
        "one request, by its id": lambda: whole(storage, "req-none"),
    }


async def measure(address: str, records: int, days: int) -> dict[str, Any]:
    """All figures of one storage, in milliseconds."""
    now = time.time()
    async with filled(address, records, days, now) as (storage, _):
        last = await newest_number(storage)
        return {
            name: round(await seconds(look) * 1000, 2)
            for name, look in looks(storage, last, now).items()
        }


if __name__ == "__main__":
    run("requests-table", "milliseconds", __doc__, measure, records=1_000_000)
