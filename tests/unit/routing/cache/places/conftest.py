"""Places where replies are kept that other processes have too: real ones."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.postgres import PostgresServer, postgres
from tests.redis_server import RedisServer, redis_server


@pytest.fixture(scope="package")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with redis_server(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture(scope="package")
def postgres_server() -> Iterator[PostgresServer]:
    with postgres() as server:
        yield server
