"""Vector stores with files in them whose vectors say how many there are of three letters."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from llama_compat.distribution import FilesSettings, VectorStoresSettings
from routing.batches.files import FileStore
from routing.vector_stores.candidates import Visible, candidates_of, normalized
from routing.vector_stores.chunking import TextChunk
from routing.vector_stores.entries.rows import AddedFile, EntryRow
from routing.vector_stores.entries.table import Entries
from routing.vector_stores.entries.work import EntryWork
from routing.vector_stores.stores import StoreTable


class Clock:
    """Time as a test has it."""

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
        self.entries = Entries(stores)
        self.work = EntryWork(stores, self.candidates, "one")

    async def put(self, owner: str, name: str, texts: Sequence[str]) -> Visible:
        """A file with these pieces, in a store of its own."""
        store = await self.stores.create(
            owner, name=name, description=None, metadata={}, expires_days=None
        )
        await self.entries.add(owner, store.id, [AddedFile(name, f"{name}.txt", {}, 800, 400)])
        (entry,) = await self.work.claim(1)
        await self.write(entry, texts)
        await self.work.completed(entry)
        return Visible(entry.entry, len(texts), store.id)

    async def write(self, entry: EntryRow, texts: Sequence[str], number: int = 0) -> None:
        vectors = normalized([vector(text) for text in texts])
        await self.work.write(entry, number, [TextChunk(0, text) for text in texts], vectors)

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
