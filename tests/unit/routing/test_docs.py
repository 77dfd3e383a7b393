"""What `/docs` is drawn from."""

import asyncio
import json
import re
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from anthropic.types.message_create_params import MessageCreateParamsBase
from fastapi import FastAPI
from openai.types.chat import ChatCompletion, completion_create_params
from openai.types.responses import ResponseStreamEvent
from pydantic import BaseModel, TypeAdapter

from routing.docs import (
    ASSETS_PATH,
    DOCS_PATHS,
    SchemaGenerator,
    add_docs,
    add_operations,
    add_summaries,
)
from routing.error_schemas import ERROR_SCHEMAS
from routing.ingress.apis.anthropic import ANTHROPIC_API
from routing.page import files
from tests.sdk_anthropic import SAMPLING
from tests.unit.routing.ingress.test_apis import KEY, ask, shared_application


@cache
def schema() -> dict[str, Any]:
    """The operations that are OpenAI's; to make it takes a second."""
    return add_operations({"paths": {}}, ("/v1", "/v1/openai/v1"))


def schemas() -> dict[str, Any]:
    schemas: dict[str, Any] = schema()["components"]["schemas"]
    return schemas


def references(value: Any) -> list[str]:
    """Every `$ref` inside `value`."""
    if isinstance(value, list):
        return [reference for item in value for reference in references(item)]
    if not isinstance(value, dict):
        return []
    own = [value["$ref"]] if "$ref" in value else []
    return own + references(list(value.values()))


def test_every_operation_is_there_under_both_prefixes() -> None:
    assert sorted(schema()["paths"]) == sorted(
        prefix + path
        for prefix in ("/v1", "/v1/openai/v1")
        for path in (
            "/audio/speech",
            "/audio/transcriptions",
            "/audio/translations",
            "/chat/completions",
            "/completions",
            "/embeddings",
            "/images/edits",
            "/images/generations",
            "/moderations",
            "/responses",
            "/responses/compact",
            "/responses/input_tokens",
        )
    )


def test_a_document_is_its_own() -> None:
    """What is made for one application is not changed by what becomes of that of another."""
    one, other = (add_operations({"paths": {}}, ("/v1",)) for _ in range(2))
    assert one == other
    one["paths"]["/v1/chat/completions"]["post"]["responses"]["default"] = "an error"
    one["components"]["schemas"]["ChatCompletionsRequest"]["properties"].clear()
    assert other == add_operations({"paths": {}}, ("/v1",)) != one


def test_every_reference_leads_somewhere() -> None:
    found = references(schema())
    assert found
    for reference in found:
        assert reference.removeprefix("#/components/schemas/") in schemas()


def test_requests_and_replies_have_openais_fields() -> None:
    request = schemas()["ChatCompletionsRequest"]["properties"]
    assert {"messages", "model", "tools", "temperature", "stream", "stream_options"} <= set(request)
    assert request["stream"]["type"] == "boolean"
    assert {"id", "choices", "usage"} <= set(schemas()["ChatCompletionsResponse"]["properties"])
    assert {"id", "choices", "usage"} <= set(schemas()["ChatCompletionsChunk"]["properties"])
    assert "prompt" in schemas()["CompletionsRequest"]["properties"]
    assert "input" in schemas()["EmbeddingsRequest"]["properties"]
    assert {"input", "tools", "stream"} <= set(schemas()["ResponsesRequest"]["properties"])
    assert {"id", "output", "usage"} <= set(schemas()["ResponsesResponse"]["properties"])
    assert "input_tokens" in schemas()["ResponsesInputTokensResponse"]["properties"]


def test_types_of_the_same_name_are_told_apart() -> None:
    text, chat = (schemas()[f"{name}Response"] for name in ("Completions", "ChatCompletions"))
    assert text["properties"]["choices"] != chat["properties"]["choices"]
    for kind, says in (("Response", "message"), ("Chunk", "delta")):
        choices = schemas()[f"ChatCompletions{kind}"]["properties"]["choices"]
        choice = schemas()[choices["items"]["$ref"].removeprefix("#/components/schemas/")]
        assert {"message", "delta"} & set(choice["properties"]) == {says}


class WithDefaults(BaseModel):
    nothing: None = None
    yes: bool = True
    number: int = 3
    text: str = "a"
    part: float = 0.5
    day: date = date(2026, 1, 2)
    more: tuple[date, ...] = (date(2026, 1, 3),)


@pytest.mark.parametrize(
    "of",
    [
        WithDefaults,
        ChatCompletion,
        ResponseStreamEvent,
        completion_create_params.CompletionCreateParamsNonStreaming,
    ],
    ids=["defaults", "a reply", "events", "a request"],
)
def test_types_are_said_as_pydantic_says_them(of: Any) -> None:
    adapter = TypeAdapter(of)
    quick, plain = adapter.json_schema(schema_generator=SchemaGenerator), adapter.json_schema()
    assert json.dumps(quick) == json.dumps(plain)


def test_each_call_says_what_its_errors_are() -> None:
    document = shared_application().openapi()
    shapes = {}
    for path, calls in document["paths"].items():
        for call in calls.values():
            responses = call["responses"]
            assert "422" not in responses
            assert ("404" in responses) == ("{" in path)
            (content,) = responses["default"]["content"].values()
            for reference in references(content):
                shapes.setdefault(reference.rpartition("/")[2], set()).add(path)
    shared = {path for path in document["paths"] if path.startswith("/v1/models")}
    assert shapes["MessagesError"] - shared == {
        path for path in document["paths"] if path.startswith("/v1/messages")
    }
    assert shapes["OllamaError"] - shared == {
        path for path in document["paths"] if path.startswith("/api")
    }
    assert shapes["GeminiError"] >= {"/v1beta/models", "/v1/models/{model}:countTokens"}
    assert shapes["ErrorResponse"] >= {"/v1/models/{model_id}", "/health", "/v1/chat/completions"}
    assert "HTTPValidationError" not in document["components"]["schemas"]
    for reference in references(document):
        assert reference.removeprefix("#/components/schemas/") in document["components"]["schemas"]


def test_streams_and_errors_are_described() -> None:
    responses = schema()["paths"]["/v1/chat/completions"]["post"]["responses"]
    assert set(responses["200"]["content"]) == {"application/json", "text/event-stream"}
    embeddings = schema()["paths"]["/v1/embeddings"]["post"]["responses"]
    assert set(embeddings["200"]["content"]) == {"application/json"}
    error = ERROR_SCHEMAS["ErrorResponse"]["properties"]["error"]
    assert error["required"] == ["message", "type", "param", "code"]
    paths = shared_application().openapi()["paths"]
    for path, media_type in (
        ("/api/chat", "application/x-ndjson"),
        ("/v1/messages", "text/event-stream"),
        ("/v1beta/models/{model}:streamGenerateContent", "text/event-stream"),
    ):
        content = paths[path]["post"]["responses"]["200"]["content"]
        assert set(content) == {"application/json", media_type}


def test_operation_ids_are_unique() -> None:
    ids = [path["post"]["operationId"] for path in schema()["paths"].values()]
    assert len(set(ids)) == len(ids)


def test_the_page_needs_nobody_else() -> None:
    app = FastAPI(docs_url=None)
    add_docs(app)
    (mount,) = (route for route in app.routes if getattr(route, "name", "") == "docs-assets")
    (page,) = (route for route in app.routes if getattr(route, "path", "") == "/docs")
    html = asyncio.run(page.endpoint()).body.decode()  # type: ignore[attr-defined]
    addresses = re.findall(r'(?:src|href)="([^"]*)"', html)
    of_swagger = [each for each in addresses if f"/{each}".startswith(ASSETS_PATH)]
    assert len(of_swagger) == 3
    # Relative: a proxy may serve all of it below a path of its own.
    for address in of_swagger:
        assert f"/{address}" in DOCS_PATHS
        name = f"/{address}".removeprefix(f"{ASSETS_PATH}/")
        assert Path(mount.app.directory, name).is_file()  # type: ignore[attr-defined]
    others = {f"/{each}" for each in addresses if each not in of_swagger} - {"/.#/playground"}
    assert others < files.PATHS


async def test_the_page_is_for_everybody_and_what_it_shows_is_not() -> None:
    app = shared_application(api_keys=[KEY])
    for path in sorted(DOCS_PATHS):
        reply = await ask(app, "GET", path)
        assert (reply.status_code, path) == (200, path)
    page = await ask(app, "GET", "/docs")
    assert "script-src 'self';" in page.headers["content-security-policy"]
    for path in ("/openapi.json", f"{ASSETS_PATH}/redoc.standalone.js"):
        assert (await ask(app, "GET", path)).status_code == 401


def test_calls_of_other_apis_are_described_where_there_is_more_to_say() -> None:
    schema: dict[str, Any] = {"paths": {}}
    summaries = {**ANTHROPIC_API.summaries, "/other": "Other"}
    add_summaries(schema, "messages", summaries, ANTHROPIC_API.bodies, {})
    bodies = {
        path: call["post"]["requestBody"]["content"]["application/json"]["schema"]
        for path, call in schema["paths"].items()
    }
    assert bodies.pop("/other") == {"type": "object"}
    assert bodies.keys() == ANTHROPIC_API.operations.keys()
    required = {path: set(body["required"]) for path, body in bodies.items()}
    assert required == {
        "/v1/messages": {"model", "max_tokens", "messages"},
        "/v1/messages/count_tokens": {"model", "messages"},
    }
    known = set(MessageCreateParamsBase.__annotations__) | {"stream", *SAMPLING}
    for path, body in bodies.items():
        assert required[path] <= set(body["properties"]) <= known
