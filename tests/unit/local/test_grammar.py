"""Structured output: whatever the model would say, the reply is what was asked for."""
# ruff: noqa: E402 (what follows needs packages that may not be there)

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the extra 'torch'")
pytest.importorskip("transformers", reason="needs the extra 'torch'")
pytest.importorskip("llguidance", reason="needs the extra 'torch'")
jsonschema = pytest.importorskip("jsonschema", reason="needs the extra 'dev'")

from llama_compat.dialects.openai.parameters import (
    CHAT_CHECKS,
    check_parameters,
    parse_sampling,
)
from llama_compat.errors import APIError
from llama_compat.events import Collector
from llama_compat.types import (
    ChatCompletionRequest,
    ChatCompletionResponse,
    CompletionRequest,
    Guide,
    ResponseFormat,
    SamplingParams,
    StopReason,
    ToolCall,
    ToolChoice,
    ToolDefinition,
    UserMessage,
)
from llama_compat.wire.json_fields import parse_fields
from providers.base import ProviderModel
from providers.local.grammar import MAX_SOURCE
from providers.local.torch_engine.provider import TorchConfig, TorchProvider
from tests.tiny_models import make_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("models") / "tiny", max_position_embeddings=2048)


@pytest.fixture
async def provider(folder: Path) -> AsyncIterator[TorchProvider]:
    config = TorchConfig(device="cpu", tool_format="hermes")
    provider = TorchProvider("local", config, [ProviderModel(str(folder))])
    await provider.start()
    yield provider
    await provider.stop()


async def chat(
    provider: TorchProvider, *, max_tokens: int = 400, seed: int = 1, **options: Any
) -> ChatCompletionResponse:
    [model] = provider.engines
    guide = options.pop("guide", None)
    sampling = SamplingParams(max_tokens=max_tokens, seed=seed, guide=guide)
    request = ChatCompletionRequest(model, (UserMessage("Hello"),), sampling, **options)
    collector = Collector()
    async for event in provider.chat_completion(request):
        collector.add(event)
    return collector.chat_completion()


def text_of(response: ChatCompletionResponse) -> str:
    assert response.completion_message.stop_reason is StopReason.end_of_turn
    content = response.completion_message.content
    assert isinstance(content, str)
    return content


def json_schema(schema: dict[str, Any]) -> ResponseFormat:
    return ResponseFormat("json_schema", "x", schema, strict=True)


# What comes ---------------------------------------------------------------------------------------


def random_schema(chosen: random.Random, depth: int = 0) -> dict[str, Any]:
    """A schema whose instances a random model finishes writing."""
    kinds = ["enum", "boolean", "integer", "string", "pattern", "null", "const"]
    kind = chosen.choice([*kinds, "object", "object", "array", "anyOf"] if depth < 3 else kinds)
    match kind:
        case "object":
            names = [f"p{index}" for index in range(chosen.randrange(1, 4))]
            properties = {name: random_schema(chosen, depth + 1) for name in names}
            required = [name for name in names if chosen.random() < 0.7]
            return {
                "type": "object",
                "properties": properties,
                "required": required,
                "additionalProperties": False,
            }
        case "array":
            inner = random_schema(chosen, depth + 1)
            return {"type": "array", "items": inner, "minItems": 1, "maxItems": 2}
        case "anyOf":
            return {"anyOf": [random_schema(chosen, depth + 1) for _ in range(2)]}
        case "enum":
            return {"enum": ["a", "é\n", 5, None]}
        case "const":
            return {"const": {"x": [1, "y"]}}
        case "integer":
            return {"type": "integer", "minimum": -20, "maximum": 300}
        case "string":
            return {"type": "string", "maxLength": 6}
        case "pattern":
            return {"type": "string", "pattern": "^[a-c]{2}/[0-9]{1,2}$"}
    return {"type": kind}


async def test_schemas_hold(provider: TorchProvider) -> None:
    schemas = [random_schema(random.Random(seed)) for seed in range(50)]
    replies = await asyncio.gather(
        *(chat(provider, response_format=json_schema(schema)) for schema in schemas)
    )
    for schema, reply in zip(schemas, replies, strict=True):
        jsonschema.validate(json.loads(text_of(reply)), schema)


async def test_json_objects(provider: TorchProvider) -> None:
    for seed in range(5):
        reply = await chat(provider, seed=seed, response_format=ResponseFormat("json_object"))
        text = str(reply.completion_message.content)
        assert text.startswith("{")
        if reply.completion_message.stop_reason is StopReason.end_of_turn:
            assert isinstance(json.loads(text), dict)


GUIDES: list[tuple[dict[str, Any], str]] = [
    ({"guided_regex": "[0-9]{3}/[x-z]\\n?"}, "[0-9]{3}/[x-z]\\n?"),
    ({"guided_choice": ['yes "sir"', "no\n", "🙂"]}, 'yes "sir"|no\n|🙂'),
    ({"guided_grammar": 'start: "a" (b | "c")\nb: /b+/'}, "a(b+|c)"),
    ({"guided_json": {"enum": ["x", "y"]}}, '"[xy]"'),
    ({"guided_json": '{"enum": ["x", "y"]}'}, '"[xy]"'),
    ({"structured_outputs": {"regex": "[ab]{4}"}}, "[ab]{4}"),
    ({"structured_outputs": {"choice": ["only"]}}, "only"),
]


@pytest.mark.parametrize(("body", "pattern"), GUIDES, ids=str)
async def test_guides(provider: TorchProvider, body: dict[str, Any], pattern: str) -> None:
    checked = check_parameters(parse_fields(json.dumps(body).encode()), CHAT_CHECKS)
    guide = parse_sampling(checked).guide
    assert re.fullmatch(pattern, text_of(await chat(provider, guide=guide)))
    [model] = provider.engines
    sampling = SamplingParams(max_tokens=100, guide=guide, ignore_eos=True)
    collector = Collector()
    async for event in provider.completion(CompletionRequest(model, "Hello", sampling)):
        collector.add(event)
    assert re.fullmatch(pattern, collector.completion().content)


async def test_requests_with_and_without_grammars_share_steps(provider: TorchProvider) -> None:
    schema = json_schema({"enum": ["x"]})
    free, bound, alone = await asyncio.gather(
        chat(provider, max_tokens=20),
        chat(provider, response_format=schema),
        chat(provider, max_tokens=20),
    )
    assert text_of(bound) == '"x"'
    assert free.completion_message == alone.completion_message


async def test_forced_text_is_written_in_the_tokens_that_it_has(provider: TorchProvider) -> None:
    text = "The quick brown fox jumps over the lazy dog."
    [engine] = provider.engines.values()
    reply = await chat(provider, guide=Guide("choice", [text], "guided_choice"), logprobs=0)
    assert text_of(reply) == text
    assert (
        len(reply.logprobs or ())
        <= len(engine.model.tokenizer.encode(text, add_special_tokens=False)) + 2
    )


# Tools --------------------------------------------------------------------------------------------

PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"enum": ["Paris", "Rome"]},
        "days": {"type": "integer", "minimum": 1, "maximum": 14},
        "where": {"type": "object", "properties": {"x": {"type": "boolean"}}, "required": ["x"]},
    },
    "required": ["city", "where"],
}
TOOLS = (
    ToolDefinition("get_weather", "The weather.", PARAMETERS, strict=True),
    ToolDefinition("now", "The time."),
)


@pytest.mark.parametrize("tool_format", ["hermes", "llama3", "llama3_json", "mistral", "pythonic"])
@pytest.mark.parametrize("name", [None, "get_weather", "now"])
async def test_demanded_calls_validate(folder: Path, tool_format: Any, name: str | None) -> None:
    config = TorchConfig(device="cpu", tool_format=tool_format)
    provider = TorchProvider("local", config, [ProviderModel(str(folder))])
    await provider.start()
    try:
        for seed in range(4):
            choice = ToolChoice("required", name)
            reply = await chat(provider, seed=seed, tools=TOOLS, tool_choice=choice)
            [call] = reply.completion_message.tool_calls
            assert isinstance(call, ToolCall)
            assert call.tool_name in ([name] if name else ["get_weather", "now"])
            schema = PARAMETERS if call.tool_name == "get_weather" else {"maxProperties": 0}
            jsonschema.validate(call.arguments, schema)
            assert reply.completion_message.stop_reason is StopReason.end_of_message
    finally:
        await provider.stop()


# What is refused ----------------------------------------------------------------------------------


async def refused(provider: TorchProvider, **options: Any) -> APIError:
    with pytest.raises(APIError) as caught:
        await chat(provider, **options)
    assert caught.value.status == 400
    return caught.value


SCHEMA_PATH = "response_format.json_schema.schema"

BAD_SCHEMAS: list[tuple[dict[str, Any], str]] = [
    ({"type": "strin"}, ""),
    ({"properties": {"a": {"type": "array", "items": {"not": {}}}}}, ".properties.a.items"),
    ({"anyOf": [{"type": "null"}, {"pattern": "(?=x)", "type": "string"}]}, ".anyOf[1]"),
    ({"$defs": {"d": {"uniqueItems": True}}, "$ref": "#/$defs/d"}, ".$defs.d"),
    ({"properties": {"a": {"$ref": "#/$defs/nowhere"}}}, ".properties.a"),
    ({"type": "integer", "minimum": 5, "maximum": 3}, ""),
]


@pytest.mark.parametrize(("schema", "path"), BAD_SCHEMAS, ids=str)
async def test_bad_schemas(provider: TorchProvider, schema: dict[str, Any], path: str) -> None:
    error = await refused(provider, response_format=json_schema(schema))
    assert error.param == SCHEMA_PATH + path
    assert error.param in error.message


async def test_a_tools_bad_schema_names_the_tool(provider: TorchProvider) -> None:
    tool = ToolDefinition("f", None, {"properties": {"a": {"not": {}}}})
    error = await refused(provider, tools=(tool,), tool_choice=ToolChoice("required"))
    assert error.param == "tools.f.parameters.properties.a"


@pytest.mark.parametrize(
    "guide",
    [
        Guide("regex", "(", "guided_regex"),
        Guide("grammar", "start: nowhere", "guided_grammar"),
        Guide("grammar", "x" * (MAX_SOURCE + 1), "guided_grammar"),
    ],
    ids=lambda guide: str(guide.value)[:20],
)
async def test_bad_guides(provider: TorchProvider, guide: Guide) -> None:
    assert (await refused(provider, guide=guide)).param == guide.path


async def test_what_excludes_each_other(provider: TorchProvider) -> None:
    both = Guide("regex", "a", "guided_regex")
    error = await refused(provider, guide=both, response_format=ResponseFormat("json_object"))
    assert error.param == "response_format"
    grammar = Guide("grammar", 'start: "a"', "guided_grammar")
    error = await refused(provider, guide=grammar, tools=TOOLS)
    assert (error.param, error.code) == ("guided_grammar", "unsupported_parameter")
    with pytest.raises(APIError, match="exclude each other"):
        parse_sampling({"guided_regex": "a", "guided_choice": ["b"]})


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    return schema


HOSTILE: list[Guide] = [
    Guide("regex", "(((a{1,100}){1,100}){1,100}){1,100}b", "guided_regex"),
    Guide("regex", "(a|b|ab)*(x?){500}c{3000}", "guided_regex"),
    Guide("json_schema", nested(3000), "guided_json"),
    Guide("json_schema", {"enum": [str(number) for number in range(20_000)]}, "guided_json"),
    Guide(
        "json_schema",
        {"properties": {f"p{index}": {"anyOf": [nested(3)] * 20} for index in range(100)}},
        "guided_json",
    ),
]


@pytest.mark.parametrize("guide", HOSTILE, ids=range(len(HOSTILE)))
async def test_hostile_grammars_are_refused_or_bounded(
    provider: TorchProvider, guide: Guide
) -> None:
    async with asyncio.timeout(60):
        hostile, other = await asyncio.gather(
            chat(provider, max_tokens=5, guide=guide),
            chat(provider, max_tokens=30),
            return_exceptions=True,
        )
    assert not isinstance(hostile, BaseException) or getattr(hostile, "status", None) == 400
    assert isinstance(other, ChatCompletionResponse)


@pytest.mark.parametrize(
    "body",
    [
        {"guided_json": 5},
        {"guided_json": "{"},
        {"guided_json": "[" * 100_000},
        {"guided_choice": []},
        {"guided_choice": [1]},
        {"guided_regex": ["a"]},
        {"structured_outputs": {}},
        {"structured_outputs": {"regex": "a", "choice": ["b"]}},
        {"structured_outputs": {"shape": "round"}},
        {"structured_outputs": {"regex": 5}},
    ],
    ids=lambda body: json.dumps(body)[:40],
)
def test_parameters_that_make_no_sense(body: dict[str, Any]) -> None:
    with pytest.raises(APIError) as caught:
        check_parameters(parse_fields(json.dumps(body).encode()), CHAT_CHECKS)
    assert caught.value.status == 400
    assert next(iter(body)) in (caught.value.param or "")
