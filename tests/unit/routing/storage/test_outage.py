"""What is kept in a database that is away for a while, already when a server starts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from llama_compat.distribution import FilesSettings, ResponsesStoreSettings, VectorStoresSettings
from llama_compat.errors import APIError
from providers.base import ProviderStartError
from routing.batches.files import FileStore
from routing.storage.kept import RESPONSES_KEPT
from routing.storage.responses import ResponseStore
from routing.vector_stores.service import VectorStores
from routing.vector_stores.stores import StoreTable
from tests.postgres import PostgresServer, emptied

Kept = ResponseStore | FileStore | VectorStores
Make = Callable[[str, Path], Kept]


def responses(address: str, folder: Path) -> ResponseStore:
    return ResponseStore(ResponsesStoreSettings(), address)


def files(address: str, folder: Path) -> FileStore:
    return FileStore(FilesSettings(path=str(folder / "files")), address)


def vector_stores(address: str, folder: Path) -> VectorStores:
    settings = VectorStoresSettings(embedding_model="e", dimensions=3)
    return VectorStores(StoreTable(settings, files(address, folder), address))


async def look(store: Kept) -> None:
    if isinstance(store, ResponseStore):
        await store.get("me", "resp_1", RESPONSES_KEPT)
    elif isinstance(store, FileStore):
        await store.get("me", "file-1")
    else:
        await store.stores.get("me", "vs_1")


MAKE = pytest.mark.parametrize("make", [responses, files, vector_stores])


@MAKE
async def test_a_server_starts_while_its_database_is_away(
    postgres_server: PostgresServer,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    make: Make,
) -> None:
    await emptied(postgres_server.address)
    way = tmp_path / "way"
    store = make(f"postgres://postgres@/postgres?host={way}", tmp_path)
    await store.start()
    try:
        assert "can't be used: postgres" in caplog.text
        with pytest.raises(APIError) as away:
            await look(store)
        assert away.value.status == 503
        way.symlink_to(postgres_server.folder)
        with pytest.raises(APIError) as none:
            await look(store)
        assert none.value.status == 404
    finally:
        await store.stop()


@MAKE
async def test_no_server_starts_with_what_is_no_database_of_its_own(
    postgres_server: PostgresServer, tmp_path: Path, make: Make
) -> None:
    store = make(f"postgres://postgres@/nothing?host={postgres_server.folder}", tmp_path)
    with pytest.raises(ProviderStartError, match="nothing"):
        await store.start()
    await store.stop()
