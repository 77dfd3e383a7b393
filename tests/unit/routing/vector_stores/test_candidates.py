"""The same is found in both databases, by words and by vectors, and of nobody else's files."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

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
from tests.unit.routing.vector_stores.kept import Clock, kept


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


@pytest.mark.server
async def test_what_the_database_can_is_seen_later_where_it_was_away(
    postgres_server: postgres.PostgresServer, tmp_path: Path
) -> None:
    await postgres.emptied(postgres_server.address)
    async with kept(postgres_server.address, tmp_path, Clock()) as here:
        seen = await here.put("key-a", "f", ["a", "bb"])
        later = candidates_of(here.stores.storage)
        assert isinstance(here.candidates, PostgresCandidates)
        assert isinstance(later, PostgresCandidates)
        asked = normalized([[1.0, 0.0, 0.0]])[0]
        at_once = await here.candidates.by_vector([seen], asked, 2)
        assert await later.by_vector([seen], asked, 2) == at_once
        assert later.vector_type == here.candidates.vector_type


@pytest.mark.server
async def test_a_pgvector_that_is_not_for_this_user_is_none(
    postgres_server: postgres.PostgresServer, tmp_path: Path
) -> None:
    asyncpg = pytest.importorskip("asyncpg")
    address = await asyncio.to_thread(postgres_server.new_database)
    database = address.partition("@/")[2].partition("?")[0]
    try:
        await postgres.execute(
            address, "CREATE SCHEMA hidden", "CREATE EXTENSION vector SCHEMA hidden"
        )
    except asyncpg.FeatureNotSupportedError:
        pytest.skip("this PostgreSQL has no pgvector; Debian 13 has postgresql-17-pgvector")
    await postgres.execute(
        address, "CREATE ROLE lesser LOGIN", f"GRANT CREATE ON DATABASE {database} TO lesser"
    )
    try:
        async with kept(address.replace("postgres@", "lesser@"), tmp_path, Clock()) as here:
            assert isinstance(here.candidates, PostgresCandidates)
            assert here.candidates.vector_type is None
            seen = await here.put("key-a", "f", ["a"])
            asked = normalized([[1.0, 0, 0]])[0]
            assert len(await here.candidates.by_vector([seen], asked, 2)) == 1
    finally:
        await postgres.execute(
            address,
            "DROP OWNED BY lesser",
            "DROP ROLE lesser",
        )
