"""Storages of both kinds, each empty."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import postgres


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[postgres.PostgresServer]:
    pytest.importorskip("asyncpg")
    reason = postgres.missing()
    if reason is not None:
        pytest.skip(reason)
    with postgres.postgres() as server:
        yield server


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.server)])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of a storage with nothing in it."""
    if request.param == "sqlite":
        return f"sqlite:{tmp_path / 'operations.sqlite'}"
    server = request.getfixturevalue("postgres_server")
    asyncio.run(postgres.emptied(server.address))
    return str(server.address)
