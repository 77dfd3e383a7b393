"""`balance: prefix` from end to end: a gateway before engines that cache what they compute."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import httpx
import pytest

from tests.integration.server_process import ServerProcess, running, write_template

pytestmark = [pytest.mark.server, pytest.mark.ours]

REPLICAS = ("r0", "r1", "r2")
SYSTEM = "You are told at length what to do. " * 60

ENGINE = {"step_seconds": 0.0005, "kv_blocks": 2048}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: Any) -> Iterator[ServerProcess]:
    folder: Path = tmp_path_factory.mktemp("placement")
    engines = write_template(
        folder / "engines.yaml",
        providers=[{"id": "engines", "type": "local::echo", "config": {"simulate": ENGINE}}],
        models=[{"id": name, "provider": "engines"} for name in REPLICAS],
    )
    with running(engines) as behind:
        config = {"base_url": f"{behind.url}/v1", "api_key": "none"}
        front = write_template(
            folder / "gateway.yaml",
            providers=[{"id": name, "type": "remote::vllm", "config": config} for name in REPLICAS],
            models=[
                {
                    "id": "m",
                    "targets": [{"provider": name, "model": name} for name in REPLICAS],
                    "routing": {"balance": "prefix", "pin": True},
                }
            ],
        )
        with running(front) as process:
            yield process


class Asked:
    """Asks chats, and says who answered and what was cached."""

    def __init__(self, url: str) -> None:
        self._client = httpx.Client(base_url=url, timeout=60)

    def __call__(self, *said: str, **members: Any) -> tuple[str, int]:
        roles = ("system", *("user", "assistant") * len(said))
        messages = [
            {"role": role, "content": text} for role, text in zip(roles, said, strict=False)
        ]
        body = {"model": "m", "messages": messages, **members}
        reply = self._client.post("/v1/chat/completions", json=body)
        assert reply.status_code == 200, reply.text
        cached = reply.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
        return reply.headers["x-llama-compat-target"].partition("/")[0], cached


@pytest.fixture
def ask(gateway: ServerProcess) -> Asked:
    return Asked(gateway.url)


def test_the_turns_of_a_chat_go_to_who_has_those_before(ask: Asked) -> None:
    said, before = [f"one {SYSTEM}", "first"], 0
    home, cached = ask(*said)
    for turn in range(6):
        said += [said[-1], f"turn {turn} " * 20]
        answered, cached = ask(*said)
        assert answered == home
        assert cached > before
        before = cached


def test_who_shares_a_system_prompt_goes_where_it_is(ask: Asked) -> None:
    homes = {
        name: {ask(f"{name} {SYSTEM}", f"question {number}") for number in range(4)}
        for name in ("x", "y", "z", "u", "v", "w")
    }
    for found in homes.values():
        assert len({home for home, _ in found}) == 1
        assert max(cached for _, cached in found) > 400
    assert len({home for found in homes.values() for home, _ in found}) > 1


def test_another_salt_shares_nothing(ask: Asked) -> None:
    assert ask(f"salted {SYSTEM}", "a", cache_salt="one")[1] == 0
    assert ask(f"salted {SYSTEM}", "a", cache_salt="one")[1] > 400
    assert ask(f"salted {SYSTEM}", "a", cache_salt="two")[1] == 0


def test_a_pinned_request_goes_where_it_says(ask: Asked, gateway: ServerProcess) -> None:
    home, _ = ask(f"pinned {SYSTEM}", "a")
    other = next(name for name in REPLICAS if name != home)
    reply = httpx.post(
        f"{gateway.url}/v1/chat/completions",
        json={"model": "m", "messages": [{"role": "user", "content": f"pinned {SYSTEM}"}]},
        headers={"x-llama-compat-target": f"{other}/{other}"},
        timeout=60,
    )
    assert reply.headers["x-llama-compat-target"] == f"{other}/{other}"


def test_clients_of_other_apis_have_their_home_too(gateway: ServerProcess) -> None:
    client = anthropic.Anthropic(base_url=gateway.url, api_key="none")
    homes = set()
    for number in range(4):
        reply = client.messages.with_raw_response.create(
            model="m",
            max_tokens=5,
            system=f"anthropic's {SYSTEM}",
            messages=[{"role": "user", "content": f"question {number}"}],
        )
        homes.add(reply.headers["x-llama-compat-target"])
    assert len(homes) == 1
