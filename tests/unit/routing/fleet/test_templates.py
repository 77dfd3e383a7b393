"""A template that is reloaded at one gateway takes its place at all of them, or at none."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from llama_compat.distribution import load_distribution
from providers.local.echo import EchoProvider
from providers.registry import config_model
from routing.app import Application
from routing.fleet import fleet
from routing.fleet.templates import hash_of
from routing.process.reload import Reloader
from tests.integration.server_process import write_template
from tests.redis_server import RedisServer, needs_redis
from tests.unit.routing.fleet.test_fleet import until

pytestmark = needs_redis


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet.Fleet.__init__, "__defaults__", ("", None, 0.05, 1.0, time.monotonic))


def write(path: Path, redis: RedisServer, *models: str, **echo: Any) -> Path:
    return write_template(
        path,
        server={"fleet": redis.url, "storage": f"sqlite:{path.parent / 'storage.sqlite'}"},
        providers=[{"id": "echo", "type": "local::echo", **echo}],
        models=[{"id": name, "provider": "echo"} for name in models],
    )


class Gateway:
    """An application with what reloads it."""

    def __init__(self, app: Application, reloader: Reloader, path: Path) -> None:
        self.app, self.reloader, self.path = app, reloader, path

    @property
    def models(self) -> list[str]:
        return [each.id for each in self.app.runtime.distribution.models]

    @property
    def fleet(self) -> fleet.Fleet:
        assert self.app.runtime.fleet is not None
        return self.app.runtime.fleet


@asynccontextmanager
async def gateway(path: Path) -> AsyncIterator[Gateway]:
    app = Application(load_distribution(str(path), config_model))
    await app.start()
    reloader = Reloader(app, str(path))
    task = asyncio.create_task(reloader.run())
    found = Gateway(app, reloader, path)
    try:
        await until(lambda: found.fleet.templates.served)
        await found.fleet.exchanged()
        yield found
    finally:
        task.cancel()
        await asyncio.wait([task])
        await app.stop()


@asynccontextmanager
async def two(tmp_path: Path, redis: RedisServer) -> AsyncIterator[tuple[Gateway, Gateway]]:
    paths = [write(tmp_path / f"{name}.yaml", redis, "old") for name in ("one", "two")]
    async with gateway(paths[0]) as one, gateway(paths[1]) as other:
        await until(lambda: one.fleet.gateways == other.fleet.gateways == 2)
        yield one, other


async def test_a_reload_at_one_is_seen_by_all(tmp_path: Path, redis: RedisServer) -> None:
    async with two(tmp_path, redis) as (one, other):
        write(one.path, redis, "new")
        one.reloader.ask()
        await until(lambda: one.models == other.models == ["new"])
        served = hash_of(one.path.read_text())
        await until(lambda: one.fleet.told()["others"][0]["template"] == served)
        assert one.fleet.templates.served == other.fleet.templates.served == served


async def test_one_that_is_wrong_at_another_is_refused_by_all(
    tmp_path: Path,
    redis: RedisServer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with two(tmp_path, redis) as (one, other):
        # It is another machine, whose environment lacks something.
        async def problem(text: str) -> str:
            return "NAME is not set"

        other.fleet.templates._check = problem
        write(one.path, redis, "new")
        one.reloader.ask()
        await until(lambda: "is not reloaded" in caplog.text)
        assert f"gateway {other.fleet.gateway}: NAME is not set" in caplog.text
        assert one.models == other.models == ["old"]


async def test_one_that_can_not_be_looked_at_is_refused_and_both_logs_say_why(
    tmp_path: Path, redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with two(tmp_path, redis) as (one, other):

        async def broken(text: str) -> str:
            raise RuntimeError("nobody expects this")

        other.fleet.templates._check = broken
        write(one.path, redis, "new")
        one.reloader.ask()
        await until(lambda: "is not reloaded" in caplog.text)
        assert f"gateway {other.fleet.gateway}: it can't be looked at there" in caplog.text
        assert "RuntimeError: nobody expects this" in caplog.text
        assert one.models == other.models == ["old"]


async def test_one_that_can_not_start_is_refused_by_all(
    tmp_path: Path,
    redis: RedisServer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    from providers.base import ProviderStartError

    async def fail(self: EchoProvider) -> None:
        raise ProviderStartError("no-start")

    async with two(tmp_path, redis) as (one, other):
        monkeypatch.setattr(EchoProvider, "start", fail)
        write(one.path, redis, "new", config={"delay_ms": 1})
        one.reloader.ask()
        await until(lambda: "no-start" in caplog.text)
        assert one.models == other.models == ["old"]


async def test_both_may_be_told_at_the_same_time(tmp_path: Path, redis: RedisServer) -> None:
    async with two(tmp_path, redis) as (one, other):
        for each in (one, other):
            write(each.path, redis, "new")
            each.reloader.ask()
        await until(lambda: one.models == other.models == ["new"])
        for each, name in ((one, "first"), (other, "second")):
            write(each.path, redis, name)
            each.reloader.ask()
        await until(lambda: one.models == other.models != ["new"])


async def test_who_starts_with_an_old_file_gets_what_the_others_serve(
    tmp_path: Path, redis: RedisServer
) -> None:
    async with two(tmp_path, redis) as (one, other):
        write(one.path, redis, "new")
        one.reloader.ask()
        await until(lambda: one.models == other.models == ["new"])
        async with gateway(write(tmp_path / "three.yaml", redis, "old")) as third:
            await until(lambda: third.models == ["new"])


async def test_who_starts_with_another_file_keeps_it_and_says_so(
    tmp_path: Path, redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    three = write(tmp_path / "three.yaml", redis, "other")
    async with two(tmp_path, redis) as (one, _), gateway(three) as third:
        await until(lambda: "other gateways serve another template" in caplog.text)
        assert (one.models, third.models) == (["old"], ["other"])


async def test_what_was_reloaded_while_the_store_was_away_is_settled_later(
    tmp_path: Path, redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with two(tmp_path, redis) as (one, other):
        redis.kill()
        await until(lambda: one.fleet.is_away and other.fleet.is_away)
        write(one.path, redis, "new")
        one.reloader.ask()
        await until(lambda: one.models == ["new"])
        assert other.models == ["old"]
        redis.start()
        await until(lambda: other.models == ["new"])


async def test_who_is_told_to_reload_and_to_adopt_at_once_does_both(
    tmp_path: Path, redis: RedisServer
) -> None:
    async with two(tmp_path, redis) as (one, other):
        write(one.path, redis, "first")
        one.reloader.ask()
        await until(lambda: one.models == other.models == ["first"])
        # Its own file says something else, and it is told so in the moment in which it adopts.
        write(other.path, redis, "second")
        other.reloader._ask_to_adopt()
        other.reloader.ask()
        await until(lambda: one.models == other.models == ["second"])
