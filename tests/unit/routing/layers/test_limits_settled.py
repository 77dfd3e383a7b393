"""What limits reserve for a request is free again before its client can know that it has ended.

The client here asks for the next at the very moment at which it gets the last byte of an answer:
inside of the server's sending it. Whoever holds exactly what it may is never refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from routing.app import Application
from tests.redis_server import RedisServer, needs_redis, redis_server
from tests.unit.routing.applications import ask, serving

ROUNDS = 5


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with redis_server(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture(params=["memory", pytest.param("redis", marks=[needs_redis, pytest.mark.server])])
def store(request: pytest.FixtureRequest) -> str:
    if request.param == "memory":
        return "memory"
    server: RedisServer = request.getfixturevalue("redis")
    return server.url


def limited(store: str, limits: dict[str, Any], where: str = "key") -> dict[str, Any]:
    """A template in which the limits of `where`, a key or a provider, are `limits`."""
    own = {where: {"limits": limits}}
    return {
        "server": {"limits": store},
        "keys": [{"name": "k", "key": "sk-k", **own.get("key", {})}],
        "providers": [{"id": "echo", "type": "local::echo", **own.get("provider", {})}],
        "models": [{"id": "echo", "provider": "echo"}],
    }


async def statuses(app: Application, body: dict[str, Any]) -> list[int]:
    """Of requests each of which is asked while the last byte of the one before is sent."""
    found: list[int] = []
    begun = 0

    async def ask_next() -> None:
        nonlocal begun
        if begun < ROUNDS:
            begun += 1
            found.append(await ask(app, body, "sk-k", at_last_byte=ask_next))

    await ask_next()
    return found


def asking(**members: Any) -> dict[str, Any]:
    return {"model": "echo", "messages": [{"role": "user", "content": "a b c"}], **members}


@pytest.mark.parametrize("where", ["key", "provider"])
@pytest.mark.parametrize("stream", [False, True])
async def test_who_holds_all_places_may_ask_when_one_is_answered(
    tmp_path: Path, store: str, where: str, stream: bool
) -> None:
    async with serving(tmp_path, **limited(store, {"concurrent": 1}, where)) as app:
        assert await statuses(app, asking(stream=stream)) == [200] * ROUNDS


@pytest.mark.parametrize("stream", [False, True])
async def test_what_was_reserved_of_a_minute_is_there_for_the_next(
    tmp_path: Path, store: str, stream: bool
) -> None:
    async with serving(tmp_path, **limited(store, {"tokens_per_minute": 1000})) as app:
        body = asking(stream=stream, max_tokens=800)
        assert await statuses(app, body) == [200] * ROUNDS


async def test_an_error_frees_its_place_too(tmp_path: Path, store: str) -> None:
    async with serving(tmp_path, **limited(store, {"concurrent": 1})) as app:
        # What the provider refuses, once it was let in.
        assert await statuses(app, asking(unknown_to_echo=1)) == [400] * ROUNDS
