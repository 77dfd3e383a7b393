"""Replies that may be text or calls: whatever is said, strict calls fit their schemas."""
# ruff: noqa: E402 (what follows needs packages that may not be there)

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("torch", reason="needs the extra 'torch'")
pytest.importorskip("transformers", reason="needs the extra 'torch'")
pytest.importorskip("llguidance", reason="needs the extra 'torch'")
jsonschema = pytest.importorskip("jsonschema", reason="needs the extra 'dev'")

from llama_compat.errors import APIError
from llama_compat.events import Collector
from llama_compat.tools.formats import FORMATS, reply_parser
from llama_compat.types import (
    AnyToolCall,
    ChatCompletionRequest,
    Guide,
    ReasoningDelta,
    ResponseFormat,
    SamplingParams,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolDefinition,
    UserMessage,
)
from providers.base import ProviderModel
from providers.local.engine import LocalModel
from providers.local.replies.grammar import Grammars
from providers.local.torch_engine.config import TorchConfig
from providers.local.torch_engine.provider import TorchProvider
from tests.tiny_models import make_model

FORMAT_NAMES = ["hermes", "llama3", "llama3_json", "mistral", "pythonic", "qwen3_coder"]
BRACKETS = {"llama3": "{", "llama3_json": "{", "pythonic": "["}

PARAMETERS = {
    "type": "object",
    "properties": {
        "city": {"enum": ["Rome", "Nice"]},
        "days": {"type": "integer", "minimum": 1, "maximum": 9},
        "exact": {"type": "boolean"},
    },
    "required": ["city", "exact"],
    "additionalProperties": False,
}
STRICT = ToolDefinition("get_weather", "The weather.", PARAMETERS, strict=True)
LOOSE = ToolDefinition("now", "The time.", {"properties": {"zone": {"type": "string"}}})

SCHEMA = {
    "type": "object",
    "properties": {"answer": {"type": "integer", "maximum": 99, "minimum": 0}},
    "required": ["answer"],
    "additionalProperties": False,
}
GUIDE = Guide("json_schema", SCHEMA, "response_format.json_schema.schema")


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


@pytest.fixture
def model(provider: TorchProvider) -> LocalModel:
    [engine] = provider.engines.values()
    return engine.model


class Written(NamedTuple):
    """A reply as it was written, and what the format's parser finds in it."""

    raw: str
    reasoning: str
    text: str
    calls: list[AnyToolCall]


class CannotSay(Exception):
    """The grammar does not allow what should be said."""


async def write(
    model: LocalModel,
    tool_format: str,
    said: str,
    *,
    seed: int = 0,
    tools: tuple[ToolDefinition, ...] = (STRICT, LOOSE),
    guide: Guide | None = None,
    prefix: str = "",
    single: bool = False,
) -> Written:
    """A reply that begins with `said`, goes on at random, and ends as soon as it may."""
    model = replace(model, tool_format=FORMATS[tool_format])
    grammars = Grammars(model)
    constraint = await grammars.reply_constraint(tools, guide, prefix=prefix, single=single)
    grammars.close()
    chosen = random.Random(seed)
    token_ids: list[int] = []
    to_say = list(model.tokenizer.encode(said, add_special_tokens=False))
    while len(token_ids) < 2000:
        allowed = constraint.allowed()
        assert allowed is not None
        possible = allowed.nonzero()[0].tolist()
        if to_say:
            token_id = to_say.pop(0)
            if token_id not in possible:
                raise CannotSay(model.vocabulary.decode((*token_ids, token_id)))
        elif any(each in model.stop_tokens for each in possible):
            break
        else:
            token_id = chosen.choice(possible)
        constraint.accept(token_id)
        token_ids.append(token_id)
    else:
        raise AssertionError("the random reply has no end")
    raw = model.vocabulary.decode(tuple(token_ids))
    parser = reply_parser(model.tool_format, tools, prompt="<think>\n" if prefix else "")
    deltas = [*parser.push(raw), *parser.flush()]
    return Written(
        raw,
        "".join(delta.text for delta in deltas if isinstance(delta, ReasoningDelta)),
        "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)),
        [
            delta.tool_call
            for delta in deltas
            if isinstance(delta, ToolCallDelta) and delta.tool_call is not None
        ],
    )


def opening_of(tool_format: str) -> str:
    """How a call begins; a blank at the end is left to the tokens of the arguments."""
    opening, _ = FORMATS[tool_format].call_frame("get_weather")
    return opening.rstrip()


@pytest.mark.parametrize("tool_format", FORMAT_NAMES)
async def test_strict_arguments_fit_their_schema(model: LocalModel, tool_format: str) -> None:
    for seed in range(6):
        said = f"Let me see.\n{opening_of(tool_format)}"
        written = await write(model, tool_format, said, seed=seed)
        assert written.text.strip() == "Let me see."
        [call] = written.calls
        assert isinstance(call, ToolCall)
        assert call.tool_name == "get_weather"
        jsonschema.validate(call.arguments, PARAMETERS)


@pytest.mark.parametrize("tool_format", FORMAT_NAMES)
async def test_only_offered_tools_are_called(model: LocalModel, tool_format: str) -> None:
    with pytest.raises(CannotSay):
        await write(model, tool_format, opening_of(tool_format).replace("weather", "time"))


@pytest.mark.parametrize("tool_format", FORMAT_NAMES)
async def test_tools_that_are_not_strict_take_any_object(
    model: LocalModel, tool_format: str
) -> None:
    opening, closing = FORMATS[tool_format].call_frame("now")
    arguments = '{"other": [1, {"x": null}]}'
    written = await write(model, tool_format, opening + arguments + closing)
    assert [call.arguments_json for call in written.calls] == [arguments]


@pytest.mark.parametrize("tool_format", FORMAT_NAMES)
async def test_several_calls(model: LocalModel, tool_format: str) -> None:
    opening, closing = FORMATS[tool_format].call_frame("get_weather")
    call = opening + '{"city": "Rome", "exact": true}' + closing
    said = f"{call}\n{opening_of(tool_format)}"
    written = await write(model, tool_format, said)
    assert len(written.calls) == 2
    for each in written.calls:
        assert isinstance(each, ToolCall)
        jsonschema.validate(each.arguments, PARAMETERS)
    with pytest.raises(CannotSay):
        await write(model, tool_format, said, single=True)


@pytest.mark.parametrize("tool_format", FORMAT_NAMES)
async def test_text_is_free(model: LocalModel, tool_format: str) -> None:
    text = "An answer {with} [brackets],\n\nlines < and > é🙂\n  all of it."
    assert (await write(model, tool_format, text)).raw == text
    assert (await write(model, tool_format, "")).raw == ""


@pytest.mark.parametrize(("tool_format", "bracket"), BRACKETS.items())
async def test_a_line_that_begins_with_a_bracket_is_a_call(
    model: LocalModel, tool_format: str, bracket: str
) -> None:
    for said in (f"{bracket}1", f"a\n{bracket}1", f"a\n \t{bracket}"):
        with pytest.raises(CannotSay):
            await write(model, tool_format, said)


async def test_no_call_begins_in_another_way(model: LocalModel) -> None:
    with pytest.raises(CannotSay):
        await write(model, "qwen3_coder", "Now.\n<function=get_weather>")


@pytest.mark.parametrize("tool_format", FORMAT_NAMES)
async def test_what_is_thought_is_free(model: LocalModel, tool_format: str) -> None:
    opening = opening_of(tool_format)
    thought = f"{opening}?\n{{1}}\n[2]\n"
    said = f"{thought}</think>\n\n{opening}"
    written = await write(model, tool_format, said, prefix="\n</think>\n\n")
    assert written.reasoning.strip() == thought.strip()
    [call] = written.calls
    assert isinstance(call, ToolCall)
    jsonschema.validate(call.arguments, PARAMETERS)


@pytest.mark.parametrize("tool_format", FORMAT_NAMES)
async def test_a_guided_reply_is_what_was_asked_for_or_calls(
    model: LocalModel, tool_format: str
) -> None:
    written = await write(model, tool_format, '{"answer"', guide=GUIDE)
    jsonschema.validate(json.loads(written.text), SCHEMA)
    assert not written.calls
    written = await write(model, tool_format, opening_of(tool_format), guide=GUIDE)
    assert [call.tool_name for call in written.calls] == ["get_weather"]
    assert not written.text
    with pytest.raises(CannotSay):
        await write(model, tool_format, "Well", guide=GUIDE)


async def test_a_guided_reply_ends_the_reasoning_first(model: LocalModel) -> None:
    prefix = "\n</think>\n\n"
    written = await write(model, "hermes", "", guide=GUIDE, prefix=prefix)
    assert written.raw.startswith(prefix)
    if not written.calls:
        jsonschema.validate(json.loads(written.text), SCHEMA)


async def reply_of(provider: TorchProvider, **options: Any) -> Collector:
    [name] = provider.engines
    request = ChatCompletionRequest(
        name, (UserMessage("Hello"),), SamplingParams(max_tokens=400, seed=3), **options
    )
    collector = Collector()
    async for event in provider.chat_completion(request):
        collector.add(event)
    return collector


async def test_a_request_with_tools_and_a_response_format(provider: TorchProvider) -> None:
    asked = ResponseFormat("json_schema", "x", SCHEMA, strict=True)
    collector = await reply_of(provider, response_format=asked, tools=(LOOSE,))
    message = collector.chat_completion().completion_message
    if not message.tool_calls:
        jsonschema.validate(json.loads(str(message.content)), SCHEMA)


@pytest.mark.parametrize(
    ("strict", "refused"), [(True, True), (False, False), (None, False)], ids=str
)
async def test_only_a_strict_tools_schema_has_to_be_enforceable(
    provider: TorchProvider, strict: bool | None, refused: bool
) -> None:
    tool = ToolDefinition("f", None, {"properties": {"a": {"not": {}}}}, strict=strict)
    if refused:
        with pytest.raises(APIError) as caught:
            await reply_of(provider, tools=(STRICT, tool))
        assert caught.value.param == "tools.f.parameters.properties.a"
    else:
        await reply_of(provider, tools=(STRICT, tool))
