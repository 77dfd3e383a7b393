"""What `GET /health` tells, and whom."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from llama_compat.distribution import Distribution
from llama_compat.errors import APIError
from providers.local.echo import EchoConfig
from routing.health import health
from routing.policy.attempts import Attempt, Why
from routing.policy.cooldown import CooldownRule
from routing.runtime import Runtime


def distribution(keys: Sequence[Any] = (), **server: Any) -> Distribution:
    echo = {"type": "local::echo", "config": EchoConfig()}
    return Distribution.model_validate(
        {
            "server": server,
            "keys": keys,
            "providers": [{"id": "a", **echo}, {"id": "b", **echo}],
            "models": [{"id": "x", "provider": "a"}, {"id": "y", "provider": "b"}],
        }
    )


@pytest.fixture
async def runtime() -> AsyncIterator[Runtime]:
    runtime = Runtime(distribution())
    await runtime.start()
    yield runtime
    await runtime.stop()


async def test_before_it_has_started_it_says_no_more() -> None:
    assert health(Runtime(distribution()), []) == {"status": "starting"}


async def test_every_target_is_told_with_what_is_known_of_it(runtime: Runtime) -> None:
    told = health(runtime, [])
    assert (told["status"], told["running"], told["waiting"]) == ("ok", 0, 0)
    assert [target["id"] for target in told["targets"]] == ["a/x", "b/y"]
    state = runtime.states.provider("a").target("x")
    running = Attempt(state, Why.first)
    failed = Attempt(state, Why.retry, rule=CooldownRule(failures=1, within=30, seconds=500))
    failed.fail(APIError(429, "Slow down.", code="rate_limit_exceeded"))
    [a, _] = health(runtime, [])["targets"]
    assert (a["in_flight"], a["attempts"], a["errors"]) == (1, 2, 1)
    assert a["last_error"] == "rate_limit"
    assert 490 < a["cooling_seconds"] <= 500
    running.cancel()


async def test_a_lost_device_wants_the_process_started_again(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime.providers["b"], "lost_devices", lambda: ("cuda:1", "cuda:0"))
    told = health(runtime, [])
    assert (told["status"], told["lost_devices"]) == ("device_lost", ["cuda:0", "cuda:1"])
    assert len(told["targets"]) == 2


KEYS = {
    "admin_key": "the-key-of-the-admin",
    "metrics_key": "the-key-of-prometheus",
    "api_keys": ["the-key-of-this-server"],
}

GRANTS: list[Any] = [
    {"name": "one", "key": "the-key-of-a-person", "models": ["x"]},
    {"name": "all", "key": "the-key-of-a-colleague"},
]


async def test_where_there_are_keys_only_those_are_told_more_who_see_to_the_server() -> None:
    runtime = Runtime(distribution(GRANTS, **KEYS))
    await runtime.start()
    assert health(runtime, []) == {"status": "ok"}
    for key in (b"another-key-altogether", b"the-key-of-a-person", b"the-key-of-a-colleague"):
        assert health(runtime, [(b"authorization", b"Bearer " + key)]) == {"status": "ok"}
    for key in (b"the-key-of-the-admin", b"the-key-of-prometheus", b"the-key-of-this-server"):
        told = health(runtime, [(b"x-api-key", key)])
        assert (told["running"], len(told["targets"])) == (0, 2)
    await runtime.stop()


async def test_a_metrics_key_is_wanted_where_nobody_needs_another() -> None:
    runtime = Runtime(distribution(metrics_key="the-key-of-prometheus"))
    await runtime.start()
    assert health(runtime, []) == {"status": "ok"}
    assert "targets" in health(runtime, [(b"x-api-key", b"the-key-of-prometheus")])
    await runtime.stop()


async def test_counts_pass_on_with_providers_that_are_unchanged(runtime: Runtime) -> None:
    Attempt(runtime.states.provider("a").target("x"), Why.first)
    after = Runtime(distribution(log_usage=True), runtime)
    await after.start()
    assert health(after, [])["targets"][0]["in_flight"] == 1
    await after.stop()


@pytest.mark.parametrize(
    ("when_away", "said"), [("open", "are let in without"), ("closed", "are refused")]
)
async def test_it_is_told_that_redis_is_away(when_away: str, said: str) -> None:
    # Nobody listens there, which a server waits for.
    limits = {"store": "redis://127.0.0.1:1/0", "when_away": when_away}
    keys = [{"name": "a", "key": "sk-a-long-key", "limits": {"requests_per_minute": 1}}]
    runtime = Runtime(distribution(keys, limits=limits, metrics_key="the-key-of-prometheus"))
    await runtime.start()
    try:
        [warning] = health(runtime, [(b"x-api-key", b"the-key-of-prometheus")])["warnings"]
        assert "Redis can't be asked" in warning
        assert said in warning
        assert "warnings" not in health(runtime, [])
    finally:
        await runtime.stop()
