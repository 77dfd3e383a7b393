"""Pages of lists: every row once, whichever way they are read."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from routing.storage.pages import Cursor, PageStart, cursor_of, page_of
from routing.storage.storage import Migrations, Storage, open_storage

TABLE = Migrations("listed", [["CREATE TABLE listed (id TEXT, created DOUBLE PRECISION)"]])
ROWS = [("b", 1.0), ("a", 1.0), ("c", 2.0), ("e", 3.5), ("d", 3.5), ("f", 4.0)]
BY_AGE = ["a", "b", "c", "d", "e", "f"]
CREATED = dict(ROWS)


@asynccontextmanager
async def listed(address: str) -> AsyncGenerator[Storage, None]:
    storage = open_storage(address, [TABLE])
    await storage.start()
    try:
        async with storage.transaction() as transaction:
            await transaction.insert("listed", ("id", "created"), ROWS)
        yield storage
    finally:
        await storage.stop()


async def page(
    storage: Storage, limit: int, *, ascending: bool, place: PageStart | None = None
) -> tuple[list[str], bool]:
    rows, more = await page_of(
        storage,
        "SELECT id FROM listed WHERE id <> ?",
        ["nothing"],
        limit=limit,
        ascending=ascending,
        place=place,
    )
    return [name for (name,) in rows], more


async def test_pages_have_every_row_once_both_ways(address: str) -> None:
    async with listed(address) as storage:
        for ascending in (True, False):
            order = BY_AGE if ascending else BY_AGE[::-1]
            for limit in (1, 2, 4, 6, 7):
                for row in (None, *order):
                    place = None if row is None else PageStart(CREATED[row], row)
                    begin = 0 if row is None else order.index(row) + 1
                    found = await page(storage, limit, ascending=ascending, place=place)
                    assert found == (order[begin : begin + limit], begin + limit < len(order))
                    if row is None:
                        continue
                    place, end = PageStart(CREATED[row], row, backwards=True), begin - 1
                    found = await page(storage, limit, ascending=ascending, place=place)
                    assert found == (order[max(end - limit, 0) : end], end > limit)


@pytest.mark.parametrize(
    ("after", "before", "cursor"),
    [
        (None, None, None),
        ("", "", None),
        ("a", None, Cursor("a", backwards=False)),
        ("a", "b", Cursor("a", backwards=False)),
        (None, "b", Cursor("b", backwards=True)),
        ("", "b", Cursor("b", backwards=True)),
    ],
)
def test_where_a_page_begins(after: str | None, before: str | None, cursor: Cursor | None) -> None:
    assert cursor_of(after, before) == cursor
