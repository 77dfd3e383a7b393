"""Storages of both kinds, each empty."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests import postgres


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.server)])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of a storage with nothing in it."""
    if request.param == "sqlite":
        return f"sqlite:{tmp_path / 'operations.sqlite'}"
    server = request.getfixturevalue("postgres_server")
    asyncio.run(postgres.emptied(server.address))
    return str(server.address)
