"""Replies that several gateways share, and that survive them."""

from __future__ import annotations

import itertools
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.integration import wire
from tests.integration.server_process import ServerProcess, running, write_template
from tests.redis_server import needs_redis, redis_server

_numbers = itertools.count()


def template(folder: Path, name: str, store: str, storage: Path) -> Path:
    return write_template(
        folder / f"{name}.yaml",
        server={
            "storage": f"sqlite:{storage}",
            "admin_key": "key-of-admin",
            "cache": {"exact": {"sampled": True, "store": store}},
        },
        providers=[{"id": "echo", "type": "local::echo"}],
        models=[{"id": "echo", "provider": "echo"}],
    )


def question() -> str:
    return f"How warm is it? ({next(_numbers)})"


def chat(server: ServerProcess, text: str, **more: Any) -> wire.Reply:
    body = {"model": "echo", "messages": [{"role": "user", "content": text}], **more}
    return wire.request("POST", f"{server.base_url}/chat/completions", body)


def messages(server: ServerProcess, text: str, **more: Any) -> wire.Reply:
    body = {"model": "echo", "messages": [{"role": "user", "content": text}], **more}
    return wire.request("POST", f"{server.url}/v1/messages", body)


def outcome(reply: wire.Reply) -> str:
    assert reply.status == 200
    return str(reply.headers["x-llama-compat-cache"])


def check_two_and_a_restart(path: Path) -> None:
    """Two gateways of the template at `path`, and one that comes after them, have one cache."""
    asked, streamed = question(), question()
    with running(path) as one, running(path) as other:
        first = chat(one, asked, max_tokens=16)
        assert outcome(first) == "miss"
        again = chat(other, asked, max_tokens=16)
        assert (outcome(again), again.body) == ("hit", first.body)
        assert outcome(messages(other, asked, max_tokens=16)) == "hit"
        assert outcome(messages(other, streamed, max_tokens=16, stream=True)) == "miss"
        assert outcome(chat(one, streamed, max_tokens=16)) == "hit"
    with running(path) as later:
        assert outcome(chat(later, asked, max_tokens=16)) == "hit"
        assert outcome(chat(later, streamed, max_tokens=16, stream=True)) == "hit"


def test_a_storage_is_shared_and_survives(tmp_path: Path) -> None:
    check_two_and_a_restart(template(tmp_path, "sqlite", "sqlite", tmp_path / "storage.sqlite"))


@needs_redis
def test_a_redis_is_shared_and_survives(tmp_path: Path) -> None:
    with redis_server(tmp_path) as redis:
        check_two_and_a_restart(template(tmp_path, "redis", redis.url, tmp_path / "x.sqlite"))


@needs_redis
@pytest.mark.parametrize("how", ["frozen", "killed"])
def test_a_redis_that_is_away_is_no_cache(tmp_path: Path, how: str) -> None:
    path = template(tmp_path, "away", f"unix://{tmp_path / 'redis.sock'}", tmp_path / "x.sqlite")
    with redis_server(tmp_path) as redis, ExitStack() as stack:
        server = stack.enter_context(running(path))
        asked = question()
        assert [outcome(chat(server, asked)) for _ in range(2)] == ["miss", "hit"]

        def warnings() -> Any:
            told = wire.request(
                "GET", f"{server.url}/health", None, {"authorization": "Bearer key-of-admin"}
            )
            return told.json().get("warnings")

        assert warnings() is None
        redis.pause() if how == "frozen" else redis.kill()
        try:
            assert [outcome(chat(server, asked)) for _ in range(5)] == ["miss"] * 5
            assert "cache" in warnings()[0]
        finally:
            redis.resume() if how == "frozen" else redis.start()
        wire.eventually(lambda: warnings() is None)
        outcomes = [outcome(chat(server, asked)) for _ in range(2)]
        assert outcomes[1] == "hit"
        server.wait_for_log("the cache in Redis is back")
