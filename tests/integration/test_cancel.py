"""A client that goes away ends the work for it: upstream, and in the engine."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import time
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.integration import wire
from tests.integration.relay import Gateway, chat
from tests.integration.server_process import ServerProcess, running

# --------------------------------------------------------------------------------------------------
# Upstream
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_before_the_first_byte_closes_the_upstream_request(
    gateway: Gateway, request_id: str, stream: bool
) -> None:
    question = (
        b'{"model": "scripted/holds", "stream": %b,'
        b' "messages": [{"role": "user", "content": "Hi"}]}'
    )
    body = question % (b"true" if stream else b"false")
    with socket.create_connection(("127.0.0.1", gateway.server.port)) as connection:
        connection.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nX-Request-Id: %b\r\n"
            b"Content-Length: %d\r\n\r\n%b" % (request_id.encode(), len(body), body)
        )
        recorded = gateway.upstream.request(request_id)
        assert not recorded.disconnected.is_set()
    recorded.wait_until_disconnected()


@pytest.mark.parametrize("stream", [False, True])
async def test_a_cancelled_call_of_the_sdk_closes_the_upstream_request(
    gateway: Gateway, relay_client: openai.AsyncOpenAI, request_id: str, stream: bool
) -> None:
    call = asyncio.create_task(relay_client.chat.completions.create(**chat("holds", stream=stream)))
    recorded = await asyncio.to_thread(gateway.upstream.request, request_id)
    call.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await call
    await asyncio.to_thread(recorded.wait_until_disconnected)


async def test_a_closed_stream_closes_the_upstream_request(
    gateway: Gateway, relay_client: openai.AsyncOpenAI, request_id: str
) -> None:
    stream: Any = await relay_client.chat.completions.create(**chat("one-at-a-time", stream=True))
    async for chunk in stream:
        if chunk.choices[0].delta.content:
            break
    recorded = gateway.upstream.request(request_id)
    assert not recorded.disconnected.is_set()
    await stream.close()
    await asyncio.to_thread(recorded.wait_until_disconnected)


def test_a_connection_reset_closes_the_upstream_request(gateway: Gateway, request_id: str) -> None:
    question = chat("comments-forever", stream=True)
    with gateway.open(question, headers={"x-request-id": request_id}) as reply:
        next(wire.events(reply))
    gateway.upstream.request(request_id).wait_until_disconnected()


def test_the_gateway_serves_on_after_many_aborted_streams(gateway: Gateway) -> None:
    for _ in range(20):
        with gateway.open(chat("hangs-between-events", stream=True)) as reply:
            next(wire.events(reply))
    assert gateway.post(chat("plain")).status == 200
    assert "Traceback" not in gateway.server.log


# --------------------------------------------------------------------------------------------------
# The engine
# --------------------------------------------------------------------------------------------------

# More than any model here says before a test is over.
LONG: dict[str, Any] = {
    "messages": [{"role": "user", "content": "Write a very long story about a river."}],
    "max_tokens": 1500,
    "temperature": 1.0,
    "seed": 1,
}


def in_engine(server: ServerProcess) -> int:
    """How many generations run or wait for their turn."""
    health = server.health()
    running, waiting = health["running"], health["waiting"]
    assert isinstance(running, int)
    assert isinstance(waiting, int)
    return running + waiting


def wait_for(server: ServerProcess, count: int) -> None:
    """Wait until the engine has exactly `count` generations."""
    deadline = time.monotonic() + 30
    while (found := in_engine(server)) != count:
        assert time.monotonic() < deadline, f"{found} generations run instead of {count}"
        time.sleep(0.01)


@pytest.fixture
def own_server(server: ServerProcess | None, client: openai.OpenAI, model: str) -> ServerProcess:
    """The server that the tests started: only there they know that nobody else asks anything."""
    if server is None:
        pytest.skip("the server at --base-url may have other clients")
    if client.models.retrieve(model).owned_by == "echo":
        pytest.skip("the echo says all it has before anybody can stop it; see the slow one below")
    return server


def test_closing_a_stream_stops_the_generation(
    own_server: ServerProcess, client: openai.OpenAI, model: str
) -> None:
    with client.chat.completions.create(model=model, stream=True, **LONG) as stream:
        for chunk in stream:
            if chunk.choices[0].delta.content:
                break
        assert in_engine(own_server) == 1
    wait_for(own_server, 0)


async def test_cancelling_a_call_stops_the_generation(
    own_server: ServerProcess, async_client: openai.AsyncOpenAI, model: str
) -> None:
    call = asyncio.create_task(async_client.chat.completions.create(model=model, **LONG))
    await asyncio.to_thread(wait_for, own_server, 1)
    call.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await call
    await asyncio.to_thread(wait_for, own_server, 0)


async def test_a_waiting_request_can_be_cancelled(
    own_server: ServerProcess, async_client: openai.AsyncOpenAI, model: str
) -> None:
    calls = [
        asyncio.create_task(async_client.chat.completions.create(model=model, **LONG))
        for _ in range(2)
    ]
    await asyncio.to_thread(wait_for, own_server, 2)
    for left, call in enumerate(reversed(calls)):
        call.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await call
        await asyncio.to_thread(wait_for, own_server, 1 - left)


def test_health_answers_while_a_model_generates(
    own_server: ServerProcess, client: openai.OpenAI, model: str
) -> None:
    with client.chat.completions.create(model=model, stream=True, **LONG) as stream:
        next(iter(stream))
        for _ in range(3):
            assert wire.request("GET", f"{own_server.url}/health").status == 200
            assert client.models.retrieve(model).id == model
        assert in_engine(own_server) == 1
    wait_for(own_server, 0)


# --------------------------------------------------------------------------------------------------
# Several choices at a time
# --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def slow_echo() -> Iterator[ServerProcess]:
    """The echo, which for a word takes longer than any of these tests."""
    with running("echo", env={"ECHO_DELAY_MS": "60000"}) as process:
        yield process


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("path", "question", "choices"),
    [
        ("/chat/completions", {"messages": [{"role": "user", "content": "one two"}]}, 1),
        ("/chat/completions", {"messages": [{"role": "user", "content": "one"}], "n": 3}, 3),
        ("/completions", {"prompt": ["one", "two"], "n": 2}, 4),
    ],
)
def test_a_client_that_leaves_stops_all_of_its_choices(
    slow_echo: ServerProcess, path: str, question: dict[str, Any], choices: int, stream: bool
) -> None:
    body = json.dumps({"model": "echo", "stream": stream, **question}).encode()
    with socket.create_connection(("127.0.0.1", slow_echo.port)) as connection:
        connection.sendall(
            b"POST /v1%b HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b"
            % (path.encode(), len(body), body)
        )
        wait_for(slow_echo, choices)
    wait_for(slow_echo, 0)
