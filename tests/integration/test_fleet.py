"""Two gateways on one template and one Redis: processes of their own, one of which is killed."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.integration import wire
from tests.integration.server_process import ServerProcess, running, write_template
from tests.redis_server import RedisServer, needs_redis, redis_server

pytestmark = needs_redis

ADMIN = "sk-who-runs-them"


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    with redis_server(tmp_path) as server:
        yield server


def template(path: Path, redis: RedisServer, *models: str, **fleet: Any) -> Path:
    return write_template(
        path,
        server={
            "fleet": {"store": redis.url, **fleet},
            "storage": f"sqlite:{path.parent / 'storage.sqlite'}",
            "admin_key": ADMIN,
        },
        keys=[
            {"name": "two", "key": "sk-two-of-them", "limits": {"concurrent": 2}},
            {"name": "four", "key": "sk-four-a-minute", "limits": {"requests_per_minute": 4}},
            {"name": "free", "key": "sk-free-for-all"},
        ],
        providers=[{"id": "echo", "type": "local::echo", "config": {"delay_ms": 20}}],
        models=[{"id": name, "provider": "echo"} for name in models or ("echo",)],
    )


def ask(server: ServerProcess, key: str, model: str = "echo") -> wire.Reply:
    body = {"model": model, "messages": [{"role": "user", "content": "a"}]}
    headers = {"authorization": f"Bearer {key}"}
    return wire.request("POST", f"{server.base_url}/chat/completions", body, headers=headers)


def health(server: ServerProcess) -> dict[str, Any]:
    return server.health(ADMIN)


def served(server: ServerProcess) -> str:
    """What tells the template that it serves from others."""
    return str(health(server)["fleet"]["template"])


def said_once(server: ServerProcess) -> bool:
    """Whether the log says once of each time that the store was away, of which there may be two
    where a connection was left over from before; it is written a moment later."""
    away, back = (server.log.count(f"the fleet's store is {each}") for each in ("away", "back"))
    return away == back > 0


@pytest.mark.parametrize("on_outage", ["local_share", "refuse", "allow"])
def test_two_gateways_agree(tmp_path: Path, redis: RedisServer, on_outage: str) -> None:
    paths = [
        template(tmp_path / f"{name}.yaml", redis, on_outage=on_outage) for name in ("one", "two")
    ]
    with ExitStack() as stack:
        one, other = [stack.enter_context(running(each)) for each in paths]
        wire.eventually(lambda: health(one)["fleet"]["gateways"] == 2)
        wire.eventually(lambda: health(other)["fleet"]["gateways"] == 2)
        # A reload at one is a reload at both.
        template(paths[0], redis, "echo", "new", on_outage=on_outage)
        one.send_signal(signal.SIGHUP)
        wire.eventually(lambda: ask(one, "sk-free-for-all", "new").status == 200)
        wire.eventually(lambda: ask(other, "sk-free-for-all", "new").status == 200)
        wire.eventually(lambda: served(one) == served(other))
        redis.kill()
        wire.eventually(lambda: health(one)["fleet"]["store"] == "away")
        wire.eventually(lambda: health(other)["fleet"]["store"] == "away")
        statuses = [
            sorted(ask(each, "sk-four-a-minute").status for _ in range(5)) for each in (one, other)
        ]
        assert (
            statuses
            == {
                "local_share": [[200, 200, 429, 429, 429]] * 2,
                "refuse": [[503] * 5] * 2,
                "allow": [[200] * 5] * 2,
            }[on_outage]
        )
        assert health(one)["warnings"]
        redis.start()
        wire.eventually(lambda: "warnings" not in health(one))
        wire.eventually(lambda: said_once(one))


def test_what_one_has_in_flight_all_know_until_it_is_killed(
    tmp_path: Path, redis: RedisServer
) -> None:
    path = template(tmp_path / "fleet.yaml", redis)
    with running(path) as one, running(path) as other:
        wire.eventually(lambda: health(one)["fleet"]["gateways"] == 2)
        message = {"role": "user", "content": "a " * 3000}
        body = {"model": "echo", "messages": [message], "stream": True}
        headers = {"authorization": "Bearer sk-two-of-them"}
        url = f"{other.base_url}/chat/completions"
        with (
            wire.open_reply("POST", url, body, headers) as first,
            wire.open_reply("POST", url, body, headers) as second,
        ):
            first.readline()
            second.readline()
            assert ask(one, "sk-two-of-them").status == 429
            wire.eventually(lambda: in_flight_elsewhere(one) == 2)
            other.kill()
        wire.eventually(lambda: health(one)["fleet"]["gateways"] == 1)
        assert in_flight_elsewhere(one) == 0


def in_flight_elsewhere(server: ServerProcess) -> int:
    targets = {each["id"]: each for each in health(server)["targets"]}
    return int(targets["echo/echo"]["in_flight_elsewhere"])
