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
import pytest_asyncio

pytest.importorskip("torch", reason="needs the extra 'torch'")
pytest.importorskip("transformers", reason="needs the extra 'torch'")
pytest.importorskip("llguidance", reason="needs the extra 'torch'")
jsonschema = pytest.importorskip("jsonschema", reason="needs the extra 'dev'")

from llama_compat.dialects.openai.parameters import (
    CHAT_CHECKS,
    check_parameters,
    parse_sampling,
)
from llama_compat.errors import APIError, UnsupportedHere
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
from providers.local.replies.grammar import MAX_SOURCE, Grammars
from providers.local.replies.schemas import enforceable
from providers.local.torch_engine.config import TorchConfig
from providers.local.torch_engine.provider import TorchProvider
from tests.tiny_models import make_model

in_one_loop = pytest.mark.asyncio(loop_scope="module")
"""That of the provider, which takes a second to start in a process that has imported much."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("models") / "tiny", max_position_embeddings=2048)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
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


@in_one_loop
async def test_schemas_hold(provider: TorchProvider) -> None:
    schemas = [random_schema(random.Random(seed)) for seed in range(50)]
    replies = await asyncio.gather(
        *(chat(provider, response_format=json_schema(schema)) for schema in schemas)
    )
    for schema, reply in zip(schemas, replies, strict=True):
        jsonschema.validate(json.loads(text_of(reply)), schema)


@in_one_loop
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
@in_one_loop
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


@in_one_loop
async def test_requests_with_and_without_grammars_share_steps(provider: TorchProvider) -> None:
    schema = json_schema({"enum": ["x"]})
    free, bound, alone = await asyncio.gather(
        chat(provider, max_tokens=20),
        chat(provider, response_format=schema),
        chat(provider, max_tokens=20),
    )
    assert text_of(bound) == '"x"'
    assert free.completion_message == alone.completion_message


@in_one_loop
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
@in_one_loop
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


@pytest.mark.parametrize(
    "parameters",
    [{"type": "string"}, {"type": ["array", "null"]}, {"type": "integer", "minimum": 1}],
    ids=str,
)
@in_one_loop
async def test_a_forced_tool_whose_parameters_are_no_object_is_refused(
    provider: TorchProvider, parameters: dict[str, Any]
) -> None:
    tool = ToolDefinition("f", None, parameters)
    error = await refused(provider, tools=(tool,), tool_choice=ToolChoice("required", "f"))
    assert error.param == "tools.f.parameters.type"
    assert "the arguments of a tool are an object" in error.message


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
@in_one_loop
async def test_bad_schemas(provider: TorchProvider, schema: dict[str, Any], path: str) -> None:
    error = await refused(provider, response_format=json_schema(schema))
    assert error.param == SCHEMA_PATH + path
    assert error.param in error.message


@in_one_loop
async def test_a_tools_bad_schema_names_the_tool(provider: TorchProvider) -> None:
    tool = ToolDefinition("f", None, {"properties": {"a": {"not": {}}}}, strict=True)
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
@in_one_loop
async def test_bad_guides(provider: TorchProvider, guide: Guide) -> None:
    assert (await refused(provider, guide=guide)).param == guide.path


BIG = 2**53 + 1


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        ({"enum": [1, BIG]}, ".enum"),
        ({"const": 10**20}, ".const"),
        ({"properties": {"a": {"const": {"x": [2**64]}}}}, ".properties.a.const"),
        ({"$defs": {"d": {"const": BIG}}, "$ref": "#/$defs/d"}, ".$defs.d.const"),
        ({"type": "integer", "minimum": 2**64}, ".minimum"),
        ({"items": {"type": "integer", "exclusiveMaximum": -(2**64)}}, ".items.exclusiveMaximum"),
        ({"type": "integer", "minimum": BIG, "maximum": BIG}, ""),
        ({"type": "array", "items": {"uniqueItems": True, "default": 2**70}}, ".items"),
        ({"type": "array", "minItems": 2**70}, ".minItems"),
    ],
    ids=str,
)
@in_one_loop
async def test_numbers_that_can_not_be_kept_are_refused(
    provider: TorchProvider, schema: dict[str, Any], path: str
) -> None:
    """llguidance computes with float64."""
    error = await refused(provider, response_format=json_schema(schema))
    assert error.param == SCHEMA_PATH + path
    assert f"'{error.param}' can't be enforced: " in error.message


@pytest.mark.parametrize(
    ("schema", "possible", "impossible"),
    [
        ({"minimum": 2**53 + 1, "maximum": 2**53 + 4}, [2**53 + 2, 2**53 + 3], [2**53]),
        ({"minimum": -(2**63), "maximum": 2**63 - 1}, [0, -5, 9 * 10**18], [2**63, -(2**63) - 1]),
        ({"minimum": 0, "maximum": 2**64 - 1}, [0, 9 * 10**18], [-1, 2**64]),
        ({"exclusiveMinimum": BIG}, [2**53 + 4], [BIG, 2**53]),
        ({"maximum": 1e400}, [5, 10**30], []),
        ({"enum": [2**53, -(2**53), 2**53 + 2]}, [2**53, 2**53 + 2], [BIG]),
    ],
    ids=str,
)
@in_one_loop
async def test_bounds_hold_to_the_last_digit(
    provider: TorchProvider, schema: dict[str, Any], possible: list[int], impossible: list[int]
) -> None:
    guide = Guide("json_schema", {"type": "integer", **schema}, "guided_json")
    for number in possible:
        assert await can_say(provider, guide, str(number)), number
    for number in impossible:
        assert not await can_say(provider, guide, str(number)), number


async def can_say(provider: TorchProvider, guide: Guide, text: str) -> bool:
    """Whether a reply may be `text`."""
    [engine] = provider.engines.values()
    grammars = Grammars(engine.model)
    constraint = await grammars.constraint(guide)
    grammars.close()
    for token_id in engine.model.tokenizer.encode(text, add_special_tokens=False):
        allowed = constraint.allowed()
        if allowed is not None and not allowed[token_id]:
            return False
        constraint.accept(token_id)
    allowed = constraint.allowed()
    return allowed is None or any(allowed[each] for each in engine.model.stop_tokens)


@pytest.mark.parametrize(
    ("kind", "value", "possible", "impossible"),
    [
        ("regex", r"\d+", ["15"], ["٣", "五", "x"]),
        ("regex", r"\w", ["a", "_", "5"], ["é", "٣"]),
        ("regex", r"[^\d]\D", ["é٣"], ["٣5"]),
        ("regex", r"a/[/]\\d", ["a//\\d"], ["a//5"]),
        ("regex", "", [""], ["a"]),
        ("json_schema", {"type": "string", "pattern": r"^\d\w$"}, ['"5a"'], ['"٣a"', '"5é"']),
    ],
    ids=str,
)
@in_one_loop
async def test_digits_and_letters_of_patterns_are_ascii(
    provider: TorchProvider, kind: Any, value: Any, possible: list[str], impossible: list[str]
) -> None:
    guide = Guide(kind, value, "guided")
    for text in possible:
        assert await can_say(provider, guide, text), text
    for text in impossible:
        assert not await can_say(provider, guide, text), text


COMPLAINTS: list[tuple[Guide, str]] = [
    (Guide("regex", "a(b", "guided_regex"), "unclosed group, at character 2 of the pattern."),
    (Guide("regex", r"a\b", "guided_regex"), "a pattern can't look around, as '(?=' and '\\b' do."),
    (
        Guide("grammar", 'start: "a" X\nX: X "b"', "guided_grammar"),
        'line 2, column 4: circular reference in token "X" definition. A grammar is written in'
        " Lark's notation, as https://",
    ),
    (
        Guide("grammar", 'start: ("a"', "guided_grammar"),
        "line 1, column 12: Expected token ')', found '\\n'. A grammar is written in",
    ),
    (
        Guide("json_schema", {"type": "strin"}, "guided_json"),
        "Invalid type: strin.",
    ),
]


@pytest.mark.parametrize(("guide", "said"), COMPLAINTS, ids=lambda each: str(each)[:30])
@in_one_loop
async def test_what_is_wrong_is_said_in_a_sentence(
    provider: TorchProvider, guide: Guide, said: str
) -> None:
    error = await refused(provider, guide=guide)
    assert error.message.startswith(f"'{guide.path}' can't be enforced: {said}")
    assert "\n" not in error.message


@in_one_loop
async def test_a_grammar_that_turns_out_too_complex_is_refused_in_a_sentence(
    provider: TorchProvider,
) -> None:
    source = 'start: x{0,2000} "c"\nx: ("a" | "b" | y)\ny: x x | ""'
    with pytest.raises(APIError) as caught:
        await can_say(provider, Guide("grammar", source, "guided_grammar"), "aaabbbaaaaabbb" * 20)
    message = caught.value.message
    assert message.startswith("'guided_grammar' is too complex to be enforced: ")
    assert "<state>" not in message
    assert "\n" not in message


@in_one_loop
async def test_what_nothing_fits_is_not_called_too_complex(provider: TorchProvider) -> None:
    schema = {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}
    error = await refused(provider, response_format=json_schema(schema))
    assert error.message.endswith("can't be enforced: nothing that could be written fits it.")


@in_one_loop
async def test_gbnf_is_refused_by_its_name(provider: TorchProvider) -> None:
    guide = Guide("grammar", 'root ::= "yes" | "no"', "guided_grammar")
    error = await refused(provider, guide=guide)
    assert "A grammar is written in Lark's notation, as https://" in error.message
    assert "llama.cpp's notation, GBNF: 'python -m llguidance.gbnf_to_lark FILE'" in error.message


@in_one_loop
async def test_what_excludes_each_other(provider: TorchProvider) -> None:
    both = Guide("regex", "a", "guided_regex")
    error = await refused(provider, guide=both, response_format=ResponseFormat("json_object"))
    assert error.param == "response_format"
    grammar = Guide("grammar", 'start: "a"', "guided_grammar")
    error = await refused(provider, guide=grammar, tools=TOOLS)
    assert isinstance(error, UnsupportedHere)
    assert (error.param, error.code) == ("guided_grammar", "unsupported_parameter")
    with pytest.raises(APIError, match="exclude each other"):
        parse_sampling({"guided_regex": "a", "guided_choice": ["b"]})


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    return schema


HOSTILE: list[Guide] = [
    Guide("regex", "(a{1000}){16}", "guided_regex"),
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


MUCH = "b?(a{1000}){1000}"


@pytest.mark.parametrize(
    ("guide", "path"),
    [
        (Guide("regex", MUCH, "guided_regex"), ""),
        (Guide("grammar", f"start: X\nX: /{MUCH}/", "guided_grammar"), ""),
        (
            Guide("json_schema", {"properties": {"a": {"pattern": MUCH}}}, "guided_json"),
            ".properties.a.pattern",
        ),
        (
            Guide("json_schema", {"propertyNames": {"pattern": MUCH}}, "guided_json"),
            ".propertyNames.pattern",
        ),
    ],
    ids=lambda each: getattr(each, "kind", each),
)
@in_one_loop
async def test_what_demands_a_million_characters_is_refused(
    provider: TorchProvider, guide: Guide, path: str
) -> None:
    error = await refused(provider, guide=guide)
    assert error.param == guide.path + path
    assert "with its repetitions written out it demands more than" in error.message


@in_one_loop
async def test_tools_that_demand_a_million_characters_are_left_to_the_model(
    provider: TorchProvider,
) -> None:
    part = {"type": "string", "pattern": MUCH}
    names = {"type": "object", "propertyNames": {"pattern": MUCH}}
    schema = {"properties": {"a": part, "b": names, "c": {"patternProperties": {MUCH: part}}}}
    made = json.dumps(enforceable(schema, "x", loose=True))
    assert "1000" not in made


@in_one_loop
async def test_what_can_only_go_on_in_one_way_is_followed_once(provider: TorchProvider) -> None:
    [engine] = provider.engines.values()
    grammars = Grammars(engine.model)
    constraint = await grammars.constraint(Guide("regex", "a{300}b?a{300}", "guided_regex"))
    grammars.close()
    matcher, asked = constraint._matcher, []  # type: ignore[attr-defined]

    class Watched:
        def compute_ff_tokens(self) -> list[int]:
            asked.append(1)
            return list(matcher.compute_ff_tokens())

        def __getattr__(self, name: str) -> Any:
            return getattr(matcher, name)

    constraint._matcher = Watched()  # type: ignore[attr-defined]
    written = []
    while not any((mask := constraint.allowed())[each] for each in engine.model.stop_tokens):
        written.append(int(mask.argmax()))
        constraint.accept(written[-1])
    assert len(asked) < 10 < len(written)


@pytest.mark.parametrize("guide", HOSTILE, ids=range(len(HOSTILE)))
@in_one_loop
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
