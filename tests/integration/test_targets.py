"""Models with several targets, against real vendors that fail and a real server."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from tests.integration import wire
from tests.integration.relay import MESSAGES, Gateway
from tests.integration.scripted_upstream import ScriptedUpstream
from tests.integration.server_process import ServerProcess, free_port, running, write_template
from tests.integration.upstream_behaviours import TEXT

MIDWAY = "The GPU fell over."
"""What the vendor says in the middle of a stream."""

NO_RETRY = {"same_target": 0, "attempts": 4}

ANY_WAY = [
    "dead",
    "status-401",
    "status-429",
    "status-500",
    "status-503",
    "status-498",
    "status-520",
    "html-502",
    "html-200",
    "empty-body",
    "not-http",
    "redirect",
    "cut-before-reply",
    "cut-inside-head",
]
WHOLE = ["torn-json", "json-null", "no-choices", "error-200", "cut-inside-body"]
STREAMED = ["cut-before-first-event", "cut-after-role", "error-first", "empty-stream", "torn-json"]


def models() -> Iterator[dict[str, Any]]:
    """`after/NAME` fails by the behaviour NAME first; the last resort is this process."""
    yield {
        "id": "all-down",
        "targets": [{"provider": "dead", "model": "x"}, {"provider": "dead", "model": "y"}],
        "routing": {"retries": {"attempts": 2, "same_target": 0}},
    }
    yield {
        "id": "resilient",
        "targets": [
            {"provider": "dead", "model": "x"},
            {"provider": "local", "model": "echo", "priority": 1},
        ],
    }
    yield {
        "id": "pinned",
        "targets": [{"provider": "vendor", "model": "plain"}, {"model": "resilient"}],
        "routing": {"pin": True, "balance": "round_robin"},
    }
    yield {
        "id": "hedged",
        "targets": [
            {"provider": "vendor", "model": "holds"},
            {"provider": "vendor", "model": "plain", "priority": 1},
        ],
        "routing": {"hedge_after": 0.1},
    }
    yield {
        "id": "mirrored",
        "targets": [{"provider": "vendor", "model": "plain"}],
        "routing": {"mirror": {"model": "candidate", "sample": 1}},
    }
    yield {"id": "candidate", "provider": "other", "provider_model": "holds"}
    yield {"id": "narrow", "provider": "narrow", "provider_model": "one-at-a-time"}
    yield {"id": "narrow-too", "provider": "narrow", "provider_model": "plain"}
    yield {
        "id": "hangs",
        "targets": [
            {"provider": "vendor", "model": "holds"},
            {"provider": "vendor", "model": "plain", "priority": 1},
        ],
        "routing": {"deadline": 1},
    }
    yield {
        "id": "cools",
        "targets": [
            {"provider": "vendor", "model": "as-the-user-says"},
            {"provider": "vendor", "model": "plain", "priority": 1},
        ],
        "routing": {"retries": NO_RETRY, "cooldown": {"failures": 1, "seconds": 0.2}},
    }
    yield {
        "id": "queued",
        "targets": [
            {"provider": "queue", "model": "holds"},
            {"provider": "vendor", "model": "plain", "priority": 1},
        ],
        "routing": {"deadline": 2},
    }
    yield {
        "id": "keeps-alive",
        "targets": [
            {"provider": "alive", "model": "status-429-in-time"},
            {"provider": "vendor", "model": "plain", "priority": 1},
        ],
        "routing": {"retries": NO_RETRY},
    }


@pytest.fixture(scope="module")
def server(upstream: ScriptedUpstream, tmp_path_factory: Any) -> Iterator[ServerProcess]:
    config = {"base_url": upstream.url, "api_key": "none"}
    alive = {**config, "keepalive_seconds": 0.05}
    dead = {"base_url": f"http://127.0.0.1:{free_port()}/v1"}
    after = [
        {
            "id": f"after/{name}",
            "targets": [
                {"provider": "dead" if name == "dead" else "vendor", "model": name},
                {"provider": "vendor", "model": "plain", "priority": 1},
            ],
            "routing": {"retries": NO_RETRY},
        }
        for name in sorted({*ANY_WAY, *WHOLE, *STREAMED, "error-midway", "status-400"})
    ]
    folder: Path = tmp_path_factory.mktemp("targets")
    template = write_template(
        folder / "targets.yaml",
        server={"log_usage": True, "responses_store": {"path": str(folder / "r.sqlite")}},
        providers=[
            {"id": "vendor", "type": "remote::openai", "config": config},
            {"id": "other", "type": "remote::openai", "config": config},
            {
                "id": "alive",
                "type": "remote::openai",
                "config": alive,
            },
            {
                "id": "narrow",
                "type": "remote::openai",
                "max_concurrent": 1,
                "max_waiting": 0,
                "config": config,
            },
            {
                "id": "queue",
                "type": "remote::openai",
                "max_concurrent": 2,
                "max_waiting": 100,
                "config": config,
            },
            {"id": "dead", "type": "remote::openai", "config": dead},
            {"id": "local", "type": "local::echo"},
        ],
        models=[*models(), *after],
    )
    with running(template) as process:
        yield process


@pytest.fixture
def gateway(server: ServerProcess, upstream: ScriptedUpstream) -> Iterator[Gateway]:
    gateway = Gateway(server, upstream)
    yield gateway
    gateway.close()


def ask(name: str, **members: Any) -> dict[str, Any]:
    return {"model": name, "messages": MESSAGES, **members}


def answered_by(headers: Any) -> tuple[str, str, str]:
    return tuple(  # type: ignore[return-value]
        headers[f"x-llama-compat-{name}"] for name in ("provider", "target", "attempts")
    )


# Before the first content -------------------------------------------------------------------------


@pytest.mark.parametrize("failure", [*ANY_WAY, *WHOLE])
def test_another_target_answers_and_the_client_sees_nothing_of_it(
    gateway: Gateway, failure: str
) -> None:
    reply = gateway.post(ask(f"after/{failure}"))
    assert reply.status == 200, reply.body
    assert reply.json()["model"] == f"after/{failure}"
    assert reply.headers["x-llama-compat-target"] == "vendor/plain"


@pytest.mark.parametrize("failure", [*ANY_WAY, *STREAMED])
def test_a_stream_has_only_what_the_answering_target_says(gateway: Gateway, failure: str) -> None:
    with gateway.open(ask(f"after/{failure}", stream=True)) as reply:
        assert reply.status == 200
        assert reply.headers["x-llama-compat-target"] == "vendor/plain"
        chunks = wire.chunks(reply)
    deltas = [each["choices"][0]["delta"] for each in chunks if each["choices"]]
    assert "".join(each.get("content") or "" for each in deltas) == TEXT
    assert [each["role"] for each in deltas if "role" in each] == ["assistant"]


def test_a_clients_mistake_is_not_sent_twice(
    gateway: Gateway, upstream: ScriptedUpstream, request_id: str
) -> None:
    reply = gateway.post(ask("after/status-400"), headers={"x-request-id": request_id})
    assert reply.status == 400
    assert answered_by(reply.headers) == ("vendor", "vendor/status-400", "1")
    assert len(upstream.requests(request_id)) == 1


def test_if_nobody_answers_the_last_failure_is_told(gateway: Gateway) -> None:
    reply = gateway.post(ask("all-down"))
    assert reply.status == 502
    assert "can't connect" in reply.error()["message"]
    assert answered_by(reply.headers)[0] == "dead"
    assert reply.headers["x-llama-compat-attempts"] == "2"
    line = gateway.server.wait_for_log("model=all-down")
    assert "via dead/" in line
    assert "(connection), dead/" in line


def test_a_target_that_hangs_leaves_a_stream_time_for_the_next(
    gateway: Gateway, upstream: ScriptedUpstream, request_id: str
) -> None:
    headers = {"x-request-id": request_id}
    with gateway.open(ask("hangs", stream=True), headers=headers) as reply:
        assert answered_by(reply.headers)[1:] == ("vendor/plain", "2")
        assert len(wire.chunks(reply)) > 2
    upstream.request(request_id).wait_until_disconnected()


@pytest.mark.parametrize("mistake", ["400", "404", "418"])
def test_a_target_that_is_well_again_is_asked_again_whatever_its_probe_was_asked(
    gateway: Gateway, mistake: str
) -> None:
    """As it was found: one client's 400 kept a target out for good."""

    def target(**members: Any) -> str:
        reply = gateway.post(ask("cools", **members))
        return str(reply.headers["x-llama-compat-target"])

    first, standby = "vendor/as-the-user-says", "vendor/plain"
    assert target(user="500") == standby
    time.sleep(0.25)
    assert target(user=mistake) == first  # the probe
    assert [target() for _ in range(20)] == [first] * 20


def test_nobody_queues_before_a_target_that_hangs_while_another_is_idle(
    gateway: Gateway, upstream: ScriptedUpstream, request_id: str
) -> None:
    def ask_one(number: int) -> tuple[int, str | None]:
        headers = {"x-request-id": f"{request_id}-{number}"}
        with gateway.open(ask("queued", stream=number % 2 == 0), headers=headers) as reply:
            said = reply.read().decode()
            return reply.status, reply.headers["x-llama-compat-target"] if said else None

    with ThreadPoolExecutor(10) as pool:
        holding = [
            pool.submit(gateway.post, ask("queued"), headers={"x-request-id": f"{request_id}-h{n}"})
            for n in range(2)
        ]
        held = [upstream.request(f"{request_id}-h{n}") for n in range(2)]
        answered = list(pool.map(ask_one, range(8)))
        for each in held:
            each.release()
        assert [each.result().status for each in holding] == [200, 200]
    assert answered == [(200, "vendor/plain")] * 8


def test_with_keep_alives_sent_already_another_target_still_answers(
    gateway: Gateway, upstream: ScriptedUpstream, request_id: str
) -> None:
    headers = {"x-request-id": request_id}
    with gateway.open(ask("keeps-alive", stream=True), headers=headers) as reply:
        assert reply.readline().startswith(b": ")  # the status is spent
        assert reply.headers["x-llama-compat-provider"] == "alive"  # whoever was asked then
        upstream.request(request_id).release()
        chunks = wire.chunks(reply)
    assert "".join(each["choices"][0]["delta"].get("content") or "" for each in chunks) == TEXT


# After it -----------------------------------------------------------------------------------------


def test_after_content_the_stream_ends_with_an_error_and_nothing_is_sent_again(
    gateway: Gateway, upstream: ScriptedUpstream, request_id: str
) -> None:
    headers = {"x-request-id": request_id}
    with gateway.open(ask("after/error-midway", stream=True), headers=headers) as reply:
        *said, error, _done = wire.events(reply)
    assert json.loads(error)["error"]["message"] == MIDWAY
    assert b'"content"' in b"".join(said)
    assert len(upstream.requests(request_id)) == 1


def test_the_error_is_in_the_clients_own_language(gateway: Gateway) -> None:
    client = anthropic.Anthropic(
        base_url=gateway.server.url, api_key="none", max_retries=0, timeout=60
    )
    with (
        client,
        pytest.raises(anthropic.APIStatusError, match=MIDWAY),
        client.messages.stream(
            model="after/error-midway", max_tokens=99, messages=MESSAGES
        ) as stream,
    ):
        for _ in stream:
            pass


# From vendor to this process ----------------------------------------------------------------------


@pytest.mark.parametrize("api", ["openai", "responses", "messages"])
@pytest.mark.parametrize("stream", [False, True])
def test_with_the_vendor_down_this_process_answers_in_the_same_api(
    gateway: Gateway, api: str, stream: bool
) -> None:
    paths = {"openai": "/chat/completions", "responses": "/responses"}
    body: dict[str, Any] = {"model": "resilient", "stream": stream}
    if api == "responses":
        body["input"] = "Hello?"
    else:
        body |= {"messages": MESSAGES, "max_tokens": 50}
    url = gateway.base_url + paths[api] if api in paths else f"{gateway.server.url}/v1/messages"
    reply = wire.request("POST", url, body)
    assert reply.status == 200, reply.body
    assert answered_by(reply.headers)[1] == "local/echo"
    assert b"Hello" in reply.body


def test_a_response_made_in_the_background_falls_back_too(gateway: Gateway) -> None:
    with openai.OpenAI(base_url=gateway.base_url, api_key="none", max_retries=0) as client:
        made = client.responses.create(model="resilient", input="Hello?", background=True)
        while made.status in ("queued", "in_progress"):
            made = client.responses.retrieve(made.id)
        assert made.status == "completed"
        following = client.responses.create(
            model="resilient", input="And?", previous_response_id=made.id
        )
    assert following.previous_response_id == made.id


# Hedges, mirrors, pins, limits --------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
def test_the_loser_of_a_hedge_is_cancelled_at_its_source(
    gateway: Gateway, upstream: ScriptedUpstream, request_id: str, stream: bool
) -> None:
    headers = {"x-request-id": request_id}
    reply = gateway.post(ask("hedged", stream=stream), headers=headers)
    assert answered_by(reply.headers) == ("vendor", "vendor/plain", "2")
    upstream.request(request_id).wait_until_disconnected()
    assert len(upstream.requests(request_id)) == 2


def test_a_mirror_gets_the_request_and_nobody_waits_for_it(
    gateway: Gateway, upstream: ScriptedUpstream, request_id: str
) -> None:
    reply = gateway.post(ask("mirrored"), headers={"x-request-id": request_id})
    assert answered_by(reply.headers) == ("vendor", "vendor/plain", "1")
    mirrored = upstream.request(f"{request_id}-mirror")
    assert mirrored.json()["messages"] == MESSAGES
    assert mirrored.json()["model"] == "holds"
    mirrored.release()


def test_a_client_names_its_target_where_it_may(gateway: Gateway) -> None:
    for target in ("vendor/plain", "local/echo") * 2:
        reply = gateway.post(ask("pinned"), headers={"x-llama-compat-target": target})
        assert answered_by(reply.headers)[1:] == (target, "1")
    refused = gateway.post(ask("resilient"), headers={"x-llama-compat-target": "local/echo"})
    assert (refused.status, refused.error()["code"]) == (400, "target_not_allowed")
    unknown = gateway.post(ask("pinned"), headers={"x-llama-compat-target": "x"})
    assert (unknown.status, unknown.error()["code"]) == (400, "target_not_found")


def test_more_than_a_provider_may_get_is_429_with_retry_after(
    gateway: Gateway, upstream: ScriptedUpstream, request_id: str
) -> None:
    headers = {"x-request-id": request_id}
    with gateway.open(ask("narrow", stream=True), headers=headers) as held:
        assert wire.next_text(wire.events(held))
        refused = gateway.post(ask("narrow-too"))
        assert (refused.status, refused.headers["retry-after"]) == (429, "1")
        upstream.request(request_id).release()
        held.read()
    for stream in (False, True):
        gateway.server.wait_for_log(request_id)  # the place is free again, and once more
        request_id = f"{request_id}-{stream}"
        reply = gateway.post(ask("narrow-too", stream=stream), headers={"x-request-id": request_id})
        assert reply.status == 200
