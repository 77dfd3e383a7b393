from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from llama_compat.dialects.openai.operations import COMPLETIONS, EMBEDDINGS
from llama_compat.errors import APIError, UnsupportedHere
from llama_compat.events import Collector
from llama_compat.exchange import Reply, Target
from llama_compat.types import (
    ChatCompletionRequest,
    CompletionRequest,
    SamplingParams,
    StopReason,
    StreamComplete,
    StreamEvent,
    StreamProgress,
    StreamStart,
    TextDelta,
    Usage,
    UserMessage,
)
from providers.base import ProviderModel
from providers.local.echo import EchoConfig, EchoProvider
from tests.unit.calls import call_of

ECHO = Target("echo")


def provider(**config: Any) -> EchoProvider:
    return EchoProvider("echo", EchoConfig(**config), [ProviderModel("echo")])


async def events(request: CompletionRequest | ChatCompletionRequest) -> list[StreamEvent]:
    echo = provider()
    if isinstance(request, CompletionRequest):
        return [event async for event in echo.completion(request)]
    return [event async for event in echo.chat_completion(request)]


def user(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


async def chat(
    echo: EchoProvider | None = None, /, *, target: Target = ECHO, **body: Any
) -> dict[str, Any]:
    reply = await (echo or provider()).openai_chat_completion(call_of(body), target)
    assert isinstance(reply.body, bytes)
    value: dict[str, Any] = json.loads(reply.body)
    return value


async def complete(echo: EchoProvider | None = None, /, **body: Any) -> dict[str, Any]:
    reply = await (echo or provider()).openai_completion(call_of(body, COMPLETIONS), ECHO)
    assert isinstance(reply.body, bytes)
    value: dict[str, Any] = json.loads(reply.body)
    return value


async def streamed(reply: Reply) -> list[dict[str, Any]]:
    assert not isinstance(reply.body, bytes)
    raw = reply.first + b"".join([part async for part in reply.body])
    return [json.loads(line[6:]) for line in raw.decode().splitlines() if line.startswith("data:")]


# --------------------------------------------------------------------------------------------------
# Text
# --------------------------------------------------------------------------------------------------


async def test_a_token_is_a_word_with_the_white_space_after_it() -> None:
    request = ChatCompletionRequest("echo", (UserMessage(" Hello,  big\nworld "),))
    assert await events(request) == [
        StreamStart(4),
        *(StreamProgress(TextDelta(text)) for text in (" ", "Hello,  ", "big\n", "world ")),
        StreamComplete(StopReason.end_of_turn, Usage(4, 4)),
    ]


async def test_the_answer_is_the_last_user_message() -> None:
    reply = await chat(
        messages=[
            {"role": "system", "content": "Be brief."},
            *user("first"),
            {"role": "assistant", "content": "first"},
            {
                "role": "user",
                "content": [{"type": "text", "text": "and "}, {"type": "text", "text": "last"}],
            },
        ]
    )
    (choice,) = reply["choices"]
    assert choice["message"]["content"] == "and last"
    assert choice["finish_reason"] == "stop"
    assert reply["usage"] == {"prompt_tokens": 6, "completion_tokens": 2, "total_tokens": 8}


async def test_without_a_user_message_the_answer_is_empty() -> None:
    reply = await chat(messages=[{"role": "system", "content": "Be brief."}])
    assert reply["choices"][0]["message"]["content"] == ""
    assert reply["usage"]["completion_tokens"] == 0


@pytest.mark.parametrize(
    ("prompt", "texts"),
    [
        ("a b", ["a b"]),
        (["a b", "c"], ["a b", "c"]),
        ([10, 20], ["10 20"]),
        ([[1], [2, 3]], ["1", "2 3"]),
        ("", [""]),
    ],
)
async def test_prompts_of_all_kinds(prompt: Any, texts: list[str]) -> None:
    reply = await complete(prompt=prompt)
    assert [choice["text"] for choice in reply["choices"]] == texts
    words = sum(len(text.split()) for text in texts)
    assert reply["usage"]["prompt_tokens"] == reply["usage"]["completion_tokens"] == words


@pytest.mark.parametrize(
    ("limits", "text", "finish_reason"),
    [
        ({"max_tokens": 2}, "one two ", "length"),
        ({"max_completion_tokens": 1}, "one ", "length"),
        ({"max_tokens": 3}, "one two three", "stop"),
        ({"max_tokens": 9}, "one two three", "stop"),
        ({"max_tokens": 10**25}, "one two three", "stop"),
        ({}, "one two three", "stop"),
    ],
)
async def test_max_tokens(limits: dict[str, int], text: str, finish_reason: str) -> None:
    reply = await chat(messages=user("one two three"), **limits)
    assert reply["choices"][0]["message"]["content"] == text
    assert reply["choices"][0]["finish_reason"] == finish_reason
    assert reply["usage"]["completion_tokens"] == len(text.split())


@pytest.mark.parametrize(
    ("stop", "text", "finish_reason", "tokens"),
    [
        ("two", "one ", "stop", 2),
        ("e t", "on", "stop", 2),
        (["three", "wo"], "one t", "stop", 2),
        ("three four", "one two three", "stop", 3),
        ("e", "on", "stop", 1),
    ],
)
async def test_stop_strings(stop: Any, text: str, finish_reason: str, tokens: int) -> None:
    reply = await chat(messages=user("one two three"), stop=stop)
    assert reply["choices"][0]["message"]["content"] == text
    assert reply["choices"][0]["finish_reason"] == finish_reason
    assert reply["usage"]["completion_tokens"] == tokens


async def test_what_a_stop_string_held_back_comes_before_the_cut() -> None:
    reply = await chat(messages=user("one two three"), stop="two three!", max_tokens=2)
    assert reply["choices"][0]["message"]["content"] == "one two "
    assert reply["choices"][0]["finish_reason"] == "length"


async def test_echo_puts_the_prompt_first() -> None:
    reply = await complete(prompt="a b c", echo=True, max_tokens=2)
    assert reply["choices"][0]["text"] == "a b ca b "
    assert reply["usage"]["completion_tokens"] == 2
    reply = await complete(prompt="a b c", echo=True, max_tokens=0)
    assert reply["choices"][0]["text"] == "a b c"
    assert reply["choices"][0]["finish_reason"] == "length"


async def test_sampling_changes_nothing() -> None:
    sampling = {"temperature": 1.9, "top_p": 0.1, "top_k": 3, "seed": 7}
    reply = await chat(messages=user("one two"), n=2, **sampling)
    assert [choice["message"]["content"] for choice in reply["choices"]] == ["one two", "one two"]


async def test_a_stream_says_the_same() -> None:
    body = {"messages": user("one two three"), "stop": "three", "max_tokens": 9}
    whole = await chat(**body)
    request = call_of({**body, "stream": True, "stream_options": {"include_usage": True}})
    *chunks, last = await streamed(await provider().openai_chat_completion(request, ECHO))
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    text = "".join(delta.get("content", "") for delta in deltas)
    assert text == whole["choices"][0]["message"]["content"] == "one two "
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    assert last["usage"] == whole["usage"]


# --------------------------------------------------------------------------------------------------
# Refusals
# --------------------------------------------------------------------------------------------------


async def test_the_context_length_counts() -> None:
    echo, five = provider(), Target("echo", context_length=5)
    reply = await chat(echo, target=five, messages=user("1 2 3"), max_tokens=2)
    assert reply["usage"]["total_tokens"] == 5
    reply = await chat(echo, target=five, messages=user("1 2 3"))
    assert reply["choices"][0]["message"]["content"] == "1 2 "
    assert reply["choices"][0]["finish_reason"] == "length"
    for words, limits in (("1 2 3", {"max_tokens": 3}), ("1 2 3 4 5", {})):
        with pytest.raises(APIError) as raised:
            await chat(echo, target=five, messages=user(words), **limits)
        assert raised.value.code == "context_length_exceeded"
    assert echo.running == 0


@pytest.mark.parametrize(
    "parameter",
    [
        {"logprobs": True},
        {"frequency_penalty": 1},
        {"response_format": {"type": "json_object"}},
        {"reasoning_effort": "low"},
        {"something": "unknown"},
    ],
)
async def test_what_it_cannot_do_is_refused_by_name(parameter: dict[str, Any]) -> None:
    with pytest.raises(APIError) as raised:
        await chat(provider(unsupported="refuse"), messages=user("a"), **parameter)
    assert (raised.value.status, raised.value.param) == (400, next(iter(parameter)))


async def test_a_mere_wish_is_left_out_and_named() -> None:
    request = call_of({"messages": user("a"), "frequency_penalty": 1, "reasoning_effort": "low"})
    reply = await provider().openai_chat_completion(request, ECHO)
    assert sorted(reply.dropped) == ["frequency_penalty", "reasoning_effort"]


async def test_or_dropped_where_the_template_says_so() -> None:
    request = call_of({"messages": user("a"), "frequency_penalty": 1})
    reply = await provider(unsupported="drop").openai_chat_completion(request, ECHO)
    assert reply.dropped == ("frequency_penalty",)


@pytest.mark.parametrize(
    ("part", "what"),
    [
        ({"type": "image_url", "image_url": {"url": "http://a/b.png"}}, "an image"),
        ({"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}, "audio"),
        ({"type": "file", "file": {"file_data": "JVBERi0xLjc="}}, "a document"),
    ],
)
async def test_media_are_refused(part: dict[str, Any], what: str) -> None:
    with pytest.raises(
        UnsupportedHere, match=f"holds {what}; local::echo takes text only"
    ) as raised:
        await chat(messages=[*user("a"), {"role": "user", "content": [part]}])
    assert (raised.value.status, raised.value.param) == (400, "messages[1].content")


# --------------------------------------------------------------------------------------------------
# Tool calls
# --------------------------------------------------------------------------------------------------


def tool(name: str, **properties: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


TOOLS = [
    tool("now"),
    tool("weather", days={"type": "integer"}, city={"type": "string"}, note={"type": "string"}),
    tool("paint", colour={"type": "string", "enum": ["red"]}),
]


def named(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


@pytest.mark.parametrize(
    ("choice", "name", "arguments"),
    [
        ("required", "now", {}),
        (named("weather"), "weather", {"city": "in \u201cNew York\u201d"}),
        (named("paint"), "paint", {}),
    ],
)
async def test_a_demanded_tool_is_called(choice: Any, name: str, arguments: dict[str, str]) -> None:
    body = {"messages": user("in \u201cNew York\u201d"), "tools": TOOLS, "tool_choice": choice}
    (whole,) = (await chat(**body))["choices"]
    assert whole["finish_reason"] == "tool_calls"
    assert whole["message"]["content"] is None
    (call,) = whole["message"]["tool_calls"]
    assert call["id"].startswith("call_")
    assert call["function"]["name"] == name
    assert json.loads(call["function"]["arguments"]) == arguments

    reply = await provider().openai_chat_completion(call_of({**body, "stream": True}), ECHO)
    chunks = [chunk["choices"][0] for chunk in await streamed(reply)]
    pieces = [piece for chunk in chunks for piece in chunk["delta"].get("tool_calls", ())]
    text = "".join(piece["function"].get("arguments", "") for piece in pieces)
    assert text == call["function"]["arguments"]
    assert pieces[0]["function"]["name"] == name
    assert chunks[-1]["finish_reason"] == "tool_calls"


@pytest.mark.parametrize("choice", [None, "auto", "none"])
async def test_no_tool_is_called_unless_demanded(choice: str | None) -> None:
    body = {} if choice is None else {"tool_choice": choice}
    (whole,) = (await chat(messages=user("a b"), tools=TOOLS, **body))["choices"]
    assert whole["message"]["content"] == "a b"
    assert "tool_calls" not in whole["message"]


async def test_a_call_that_max_tokens_cuts_is_kept_as_text() -> None:
    body = {"messages": user("New York"), "tools": TOOLS, "tool_choice": named("weather")}
    reply = await chat(**body, max_tokens=2)
    (whole,) = reply["choices"]
    assert whole["finish_reason"] == "length"
    assert whole["message"]["tool_calls"][0]["function"]["arguments"] == '{"city": "New '
    assert reply["usage"]["completion_tokens"] == 2


@pytest.mark.parametrize(
    ("choice", "tools", "message"),
    [
        (named("fly"), TOOLS, "'tool_choice' demands the tool 'fly'; 'tools' has none."),
        ("required", [], "'tool_choice' demands a tool; 'tools' has none."),
    ],
)
async def test_a_tool_that_is_not_there(choice: Any, tools: list[Any], message: str) -> None:
    with pytest.raises(APIError) as raised:
        await chat(messages=user("a"), tools=tools, tool_choice=choice)
    assert (raised.value.status, raised.value.param) == (400, "tool_choice")
    assert raised.value.message == message


# --------------------------------------------------------------------------------------------------
# Running
# --------------------------------------------------------------------------------------------------


async def test_closing_the_stream_ends_the_generation() -> None:
    echo = provider()
    stream = echo.completion(CompletionRequest("echo", "a b c"))
    collector = Collector()
    for _ in range(2):
        collector.add(await anext(stream))
    assert echo.running == 1
    await stream.aclose()
    assert echo.running == 0


async def test_cancelling_ends_a_generation_that_waits() -> None:
    echo = provider(delay_ms=3_600_000)
    stream = echo.completion(CompletionRequest("echo", "a b"))
    await anext(stream)
    waiting = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    assert echo.running == 1
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert echo.running == 0


async def test_a_long_answer_lets_others_have_theirs() -> None:
    echo = provider()
    long = asyncio.create_task(chat(echo, messages=user("word " * 1000)))
    short = asyncio.create_task(chat(echo, messages=user("word")))
    await short
    assert not long.done()
    await long


async def test_choices_run_at_the_same_time() -> None:
    echo = provider()
    request = CompletionRequest("echo", "a b", SamplingParams(max_tokens=2))
    first, second = echo.completion(request), echo.completion(request)
    await anext(first)
    await anext(second)
    assert echo.running == 2
    assert echo.stats() == {"running": 2}
    await first.aclose()
    await second.aclose()
    assert echo.running == 0


async def embedded(*texts: str, **more: Any) -> list[list[float]]:
    body = {"model": "echo", "input": list(texts), **more}
    reply = await provider().openai_embeddings(call_of(body, EMBEDDINGS), ECHO)
    assert isinstance(reply.body, bytes)
    return [each["embedding"] for each in json.loads(reply.body)["data"]]


async def test_vectors_are_alike_where_words_are() -> None:
    def alike(one: list[float], other: list[float]) -> float:
        return sum(map(float.__mul__, one, other))

    first, same, other, nothing = await embedded("the red car", "Car, the RED", "blue sky", "?!")
    assert alike(first, same) == pytest.approx(1)
    assert alike(first, other) < 0.5
    assert len(first) == 256
    assert not any(nothing)
    assert [len(each) for each in await embedded("a", dimensions=8)] == [8]
    with pytest.raises(APIError) as caught:
        await embedded("a", dimensions=10**9)
    assert caught.value.param == "dimensions"
