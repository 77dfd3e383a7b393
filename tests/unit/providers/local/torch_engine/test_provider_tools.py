"""Tool calls and reasoning of `local::torch`, by models that were made to say what they say."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the extra 'torch'")
pytest.importorskip("transformers", reason="needs the extra 'torch'")

from llama_compat.errors import APIError
from llama_compat.events import Collector
from llama_compat.exchange import Call, Target
from llama_compat.tools.formats import FORMATS
from llama_compat.types import (
    ChatCompletionRequest,
    ChatCompletionResponse,
    CompletionMessage,
    CompletionRequest,
    Message,
    SamplingParams,
    StopReason,
    ToolCall,
    ToolChoice,
    ToolDefinition,
    ToolResponseMessage,
    UnparseableToolCall,
    UserMessage,
)
from providers.base import ProviderModel
from providers.local.prompts.prompts import chat_prompt
from providers.local.replies.call_rules import call_rules
from providers.local.torch_engine.config import TorchConfig
from providers.local.torch_engine.provider import TorchProvider
from tests.tiny_models import CHAT_TEMPLATE, make_model, make_speaking_model
from tests.unit.calls import call_of

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = (
    ToolDefinition("get_weather", "The weather.", CITY),
    ToolDefinition("get_time", "The time.", CITY),
)
NATIVE_TEMPLATE = (
    "{% if tools %}<|im_start|>tools\n"
    "{% for tool in tools %}{{ tool.function.name }} {% endfor %}<|im_end|>\n{% endif %}"
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}"
    "{% for call in message.tool_calls or [] %}"
    "{{ call.id }}: {{ call.function.name }} {{ call.function.arguments | tojson }}{% endfor %}"
    "{% if message.tool_call_id %} ({{ message.tool_call_id }}){% endif %}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
HERMES_REPLY = [
    "I look. ",
    "<tool_call>",
    '\n{"name": "get_',
    'weather", "arguments": ',
    '{"city": "Par',
    'is"}}',
    "\n</tool_call>",
    "<tool_call>\n",
    '{"name": "get_time", "arguments": {}}',
    "</tool_call>",
]


@asynccontextmanager
async def running(folder: Path, **config: Any) -> AsyncGenerator[TorchProvider, None]:
    config = {"device": "cpu", "tool_format": "hermes", **config}
    provider = TorchProvider("local", TorchConfig(**config), [ProviderModel(str(folder))])
    await provider.start()
    try:
        yield provider
    finally:
        await provider.stop()


async def chat(
    provider: TorchProvider,
    *,
    sampling: SamplingParams | None = None,
    tools: Sequence[ToolDefinition] = TOOLS,
    **options: Any,
) -> ChatCompletionResponse:
    [model] = provider.engines
    request = ChatCompletionRequest(
        model,
        (UserMessage("How is the weather in Paris?"),),
        sampling or SamplingParams(max_tokens=64),
        tools=tuple(tools),
        **options,
    )
    collector = Collector()
    async for event in provider.chat_completion(request):
        collector.add(event)
    return collector.chat_completion()


def calls(response: ChatCompletionResponse) -> list[tuple[str, dict[str, Any]]]:
    made = response.completion_message.tool_calls
    assert all(isinstance(call, ToolCall) for call in made)
    return [(call.tool_name, json.loads(call.arguments_json)) for call in made]


# What the model says ------------------------------------------------------------------------------


async def test_calls(tmp_path: Path) -> None:
    async with running(make_speaking_model(tmp_path, HERMES_REPLY)) as provider:
        response = await chat(provider, logprobs=2)
    message = response.completion_message
    assert message.content == "I look. "
    assert calls(response) == [("get_weather", {"city": "Paris"}), ("get_time", {})]
    assert message.stop_reason is StopReason.end_of_message
    assert response.usage.completion_tokens == len(HERMES_REPLY) + 1
    assert response.logprobs is not None
    assert [token.chosen.token for token in response.logprobs] == HERMES_REPLY
    assert all(len(token.top) == 2 for token in response.logprobs)


async def test_without_parallel_calls_the_first_ends_the_reply(tmp_path: Path) -> None:
    async with running(make_speaking_model(tmp_path, HERMES_REPLY)) as provider:
        response = await chat(provider, parallel_tool_calls=False)
        again = await chat(provider, parallel_tool_calls=False)
    assert calls(response) == [("get_weather", {"city": "Paris"})]
    assert response.completion_message.stop_reason is StopReason.end_of_message
    assert response.usage.completion_tokens == HERMES_REPLY.index('is"}}') + 1
    assert again.usage == response.usage


@pytest.mark.parametrize("options", [{"tools": ()}, {"tool_choice": ToolChoice("none")}])
async def test_without_tools_there_are_no_calls(tmp_path: Path, options: dict[str, Any]) -> None:
    async with running(make_speaking_model(tmp_path, HERMES_REPLY)) as provider:
        response = await chat(provider, **options)
    assert response.completion_message.content == "".join(HERMES_REPLY)
    assert response.completion_message.tool_calls == ()
    assert response.completion_message.stop_reason is StopReason.end_of_turn


async def test_markers_that_are_special_tokens(tmp_path: Path) -> None:
    reply = ["<think>", "Paris", "</think>", "[TOOL_CALLS]", "get_weather", "[ARGS]", '{"city":']
    reply += [' "Paris"', "}"]
    special = {"<think>", "</think>", "[TOOL_CALLS]", "[ARGS]"}
    make_speaking_model(tmp_path, reply, special=special)
    async with running(tmp_path, tool_format="mistral") as provider:
        response = await chat(provider)
        without_tools = await chat(provider, tools=())
        [model] = provider.engines
        request = CompletionRequest(model, "assistant\n", SamplingParams(max_tokens=64))
        collector = Collector()
        async for event in provider.completion(request):
            collector.add(event)
    assert calls(response) == [("get_weather", {"city": "Paris"})]
    message = response.completion_message
    assert (message.reasoning, message.content) == ("Paris", "")
    message = without_tools.completion_message
    assert (message.reasoning, message.content) == ("Paris", 'get_weather{"city": "Paris"}')
    assert collector.completion().content == 'Parisget_weather{"city": "Paris"}'


# What is demanded ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        (ToolChoice("required", "get_time"), ["get_time"]),
        (ToolChoice("required"), ["get_time", "get_weather"]),
    ],
)
async def test_a_demanded_call(tmp_path: Path, choice: ToolChoice, names: list[str]) -> None:
    pytest.importorskip("llguidance")
    # Left to itself it would say nothing at all; behind the opening of a call it says the rest.
    make_speaking_model(tmp_path, [' "Par', 'is"', "}", "\n\n</tool_call>"], after='"city":')
    async with running(tmp_path) as provider:
        [engine] = provider.engines.values()
        opening = engine.model.tokenizer.encode(
            '<tool_call>{"name": "get_', add_special_tokens=True
        )
        against = dict.fromkeys(opening, -100.0)
        for sampling in (
            SamplingParams(max_tokens=90, stop=("\n", '"', "Par")),
            SamplingParams(max_tokens=90, logit_bias=against, frequency_penalty=2),
        ):
            response = await chat(provider, tool_choice=choice, sampling=sampling, logprobs=0)
            ((name, arguments),) = calls(response)
            assert name in names
            assert arguments == {"city": "Paris"}
            assert response.completion_message.content == ""
            assert response.completion_message.stop_reason is StopReason.end_of_message
            assert response.logprobs is not None
            text = "".join(token.chosen.token for token in response.logprobs)
            assert text == f'<tool_call>\n{{"name": "{name}", "arguments": {{"city": "Paris"}}'
            assert response.usage.completion_tokens == len(response.logprobs)


async def test_a_demanded_call_that_runs_out_of_tokens(tmp_path: Path) -> None:
    pytest.importorskip("llguidance")
    choice = ToolChoice("required", "get_time")
    make_speaking_model(tmp_path, [' "Par', 'is"', "}"], after='"city":')
    async with running(tmp_path) as provider:
        sampling = SamplingParams(max_tokens=90)
        whole = await chat(provider, tool_choice=choice, sampling=sampling)
        for tokens, arguments in [(0, '{"city": "Paris"'), (1, '{"city": "Par'), (60, "")]:
            left = max(1, whole.usage.completion_tokens - 1 - tokens)
            sampling = SamplingParams(max_tokens=left)
            response = await chat(provider, tool_choice=choice, sampling=sampling)
            (call,) = response.completion_message.tool_calls
            assert isinstance(call, UnparseableToolCall)
            assert (call.tool_name, call.arguments_json) == ("get_time", arguments)
            assert response.completion_message.stop_reason is StopReason.out_of_tokens


# Prompts ------------------------------------------------------------------------------------------

HISTORY: tuple[Message, ...] = (
    UserMessage("How is the weather?"),
    CompletionMessage.of(
        tool_calls=(ToolCall("call_1", "get_weather", {"city": "Rome"}, '{"city": "Rome"}'),)
    ),
    ToolResponseMessage("call_1", "sunny"),
)


def prompt_of(provider: TorchProvider, **options: Any) -> str:
    [engine] = provider.engines.values()
    request = ChatCompletionRequest(engine.model.name, HISTORY, **options)
    return chat_prompt(engine.model, request, call_rules(request)).text


async def test_a_template_without_tools_gets_them_as_text(tmp_path: Path) -> None:
    async with running(make_model(tmp_path)) as provider:
        prompt = prompt_of(provider, tools=TOOLS)
        without = prompt_of(provider)
        none = prompt_of(provider, tools=TOOLS, tool_choice=ToolChoice("none"))
    assert prompt.startswith("<|im_start|>system\n# Tools")
    assert '"name": "get_time"' in prompt
    assert without == none
    assert without == (
        "<|im_start|>user\nHow is the weather?<|im_end|>\n<|im_start|>assistant\n<tool_call>\n"
        '{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call><|im_end|>\n'
        "<|im_start|>user\n<tool_response>\nsunny\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n"
    )


@pytest.mark.parametrize(
    ("tool_format", "call_id"), [("hermes", "call_1"), ("none", "call_1"), ("mistral", "f0ce5c525")]
)
async def test_a_template_that_takes_tools(tmp_path: Path, tool_format: str, call_id: str) -> None:
    make_model(tmp_path, chat_template=NATIVE_TEMPLATE)
    async with running(tmp_path, tool_format=tool_format) as provider:
        prompt = prompt_of(provider, tools=TOOLS)
        without = prompt_of(provider, tools=TOOLS, tool_choice=ToolChoice("none"))
    assert prompt == "<|im_start|>tools\nget_weather get_time <|im_end|>\n" + without
    assert without == (
        "<|im_start|>user\nHow is the weather?<|im_end|>\n<|im_start|>assistant\n"
        f'{call_id}: get_weather {{"city": "Rome"}}<|im_end|>\n'
        f"<|im_start|>tool\nsunny ({call_id})<|im_end|>\n<|im_start|>assistant\n"
    )


async def test_earlier_calls_that_no_one_can_write(tmp_path: Path) -> None:
    async with running(make_model(tmp_path), tool_format="none") as provider:
        with pytest.raises(APIError) as caught:
            prompt_of(provider)
    assert (caught.value.status, caught.value.param) == (400, "messages[1]")
    assert "tool_format" in caught.value.message


# Which format -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("edit", "tool_format", "expected"),
    [
        ({}, "auto", None),
        ({}, "none", None),
        ({}, "pythonic", "pythonic"),
        ({"_name_or_path": "Qwen/Qwen3-0.6B"}, "auto", "hermes"),
        ({}, "qwen", "hermes"),
        ({}, "qwen3_coder", "qwen3_coder"),
        ({"_model_name_or_path": "Smollm2 135M"}, "auto", "hermes"),
        ({"chat_template": CHAT_TEMPLATE + "{# [TOOL_CALLS] #}"}, "auto", "mistral"),
    ],
)
async def test_the_format_is_looked_for_or_given(
    tmp_path: Path, edit: dict[str, str], tool_format: str, expected: str | None
) -> None:
    make_model(tmp_path / "m", chat_template=edit.pop("chat_template", CHAT_TEMPLATE))
    config = tmp_path / "m" / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), **edit}))
    async with running(tmp_path / "m", tool_format=tool_format) as provider:
        [engine] = provider.engines.values()
        found = engine.model.tool_format
    assert (found.name if found else None) == expected


def wire(provider: TorchProvider, **body: Any) -> tuple[Call, Target]:
    [model] = provider.engines
    body = {
        "model": "tiny",
        "messages": [{"role": "user", "content": "Hello"}],
        "max_tokens": 2,
        "tool_choice": "required",
        "tools": [{"type": "function", "function": {"name": "f"}}],
        **body,
    }
    return call_of(body), Target(model)


@pytest.mark.parametrize("tool_format", ["auto", "none"])
async def test_tools_are_refused_where_no_format_is_known(tmp_path: Path, tool_format: str) -> None:
    async with running(make_model(tmp_path), tool_format=tool_format) as provider:
        with pytest.raises(APIError) as caught:
            await provider.openai_chat_completion(*wire(provider))
    error = caught.value
    assert (error.status, error.code) == (400, "unsupported_parameter")
    assert error.param == "tools"
    assert "'tool_format'" in error.message


async def test_tools_are_dropped_with_what_is_said_of_them(tmp_path: Path) -> None:
    async with running(make_model(tmp_path), tool_format="none", unsupported="drop") as provider:
        reply = await provider.openai_chat_completion(*wire(provider))
    assert reply.status == 200
    assert sorted(reply.dropped) == ["tool_choice", "tools"]


def test_every_format_can_be_chosen() -> None:
    for name in FORMATS:
        assert TorchConfig(tool_format=name).tool_format == name  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", ["qwen3", "None", ""])
def test_a_format_that_is_not_there(wrong: str) -> None:
    with pytest.raises(ValueError, match="tool_format"):
        TorchConfig(tool_format=wrong)  # type: ignore[arg-type]


async def test_choices_share_their_prompt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(make_model(tmp_path)) as provider:
        [engine] = provider.engines.values()
        rendered = []
        render = engine.model.tokenizer.render_chat

        def counted(messages: Any, *more: Any) -> str:
            rendered.append(messages)
            return render(messages, *more)

        monkeypatch.setattr(engine.model.tokenizer, "render_chat", counted)
        messages = [{"role": "user", "content": "How is the weather in Paris today? " * 4}]
        reply = await provider.openai_chat_completion(
            *wire(provider, n=4, messages=messages, tools=None, tool_choice=None)
        )
        stats = engine.stats
    assert isinstance(reply.body, bytes)
    assert len(json.loads(reply.body)["choices"]) == 4
    # Once its template was tried, which is done for the first chat of a model.
    assert sum("Paris" in str(each) for each in rendered) == 1
    assert stats.cached_tokens > 2 * stats.prompt_tokens
