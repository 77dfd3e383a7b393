"""Which client API a request is for, and that each is told of errors in its own words."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from llama_compat.distribution import Distribution, ModelSettings
from routing.app import Application
from routing.models import ModelTable

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


_SHARED: dict[str, Application] = {}


def shared_application(**server: Any) -> Application:
    """One with these settings for all who neither start nor change it: to make one takes longer
    than to ask it."""
    key = json.dumps(server, sort_keys=True)
    if key not in _SHARED:
        _SHARED[key] = application(**server)
    return _SHARED[key]


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
        case {"type": "error", "error": {"type": str(), "message": str()}}:
            return "messages"
        case {"error": {"code": str(), "message": str(), **others}} if not others:
            return "interactions"
    return "none"


PATHS = [
    ("POST", "/api/chat", "ollama"),
    ("GET", "/api/tags", "ollama"),
    ("POST", "/api/show", "ollama"),
    ("POST", "/v1beta/models/echo:generateContent", "gemini"),
    ("POST", "/v1/models/echo:generateContent", "gemini"),
    ("POST", "/v1/models/echo:streamGenerateContent", "gemini"),
    ("GET", "/v1beta/models", "gemini"),
    ("POST", "/v1beta/interactions", "interactions"),
    ("POST", "/v1/interactions", "interactions"),
    ("GET", "/v1beta/interactions/int_1", "interactions"),
    ("GET", "/v1/models", "openai"),
    ("POST", "/v1/chat/completions", "openai"),
]


@pytest.mark.parametrize(("method", "path", "api"), PATHS)
async def test_who_brings_no_key(method: str, path: str, api: str) -> None:
    reply = await ask(shared_application(api_keys=[KEY]), method, path)
    assert (reply.status_code, shape(reply.json())) == (401, api)
    assert reply.headers["x-request-id"]
    assert KEY not in reply.text
    # A key in the address would be in every log on the way.
    again = await ask(shared_application(api_keys=[KEY]), method, f"{path}?key={KEY}")
    assert again.status_code == 401


GOOGLE, CLAUDE = {"x-goog-api-client": "genai"}, {"anthropic-version": "2023-06-01"}

NOWHERE: list[tuple[str, str, dict[str, str], str]] = [
    ("GET", "/v1beta", {}, "gemini"),
    ("GET", "/v1beta/nothing", {}, "gemini"),
    ("POST", "/v1beta/models/echo:nothing", {}, "gemini"),
    ("POST", "/v1beta/models/echo:generateContent/more", {}, "gemini"),
    ("GET", "/v1beta/models/echo:generateContent", {}, "gemini"),
    ("DELETE", "/v1beta/models/echo", {}, "gemini"),
    ("POST", "/v1beta/cachedContents", {}, "gemini"),
    ("POST", "/v1beta1/models/echo:generateContent", {}, "gemini"),
    ("POST", "/v1alpha/models/echo:generateContent", {}, "gemini"),
    ("POST", "/upload/v1beta/files", {}, "gemini"),
    ("POST", "/upload/v1/files", {}, "gemini"),
    ("POST", "/v1/models/echo:nothing", {}, "gemini"),
    ("POST", "/v1/cachedContents", GOOGLE, "gemini"),
    ("GET", "/v1/tunedModels/x", GOOGLE, "gemini"),
    ("GET", "/v1beta/interactions", {}, "interactions"),
    ("GET", "/v1/interactions/none", {}, "interactions"),
    ("DELETE", "/v1beta/interactions/resp_1", {}, "interactions"),
    ("POST", "/v1beta/interactions/none/cancel", {}, "interactions"),
    ("PUT", "/v1beta/interactions/none", {}, "interactions"),
    ("POST", "/v1beta/interactions:nothing", {}, "gemini"),
    ("GET", "/v1/messages/batches", {}, "messages"),
    ("GET", "/v1/messages", {}, "messages"),
    ("POST", "/v1/complete", CLAUDE, "messages"),
    ("GET", "/v1/files", CLAUDE, "messages"),
    ("GET", "/v1/models/none", CLAUDE, "messages"),
    ("GET", "/v1/chat/messages", CLAUDE, "messages"),
    ("GET", "/v1/openai/v1/messages", CLAUDE, "openai"),
    ("GET", "/v1/openai/v1/cachedContents", GOOGLE, "openai"),
    ("GET", "/api", {}, "ollama"),
    ("GET", "/api/nothing", {}, "ollama"),
    ("PUT", "/api/tags", {}, "ollama"),
    ("GET", "/api/chat", {}, "ollama"),
    ("GET", "/v1/files", {}, "openai"),
    ("GET", "/v1/models/echo:8b", {}, "openai"),
    ("GET", "/v1/responses/none", {}, "openai"),
    ("GET", "/v1/openai/v1/nothing", {}, "openai"),
    ("POST", "/v1/audio/voices", {}, "openai"),
    ("GET", "/nothing", {}, "openai"),
    ("GET", "/v1/chat/completions", GOOGLE, "openai"),
    ("GET", "/v1/embeddings", CLAUDE, "openai"),
]


@pytest.mark.parametrize(("method", "path", "headers", "api"), NOWHERE)
async def test_what_is_not_there_is_told_in_the_words_of_whose_it_would_be(
    method: str, path: str, headers: dict[str, str], api: str
) -> None:
    reply = await ask(shared_application(), method, path, **headers)
    assert (reply.status_code in (404, 405), shape(reply.json())) == (True, api)
    locked = await ask(shared_application(api_keys=[KEY]), method, path, **headers)
    assert (locked.status_code, shape(locked.json())) == (401, api)


@pytest.mark.parametrize("prefix", ["/v1beta", "/v1"])
@pytest.mark.parametrize("method", ["predict", "nothing", "generatecontent"])
async def test_a_method_that_google_does_not_have_is_not_found(prefix: str, method: str) -> None:
    reply = await ask(application(), "POST", f"{prefix}/models/a/b:8b:{method}")
    error = reply.json()["error"]
    assert (reply.status_code, error["code"], error["status"]) == (404, 404, "NOT_FOUND")
    assert f"'{method}'" in error["message"]
    assert "'a/b:8b'" in error["message"]
    assert "generateContent, " in error["message"]


async def test_googles_key_header_lets_in_and_says_whose_list_is_meant() -> None:
    app = shared_application(api_keys=[KEY])
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
    reply = await ask(shared_application(max_body_bytes=10), method, path, b'{"model": "echo"}')
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
    reply = await ask(shared_application(max_choices=choices - 1), "POST", path, content)
    said = reply.json()["error"]["message"]
    assert (reply.status_code, f"asks for {choices} replies" in said) == (400, True)
    assert f"makes {choices - 1} for one request" in said
    enough = await ask(shared_application(max_choices=choices), "POST", path, content)
    assert "max_choices" not in enough.text


GEMINI_HI = {"parts": [{"text": "Hi"}]}

HI = {"messages": [{"role": "user", "content": "Hi"}]}

REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("/v1/chat/completions", {**HI, "logit_bias": {"9" * 5000: 1}}, "logit_bias"),
    ("/v1/completions", {"prompt": "Hi", "logit_bias": {"9" * 5000: 1}}, "logit_bias"),
    ("/v1/responses", {"input": "Hi", "logit_bias": {"9" * 5000: 1}}, "logit_bias"),
    ("/v1/chat/completions", {**HI, "top_logprobs": 2}, "top_logprobs"),
    ("/v1/chat/completions", {**HI, "max_tokens": 2**53}, "max_tokens"),
    ("/v1/messages", {**HI, "max_tokens": 2**63}, "max_tokens"),
    ("/api/chat", {**HI, "options": {"num_predict": -5}}, "num_predict"),
    (
        "/v1beta/models/echo:generateContent",
        {"contents": [], "generationConfig": {"maxOutputTokens": -1_000_000_000}},
        "maxOutputTokens",
    ),
]


@pytest.mark.parametrize(("path", "body", "name"), REFUSED)
async def test_numbers_that_make_no_sense(path: str, body: dict[str, Any], name: str) -> None:
    content = json.dumps({"model": "echo", **body}).encode()
    reply = await ask(shared_application(), "POST", path, content)
    assert (reply.status_code, name in reply.text) == (400, True)
    assert shape(reply.json()) != "none"


LONG = "9" * 5000

QUERIES = [
    ("/v1/models?limit=", CLAUDE),
    ("/v1beta/models?pageSize=", {}),
    ("/v1/responses/none/input_items?limit=", {}),
]


@pytest.mark.parametrize(("path", "headers"), QUERIES)
@pytest.mark.parametrize("number", [LONG, f"-{LONG}", "1e400", "²", "٣", "NaN", "0x1"])
async def test_numbers_in_an_address(path: str, headers: dict[str, str], number: str) -> None:
    reply = await ask(shared_application(), "GET", path + quote(number), **headers)
    assert reply.status_code < 500
    assert reply.status_code in (200, 400)


async def test_an_array_is_what_a_stream_fails_with() -> None:
    path = "/v1beta/models/none:streamGenerateContent"
    (item,) = (await ask(shared_application(), "POST", path)).json()
    assert shape(item) == "gemini"
    assert shape((await ask(shared_application(), "POST", f"{path}?alt=sse")).json()) == "gemini"


@pytest.mark.parametrize(("method", "path", "api"), PATHS)
async def test_an_api_that_is_closed(method: str, path: str, api: str) -> None:
    if api == "openai":
        return
    # What is below Google's versions is Gemini's, unless an API has it.
    closed = {"gemini", "interactions"} if api == "interactions" else {api}
    others = ["openai", *({"ollama", "gemini"} - closed)]
    reply = await ask(shared_application(apis=others), method, path)
    assert (reply.status_code in (404, 405), shape(reply.json())) == (True, "openai")


async def test_the_schema_tells_of_every_call() -> None:
    paths = shared_application().openapi()["paths"]
    for path in ("/api/chat", "/api/embed", "/v1beta/models/{model}:generateContent"):
        assert paths[path]["post"]["summary"]
    assert "get" in paths["/api/tags"]
    assert "get" in paths["/v1beta/models"]
    names = [item["operationId"] for path in paths.values() for item in path.values()]
    assert len(set(names)) == len(names)


# --------------------------------------------------------------------------------------------------
# Names that clients ask for when nobody tells them one
# --------------------------------------------------------------------------------------------------


def for_agents(**server: Any) -> Application:
    app = application(**server)
    models = [{"id": "echo", "provider": "echo", "aliases": ["claude-*", "gemini-*"]}]
    distribution = app.runtime.distribution.model_copy(
        update={"models": [ModelSettings.model_validate(each) for each in models]}
    )
    return Application(distribution)


@pytest.mark.parametrize(
    ("method", "path", "body", "headers"),
    [
        ("POST", "/v1/messages", {**HI, "model": "claude-opus-4-8", "max_tokens": 9}, CLAUDE),
        ("POST", "/v1/messages/count_tokens", {**HI, "model": "claude-haiku-4-5"}, CLAUDE),
        ("POST", "/v1beta/models/gemini-3-pro:generateContent", {"contents": [GEMINI_HI]}, GOOGLE),
        ("POST", "/v1/chat/completions", {**HI, "model": "claude-opus-4-8"}, {}),
        ("POST", "/api/chat", {**HI, "model": "gemini-3-pro:latest", "stream": False}, {}),
        ("POST", "/api/show", {"model": "claude-opus-4-8"}, {}),
        ("GET", "/v1/models/claude-opus-4-8", None, CLAUDE),
        ("GET", "/v1beta/models/gemini-3-pro", None, GOOGLE),
    ],
)
async def test_an_agent_that_is_told_no_model(
    method: str, path: str, body: Any, headers: dict[str, str]
) -> None:
    app = for_agents()
    await app.start()
    reply = await ask(app, method, path, json.dumps(body).encode(), **headers)
    await app.stop()
    assert reply.status_code in (200, 501), reply.text
    if method == "GET":
        assert path.rpartition("/")[2] in reply.text
    elif "model" in reply.json():
        assert reply.json()["model"] == body["model"]


async def test_patterns_are_in_no_list() -> None:
    app = for_agents()
    for path, headers in (("/v1/models", {}), ("/v1/models", CLAUDE), ("/api/tags", {})):
        reply = await ask(app, "GET", path, **headers)
        assert "*" not in reply.text
        assert "echo" in reply.text


async def test_who_leaves_before_all_was_sent_is_no_fault(caplog: pytest.LogCaptureFixture) -> None:
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/api/show", "headers": headers}
    scope |= {"query_string": b"", "client": ("127.0.0.1", 1), "http_version": "1.1"}
    await shared_application()(scope, receive, send)
    assert sent[0]["status"] == 499
    assert [each for each in caplog.records if each.exc_info] == []


async def test_applications_share_their_routes_and_nothing_else() -> None:
    apps = [application(apis=apis, admin_key=KEY) for apis in (["openai", "ollama"], ["openai"])]
    for app, name in zip(apps, ("first", "second"), strict=True):
        model = ModelSettings(id=name, provider="echo")
        app.runtime.models = ModelTable([model], app.runtime.providers)
    routes = [{getattr(each, "path", ""): each for each in app.routes} for app in apps]
    for path in ("/v1/models", "/v1/files", "/admin/live"):
        assert routes[0][path] is routes[1][path], path
    assert "/api/tags" in routes[0]
    assert "/api/tags" not in routes[1]
    # Where one waits for another is the application's.
    assert routes[0]["/admin/template/check"] is not routes[1]["/admin/template/check"]
    for app, name in zip(apps, ("first", "second"), strict=True):
        listed = (await ask(app, "GET", "/v1/models")).json()["data"]
        assert [each["id"] for each in listed] == [name]
