"""The same is found in both databases, by words and by vectors, and of nobody else's files."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from llama_compat.distribution import FilesSettings, VectorStoresSettings
from routing.batches.files import FileStore
from tests import postgres

pytest.importorskip("numpy", reason="needs the extra 'vector-stores'")

import numpy as np

from routing.vector_stores.candidates import (
    FileVectors,
    HeldVectors,
    PostgresCandidates,
    Visible,
    candidates_of,
    normalized,
    words_of,
)
from routing.vector_stores.chunking import TextChunk
from routing.vector_stores.entries import AddedFile, Entries, EntryLost, EntryRow, KeyIsFull
from routing.vector_stores.stores import StoreTable


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Kept:
    """Stores in one database.

    Args:
        stores: they.
    """

    def __init__(self, stores: StoreTable) -> None:
        self.stores = stores
        self.candidates = candidates_of(stores.storage, stores.settings.memory_bytes)
        self.entries = Entries(stores, self.candidates, "one")

    async def put(self, owner: str, name: str, texts: Sequence[str]) -> Visible:
        """A file with these pieces, in a store of its own."""
        store = await self.stores.create(
            owner, name=name, description=None, metadata={}, expires_days=None
        )
        await self.entries.add(owner, store.id, [AddedFile(name, f"{name}.txt", {}, 800, 400)])
        (entry,) = await self.entries.claim(1)
        await self.write(entry, texts)
        await self.entries.completed(entry)
        return Visible(entry.entry, len(texts), store.id)

    async def write(self, entry: EntryRow, texts: Sequence[str], number: int = 0) -> None:
        vectors = normalized([vector(text) for text in texts])
        await self.entries.write(entry, number, [TextChunk(0, text) for text in texts], vectors)

    async def texts(self, chunks: Sequence[int]) -> list[str]:
        rows = await self.stores.storage.fetch("SELECT id, text FROM vector_store_chunks")
        texts = dict(rows)
        return [texts[chunk] for chunk in chunks]


def vector(text: str) -> list[float]:
    """How many there are of each of three letters."""
    return [float(text.count(letter)) for letter in "abc"]


@asynccontextmanager
async def kept(address: str, folder: Path, clock: Clock, **settings: int) -> AsyncIterator[Kept]:
    files = FileStore(FilesSettings(path=str(folder / "files")), address, sweeps=False)
    stores = StoreTable(
        VectorStoresSettings(embedding_model="m", **settings), files, address, clock
    )
    await stores.storage.start()
    try:
        made = Kept(stores)
        await made.candidates.start()
        yield made
    finally:
        await stores.storage.stop()
        await files.storage.stop()


async def test_rare_words_count_more(address: str, tmp_path: Path) -> None:
    async with kept(address, tmp_path, Clock()) as here:
        texts = [f"the river number {n} is long" for n in range(8)]
        seen = await here.put("key-a", "rivers", [*texts, "the Nile is a river"])
        found = await here.texts(
            await here.candidates.by_words([seen], words_of("Is the Nile a river?"), 3)
        )
        assert found[0] == "the Nile is a river"
        assert len(found) == 3
        assert await here.candidates.by_words([seen], words_of("?!"), 3) == []
        assert await here.candidates.by_words([seen], words_of("nothing"), 3) == []


@pytest.mark.parametrize(
    "query",
    [
        '"',
        "a'b \\ (x) & | ! :* <->",
        "NEAR(a b)",
        "store : x",
        "*^-",
        "_",
        "__ \u00b2 \u0301",
        "a_b \ufb01 \U0001f697",
        "\ud800x",
    ],
)
async def test_no_query_is_taken_for_more_than_words(
    address: str, tmp_path: Path, query: str
) -> None:
    async with kept(address, tmp_path, Clock()) as here:
        seen = await here.put("key-a", "f", ["a b x store near"])
        await here.candidates.by_words([seen], words_of(query), 3)


async def test_vectors_that_are_alike_come_first(address: str, tmp_path: Path) -> None:
    async with kept(address, tmp_path, Clock()) as here:
        seen = await here.put("key-a", "f", ["aaab", "bbb", "c", "", "ab"])
        asked = normalized([[1.0, 0.0, 0.0]])[0]
        near = await here.candidates.by_vector([seen], asked, 2)
        assert await here.texts([chunk for chunk, _ in near]) == ["aaab", "ab"]
        assert [round(alike, 3) for _, alike in near] == [0.949, 0.707]
        other = normalized([[1.0, 0.0]])[0]
        assert await here.candidates.by_vector([seen], other, 3) == []


async def test_others_files_are_not_looked_at(address: str, tmp_path: Path) -> None:
    async with kept(address, tmp_path, Clock()) as here:
        own = await here.put("key-a", "f", ["aa secret"])
        other = await here.put("key-b", "g", ["aa secret, too"])
        for seen, text in ((own, "aa secret"), (other, "aa secret, too")):
            words = await here.candidates.by_words([seen], ["secret"], 9)
            near = await here.candidates.by_vector([seen], normalized([[1.0, 0, 0]])[0], 9)
            assert await here.texts(words) == [text]
            assert await here.texts([chunk for chunk, _ in near]) == [text]
        # A store's files are not taken for another's, whatever store is named with them.
        lied = Visible(own.entry, 1, other.store)
        assert await here.candidates.by_words([lied], ["secret", "too"], 9) in ([], [1])


async def test_many_files_are_read_some_at_a_time(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("routing.vector_stores.candidates.COMPARED_TOGETHER", 3)
    async with kept(address, tmp_path, Clock()) as here:
        seen = [await here.put("key-a", f"f{n}", ["b" * 3, "a" * n + "b"]) for n in range(6)]
        if isinstance(here.candidates, PostgresCandidates):
            here.candidates.vector_type = None  # as where there is no pgvector
        near = await here.candidates.by_vector(seen, normalized([[1.0, 0, 0]])[0], 2)
        assert await here.texts([chunk for chunk, _ in near]) == ["aaaaab", "aaaab"]


@pytest.mark.parametrize("memory_bytes", [0, 100, 1 << 20])
async def test_the_same_is_found_again_whatever_is_held(
    address: str, tmp_path: Path, memory_bytes: int
) -> None:
    async with kept(address, tmp_path, Clock(), memory_bytes=memory_bytes) as here:
        seen = [await here.put("key-a", f"f{n}", ["b" * 3, "a" * n + "b"]) for n in range(6)]
        if isinstance(here.candidates, PostgresCandidates):
            here.candidates.vector_type = None
        asked = normalized([[1.0, 0, 0]])[0]
        first = await here.candidates.by_vector(seen, asked, 5)
        assert await here.candidates.by_vector(seen, asked, 5) == first
        of_one = await here.candidates.by_vector(seen[1:2], asked, 1)
        assert await here.candidates.by_vector(seen[:2], asked, 1) == of_one


def test_what_is_held_has_a_bound() -> None:
    held = HeldVectors(3 * (8 + 4))
    one = FileVectors(np.array([1]), np.array([[1.0]], dtype=np.float32))
    for entry in range(4):
        held.get(1, 1)  # somebody asks for it again and again
        held.add(entry, 1, one)
    assert [held.get(entry, 1) is None for entry in range(4)] == [True, False, False, False]
    assert held.get(1, 2) is None
    held.add(9, 1, FileVectors(np.arange(9), np.ones((9, 1), dtype=np.float32)))
    assert held.get(9, 1) is None


@pytest.mark.server
async def test_pgvector_finds_the_same_as_numpy(
    postgres_server: postgres.PostgresServer, tmp_path: Path
) -> None:
    await postgres.emptied(postgres_server.address)
    async with kept(postgres_server.address, tmp_path, Clock()) as here:
        candidates = here.candidates
        assert isinstance(candidates, PostgresCandidates)
        if candidates.vector_type is None:
            pytest.skip("this PostgreSQL has no pgvector; Debian 13 has postgresql-17-pgvector")
        texts = ["a" * n + "b" * (n * n % 7) + "c" * (n % 3) for n in range(1, 41)]
        seen = await here.put("key-a", "f", texts)
        asked = normalized([[3.0, 2.0, 1.0]])[0]
        by_pgvector = await candidates.by_vector([seen], asked, 20)
        candidates.vector_type = None
        by_numpy = await candidates.by_vector([seen], asked, 20)
        assert [round(each, 4) for _, each in by_pgvector] == [
            round(each, 4) for _, each in by_numpy
        ]


async def test_a_file_is_one_workers(address: str, tmp_path: Path) -> None:
    clock = Clock()
    async with kept(address, tmp_path, clock) as here:
        two = Entries(here.stores, here.candidates, "two")
        store = await here.stores.create(
            "key-a", name="", description=None, metadata={}, expires_days=None
        )
        added = [AddedFile(f"f{n}", "f.txt", {}, 800, 400) for n in range(10)]
        await here.entries.add("key-a", store.id, added)
        taken = await asyncio.gather(
            *(each.claim(2) for _ in range(5) for each in (here.entries, two))
        )
        files = [entry.file for entries in taken for entry in entries]
        assert sorted(files) == sorted(set(files))
        while more := await here.entries.claim(10):
            files += [entry.file for entry in more]
        assert sorted(files) == [f"f{n}" for n in range(10)]
        # Nobody says a word for as long as a lease lasts.
        clock.now += 16
        (again, *_) = await two.claim(10)
        first = next(each for entries in taken for each in entries if each.entry == again.entry)
        owner = here.entries if first in taken[0] else None
        if owner is not None:
            with pytest.raises(EntryLost):
                await here.write(again, ["late"])


async def test_nothing_is_written_of_what_was_taken_out(address: str, tmp_path: Path) -> None:
    async with kept(address, tmp_path, Clock()) as here:
        store = await here.stores.create(
            "key-a", name="", description=None, metadata={}, expires_days=None
        )
        await here.entries.add("key-a", store.id, [AddedFile("f", "f.txt", {}, 800, 400)])
        (entry,) = await here.entries.claim(1)
        await here.write(entry, ["one"])
        await here.entries.file_is_gone("f")
        with pytest.raises(EntryLost):
            await here.write(entry, ["two"], 1)
        with pytest.raises(EntryLost):
            await here.entries.completed(entry)
        assert await here.entries.keep([entry.entry]) == set()
        while await here.entries.tidy():
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
        (entry,) = await here.entries.claim(1)
        await here.write(entry, ["one", "two"])
        clock.now += 16
        two = Entries(here.stores, here.candidates, "two")
        (entry,) = await two.claim(1)
        assert entry.attempts == 2
        whole = [TextChunk(0, text) for text in ("one", "two", "three")]
        assert await two.done_before(entry, whole) == 2
        # Somebody reads the file otherwise than who was there before.
        assert await two.done_before(entry, [TextChunk(0, "other")]) == 0
        assert await here.stores.storage.fetch("SELECT * FROM vector_store_chunks") == []


async def test_a_key_has_bounds(address: str, tmp_path: Path) -> None:
    async with kept(address, tmp_path, Clock(), max_key_chunks=3) as here:
        await here.put("key-a", "f", ["one", "two"])
        store = await here.stores.create(
            "key-a", name="", description=None, metadata={}, expires_days=None
        )
        await here.entries.add("key-a", store.id, [AddedFile("g", "g.txt", {}, 800, 400)])
        (entry,) = await here.entries.claim(1)
        await here.write(entry, ["three"])
        with pytest.raises(KeyIsFull, match="3 pieces"):
            await here.write(entry, ["four"], 1)
        await here.put("key-b", "h", ["others have their own"])


async def test_stores_expire_when_they_are_not_used(address: str, tmp_path: Path) -> None:
    clock = Clock()
    async with kept(address, tmp_path, clock) as here:
        store = await here.stores.create(
            "key-a", name="", description=None, metadata={}, expires_days=1
        )
        clock.now += 80_000
        await here.stores.used([await here.stores.get("key-a", store.id)])
        clock.now += 80_000
        store = await here.stores.get("key-a", store.id)
        assert not store.has_expired(clock.now)
        clock.now += 86_400
        assert store.has_expired(clock.now)
        await here.stores.expire()
