"""`GET /models`, `/health`, `/version` and `/docs`, and what is not there."""

from __future__ import annotations

import openai
import pytest

from tests.integration import wire
from tests.integration.relay import Gateway
from tests.integration.server_process import ServerProcess


@pytest.mark.capability("models")
def test_the_model_is_listed_and_can_be_retrieved(client: openai.OpenAI, model: str) -> None:
    listed = {one.id: one for one in client.models.list()}
    assert model in listed
    assert listed[model].object == "model"
    retrieved = client.models.retrieve(model)
    assert retrieved.id == listed[model].id
    assert retrieved.created == listed[model].created
    assert retrieved.owned_by == listed[model].owned_by != ""


def test_a_slash_too_many_is_no_model(gateway: Gateway) -> None:
    for prefix in ("/v1", "/v1/openai/v1"):
        models = f"{gateway.server.url}{prefix}/models"
        assert wire.request("GET", f"{models}/").json() == wire.request("GET", models).json()


@pytest.mark.capability("errors: unknown model")
def test_an_unknown_model_is_not_described(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as missing:
        client.models.retrieve("no/such-model")
    assert missing.value.code == "model_not_found"


@pytest.mark.capability("errors: unknown model")
def test_an_unknown_model_is_404(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as missing:
        client.chat.completions.create(
            model="no/such-model", messages=[{"role": "user", "content": "?"}], max_tokens=1
        )
    assert missing.value.code == "model_not_found"
    assert missing.value.param in ("model", None)
    assert "no/such-model" in missing.value.message


def test_ids_may_hold_slashes(gateway: Gateway) -> None:
    assert gateway.openai.models.retrieve("scripted/plain").id == "scripted/plain"
    # Clients that quote the whole id reach the same model.
    quoted = wire.request("GET", f"{gateway.base_url}/models/scripted%2Fplain")
    assert quoted.json()["id"] == "scripted/plain"


@pytest.mark.parametrize("prefix", ["/v1", "/v1/openai/v1"])
def test_both_prefixes_are_the_same(echo_server: ServerProcess, prefix: str) -> None:
    url = echo_server.url + prefix
    (model, *_) = wire.request("GET", f"{url}/models").json()["data"]
    question = {"model": model["id"], "messages": [{"role": "user", "content": "one two"}]}
    reply = wire.request("POST", f"{url}/chat/completions", question)
    assert reply.json()["object"] == "chat.completion"
    assert wire.request("GET", f"{url}/models/{model['id']}").json() == model


def test_health_and_version(echo_server: ServerProcess) -> None:
    assert echo_server.health()["status"] == "ok"
    assert wire.request("GET", f"{echo_server.url}/version").json()["version"]


def test_the_docs_show_the_requests_and_the_replies(echo_server: ServerProcess) -> None:
    assert wire.request("GET", f"{echo_server.url}/docs").status == 200
    schema = wire.request("GET", f"{echo_server.url}/openapi.json").json()
    for path in ("/chat/completions", "/completions", "/embeddings"):
        operation = schema["paths"][f"/v1/openai/v1{path}"]["post"]
        assert operation["requestBody"]["content"]["application/json"]["schema"]
        assert operation["responses"]["200"]["content"]["application/json"]["schema"]
    # Every reference leads somewhere.
    names = schema["components"]["schemas"]
    for reference in _references(schema):
        assert reference.removeprefix("#/components/schemas/") in names


def _references(value: object) -> list[str]:
    if isinstance(value, list):
        return [found for item in value for found in _references(item)]
    if not isinstance(value, dict):
        return []
    own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
    return own + [found for item in value.values() for found in _references(item)]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing/here", 404),
        ("POST", "/v1/no-such-operation", 404),
        ("GET", "/v1/chat/completions", 405),
        ("DELETE", "/v1/models", 405),
    ],
)
def test_what_is_not_there_is_answered_in_openais_shape(
    echo_server: ServerProcess, method: str, path: str, status: int
) -> None:
    reply = wire.request(method, echo_server.url + path)
    assert reply.status == status
    assert path in reply.error()["message"]


@pytest.mark.parametrize(
    ("path", "status"), [("/v1/models", 200), ("/health", 200), ("/v1/models/nobody", 404)]
)
def test_head_says_what_get_would(echo_server: ServerProcess, path: str, status: int) -> None:
    head = wire.request("HEAD", echo_server.url + path)
    assert head.status == wire.request("GET", echo_server.url + path).status == status
    assert head.body == b""


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("/chat/completions", "/v1/chat/completions"),
        ("/v1/v1/chat/completions", "/v1/chat/completions"),
        ("//v1/chat/completions/", "/v1/chat/completions"),
        ("/models/echo:generateContent", "/v1/models/echo:generateContent"),
    ],
)
def test_a_base_url_that_is_not_quite_right_is_told_so(
    echo_server: ServerProcess, path: str, meant: str
) -> None:
    reply = wire.request("POST", echo_server.url + path, b"{}")
    assert reply.status == 404
    assert reply.error()["message"].endswith(f"Did you mean {meant}?")
