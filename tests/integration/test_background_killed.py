"""A gateway is killed while a vendor makes responses that it ordered: another goes on with them,
each of them once, and what they cost is counted and recorded once."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests import postgres
from tests.integration import wire
from tests.integration.background_vendor import ANSWER, BackgroundVendor
from tests.integration.server_process import ServerProcess, running, write_template
from tests.integration.test_background_at_vendors import AGENT, Client

pytestmark = pytest.mark.server

ADMIN = {"authorization": "Bearer sk-admin-of-them"}
CLIENT = "sk-researches-much"
COST = 0.01
"""In dollars, of one response: a thousand tokens."""

SQL = "UPDATE stored_responses SET alive_until = 1 WHERE alive_until IS NOT NULL"
"""Who was killed has said nothing for long."""


@pytest.fixture
def vendor() -> Iterator[BackgroundVendor]:
    with BackgroundVendor() as one:
        yield one


@pytest.fixture(params=["sqlite", "postgres"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:{tmp_path / 'kept.sqlite'}"
    return str(request.getfixturevalue("postgres_database"))


def template(path: Path, vendor: BackgroundVendor, storage: str) -> Path:
    fleet = {} if storage.startswith("sqlite") else {"fleet": {"store": storage}}
    return write_template(
        path,
        server={
            "storage": storage,
            "responses_store": {},
            "records": {},
            "admin_key": "sk-admin-of-them",
            **fleet,
        },
        keys=[{"name": "much", "key": CLIENT, "budget": {"amount": 5, "period": "ever"}}],
        providers=vendor.providers,
        models=[
            {
                "id": "researcher",
                "provider": "openai",
                "provider_model": "o9-deep-research",
                "price": {"input": 10, "output": 10},
            },
            {"id": "agent", "provider": "google", "provider_model": AGENT},
        ],
    )


def left(storage: str) -> None:
    """Have the lease of whoever was killed be over."""
    if storage.startswith("sqlite"):
        with sqlite3.connect(storage.removeprefix("sqlite:"), timeout=30) as database:
            database.execute(SQL)
    else:
        asyncio.run(postgres.execute(storage, f"SET search_path TO llama_compat; {SQL}"))


def asked(server: ServerProcess, path: str) -> list[dict[str, Any]]:
    reply = wire.request("GET", f"{server.url}/admin/{path}", headers=ADMIN)
    assert reply.status == 200, reply.body
    data: list[dict[str, Any]] = reply.json()["data"]
    return data


def records(server: ServerProcess) -> list[dict[str, Any]]:
    return asked(server, "requests")


def used(server: ServerProcess) -> float:
    """Dollars of the key's budget."""
    (key,) = asked(server, "access")
    (budget,) = key["standing"]
    return float(budget["used"])


def killed_at_last(path: Path, stack: ExitStack) -> ServerProcess:
    """A gateway that is ready, and is killed with `stack` where the test has not done so."""
    gateway = ServerProcess(path)
    stack.callback(gateway.kill)
    gateway.wait_until_ready()
    return gateway


@pytest.mark.parametrize("is_asked_for", [False, True])
def test_another_goes_on_with_what_a_killed_one_ordered(
    tmp_path: Path, vendor: BackgroundVendor, storage: str, is_asked_for: bool
) -> None:
    path = template(tmp_path / "gateway.yaml", vendor, storage)
    with ExitStack() as stack:
        first = killed_at_last(path, stack)
        ordered = [Client("responses", first.url, CLIENT).ask().id for _ in range(3)]
        interaction = Client("interactions", first.url, CLIENT).ask().id
        there = list(vendor.looks)
        # Two are there that may go on with them; one that shares no counters is enough.
        others = [
            stack.enter_context(running(path)) for _ in range(1 if "sqlite" in storage else 2)
        ]
        first.kill()
        left(storage)
        if not is_asked_for:
            # They are followed although nobody asks.
            wire.eventually(lambda: all(vendor.looks[each] >= 2 for each in there))
        vendor.done.update(there)
        if is_asked_for:
            with ThreadPoolExecutor(6) as pool:
                for _ in range(10):
                    gets = [
                        pool.submit(Client("responses", each.url, CLIENT).get, one)
                        for each in others
                        for one in ordered
                    ]
                    assert {each.result().id for each in gets} == {*ordered}
        else:
            # It is recorded before anybody asks.
            wire.eventually(lambda: len(records(others[0])) == 4)
        client = Client("responses", others[0].url, CLIENT)
        for each in ordered:
            assert client.until(each, "completed").output_text == ANSWER
        agent = Client("interactions", others[-1].url, CLIENT)
        assert agent.until(interaction, "completed").output_text == ANSWER
        wire.eventually(lambda: len(records(others[0])) == 4)
        wire.eventually(lambda: abs(used(others[0]) - 3 * COST) < 1e-9)
        looks = sum(vendor.looks.values())
        time.sleep(1.5)  # nobody follows any of them any more
        assert sum(vendor.looks.values()) == looks
        _check_records(records(others[0]))


def _check_records(found: list[dict[str, Any]]) -> None:
    assert len(found) == 4
    assert len({each["request_id"] for each in found}) == 4
    responses = [each for each in found if each["operation"] == "responses"]
    for each in responses:
        assert (each["route"], each["served"]) == ("researcher", "o9-deep-research")
        assert (each["provider"], each["status"], each["attempts"]) == ("openai", 200, 1)
        assert (each["input_tokens"], each["output_tokens"]) == (700, 300)
        assert (each["estimated"], each["cancelled"], each["error"]) == (0, 0, "")
        assert each["duration"] > 0
    (interaction,) = [each for each in found if each not in responses]
    assert (interaction["route"], interaction["output_tokens"]) == ("agent", 25)


def test_what_a_killed_one_ordered_is_cancelled_at_the_vendor(
    tmp_path: Path, vendor: BackgroundVendor, storage: str
) -> None:
    path = template(tmp_path / "gateway.yaml", vendor, storage)
    with ExitStack() as stack:
        first = killed_at_last(path, stack)
        client = Client("responses", first.url, CLIENT)
        ordered = [(client.ask().id, vendor.last) for _ in range(3)]
        other = stack.enter_context(running(path))
        first.kill()
        client = Client("responses", other.url, CLIENT)
        # Nobody knows yet that it is dead.
        assert client.own.cancel(ordered[0][0]).status == "cancelled"
        assert vendor.cancelled == [ordered[0][1]]
        left(storage)
        assert client.own.cancel(ordered[1][0]).status == "cancelled"
        wire.eventually(lambda: vendor.looks[ordered[2][1]] >= 1)
        client.own.delete(ordered[2][0])
        assert vendor.cancelled == [there for _, there in ordered]
        wire.eventually(lambda: len(records(other)) == 2)
        assert [each["cancelled"] for each in records(other)] == [1, 1]
        assert used(other) == 0


def test_one_that_stops_leaves_them_to_another_at_once(
    tmp_path: Path, vendor: BackgroundVendor, storage: str
) -> None:
    path = template(tmp_path / "gateway.yaml", vendor, storage)
    with running(path) as first:
        ordered = Client("responses", first.url, CLIENT).ask().id
    assert vendor.cancelled == []
    with running(path) as other:
        vendor.done.add(vendor.last)
        client = Client("responses", other.url, CLIENT)
        assert client.until(ordered, "completed").output_text == ANSWER
        wire.eventually(lambda: len(records(other)) == 1)
        (record,) = records(other)
        assert (record["output_tokens"], record["cancelled"]) == (300, 0)
        wire.eventually(lambda: abs(used(other) - COST) < 1e-9)


def test_one_that_comes_back_after_it_was_taken_for_dead_counts_nothing(
    tmp_path: Path, vendor: BackgroundVendor, storage: str
) -> None:
    path = template(tmp_path / "gateway.yaml", vendor, storage)
    with running(path) as first, running(path) as other:
        client = Client("responses", first.url, CLIENT)
        ordered = client.ask().id
        wire.eventually(lambda: vendor.looks[vendor.last] >= 1)
        first.send_signal(signal.SIGSTOP)
        try:
            left(storage)
            other.wait_for_log("which another process left")
            vendor.done.add(vendor.last)
            there = Client("responses", other.url, CLIENT)
            assert there.until(ordered, "completed").output_text == ANSWER
            wire.eventually(lambda: len(records(other)) == 1)
        finally:
            first.send_signal(signal.SIGCONT)
        assert client.get(ordered).output_text == ANSWER
        looks = vendor.looks[vendor.last]
        time.sleep(2.5)  # it looks, and writes, or finds out that it has nothing to say
        assert len(records(other)) == 1
        assert vendor.looks[vendor.last] <= looks + 1
        assert abs(used(other) - COST) < 1e-9
