"""Which client API a request is for, and that each is told of errors in its own words."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from llama_compat.distribution import Distribution
from routing.app import Application

KEY = "a-secret-key"

ECHO: dict[str, Any] = {
    "providers": [{"id": "echo", "type": "local::echo", "config": None}],
    "models": [{"id": "echo", "provider": "echo"}],
}


def application(**server: Any) -> Application:
    from providers.local.echo import EchoConfig

    distribution = Distribution.model_validate({**ECHO, "server": server})
    distribution.providers[0].__dict__["config"] = EchoConfig()
    return Application(distribution)


async def ask(
    app: Application, method: str, path: str, content: bytes = b"{}", **headers: str
) -> httpx.Response:
    transport = httpx.ASGITransport(app=app)  # type: ignore[arg-type]
    async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
        return await client.request(method, path, content=content, headers=headers)


def shape(body: Any) -> str:
    match body:
        case {"error": str()}:
            return "ollama"
        case {"error": {"status": str(), "code": int()}}:
            return "gemini"
        case {"error": {"type": str(), "param": _, "code": _}}:
            return "openai"
    return "none"


PATHS = [
    ("POST", "/api/chat", "ollama"),
    ("GET", "/api/tags", "ollama"),
    ("POST", "/api/show", "ollama"),
    ("POST", "/v1beta/models/echo:generateContent", "gemini"),
    ("POST", "/v1/models/echo:generateContent", "gemini"),
    ("POST", "/v1/models/echo:streamGenerateContent", "gemini"),
    ("GET", "/v1beta/models", "gemini"),
    ("GET", "/v1/models", "openai"),
    ("POST", "/v1/chat/completions", "openai"),
]


@pytest.mark.parametrize(("method", "path", "api"), PATHS)
async def test_who_brings_no_key(method: str, path: str, api: str) -> None:
    reply = await ask(application(api_keys=[KEY]), method, path)
    assert (reply.status_code, shape(reply.json())) == (401, api)
    assert reply.headers["x-request-id"]
    assert KEY not in reply.text
    # A key in the address would be in every log on the way.
    again = await ask(application(api_keys=[KEY]), method, f"{path}?key={KEY}")
    assert again.status_code == 401


async def test_googles_key_header_lets_in_and_says_whose_list_is_meant() -> None:
    app = application(api_keys=[KEY])
    google = {"x-goog-api-key": KEY}
    listed = await ask(app, "GET", "/v1/models", **google)
    assert listed.json()["models"][0]["name"] == "models/echo"
    others = await ask(app, "GET", "/v1/models", authorization=f"Bearer {KEY}")
    assert others.json()["object"] == "list"
    refused = await ask(app, "GET", "/v1/models", **{"x-goog-api-key": "wrong"})
    assert (refused.status_code, shape(refused.json())) == (401, "gemini")


@pytest.mark.parametrize(
    ("method", "path", "api"), [each for each in PATHS if each[0] == "POST" and ":s" not in each[1]]
)
async def test_what_is_too_large(method: str, path: str, api: str) -> None:
    reply = await ask(application(max_body_bytes=10), method, path, b'{"model": "echo"}')
    assert (reply.status_code, shape(reply.json())) == (413, api)


CHOICES = [
    ("/v1/completions", {"prompt": ["a"] * 5, "n": 2}, 10),
    ("/v1/completions", {"prompt": ["a"] * 5, "n": 2, "best_of": 3}, 15),
    ("/v1/completions", {"prompt": ['a"\\', '["', "\\"], "n": 3}, 9),
    ("/v1/completions", {"prompt": [[1, 2], [3], [4]], "n": 3}, 9),
    ("/v1/completions", {"prompt": [1, 2, 3, 4, 5, 6, 7, 8, 9], "n": 9}, 9),
    ("/v1/completions", {"prompt": "a, b", "n": 9}, 9),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "n": 9}, 9),
    (
        "/v1beta/models/echo:generateContent",
        {"contents": "a", "generationConfig": {"candidateCount": 8}},
        8,
    ),
    (
        "/v1beta/models/echo:streamGenerateContent?alt=sse",
        {"contents": "a", "generation_config": {"candidate_count": 8}},
        8,
    ),
]


@pytest.mark.parametrize(("path", "body", "choices"), CHOICES)
async def test_more_replies_than_one_request_may_have(
    path: str, body: dict[str, Any], choices: int
) -> None:
    content = json.dumps({"model": "echo", **body}).encode()
    reply = await ask(application(max_choices=choices - 1), "POST", path, content)
    said = reply.json()["error"]["message"]
    assert (reply.status_code, f"asks for {choices} replies" in said) == (400, True)
    assert f"makes {choices - 1} for one request" in said
    enough = await ask(application(max_choices=choices), "POST", path, content)
    assert "max_choices" not in enough.text


async def test_an_array_is_what_a_stream_fails_with() -> None:
    path = "/v1beta/models/none:streamGenerateContent"
    (item,) = (await ask(application(), "POST", path)).json()
    assert shape(item) == "gemini"
    assert shape((await ask(application(), "POST", f"{path}?alt=sse")).json()) == "gemini"


@pytest.mark.parametrize(("method", "path", "api"), PATHS)
async def test_an_api_that_is_closed(method: str, path: str, api: str) -> None:
    if api == "openai":
        return
    others = ["openai", *({"ollama", "gemini"} - {api})]
    reply = await ask(application(apis=others), method, path)
    assert (reply.status_code in (404, 405), shape(reply.json())) == (True, "openai")


async def test_the_schema_tells_of_every_call() -> None:
    paths = application().openapi()["paths"]
    for path in ("/api/chat", "/api/embed", "/v1beta/models/{model}:generateContent"):
        assert paths[path]["post"]["summary"]
    assert "get" in paths["/api/tags"]
    assert "get" in paths["/v1beta/models"]
    names = [item["operationId"] for path in paths.values() for item in path.values()]
    assert len(set(names)) == len(names)
