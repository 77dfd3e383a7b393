"""What is kept in a database that is away for a while, already when a server starts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from llama_compat.distribution import FilesSettings, ResponsesStoreSettings
from llama_compat.errors import APIError
from providers.base import ProviderStartError
from routing.batches.files import FileStore
from routing.storage.kept import RESPONSES_KEPT
from routing.storage.responses import ResponseStore
from tests.postgres import PostgresServer, emptied

Kept = ResponseStore | FileStore

STORES: list[tuple[Callable[[str, Path], Kept], Callable[[Kept], Awaitable[object]]]] = [
    (
        lambda address, _: ResponseStore(ResponsesStoreSettings(), address),
        lambda store: store.get("me", "resp_1", RESPONSES_KEPT),  # type: ignore[union-attr,arg-type,call-arg]
    ),
    (
        lambda address, folder: FileStore(FilesSettings(path=str(folder / "files")), address),
        lambda store: store.get("me", "file-1"),  # type: ignore[call-arg]
    ),
]


@pytest.mark.parametrize(("make", "look"), STORES, ids=["responses", "files"])
async def test_a_server_starts_while_its_database_is_away(
    postgres_server: PostgresServer,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    make: Callable[[str, Path], Kept],
    look: Callable[[Kept], Awaitable[object]],
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


@pytest.mark.parametrize("make", [make for make, _ in STORES], ids=["responses", "files"])
async def test_no_server_starts_with_what_is_no_database_of_its_own(
    postgres_server: PostgresServer, tmp_path: Path, make: Callable[[str, Path], Kept]
) -> None:
    store = make(f"postgres://postgres@/nothing?host={postgres_server.folder}", tmp_path)
    with pytest.raises(ProviderStartError, match="nothing"):
        await store.start()
    await store.stop()
