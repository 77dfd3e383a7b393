"""Two gateways that share a PostgreSQL and nothing else: processes of their own, one of which is
killed, and a server that is ended and comes back."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests import postgres
from tests.integration import wire
from tests.integration.server_process import ServerProcess, running, write_template
from tests.integration.test_fleet import ADMIN, ask, health, in_flight_elsewhere, said_once, served

pytestmark = [
    pytest.mark.skipif(postgres.missing() is not None, reason=postgres.HOW_TO_INSTALL),
    pytest.mark.server,
]


@pytest.fixture
def server() -> Iterator[postgres.PostgresServer]:
    """One of its own, as it is ended."""
    with postgres.postgres() as found:
        yield found


def template(path: Path, server: postgres.PostgresServer, *models: str) -> Path:
    return write_template(
        path,
        server={
            "fleet": {"store": server.address, "on_outage": "local_share"},
            "storage": server.address,
            "admin_key": ADMIN,
        },
        keys=[
            {"name": "two", "key": "sk-two-of-them", "limits": {"concurrent": 2}},
            {"name": "four", "key": "sk-four-a-minute", "limits": {"requests_per_minute": 4}},
            {"name": "fresh", "key": "sk-four-as-well", "limits": {"requests_per_minute": 4}},
            {"name": "free", "key": "sk-free-for-all"},
        ],
        providers=[{"id": "echo", "type": "local::echo", "config": {"delay_ms": 20}}],
        models=[{"id": name, "provider": "echo"} for name in models or ("echo",)],
    )


def both_there(one: ServerProcess, other: ServerProcess) -> None:
    for each in (one, other):
        wire.eventually(lambda each=each: health(each)["fleet"]["gateways"] == 2)  # type: ignore[misc]


def test_two_gateways_agree_while_it_is_there_and_share_while_it_is_not(
    tmp_path: Path, server: postgres.PostgresServer
) -> None:
    paths = [template(tmp_path / f"{name}.yaml", server) for name in ("one", "two")]
    with ExitStack() as stack:
        one, other = [stack.enter_context(running(each)) for each in paths]
        both_there(one, other)
        statuses = [ask(each, "sk-four-a-minute").status for each in (one, other) * 3]
        assert sorted(statuses) == [200, 200, 200, 200, 429, 429]
        # A reload at one is a reload at both.
        template(paths[0], server, "echo", "new")
        one.send_signal(signal.SIGHUP)
        for each in (one, other):
            wire.eventually(lambda each=each: ask(each, "sk-free-for-all", "new").status == 200)  # type: ignore[misc]
        wire.eventually(lambda: served(one) == served(other))
        server.stop()
        for each in (one, other):
            wire.eventually(lambda each=each: health(each)["fleet"]["store"] == "away")  # type: ignore[misc]
        shares = [[ask(each, "sk-four-as-well").status for _ in range(4)] for each in (one, other)]
        assert [sorted(each) for each in shares] == [[200, 200, 429, 429]] * 2
        assert health(one)["warnings"]
        server.start()
        for each in (one, other):
            wire.eventually(lambda each=each: "warnings" not in health(each))  # type: ignore[misc]
        both_there(one, other)
        wire.eventually(lambda: said_once(one))


def test_what_one_has_in_flight_all_know_until_it_is_killed(
    tmp_path: Path, server: postgres.PostgresServer
) -> None:
    path = template(tmp_path / "fleet.yaml", server)
    with running(path) as one, running(path) as other:
        both_there(one, other)
        message = {"role": "user", "content": "a " * 3000}
        body: dict[str, Any] = {"model": "echo", "messages": [message], "stream": True}
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
