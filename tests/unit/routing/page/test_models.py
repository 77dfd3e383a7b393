"""What is told of models and their targets."""

from __future__ import annotations

from typing import Any

from llama_compat.distribution import Distribution
from providers.local.echo import EchoConfig
from routing.app import Application
from tests.unit.routing.page.test_overview import ADMIN_KEY, client_of, told


def application(**more: Any) -> Application:
    distribution = Distribution.model_validate(
        {
            "version": 1,
            "server": {"admin_key": ADMIN_KEY, **more.pop("server", {})},
            "providers": [
                {"id": "echo", "type": "local::echo"},
                {"id": "other", "type": "local::echo"},
            ],
            "models": [
                {
                    "id": "both",
                    "aliases": ["either"],
                    "facts": {"context": 1000, "shutdown": "2027-01-14", "successor": "next"},
                    "targets": [
                        {"provider": "echo", "model": "e/one", "weight": 3},
                        {"provider": "other", "model": "two", "priority": 1},
                    ],
                    "price": {"input": 0.25, "output": 2},
                },
                {"id": "plain", "provider": "echo"},
            ],
            **more,
        }
    )
    for each in distribution.providers:
        each.__dict__["config"] = EchoConfig()
    return Application(distribution)


KEYS = [
    {"name": "all", "key": "sk-for-all-models"},
    {"name": "by-alias", "key": "sk-by-an-alias", "models": ["either"]},
    {"name": "plain-only", "key": "sk-plain-only", "models": ["pl*"]},
    {"name": "late", "key": "sk-of-before", "expires": "2020-01-01"},
]


async def test_a_model_is_told_of_with_its_targets() -> None:
    app = application(keys=KEYS)
    await app.start()
    found = (await told(app, "models")).json()
    await app.stop()
    both, plain = found["data"]
    assert (both["id"], both["aliases"], both["balance"]) == ("both", ["either"], "weighted")
    assert (both["context_length"], both["shutdown"], both["successor"]) == (
        1000,
        "2027-01-14",
        "next",
    )
    assert both["open_to"] == {"everybody": False, "count": 2, "keys": ["all", "by-alias"]}
    assert plain["open_to"]["keys"] == ["all", "plain-only"]
    one, two = both["targets"]
    assert (one["id"], one["weight"], one["priority"]) == ("echo/e/one", 3, 0)
    assert (two["id"], two["priority"], two["type"]) == ("other/two", 1, "local::echo")
    assert one["price"] == {"input": 0.25, "output": 2}
    assert plain["targets"][0]["price"] is None
    assert (one["drained"], one["cooling_seconds"], one["requests"]) == (False, 0, None)
    assert (found["traffic_seconds"], found["fleet"]) == (None, None)


async def test_who_needs_no_key_may_use_all() -> None:
    app = application()
    found = (await told(app, "models")).json()["data"]
    assert [each["open_to"]["everybody"] for each in found] == [True, True]


async def test_the_traffic_of_now_is_that_of_the_records(tmp_path: Any) -> None:
    server = {"records": {}, "storage": f"sqlite:{tmp_path / 'operations.sqlite'}"}
    before = application(server=server)
    await before.start()
    async with client_of(before) as client:
        body = {"model": "either", "messages": [{"role": "user", "content": "a"}]}
        for _ in range(3):
            assert (await client.post("/v1/chat/completions", json=body)).status_code == 200
    await before.stop()
    app = application(server=server)
    await app.start()
    found = (await told(app, "models")).json()
    await app.stop()
    one, two = found["data"][0]["targets"]
    assert (one["requests"], one["failed"], two["requests"]) == (3, 0, 0)
    assert found["traffic_seconds"] == 300
