"""A file is one worker's at a time, and one who comes after goes on."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

pytest.importorskip("numpy", reason="needs the extra 'vector-stores'")

from routing.vector_stores.chunking import TextChunk
from routing.vector_stores.entries.removal import EntryRemoval
from routing.vector_stores.entries.rows import AddedFile
from routing.vector_stores.entries.work import EntryLost, EntryWork
from tests.unit.routing.vector_stores.kept import Clock, kept


async def test_a_file_is_one_workers(address: str, tmp_path: Path) -> None:
    clock = Clock()
    async with kept(address, tmp_path, clock) as here:
        two = EntryWork(here.stores, here.candidates, "two")
        store = await here.stores.create(
            "key-a", name="", description=None, metadata={}, expires_days=None
        )
        added = [AddedFile(f"f{n}", "f.txt", {}, 800, 400) for n in range(10)]
        await here.entries.add("key-a", store.id, added)
        taken = await asyncio.gather(
            *(each.claim(2) for _ in range(5) for each in (here.work, two))
        )
        files = [entry.file for entries in taken for entry in entries]
        assert sorted(files) == sorted(set(files))
        while more := await here.work.claim(10):
            files += [entry.file for entry in more]
        assert sorted(files) == [f"f{n}" for n in range(10)]
        # Nobody says a word for as long as a lease lasts.
        clock.now += 16
        (again, *_) = await two.claim(10)
        first = next(each for entries in taken for each in entries if each.entry == again.entry)
        owner = here.work if first in taken[0] else None
        if owner is not None:
            with pytest.raises(EntryLost):
                await here.write(again, ["late"])


async def test_nothing_is_written_of_what_was_taken_out(address: str, tmp_path: Path) -> None:
    async with kept(address, tmp_path, Clock()) as here:
        store = await here.stores.create(
            "key-a", name="", description=None, metadata={}, expires_days=None
        )
        await here.entries.add("key-a", store.id, [AddedFile("f", "f.txt", {}, 800, 400)])
        (entry,) = await here.work.claim(1)
        await here.write(entry, ["one"])
        await here.entries.file_is_gone("f")
        with pytest.raises(EntryLost):
            await here.write(entry, ["two"], 1)
        with pytest.raises(EntryLost):
            await here.work.completed(entry)
        assert await here.work.keep([entry.entry]) == set()
        removal = EntryRemoval(here.stores.storage)
        while await removal.tidy():
            pass
        for table in ("vector_store_chunks", "vector_store_files"):
            assert await here.stores.storage.fetch(f"SELECT * FROM {table}") == []


async def test_who_comes_after_goes_on(address: str, tmp_path: Path) -> None:
    clock = Clock()
    async with kept(address, tmp_path, clock) as here:
        store = await here.stores.create(
            "key-a", name="", description=None, metadata={}, expires_days=None
        )
        await here.entries.add("key-a", store.id, [AddedFile("f", "f.txt", {}, 800, 400)])
        (entry,) = await here.work.claim(1)
        await here.write(entry, ["one", "two"])
        clock.now += 16
        two = EntryWork(here.stores, here.candidates, "two")
        (entry,) = await two.claim(1)
        assert entry.attempts == 2
        whole = [TextChunk(0, text) for text in ("one", "two", "three")]
        assert await two.done_before(entry, whole) == 2
        # Somebody reads the file otherwise than who was there before.
        assert await two.done_before(entry, [TextChunk(0, "other")]) == 0
        assert await here.stores.storage.fetch("SELECT * FROM vector_store_chunks") == []
