"""The pieces that may be meant, by their words and by their vectors, in either database.

SQLite has an index of words (FTS5), and vectors are compared here, by numpy. PostgreSQL has an
index of words too (`tsvector`), and compares vectors itself where its extension pgvector is there.
Every vector of the stores that are asked is compared: of some hundred thousand that takes
milliseconds, once they are in memory, and no index of vectors finds all of those that are near.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from math import isnan
from typing import Any, NamedTuple, Protocol

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from routing.storage.storage import Row, Storage, StorageError

log = logging.getLogger(__name__)

Vectors = NDArray[np.float32]
"""One vector a row, each of length 1; or one vector."""

COMPARED_TOGETHER = 4096
"""About so many vectors are read at a time."""

MAX_WORDS = 64
"""Of a query; more are not looked for."""

_WORD = re.compile(r"\w+")


class Visible(Struct, frozen=True):
    """A file whose pieces may be found.

    Attributes:
        entry: its number.
        chunks: how many there are.
        store: the id of its store.
    """

    entry: int
    chunks: int
    store: str


Near = list[tuple[int, float]]
"""Pieces, each with how alike its vector is: the cosine of the angle; the most alike first."""


class Candidates(Protocol):
    """The pieces of one storage."""

    async def start(self) -> None:
        """See what the database can do.

        Raises:
            StorageError: it can't be used.
        """
        ...

    def columns(self, vectors: Vectors) -> Sequence[Any]:
        """What is written for each vector."""
        ...

    async def by_words(
        self, visible: Sequence[Visible], words: Sequence[str], limit: int
    ) -> list[int]:
        """Up to `limit` pieces that have some of the words, those with the rarest of them, and the
        most, first."""
        ...

    async def by_vector(self, visible: Sequence[Visible], vector: Vectors, limit: int) -> Near:
        """Up to `limit` pieces whose vectors are like `vector`."""
        ...


def words_of(query: str) -> list[str]:
    """The words of a query, each once."""
    return list(dict.fromkeys(_WORD.findall(query.lower())))[:MAX_WORDS]


def normalized(vectors: Sequence[Sequence[float]]) -> Vectors:
    """Vectors, each of length 1; one that has none stays as it is."""
    array: Vectors = np.array(vectors, dtype=np.float32)
    lengths = np.linalg.norm(array, axis=-1, keepdims=True)
    np.divide(array, lengths, out=array, where=lengths > 0)
    return array


def candidates_of(storage: Storage, memory_bytes: int = 0) -> Candidates:
    """Those of `storage`; where vectors are compared here, so many bytes are kept at hand."""
    held = HeldVectors(memory_bytes)
    if storage.shown.startswith("postgres"):
        return PostgresCandidates(storage, held)
    return SQLiteCandidates(storage, held)


class FileVectors(NamedTuple):
    """The vectors of a file, and the pieces whose they are."""

    chunks: NDArray[np.int64]
    vectors: Vectors

    @property
    def size(self) -> int:
        """In bytes."""
        return self.chunks.nbytes + self.vectors.nbytes


class HeldVectors:
    """Vectors of files that were read. Those of a file never change once it is found: what is put
    into a store again has another number.

    Args:
        max_bytes: they may come to so much; those that nobody asked for for longest make room.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._files: OrderedDict[tuple[int, int], FileVectors] = OrderedDict()
        self._bytes = 0

    def get(self, entry: int, size: int) -> FileVectors | None:
        """Those of the file with this number that have so many numbers each; None where they have
        to be read."""
        found = self._files.get((entry, size))
        if found is not None:
            self._files.move_to_end((entry, size))
        return found

    def add(self, entry: int, size: int, found: FileVectors) -> None:
        """They have been read."""
        if found.size > self._max_bytes or (entry, size) in self._files:
            return
        self._files[entry, size] = found
        self._bytes += found.size
        while self._bytes > self._max_bytes:
            _, gone = self._files.popitem(last=False)
            self._bytes -= gone.size


class SQLiteCandidates:
    """In SQLite.

    Args:
        storage: that.
        held: vectors that have been read.
    """

    def __init__(self, storage: Storage, held: HeldVectors) -> None:
        self._storage = storage
        self._held = held

    async def start(self) -> None:
        """There is nothing to see."""

    def columns(self, vectors: Vectors) -> Sequence[Any]:
        """Their bytes."""
        return [each.astype("<f4").tobytes() for each in vectors]

    async def by_words(
        self, visible: Sequence[Visible], words: Sequence[str], limit: int
    ) -> list[int]:
        """By BM25, in which `store` weighs nothing: it only says where to look."""
        if not words:
            return []
        stores = " OR ".join(_quoted(each) for each in dict.fromkeys(v.store for v in visible))
        asked = " OR ".join(map(_quoted, words))
        rows = await self._storage.fetch(
            "SELECT chunk.id FROM vector_store_words JOIN vector_store_chunks AS chunk"
            " ON chunk.id = vector_store_words.rowid WHERE vector_store_words MATCH ?"
            " AND chunk.entry IN (SELECT value FROM json_each(?))"
            " ORDER BY bm25(vector_store_words, 0.0, 1.0), chunk.id LIMIT ?",
            f"store : ({stores}) AND text : ({asked})",
            json.dumps([each.entry for each in visible]),
            limit,
        )
        return [chunk for (chunk,) in rows]

    async def by_vector(self, visible: Sequence[Visible], vector: Vectors, limit: int) -> Near:
        """By numpy."""
        return await _compared(self.read, self._held, visible, vector, limit)

    async def read(self, entries: Sequence[int], size: int) -> list[Row]:
        """The files, pieces and vectors, of so many numbers, of some files."""
        return await self._storage.fetch(
            "SELECT entry, id, embedding FROM vector_store_chunks"
            " WHERE entry IN (SELECT value FROM json_each(?)) AND length(embedding) = ?",
            json.dumps(entries),
            size * 4,
        )


class PostgresCandidates:
    """In PostgreSQL.

    Args:
        storage: that.
        held: vectors that have been read.

    Attributes:
        vector_type: pgvector's type of vectors, with its schema; None where it is not there.
    """

    def __init__(self, storage: Storage, held: HeldVectors) -> None:
        self._storage = storage
        self._held = held
        self._schema = ""
        self._is_known = False
        self.vector_type: str | None = None

    async def start(self) -> None:
        """See whether pgvector is there, or can be had without asking anybody."""
        found = await self._extension()
        if not found:
            try:
                found = await self._created()
            except StorageError as error:
                # Another server may have been quicker; or this user may not.
                found = await self._extension()
                if not found:
                    log.info("vector stores: pgvector can't be created: %s", error)
        if found:
            self._schema = _named(found[0][0])
            self.vector_type = f"{self._schema}.vector"
        else:
            log.info(
                "vector stores: the database has no pgvector that this user may use, so vectors"
                " are compared in this process. Install it, have `CREATE EXTENSION vector`"
                " executed, and grant USAGE on the schema that it is in."
            )
        self._is_known = True

    async def _extension(self) -> list[Any]:
        return await self._storage.fetch(
            "SELECT nspname FROM pg_extension JOIN pg_namespace"
            " ON pg_namespace.oid = pg_extension.extnamespace WHERE extname = 'vector'"
            " AND has_schema_privilege(pg_namespace.oid, 'USAGE')"
        )

    async def _created(self) -> list[Any]:
        available = "SELECT 1 FROM pg_available_extensions WHERE name = 'vector'"
        if not await self._storage.fetch(available):
            return []
        async with self._storage.transaction() as transaction:
            await transaction.fetch("CREATE EXTENSION IF NOT EXISTS vector")
        return await self._extension()

    def columns(self, vectors: Vectors) -> Sequence[Any]:
        """Their numbers."""
        numbers: list[Any] = vectors.tolist()
        return numbers

    async def by_words(
        self, visible: Sequence[Visible], words: Sequence[str], limit: int
    ) -> list[int]:
        """As BM25 has it: a word counts the more the fewer pieces have it, and a piece by how often
        it has the word for its length."""
        if not words:
            return []
        entries = [each.entry for each in visible]
        rows = await self._storage.fetch(
            "WITH asked AS (SELECT DISTINCT to_tsquery('simple', word) AS query"
            " FROM unnest(?::text[]) AS word),"
            " counted AS (SELECT query, (SELECT count(*) FROM vector_store_chunks"
            " WHERE entry = ANY(?::bigint[]) AND words @@ query) AS many"
            " FROM asked WHERE numnode(query) > 0),"
            " weighed AS (SELECT query, ln(1 + (?::float8 - many + 0.5) / (many + 0.5)) AS weight"
            " FROM counted WHERE many > 0)"
            " SELECT chunk.id FROM vector_store_chunks AS chunk"
            " WHERE chunk.entry = ANY(?::bigint[]) AND chunk.words @@ to_tsquery('simple', ?)"
            " ORDER BY (SELECT sum(weight * ts_rank(chunk.words, query, 1)) FROM weighed)"
            " DESC NULLS LAST, chunk.id LIMIT ?",
            [f"'{word}'" for word in words],
            entries,
            float(sum(each.chunks for each in visible)),
            entries,
            " | ".join(f"'{word}'" for word in words),
            limit,
        )
        return [chunk for (chunk,) in rows]

    async def by_vector(self, visible: Sequence[Visible], vector: Vectors, limit: int) -> Near:
        """By pgvector, or by numpy."""
        if not self._is_known:  # it was away at the start
            await self.start()
        if self.vector_type is None:
            return await _compared(self.read, self._held, visible, vector, limit)
        rows = await self._storage.fetch(
            f"SELECT id, embedding::{self.vector_type} OPERATOR({self._schema}.<=>)"
            f" ?::real[]::{self.vector_type} AS distance FROM vector_store_chunks"
            " WHERE entry = ANY(?::bigint[]) AND cardinality(embedding) = ?"
            " ORDER BY distance, id LIMIT ?",
            vector.tolist(),
            [each.entry for each in visible],
            len(vector),
            limit,
        )
        # Of a vector without a length nobody can tell; it is the last in this order.
        return [(chunk, 0.0 if isnan(distance) else 1.0 - distance) for chunk, distance in rows]

    async def read(self, entries: Sequence[int], size: int) -> list[Row]:
        """As in SQLite; the numbers are behind what PostgreSQL sends of an array."""
        rows = await self._storage.fetch(
            "SELECT entry, id, array_send(embedding) FROM vector_store_chunks"
            " WHERE entry = ANY(?::bigint[]) AND cardinality(embedding) = ?",
            entries,
            size,
        )
        return await asyncio.to_thread(_sent, rows)


_ARRAY_HEADER = 20

_SENT = np.dtype([("length", ">i4"), ("number", ">f4")])


def _sent(rows: Sequence[Row]) -> list[Row]:
    return [
        (entry, chunk, np.frombuffer(sent, _SENT, offset=_ARRAY_HEADER)["number"].astype("<f4"))
        for entry, chunk, sent in rows
    ]


async def _compared(
    read: Callable[[Sequence[int], int], Awaitable[list[Row]]],
    held: HeldVectors,
    visible: Sequence[Visible],
    vector: Vectors,
    limit: int,
) -> Near:
    """The pieces whose vectors are like `vector`; those that have to be read are read some at a
    time.

    Args:
        read: reads the files, pieces and vectors of files with vectors of so many numbers.
        held: vectors that have been read.
        visible, vector, limit: as for `Candidates.by_vector`.
    """
    best: Near = []
    size = len(vector)
    for together in _some_at_a_time(visible):
        there = {each: held.get(each, size) for each in together}
        missing = [each for each, found in there.items() if found is None]
        if missing:
            rows = await read(missing, size)
            for entry, found in (await asyncio.to_thread(_by_file, rows, size)).items():
                held.add(entry, size, found)
                there[entry] = found
        files = [found for found in there.values() if found is not None]
        best = await asyncio.to_thread(_merged, best, files, vector, limit)
    return best


def _some_at_a_time(visible: Sequence[Visible]) -> Iterator[list[int]]:
    together: list[int] = []
    count = 0
    for each in visible:
        together.append(each.entry)
        count += each.chunks
        if count >= COMPARED_TOGETHER:
            yield together
            together, count = [], 0
    if together:
        yield together


def _by_file(rows: Sequence[Row], size: int) -> dict[int, FileVectors]:
    files: dict[int, list[Row]] = {}
    for row in rows:
        files.setdefault(row[0], []).append(row)
    return {
        entry: FileVectors(
            np.array([chunk for _, chunk, _ in found], dtype=np.int64),
            np.frombuffer(b"".join(each for *_, each in found), "<f4").reshape(-1, size),
        )
        for entry, found in files.items()
    }


def _merged(best: Near, files: Sequence[FileVectors], vector: Vectors, limit: int) -> Near:
    if not files:
        return best
    alike = np.concatenate([each.vectors @ vector for each in files])
    chunks = np.concatenate([each.chunks for each in files])
    if len(chunks) > limit:
        first = np.argpartition(-alike, limit)[:limit]
        alike, chunks = alike[first], chunks[first]
    found = zip(chunks.tolist(), alike.tolist(), strict=True)
    return sorted([*best, *found], key=lambda each: (-each[1], each[0]))[:limit]


def _quoted(word: str) -> str:
    """A string of FTS5's language."""
    return '"' + word.replace('"', '""') + '"'


def _named(schema: str) -> str:
    return '"' + schema.replace('"', '""') + '"'
