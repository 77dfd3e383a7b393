"""Limits and budgets of a running server: who is refused, how, and that nothing is left behind."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.integration import wire
from tests.integration.server_process import ServerProcess, running, write_template
from tests.redis_server import RedisServer, needs_redis, redis_server

PROVIDERS = [
    {"id": "echo", "type": "local::echo"},
    {"id": "slow", "type": "local::echo", "config": {"delay_ms": 20}},
    {"id": "small", "type": "local::echo", "limits": {"requests_per_minute": 2}},
    {"id": "least", "type": "local::echo", "limits": {"requests_per_minute": 1}},
]

KEYS: dict[str, dict[str, Any]] = {
    "free": {},
    "requests": {"limits": {"requests_per_minute": 3}},
    "tokens": {"limits": {"tokens_per_minute": 500}},
    "one": {"limits": {"concurrent": 1}},
    "two": {"limits": {"concurrent": 2}},
    "poor": {"budget": {"amount": 0.001, "period": "day"}},
    "mate-1": {"team": "team"},
    "mate-2": {"team": "team"},
    "anthropic": {"limits": {"requests_per_minute": 1}},
}


def write(path: Path, **server: Any) -> Path:
    return write_template(
        path,
        server={"storage": f"sqlite:{path.parent / 'storage.sqlite'}", **server},
        keys=[{"name": name, "key": f"sk-{name}", **more} for name, more in KEYS.items()],
        teams=[{"id": "team", "limits": {"requests_per_minute": 3}}],
        providers=PROVIDERS,
        models=[
            # A hundred tokens are a tenth of a cent.
            {"id": "dear", "provider": "echo", "price": {"input": 10, "output": 10}},
            {"id": "echo", "provider": "echo", "aliases": ["again"]},
            {"id": "slow", "provider": "slow"},
            {"id": "small", "provider": "small"},
            {
                "id": "backed",
                "targets": [
                    {"provider": "least", "model": "least"},
                    {"provider": "echo", "model": "echo", "priority": 1},
                ],
            },
            {
                "id": "rare",
                "provider": "echo",
                "aliases": ["seldom"],
                "limits": {"requests_per_minute": 2},
            },
        ],
    )


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with running(write(tmp_path_factory.mktemp("limits") / "limits.yaml")) as process:
        yield process


def body(model: str = "echo", words: int = 3, **more: Any) -> dict[str, Any]:
    message = {"role": "user", "content": "word " * words}
    return {"model": model, "messages": [message], **more}


def ask(server: ServerProcess, key: str, *args: Any, **more: Any) -> wire.Reply:
    headers = {"authorization": f"Bearer sk-{key}"}
    return wire.request(
        "POST", f"{server.base_url}/chat/completions", body(*args, **more), headers=headers
    )


def test_requests_a_minute(server: ServerProcess) -> None:
    replies = [ask(server, "requests") for _ in range(4)]
    assert [each.status for each in replies] == [200, 200, 200, 429]
    left = [each.headers["x-ratelimit-remaining-requests"] for each in replies]
    assert left == ["2", "1", "0", "0"]
    assert {each.headers["x-ratelimit-limit-requests"] for each in replies} == {"3"}
    refused = replies[-1]
    assert refused.error()["code"] == "rate_limit_exceeded"
    assert refused.error()["type"] == "requests"
    assert "key 'requests'" in refused.error()["message"]
    assert 1 <= int(refused.headers["retry-after"]) <= 20
    assert 0 < int(refused.headers["retry-after-ms"]) <= 20_000
    assert refused.headers["x-ratelimit-reset-requests"].endswith("s")


def test_who_has_no_limits_hears_of_none(server: ServerProcess) -> None:
    reply = ask(server, "free")
    assert reply.status == 200
    assert not [name for name in reply.headers if "ratelimit" in name]


def test_tokens_a_minute(server: ServerProcess) -> None:
    over = ask(server, "tokens", max_tokens=600)
    assert (over.status, over.error()["type"]) == (429, "tokens")
    assert "lower max_tokens" in over.error()["message"]
    assert over.headers["x-should-retry"] == "false"
    assert over.headers["retry-after"] is None
    # What was reserved and not used is there again when the reply has ended.
    for _ in range(5):
        reply = ask(server, "tokens", max_tokens=400)
        assert reply.status == 200
        usage = reply.json()["usage"]
        assert usage["total_tokens"] < 20
    assert reply.headers["x-ratelimit-limit-tokens"] == "500"
    left = int(ask(server, "tokens", max_tokens=1).headers["x-ratelimit-remaining-tokens"])
    assert 300 < left < 500 - 5 * usage["total_tokens"] + 20


@pytest.mark.parametrize("stream", [True, False])
def test_what_runs_at_the_same_time(server: ServerProcess, stream: bool) -> None:
    headers = {"authorization": "Bearer sk-one"}
    url = f"{server.base_url}/chat/completions"
    with wire.open_reply("POST", url, body("slow", 100, stream=True), headers) as reply:
        reply.readline()
        refused = ask(server, "one", stream=stream)
        assert (refused.status, refused.error()["code"]) == (429, "rate_limit_exceeded")
        assert refused.headers["retry-after"] == "1"
        # The one that runs is not cut.
        text = reply.read().decode()
        assert text.rstrip().endswith("data: [DONE]")
    assert ask(server, "one", stream=stream).status == 200


def test_a_client_that_leaves_frees_its_place(server: ServerProcess) -> None:
    headers = {"authorization": "Bearer sk-one"}
    url = f"{server.base_url}/chat/completions"
    for _ in range(3):
        with wire.open_reply("POST", url, body("slow", 1000, stream=True), headers) as reply:
            reply.readline()
        wire.eventually(lambda: ask(server, "one").status == 200)


@pytest.mark.parametrize(
    "wrong", [body("none"), body(temperature=-1), body(stop=7), body(max_tokens=0)]
)
def test_a_request_that_is_refused_for_something_else_frees_its_place(
    server: ServerProcess, wrong: dict[str, Any]
) -> None:
    headers = {"authorization": "Bearer sk-one"}
    for _ in range(3):
        reply = wire.request("POST", f"{server.base_url}/chat/completions", wrong, headers)
        assert reply.status in (400, 404)
    assert ask(server, "one").status == 200


def test_never_more_than_two(server: ServerProcess) -> None:
    with ThreadPoolExecutor(12) as pool:
        replies = list(pool.map(lambda _: ask(server, "two", "slow", 15), range(12)))
    statuses = [each.status for each in replies]
    assert set(statuses) <= {200, 429}
    assert statuses.count(200) >= 2
    assert ask(server, "two").status == 200


def test_a_team_and_a_model_have_limits_of_their_own(server: ServerProcess) -> None:
    keys = ["mate-1", "mate-2", "mate-1", "mate-2"]
    replies = [ask(server, key) for key in keys]
    assert [each.status for each in replies] == [200, 200, 200, 429]
    assert "team 'team'" in replies[-1].error()["message"]
    models = [ask(server, "free", model) for model in ("rare", "seldom", "rare", "seldom")]
    assert [each.status for each in models] == [200, 200, 429, 429]
    assert "model 'rare'" in models[-1].error()["message"]
    assert ask(server, "free").status == 200


def test_a_provider_has_limits_of_its_own(server: ServerProcess) -> None:
    replies = [ask(server, "free", "small") for _ in range(3)]
    assert [each.status for each in replies] == [200, 200, 429]
    assert "provider 'small'" in replies[-1].error()["message"]


def test_what_is_over_a_provider_s_limits_another_target_answers(server: ServerProcess) -> None:
    replies = [ask(server, "free", "backed") for _ in range(3)]
    assert [each.status for each in replies] == [200] * 3
    targets = [each.headers["x-llama-compat-target"] for each in replies]
    assert targets == ["least/least", "echo/echo", "echo/echo"]


def test_over_budget(server: ServerProcess) -> None:
    # It may come to more than there is.
    over = ask(server, "poor", "dear", max_tokens=1000)
    assert (over.status, over.error()["code"]) == (429, "insufficient_quota")
    assert over.error()["type"] == "insufficient_quota"
    assert "key 'poor'" in over.error()["message"]
    spent = 0.0
    for _ in range(20):
        reply = ask(server, "poor", "dear", words=8, max_tokens=10)
        if reply.status != 200:
            break
        spent += reply.json()["usage"]["total_tokens"] * 10 / 1e6
    assert reply.error()["code"] == "insufficient_quota"
    assert 0.0005 < spent <= 0.001
    with (
        openai.OpenAI(base_url=server.base_url, api_key="sk-poor", max_retries=0) as client,
        pytest.raises(openai.RateLimitError, match="budget"),
    ):
        client.chat.completions.create(**body("dear", words=100))
    # What costs nothing is let in all the same.
    assert ask(server, "poor").status == 200


def test_anthropic_s_clients_are_told_in_their_own_way(server: ServerProcess) -> None:
    def message(key: str, model: str = "echo") -> wire.Reply:
        return wire.request(
            "POST",
            f"{server.url}/v1/messages",
            {**body(model), "max_tokens": 500},
            {"x-api-key": f"sk-{key}"},
        )

    first, second = message("anthropic"), message("anthropic")
    assert first.headers["anthropic-ratelimit-requests-limit"] == "1"
    assert first.headers["anthropic-ratelimit-requests-remaining"] == "0"
    assert first.headers["anthropic-ratelimit-requests-reset"].endswith("Z")
    assert first.headers["x-ratelimit-limit-requests"] is None
    assert second.status == 429
    assert second.json()["error"]["type"] == "rate_limit_error"
    assert int(second.headers["retry-after"]) <= 60
    poor = message("poor", "dear")
    assert poor.json()["error"]["type"] == "billing_error"


def test_a_response_in_the_background_is_settled_when_it_is_done(tmp_path: Path) -> None:
    store = {"path": str(tmp_path / "responses.sqlite")}
    with running(write(tmp_path / "limits.yaml", responses_store=store)) as server:
        headers = {"authorization": "Bearer sk-one"}
        question = {"model": "slow", "input": "word " * 60, "background": True}
        url = f"{server.base_url}/responses"
        queued = wire.request("POST", url, question, headers).json()
        assert queued["status"] == "queued"
        # It runs, and nothing else may.
        assert ask(server, "one").status == 429

        def is_done() -> bool:
            found = wire.request("GET", f"{url}/{queued['id']}", headers=headers).json()
            return bool(found["status"] == "completed")

        wire.eventually(is_done, 30)
        assert ask(server, "one").status == 200


def test_what_a_budget_has_come_to_is_kept(tmp_path: Path) -> None:
    template = write(tmp_path / "limits.yaml")
    with running(template) as first:
        assert ask(first, "poor", "dear", words=30, max_tokens=30).status == 200
    with running(template) as second:
        # Half of the budget and more has been spent before.
        assert ask(second, "poor", "dear", words=30, max_tokens=30).status == 429


# Several processes ------------------------------------------------------------------------------


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    with redis_server(tmp_path) as server:
        yield server


@needs_redis
def test_two_processes_on_one_redis_are_never_over(tmp_path: Path, redis: RedisServer) -> None:
    # A busy machine is no Redis that is away.
    limits = {"store": redis.url, "timeout": 10}
    template = write(tmp_path / "limits.yaml", limits=limits)
    with ExitStack() as stack:
        servers = [stack.enter_context(running(template)) for _ in range(2)]
        with ThreadPoolExecutor(12) as pool:
            replies = list(pool.map(lambda number: ask(servers[number % 2], "requests"), range(12)))
        assert [each.status for each in replies].count(200) == 3
        # A place that one has taken the other does not have.
        headers = {"authorization": "Bearer sk-one"}
        url = f"{servers[0].base_url}/chat/completions"
        with wire.open_reply("POST", url, body("slow", 100, stream=True), headers) as reply:
            reply.readline()
            assert ask(servers[1], "one").status == 429
            reply.read()
        wire.eventually(lambda: ask(servers[1], "one").status == 200)
        both = [ask(each, "mate-1").status for each in (*servers, *servers)]
        assert both == [200, 200, 200, 429]


@needs_redis
@pytest.mark.parametrize(("when_away", "status"), [("open", 200), ("closed", 503)])
def test_redis_killed(tmp_path: Path, redis: RedisServer, when_away: str, status: int) -> None:
    limits = {"store": redis.url, "when_away": when_away}
    with running(write(tmp_path / "limits.yaml", limits=limits)) as server:
        assert ask(server, "requests").status == 200
        headers = {"authorization": "Bearer sk-one"}
        url = f"{server.base_url}/chat/completions"
        with wire.open_reply("POST", url, body("slow", 50, stream=True), headers) as reply:
            reply.readline()
            redis.kill()
            replies = [ask(server, "requests") for _ in range(5)]
            assert {each.status for each in replies} == {status}
            # The stream that runs is not cut.
            assert b"[DONE]" in reply.read()
        if status == 503:
            assert replies[0].error()["code"] == "limits_unavailable"
            assert replies[0].headers["retry-after"] == "1"
        assert ask(server, "free").status == 200
        redis.start()
        wire.eventually(lambda: "x-ratelimit-limit-requests" in ask(server, "requests").headers)
        assert "Redis is away" in server.log
        assert redis.url not in server.log
