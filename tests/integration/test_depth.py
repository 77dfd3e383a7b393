"""Requests that are nested deeply: a 400 for every provider and route, and never a crash."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from llama_compat.wire.json_depth import MAX_DEPTH
from tests.integration import wire
from tests.integration.relay import Gateway
from tests.integration.server_process import ServerProcess, running, write_template

TRANSLATED = {
    "anthropic": "remote::anthropic-messages",
    "gemini": "remote::gemini-native",
    "ollama": "remote::ollama-native",
    "fastchat": "remote::fastchat",
    "echo": "local::echo",
}
DEPTHS = [MAX_DEPTH + 1, 260, 900, 980, 1000, 5000, 90_000]


@pytest.fixture(scope="module")
def translating(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server whose providers all translate; nobody is behind them."""
    settings = {"base_url": "http://127.0.0.1:9", "api_key": "k"}
    template = write_template(
        tmp_path_factory.mktemp("deep") / "deep.yaml",
        providers=[
            {"id": name, "type": type, **({} if name == "echo" else {"config": settings})}
            for name, type in TRANSLATED.items()
        ],
        models=[{"id": name, "provider": name} for name in TRANSLATED],
    )
    with running(template) as server:
        yield server


def schema(depth: int) -> bytes:
    return b'{"items":' * (depth - 4) + b"{}" + b"}" * (depth - 4)


def tools(depth: int) -> bytes:
    """A body that is `depth` deep by the parameters of a tool."""
    return (
        b'"messages":[{"role":"user","content":"?"}],"tools":[{"type":"function","function":'
        b'{"name":"f","parameters":%b}}]' % schema(depth)
    )


def response_format(depth: int) -> bytes:
    return (
        b'"messages":[{"role":"user","content":"?"}],"response_format":{"type":"json_schema",'
        b'"json_schema":{"name":"s","schema":%b}}' % schema(depth)
    )


def messages(depth: int) -> bytes:
    return b'"messages":%b%b' % (b"[" * depth, b"]" * depth)


def refused(url: str, model: str, members: bytes) -> dict[str, Any]:
    body = b'{"model":%b,%b}' % (json.dumps(model).encode(), members)
    reply = wire.request("POST", url, body)
    assert reply.status == 400, reply.body
    return reply.error()


@pytest.mark.parametrize("model", TRANSLATED)
@pytest.mark.parametrize("member", [tools, response_format, messages])
def test_what_is_too_deep_is_a_400_that_says_so(
    translating: ServerProcess, model: str, member: Any
) -> None:
    url = f"{translating.base_url}/chat/completions"
    for depth in DEPTHS:
        error = refused(url, model, member(depth))
        assert error["code"] in ("nested_too_deeply", "invalid_json")
        assert "nested" in error["message"]
    assert "Traceback" not in translating.log


@pytest.mark.parametrize("route", ["/completions", "/embeddings"])
def test_so_it_is_on_every_route(translating: ServerProcess, route: str) -> None:
    name = "prompt" if route == "/completions" else "input"
    for model in ("echo", "gemini") if route == "/completions" else ("gemini", "ollama"):
        for depth in DEPTHS:
            deep = b'"%b":%b%b' % (name.encode(), b"[" * depth, b"]" * depth)
            error = refused(translating.base_url + route, model, deep)
            assert "nested" in error["message"], (model, depth)
    assert "Traceback" not in translating.log


@pytest.mark.parametrize("depth", DEPTHS)
def test_what_is_relayed_is_the_vendors_to_refuse(gateway: Gateway, depth: int) -> None:
    for member in (tools, response_format):
        body = b'{"model":"scripted/plain",%b}' % member(depth)
        reply = wire.request("POST", f"{gateway.base_url}/chat/completions", body)
        assert reply.status in (200, 400), reply.body
    assert "Traceback" not in gateway.server.log
