"""Files: whose they are, how much of them there may be, and for how long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from llama_compat.distribution import FilesSettings
from llama_compat.errors import APIError
from routing.batches.file_rows import StoredFile
from routing.batches.files import HIDDEN, FileStore, is_id
from routing.batches.journal.journal import Journal
from routing.storage.pages import Cursor
from tests.postgres import LossyWay, PostgresServer, emptied
from tests.unit.routing.batches.journal.test_journal import job


class Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def opened(
    folder: Path, address: str, clock: Clock | None = None, **settings: Any
) -> AsyncIterator[FileStore]:
    store = FileStore(
        FilesSettings(path=str(folder / "files"), **settings), address, clock or Clock()
    )
    await store.start()
    try:
        yield store
    finally:
        await store.stop()


async def put(store: FileStore, owner: str, content: bytes = b"x", **more: Any) -> StoredFile:
    file = await store.begin(owner)
    try:
        await file.write(content)
        return await file.keep(
            more.get("name", "a.txt"), more.get("purpose", "user_data"), more.get("seconds")
        )
    finally:
        await file.discard()


async def content(store: FileStore, file: StoredFile) -> bytes:
    return b"".join([piece async for piece in store.content(file.id)])


async def test_a_file_is_its_keys_alone(tmp_path: Path, address: str) -> None:
    async with opened(tmp_path, address) as store:
        mine = await put(store, "key-a", b"mine")
        assert await store.get("key-a", mine.id) == mine
        assert await content(store, mine) == b"mine"
        for attempt in (store.get("key-b", mine.id), store.delete("key-b", mine.id)):
            with pytest.raises(APIError) as caught:
                await attempt
            assert (caught.value.status, caught.value.code) == (404, "file_not_found")
        listing = {"purpose": None, "cursor": None, "limit": 10, "ascending": True}
        assert await store.page("key-b", **listing) == ([], False)  # type: ignore[arg-type]
        await store.delete("key-a", mine.id)
        with pytest.raises(APIError):
            await store.get("key-a", mine.id)
    assert list((tmp_path / "files").iterdir()) == []


async def test_a_file_that_nobody_heard_was_kept_is_there(
    tmp_path: Path, postgres_server: PostgresServer
) -> None:
    """Its content was removed, and it was listed all the same."""
    await emptied(postgres_server.address)
    async with opened(tmp_path, postgres_server.address):
        pass  # The tables are there.
    async with LossyWay(postgres_server, every=2, after=1).opened() as way:
        async with opened(tmp_path, way.address) as store:
            kept = [await put(store, "key-a", b"mine") for _ in range(4)]
        assert way.lost
    async with opened(tmp_path, postgres_server.address) as store:
        listing = {"purpose": None, "cursor": None, "limit": 10, "ascending": True}
        found, _ = await store.page("key-a", **listing)  # type: ignore[arg-type]
        assert {each.id for each in found} == {each.id for each in kept}
        assert [await content(store, each) for each in found] == [b"mine"] * 4


async def test_of_a_file_whose_client_left_nothing_is_there(
    tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name stayed, where the COMMIT was on its way, and no content."""
    async with opened(tmp_path, address) as store:
        keep = store.keep

        async def kept_for_nobody(file: StoredFile, *, bounded: bool) -> None:
            await keep(file, bounded=bounded)
            raise asyncio.CancelledError

        monkeypatch.setattr(store, "keep", kept_for_nobody)
        with pytest.raises(asyncio.CancelledError):
            await put(store, "key-a")
        listing = {"purpose": None, "cursor": None, "limit": 10, "ascending": True}
        found, _ = await store.page("key-a", **listing)  # type: ignore[arg-type]
        assert list(found) == []
    assert list((tmp_path / "files").iterdir()) == []


async def test_a_file_is_deleted_or_has_a_batch_that_reads_it(tmp_path: Path, address: str) -> None:
    """A batch of a file that was deleted at the same time waited for it until its time was over."""
    async with opened(tmp_path, address) as store, opened(tmp_path, address) as other:
        journal = Journal(other.storage, 10.0)
        for number in range(20):
            file = await put(store, "key-a")
            ordered = structs.replace(job(f"batch_{number}"), input_file=file.id)
            outcomes = await asyncio.gather(
                store.delete("key-a", file.id),
                journal.add(ordered, is_uploaded=True),
                return_exceptions=True,
            )
            codes = [each.code for each in outcomes if isinstance(each, APIError)]
            there = await journal.get(ordered.id)
            assert codes == ["file_in_use" if there else "file_not_found"]


async def test_of_two_who_delete_a_file_one_has(tmp_path: Path, address: str) -> None:
    async with opened(tmp_path, address) as store, opened(tmp_path, address) as other:
        for _ in range(5):
            file = await put(store, "key-a")
            outcomes = await asyncio.gather(
                *(each.delete("key-a", file.id) for each in (store, other)), return_exceptions=True
            )
            codes = [each.code for each in outcomes if isinstance(each, APIError)]
            assert codes == ["file_not_found"]


async def test_who_reads_a_file_that_was_just_deleted_is_told_so(
    tmp_path: Path, address: str
) -> None:
    """It was a 503 with a traceback in the log, where it was deleted after it was looked for."""
    async with opened(tmp_path, address) as store:
        file, lost = await put(store, "key-a"), await put(store, "key-a")
        await store.delete("key-a", file.id)
        await store.remove(lost.id)
        for each, code in ((file, "file_not_found"), (lost, "store_unavailable")):
            with pytest.raises(APIError) as caught:
                await content(store, each)
            assert caught.value.code == code


async def test_names_are_any_that_clients_send(tmp_path: Path, address: str) -> None:
    async with opened(tmp_path, address) as store:
        for file_id in ("file-\x00", "file-\ud800"):
            with pytest.raises(APIError) as caught:
                await store.get("key-a", file_id)
            assert (caught.value.status, caught.value.code) == (404, "file_not_found")
        kept = await put(store, "key-a", name="a\x00b.txt")
        assert (await store.get("key-a", kept.id)).filename == "a\ufffdb.txt"


async def test_a_hidden_one_is_there_for_who_asks_for_it(tmp_path: Path, address: str) -> None:
    async with opened(tmp_path, address) as store:
        hidden = await put(store, "k", purpose=HIDDEN)
        for attempt in (store.get("k", hidden.id), store.delete("k", hidden.id)):
            with pytest.raises(APIError) as caught:
                await attempt
            assert caught.value.code == "file_not_found"
        assert await store.get("k", hidden.id, hidden=True) == hidden
        for _ in range(2):
            await store.delete_hidden("k", hidden.id)
        with pytest.raises(APIError):
            await store.get("k", hidden.id, hidden=True)
    assert list((tmp_path / "files").iterdir()) == []


async def test_they_are_listed_page_by_page(tmp_path: Path, address: str) -> None:
    clock = Clock()
    async with opened(tmp_path, address, clock) as store:
        made = []
        for _ in range(3):
            made += [(await put(store, "k")).id, (await put(store, "k", purpose="batch")).id]
            clock.now += 1
        for ascending in (True, False):
            found: list[str] = []
            more, cursor = True, None
            while more:
                page, more = await store.page(
                    "k", purpose=None, cursor=cursor, limit=2, ascending=ascending
                )
                found += [each.id for each in page]
                cursor = Cursor(found[-1], backwards=False)
            assert sorted(found) == sorted(made)
            ages = [made.index(each) // 2 for each in found]
            assert ages == sorted(ages, reverse=not ascending)
        of_batches, _ = await store.page("k", purpose="batch", cursor=None, limit=9, ascending=True)
        assert [each.id for each in of_batches] == made[1::2]


async def test_what_one_file_and_one_key_may_have(tmp_path: Path, address: str) -> None:
    async with opened(tmp_path, address, max_bytes=10, max_key_bytes=15) as store:
        with pytest.raises(APIError, match="10 bytes at most") as caught:
            await put(store, "a", b"x" * 11)
        assert caught.value.status == 413
        await put(store, "a", b"x" * 10)
        with pytest.raises(APIError, match="15 bytes together"):
            await put(store, "a", b"x" * 6)
        await put(store, "b", b"x" * 10)
        # Two that come at a time do not both fit, though each does.
        first, second = await store.begin("c"), await store.begin("c")
        for each in (first, second):
            await each.write(b"x" * 8)
        await first.keep("one", "user_data", None)
        with pytest.raises(APIError, match="15 bytes together"):
            await second.keep("two", "user_data", None)
    assert len(list((tmp_path / "files").iterdir())) == 3


async def test_a_file_expires_and_makes_room(tmp_path: Path, address: str) -> None:
    clock = Clock()
    async with opened(tmp_path, address, clock, max_key_bytes=10) as store:
        file = await put(store, "a", b"x" * 10, seconds=60)
        clock.now += 61
        with pytest.raises(APIError):
            await store.get("a", file.id)
        stays = await put(store, "a", b"y" * 10)
    async with opened(tmp_path, address, clock) as store:
        # The sweep begins at the start; what it removes is gone when a second store has seen it.
        assert await content(store, stays) == b"y" * 10


async def test_an_id_is_told_from_vendors(tmp_path: Path, address: str) -> None:
    async with opened(tmp_path, address) as store:
        file = await put(store, "a", b"x")
    assert is_id(file.id)
    for other in ("file-abc123XYZabc123XYZ", "file_011CNha8iCJcU1wXNR6q4V8w", f"{file.id}0", ""):
        assert not is_id(other)
