"""Whose records are meant, which statuses; and what is found."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from llama_compat.exchange import Principal
from routing.observability.records import search
from routing.observability.records.record import COLUMNS, MIGRATIONS, Record
from routing.observability.records.search import RecordFilter, key_ids, newest, parse_status
from routing.storage.storage import Storage, open_storage
from tests.postgres import PostgresServer
from tests.unit.routing.observability.records.records import NOON, record

KNOWN = {
    "key-aaaa": Principal("key-aaaa", name="ci", team="research"),
    "key-bbbb": Principal("key-bbbb", name="ci"),
    "key-cccc": Principal("key-cccc", name="web", team="sales"),
}


@pytest.mark.parametrize(
    ("keys", "teams", "ids"),
    [
        (None, None, None),
        ([], [], None),
        (["ci"], None, ["key-aaaa", "key-bbbb"]),
        (["key-cccc"], None, ["key-cccc"]),
        (["sk-lc-cccc"], None, ["key-cccc"]),
        (["gone"], None, ["gone"]),
        (None, ["research", "sales"], ["key-aaaa", "key-cccc"]),
        (["ci"], ["research"], ["key-aaaa"]),
        (None, ["nobody"], []),
    ],
)
def test_keys_by_id_prefix_name_and_team(
    keys: list[str] | None, teams: list[str] | None, ids: list[str] | None
) -> None:
    assert key_ids(KNOWN, keys, teams) == ids


@pytest.mark.parametrize(("text", "status"), [("429", 429), ("4xx", 4), ("5XX", 5)])
def test_statuses(text: str, status: int) -> None:
    assert parse_status(text) == status


@pytest.mark.parametrize("text", ["", "42", "4x", "often", "4294", "²²²"])
def test_what_is_no_status(text: str) -> None:
    with pytest.raises(ValueError, match="is no status such as 429"):
        parse_status(text)


NUMBERS = [*range(1, 30), *range(41, 80)]
"""Of records, of which some between have been forgotten."""


@pytest.fixture
async def storage(tmp_path: Path) -> AsyncIterator[Storage]:
    """Records whose times are not in the order of their numbers: long ones are written late."""
    made = open_storage(f"sqlite:{tmp_path}/records.sqlite", [MIGRATIONS])
    dice = random.Random(3)
    rows = [
        (
            number,
            *structs.astuple(
                record(
                    time=NOON + 10 * number - dice.choice([0, 0, 0, 200]),
                    request_id=f"req-{number}",
                    model=f"m{number % 7}",
                    status=500 if number % 11 == 0 else 200,
                    message="It broke OFF in ÉTÉ." if number % 11 == 0 else "",
                )
            ),
        )
        for number in NUMBERS
    ]
    async with made.transaction() as transaction:
        await transaction.insert("records", ("id", *COLUMNS), rows)
    yield made
    await made.stop()


@pytest.mark.parametrize(
    "chosen",
    [
        RecordFilter(),
        RecordFilter(since=NOON + 300),
        RecordFilter(until=NOON + 300),
        RecordFilter(since=NOON + 200, until=NOON + 600, model="m3"),
        RecordFilter(since=NOON + 10_000),
        RecordFilter(model="nobody"),
        RecordFilter(text="broke off", since=NOON),
        RecordFilter(text="REQ-7"),
        RecordFilter(text="In Été"),
    ],
    ids=str,
)
async def test_what_is_looked_at_in_parts_is_all_there_is(
    storage: Storage, chosen: RecordFilter, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def pages() -> list[int]:
        numbers: list[int] = []
        while found := await newest(storage, chosen, 5, numbers[-1] if numbers else None):
            numbers += [each.number for each in found]
        return numbers

    at_once = await pages()
    monkeypatch.setattr(search, "LOOKED_AT_TOGETHER", 4)
    assert await pages() == at_once
    all_of_them = await newest(storage, RecordFilter(), 1000)
    assert [each.number for each in all_of_them] == NUMBERS[::-1]
    assert at_once == [each.number for each in all_of_them if fits(each.record, chosen)]


def fits(one: Record, chosen: RecordFilter) -> bool:
    """The filter, as a person would say it."""
    text = (chosen.text or "").lower()
    return (
        (chosen.since or 0) <= one.time < (chosen.until or NOON * 2)
        and chosen.model in (None, one.model)
        and any(text in each.lower() for each in (one.request_id, one.model, one.message))
    )


MESSAGES = [
    "ΟΔΟΣ ΚΛΕΙΣΤΗ",
    "οδος κλειστη",
    "Das GROẞE Haus",
    "das große Haus",
    "İstanbul",
    "istanbul",
    "ÉTÉ",
    "été",
    "100 Ω, 5 Å",
    "ПРИВЕТ",
]
FOUND = {
    "οδοΣ": [1, 2],
    "ΟΔΟΣ Κ": [1, 2],
    "κλείσ": [],
    "ΚΛΕΙΣ": [1, 2],
    "Große h": [3, 4],
    "İst": [5],
    "istanbul": [6],
    "ÉTÉ": [7, 8],
    "été": [7, 8],
    "ω": [9],
    "å": [9],
    "привет": [10],
}
"""By what is looked for: the numbers of those of `MESSAGES` that have it, from 1 on."""


@pytest.mark.parametrize("database", ["sqlite", pytest.param("postgres", marks=pytest.mark.server)])
async def test_letters_are_alike_large_or_small_in_any_database(
    database: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """In PostgreSQL in one, too, whose locale has the letters of ASCII alone."""
    address = f"sqlite:{tmp_path}/records.sqlite"
    if database == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres_server")
        address = await asyncio.to_thread(server.new_database, "C")
    storage = open_storage(address, [MIGRATIONS])
    await storage.start()
    rows = [
        (number, *structs.astuple(record(message=message)))
        for number, message in enumerate(MESSAGES, 1)
    ]
    async with storage.transaction() as transaction:
        await transaction.insert("records", ("id", *COLUMNS), rows)
    found = {
        text: sorted(each.number for each in await newest(storage, RecordFilter(text=text), 100))
        for text in FOUND
    }
    await storage.stop()
    assert found == FOUND


async def test_no_statement_looks_at_more_than_it_may(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever else reads waits for one statement: none goes through all records."""
    monkeypatch.setattr(search, "LOOKED_AT_TOGETHER", 10)
    asked: list[tuple[int, int]] = []

    class Watched:
        async def fetch(self, statement: str, *values: Any) -> list[Any]:
            if "ORDER BY id" in statement:
                asked.append((values[-2], values[-1]))
            return await storage.fetch(statement, *values)

    watched: Any = Watched()
    assert await newest(watched, RecordFilter(until=NOON + 300, model="nobody"), 5) == []
    assert all(end - begin <= 10 for begin, end in asked)
    assert len(asked) <= 7  # what is younger was passed over after the first
