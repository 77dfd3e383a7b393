"""What writing records costs: statements of our own beside SQLAlchemy, on one SQLite file each.

    python -m bench.rows [--rounds 5] [--records 20000]

Records of requests are written in transactions of 500, as they are while a server runs: by the
storage of our own, by SQLAlchemy's Core, and by its ORM (an object a record). Counted is the
processor time of a process, all its threads, from the records on; and what importing each way adds
to the start and the memory of a process. Each way runs in a process of its own, in turn, and the
median counts. SQLAlchemy is installed into `bench/.peers` with pip. Prints the figures and writes
them to `bench/results/rows.json`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

from bench.load.others import CACHE
from bench.machine import resident_mib, write_results

PEER = "SQLAlchemy==2.1.9"
BATCH = 500

IMPORTS = {
    "own": "import routing.storage.sqlite",
    "sqlalchemy core": "import sqlalchemy",
    "sqlalchemy orm": "import sqlalchemy.orm",
}


def rows(count: int) -> list[tuple[object, ...]]:
    """What is to be written, column by column."""
    from msgspec import structs

    from routing.observability.records.record import Record

    usual = {"key": "key-1", "api": "openai", "operation": "chat", "route": "m", "model": "m"}
    more = {"served": "gpt", "provider": "up", "target": "up/gpt", "attempts": 1, "status": 200}
    used = {"input_tokens": 100, "output_tokens": 10, "duration": 0.25, "cost": 1000}
    return [
        structs.astuple(Record(1.79e9 + at, f"req-{at}", **usual, **more, **used))
        for at in range(count)
    ]


def by_our_own(path: Path, made: Sequence[tuple[object, ...]]) -> float:
    from routing.observability.records.record import COLUMNS, MIGRATIONS
    from routing.storage.storage import open_storage

    async def write() -> float:
        storage = open_storage(f"sqlite:{path}", [MIGRATIONS])
        await storage.start()
        begun = time.process_time()
        for at in range(0, len(made), BATCH):
            async with storage.transaction() as transaction:
                await transaction.insert("records", COLUMNS, list(made[at : at + BATCH]))
        taken = time.process_time() - begun
        await storage.stop()
        return taken

    return asyncio.run(write())


def by_sqlalchemy(path: Path, made: Sequence[tuple[object, ...]], *, orm: bool) -> float:
    from sqlalchemy import (
        BigInteger,
        Column,
        Float,
        Index,
        Integer,
        MetaData,
        Table,
        Text,
        create_engine,
        insert,
    )
    from sqlalchemy.orm import Session, registry

    from routing.observability.records.record import COLUMNS

    kinds = dict.fromkeys(COLUMNS, Text)
    for name, value in zip(COLUMNS, made[0], strict=True):
        kinds[name] = Float if isinstance(value, float) else kinds[name]
        kinds[name] = BigInteger if value is None or isinstance(value, int) else kinds[name]
    columns = [Column(name, kind, nullable=True) for name, kind in kinds.items()]
    table = Table("records", MetaData(), Column("id", Integer, primary_key=True), *columns)
    Index("records_by_time", table.c.time)
    engine = create_engine(f"sqlite:///{path}")
    with engine.begin() as connection:
        connection.exec_driver_sql("PRAGMA journal_mode = WAL")
        connection.exec_driver_sql("PRAGMA synchronous = NORMAL")
    table.metadata.create_all(engine)

    class Row:
        def __init__(self, **values: object) -> None:
            for name, value in values.items():
                setattr(self, name, value)

    if orm:
        registry().map_imperatively(Row, table)
    begun = time.process_time()
    for at in range(0, len(made), BATCH):
        values = [dict(zip(COLUMNS, each, strict=True)) for each in made[at : at + BATCH]]
        if orm:
            with Session(engine) as session, session.begin():
                session.add_all(Row(**each) for each in values)
        else:
            with engine.begin() as connection:
                connection.execute(insert(table), values)
    return time.process_time() - begun


WAYS: dict[str, Callable[[Path, Sequence[tuple[object, ...]]], float]] = {
    "own": by_our_own,
    "sqlalchemy core": lambda path, made: by_sqlalchemy(path, made, orm=False),
    "sqlalchemy orm": lambda path, made: by_sqlalchemy(path, made, orm=True),
}


def run(way: str, count: int) -> dict[str, float]:
    """One way in this process, from its imports on."""
    before, begun = resident_mib(os.getpid()), time.process_time()
    exec(IMPORTS[way])
    imported = time.process_time() - begun
    memory = resident_mib(os.getpid()) - before
    made = rows(count)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "records.sqlite"
        taken = WAYS[way](path, made)
        import sqlite3

        (kept,) = sqlite3.connect(path).execute("SELECT count(*) FROM records").fetchone()
    if kept != count:
        raise RuntimeError(f"{way}: {kept} of {count} records are there")
    return {
        "cpu_us_a_record": taken / count * 1e6,
        "import_ms": imported * 1e3,
        "import_mib": memory,
    }


def peer_folder() -> Path:
    """Where SQLAlchemy is; it is installed if it is not there."""
    folder = CACHE / PEER
    if not (folder / "sqlalchemy").is_dir():
        print(f"installing {PEER} into {folder}", flush=True)
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "--target", str(folder), PEER], check=True)
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.way:
        print(json.dumps(run(options.way, options.records)))
        return
    path = os.pathsep.join([str(peer_folder()), os.environ.get("PYTHONPATH", "")])
    found: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    for _ in range(options.rounds):
        for way, rounds in found.items():
            command = [sys.executable, "-m", "bench.rows", "--way", way]
            said = subprocess.check_output(
                [*command, "--records", str(options.records)],
                env={**os.environ, "PYTHONPATH": path},
            )
            rounds.append(json.loads(said))
    ways = {
        way: {name: round(median(each[name] for each in rounds), 1) for name in rounds[0]}
        for way, rounds in found.items()
    }
    for measured in ways.values():
        own = ways["own"]["cpu_us_a_record"]
        measured["of_our_own"] = round(measured["cpu_us_a_record"] / own, 2)
    for way, measured in ways.items():
        print(f"{way:18}", *(f"{name} {value}" for name, value in measured.items()), sep="  ")
    result = {"records": options.records, "peer": PEER, "ways": ways}
    print(f"written to {write_results('rows', result, 'msgspec')}")


if __name__ == "__main__":
    main()
