"""A request as one state, and its way without HTTP."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from llama_compat.dialects.base import Operation
from llama_compat.dialects.ollama.operations import GENERATE
from llama_compat.dialects.openai.operations import CHAT, COMPLETIONS
from llama_compat.distribution import Distribution
from llama_compat.errors import APIError, upstream_error
from llama_compat.exchange import ANYBODY, Principal, Reply
from llama_compat.types import Usage
from llama_compat.wire.json_fields import parse_fields
from providers.local.echo import EchoConfig
from routing.ingress.edge import serve
from routing.request import Request
from routing.runtime import Runtime

MESSAGES = [{"role": "user", "content": "one two three"}]

TEMPLATE: dict[str, Any] = {
    "providers": [{"id": "echo", "type": "local::echo", "config": None}],
    "models": [{"id": "echo", "provider": "echo", "context_length": 100}],
}


@pytest.fixture
async def runtime() -> AsyncIterator[Runtime]:
    distribution = Distribution.model_validate(TEMPLATE)
    distribution.providers[0].__dict__["config"] = EchoConfig()
    one = Runtime(distribution)
    await one.start()
    yield one
    await one.stop()


def asking(operation: Operation = CHAT, **members: Any) -> Request:
    """A request whose body has been read."""
    fields = parse_fields(json.dumps({"model": "echo", **members}).encode())
    request = Request(operation, "req-1", members.pop("principal", None))
    request.asks(fields, operation.look(fields, {}))
    return request


async def answered(runtime: Runtime, request: Request) -> Reply:
    runtime.begin(request)
    runtime.route(request)
    return await runtime.answer(request)


async def test_it_is_answered_without_http(runtime: Runtime) -> None:
    request = asking(messages=MESSAGES)
    reply = await answered(runtime, request)
    assert isinstance(reply.body, bytes)
    assert json.loads(reply.body)["choices"][0]["message"]["content"] == "one two three"
    await reply.aclose()
    request.was_read(reply)
    assert runtime.running == {request}
    request.end()
    assert runtime.running == set()
    assert (request.status, request.complete, request.cancelled) == (200, True, False)
    assert request.attempts.usage is not None


async def test_so_is_a_stream(runtime: Runtime) -> None:
    request = asking(messages=MESSAGES, stream=True)
    reply = await answered(runtime, request)
    assert not isinstance(reply.body, bytes)
    rest = [chunk async for chunk in reply.body]
    assert b"three" in b"".join([reply.first, *rest])
    reply.read_to_end = True
    await reply.aclose()
    request.was_read(reply)
    request.end()
    assert request.complete


async def test_what_may_not_be_asked_for_has_no_route(runtime: Runtime) -> None:
    for asked, status in (
        (asking(model="other", messages=MESSAGES), 404),
        (asking(model="other", messages=MESSAGES, max_tokens=9), 404),
        (asking(messages=MESSAGES, max_tokens=101), 400),
    ):
        with pytest.raises(APIError) as caught:
            runtime.route(asked)
        assert (caught.value.status, asked.route is None) == (status, asked.model == "other")
    many = asking(COMPLETIONS, prompt=["a"] * 129)
    with pytest.raises(APIError, match="replies"):
        runtime.route(many)
    assert many.route is None
    principal = Principal("key-1", models=("other",))
    refused = Request(CHAT, "req", principal)
    fields = parse_fields(json.dumps({"model": "echo", "messages": MESSAGES}).encode())
    refused.asks(fields, CHAT.look(fields, {}))
    with pytest.raises(APIError) as caught:
        runtime.route(refused)
    assert caught.value.status == 403


def test_raw_mode_is_a_completion_from_the_beginning() -> None:
    chat, raw = asking(GENERATE, prompt="a"), asking(GENERATE, prompt="a", raw=True)
    assert (chat.operation.kind, raw.operation.kind) == ("chat", "completion")
    assert raw.call is not None
    assert (raw.call.operation, raw.operation.name) == (raw.operation, "ollama_generate")


def test_who_comes_last_is_told_first_and_all_are_told_once() -> None:
    request, told = Request(CHAT, "req"), []
    for name in ("observers", "limits"):
        request.when_ended(lambda _, name=name: told.append(name))  # type: ignore[misc]
    request.end()
    request.end()
    assert told == ["limits", "observers"]


@pytest.mark.parametrize(
    ("reply", "error", "cancelled"),
    [
        (Reply(b"{}", read_usage=lambda: Usage(7, 5)), None, False),
        (None, upstream_error("up", "broke"), False),
        (None, None, True),
    ],
)
async def test_what_goes_on_ends_as_it_ended_later(
    reply: Reply | None, error: APIError | None, cancelled: bool
) -> None:
    request, later, told = asking(messages=MESSAGES), asking(messages=MESSAGES), []
    request.when_ended(told.append)
    request.reply, request.status = Reply(b'{"status": "queued"}'), 200
    request.sampled().add(b"queued")
    later.reply, later.error, later.cached = reply, error, True
    request.goes_on = True
    await request.went_on(later)
    assert told == [request]
    assert (request.reply, request.error, request.cancelled) == (reply, error, cancelled)
    assert request.cached
    assert (request.attempts, request.status, request.goes_on) == (later.attempts, 200, False)
    assert b"queued" not in request.tail


def test_its_line_in_the_log() -> None:
    request = Request(CHAT, "req", path="/v1/chat/completions")
    assert "model=- status=-" in str(request.line())
    request.model, request.status = "m\n", 502
    request.failed(upstream_error("up", "broke"))
    line = str(request.line())
    assert line.startswith("req POST /v1/chat/completions model=m\\n status=502 ")
    assert line.endswith(": Provider 'up': broke")
    left = Request(CHAT, "req")
    left.left("client disconnected")
    assert (left.cancelled, left.line().outcome) == (True, "client disconnected")


async def test_it_ends_though_telling_of_its_error_fails(runtime: Runtime) -> None:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"nonsense"}

    async def send(message: Any) -> None:
        raise OSError("the connection is gone")

    scope = {"type": "http", "path": "/v1/chat/completions", "query_string": b"", "headers": []}
    with pytest.raises(OSError, match="gone"):
        await serve(scope, receive, send, runtime, CHAT, ANYBODY)
    assert runtime.running == set()
