"""Records at a million a day: what a day takes, what `usage` takes, what forgetting a day takes.

    python -m bench.records [--records 10000000] [--days 10] [--storages sqlite,postgres]

The records are made up: 200 keys, 12 models, 4 providers, evenly over the days. They are written as
the recorder writes them, a thousand in a transaction with their sums. Then `usage` is asked as the
command asks it, several times, of which the median counts; and one day is forgotten. PostgreSQL is
one of its own, with `fsync` off, if it is installed. Writes `bench/results/records.json`.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from msgspec import structs

from bench.machine import write_results
from llama_compat.distribution import RecordsSettings
from routing.observability.records.partitions import DAY_SECONDS, Partitions
from routing.observability.records.record import MIGRATIONS, Record
from routing.observability.records.recorder import Recorder
from routing.observability.records.reports import GroupBy, parse_since, usage
from routing.storage.storage import Storage, open_storage
from tests import postgres

MADE = 20_000
"""So many different records there are; the others are these again, at another time."""

TOGETHER = 50_000
"""So many are handed to the recorder at a time, which waits for others before it begins."""

ASKED: Mapping[str, tuple[str, list[GroupBy]]] = {
    "7d by model": ("7d", ["model"]),
    "10d by key and day": ("10d", ["key", "day"]),
    "12h by model": ("12h", ["model"]),
    "30m by model": ("30m", ["model"]),
}

ROUNDS = 5

Measure = Callable[[str, int, int], Awaitable[dict[str, Any]]]


def made_up(dice: random.Random) -> Record:
    """A record like those of a busy gateway."""
    model, prompt, output = dice.randrange(12), dice.randrange(20, 8000), dice.randrange(1, 900)
    failed = dice.random() < 0.01
    return Record(
        time=0.0,
        request_id=f"req-{dice.getrandbits(96):024x}",
        key=f"key-{dice.randrange(200):08x}",
        api="openai",
        operation="chat",
        route=f"model-{model}",
        model=f"model-{model}",
        served=f"vendor-model-{model}-2026-08-07",
        provider=f"provider-{model % 4}",
        target=f"provider-{model % 4}/vendor-model-{model}-2026-08-07",
        attempts=1,
        status=500 if failed else 200,
        error="server_error" if failed else "",
        message="The vendor has an internal error." if failed else "",
        stream=int(dice.random() < 0.7),
        finish_reason="" if failed else "stop",
        input_tokens=prompt,
        cached_tokens=prompt // 2,
        cache_write_tokens=0,
        output_tokens=output,
        reasoning_tokens=0,
        first_content=dice.random(),
        duration=1 + 10 * dice.random(),
        overhead=0.0004,
        cost=prompt * 2500 + output * 10_000,
    )


async def fill(recorder: Recorder, records: int, days: int, now: float) -> float:
    """Write so many, the newest now; the seconds that it took."""
    dice = random.Random(1)
    made = [made_up(dice) for _ in range(MADE)]
    step = days * DAY_SECONDS / records
    first = now - days * DAY_SECONDS
    begun = time.monotonic()
    for at in range(0, records, TOGETHER):
        some = [
            structs.replace(made[number % MADE], time=first + number * step)
            for number in range(at, min(at + TOGETHER, records))
        ]
        recorder.put(*some)
        while recorder.waiting:  # noqa: ASYNC110  the recorder tells nobody
            await asyncio.sleep(0.01)
    return time.monotonic() - begun


async def seconds(work: Callable[[], Awaitable[Any]]) -> float:
    """The median of a few times."""
    taken = []
    for _ in range(ROUNDS):
        begun = time.monotonic()
        await work()
        taken.append(time.monotonic() - begun)
    return statistics.median(taken)


@asynccontextmanager
async def filled(
    address: str, records: int, days: int, now: float
) -> AsyncIterator[tuple[Storage, float]]:
    """A storage with so many records, the newest `now`; and the seconds that writing them took."""
    storage = open_storage(address, [MIGRATIONS])
    await storage.start()
    try:
        if storage.has_partitions:
            for day in range(days + 1):
                await Partitions(storage, "records").make(now - day * DAY_SECONDS)
        recorder = Recorder(
            open_storage(address, [MIGRATIONS]), RecordsSettings(keep_days=3650, queue=TOGETHER)
        )
        await recorder.start()
        try:
            taken = await fill(recorder, records, days, now)
        finally:
            await recorder.stop()
        yield storage, taken
    finally:
        await storage.stop()


async def measure(address: str, records: int, days: int) -> dict[str, Any]:
    """All figures of one storage."""
    async with filled(address, records, days, time.time()) as (storage, taken):
        size = await _bytes(storage, address)
        asked = {}
        for name, (since, by) in ASKED.items():
            asked[name] = await seconds(lambda: usage(storage, by, parse_since(since)))  # noqa: B023
        forgetting = Recorder(storage, RecordsSettings(keep_days=days - 1))
        begun = time.monotonic()
        while not await forgetting.sweep():
            pass
        forgot = time.monotonic() - begun
    return {
        "written_per_s": records / taken,
        "bytes_per_record": size / records,
        "gib_per_million": size / records * 1e6 / 2**30,
        "usage_seconds": asked,
        "forget_a_day_seconds": forgot,
    }


async def _bytes(storage: Storage, address: str) -> int:
    if not storage.has_partitions:
        path = Path(address.removeprefix("sqlite:"))
        return sum(each.stat().st_size for each in path.parent.glob(f"{path.name}*"))
    [(size,)] = await storage.fetch(
        "SELECT SUM(pg_total_relation_size(c.oid))::bigint FROM pg_class c JOIN pg_namespace n"
        " ON n.oid = c.relnamespace WHERE n.nspname = 'llama_compat' AND c.relkind = 'r'"
    )
    return int(size)


@asynccontextmanager
async def storage_at(kind: str) -> AsyncIterator[str]:
    """The address of an empty storage."""
    if kind == "sqlite":
        with tempfile.TemporaryDirectory() as folder:
            yield f"sqlite:{folder}/records.sqlite"
        return
    with postgres.postgres() as server:
        yield server.address


async def measure_all(
    kinds: list[str], records: int, days: int, measured: Measure
) -> dict[str, Any]:
    """The figures of each kind of storage; why not, of one that is not here."""
    found: dict[str, Any] = {}
    for kind in kinds:
        if kind == "postgres" and (reason := postgres.missing()) is not None:
            found[kind] = reason
            continue
        async with storage_at(kind) as address:
            found[kind] = await measured(address, records, days)
        print(kind, found[kind], flush=True)
    return found


def run(name: str, member: str, about: str, measured: Measure, records: int) -> None:
    """Measure as the command line says, print, and write the results.

    Args:
        name: of the file of results.
        member: of it, which has what was measured by the kind of storage.
        about: the benchmark's docstring.
        measured: the figures of the storage at an address, for so many records of so many days.
        records: how many there are unless the command line says otherwise.
    """
    parser = argparse.ArgumentParser(description=about.partition("\n")[0])
    parser.add_argument("--records", type=int, default=records)
    parser.add_argument("--days", type=int, default=10)
    parser.add_argument("--storages", default="sqlite,postgres")
    options = parser.parse_args()
    kinds = options.storages.split(",")
    found = asyncio.run(measure_all(kinds, options.records, options.days, measured))
    of = {"records": options.records, "days": options.days}
    write_results(name, {**of, member: found}, "asyncpg")


if __name__ == "__main__":
    run("records", "storages", __doc__, measure, records=10_000_000)
