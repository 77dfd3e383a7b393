"""Tool calls, with OpenAI's own client."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.chat.chat_completion_message_function_tool_call import (
    ChatCompletionMessageFunctionToolCall,
)

from tests.integration.expectations import check_usage, honoured_or_refused, tokens_of

QUESTION: list[Any] = [{"role": "user", "content": "What is the weather in Paris?"}]


def tool(name: str, argument: str) -> Any:
    parameters = {
        "type": "object",
        "properties": {argument: {"type": "string"}},
        "required": [argument],
        "additionalProperties": False,
    }
    function = {"name": name, "description": "Looks it up.", "parameters": parameters}
    return {"type": "function", "function": {**function, "strict": True}}


WEATHER, TIME = tool("get_weather", "city"), tool("get_time", "zone")
pytestmark = pytest.mark.capability("tools")

NAMED: Any = {"type": "function", "function": {"name": "get_weather"}}


@pytest.fixture(scope="module")
def asked(model: str) -> dict[str, Any]:
    """A request that has to be answered with a call."""
    return {
        "model": model,
        "messages": QUESTION,
        "tools": [TIME, WEATHER],
        "tool_choice": NAMED,
        "temperature": 0,
        "max_tokens": 200,
    }


@pytest.fixture(scope="module")
def called(client: openai.OpenAI, asked: dict[str, Any]) -> ChatCompletion:
    """The answer; the tests are skipped where the model takes no tools."""
    with honoured_or_refused("tools"), honoured_or_refused("tool_choice"):
        reply: ChatCompletion = client.chat.completions.create(**asked)
    return reply


def call_of(reply: ChatCompletion) -> ChatCompletionMessageFunctionToolCall:
    (call,) = reply.choices[0].message.tool_calls or ()
    assert isinstance(call, ChatCompletionMessageFunctionToolCall)
    return call


def test_a_named_tool_is_called(called: ChatCompletion) -> None:
    call = call_of(called)
    assert call.id
    assert call.function.name == "get_weather"
    assert isinstance(json.loads(call.function.arguments)["city"], str)
    assert called.choices[0].finish_reason == "tool_calls"
    assert not called.choices[0].message.content
    check_usage(called.usage)


def test_a_stream_has_the_same_call(
    client: openai.OpenAI, asked: dict[str, Any], called: ChatCompletion
) -> None:
    options = {"include_usage": True}
    chunks: list[ChatCompletionChunk] = list(
        client.chat.completions.create(**asked, stream=True, stream_options=options)
    )
    deltas = [choice.delta for chunk in chunks for choice in chunk.choices]
    fragments = [call for delta in deltas for call in delta.tool_calls or ()]
    assert {fragment.index for fragment in fragments} == {0}
    assert [fragment.id for fragment in fragments if fragment.id] == [fragments[0].id]
    functions = [fragment.function for fragment in fragments if fragment.function]
    assert "".join(function.name or "" for function in functions) == "get_weather"
    arguments = "".join(function.arguments or "" for function in functions)
    assert arguments == call_of(called).function.arguments
    assert not "".join(delta.content or "" for delta in deltas)
    reasons = [choice.finish_reason for chunk in chunks for choice in chunk.choices]
    assert [reason for reason in reasons if reason] == ["tool_calls"]
    assert tokens_of(chunks[-1].usage) == tokens_of(called.usage)


def test_the_client_puts_the_stream_together(
    client: openai.OpenAI, asked: dict[str, Any], called: ChatCompletion
) -> None:
    with client.chat.completions.stream(**asked) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    assert "tool_calls.function.arguments.done" in kinds
    (call,) = final.choices[0].message.tool_calls or ()
    assert call.function.name == "get_weather"
    assert call.function.arguments == call_of(called).function.arguments
    assert final.choices[0].finish_reason == "tool_calls"


@pytest.mark.capability("tool_choice: required")
def test_some_tool_is_called_where_one_is_required(
    client: openai.OpenAI, asked: dict[str, Any], called: ChatCompletion
) -> None:
    reply = client.chat.completions.create(**{**asked, "tool_choice": "required"})
    calls = reply.choices[0].message.tool_calls
    assert calls
    for call in calls:
        assert isinstance(call, ChatCompletionMessageFunctionToolCall)
        assert call.function.name in ("get_weather", "get_time")
        assert isinstance(json.loads(call.function.arguments), dict)
    assert reply.choices[0].finish_reason == "tool_calls"


def test_no_tool_is_called_where_none_may_be(
    client: openai.OpenAI, asked: dict[str, Any], called: ChatCompletion
) -> None:
    changed = {**asked, "tool_choice": "none", "max_tokens": 12}
    message = client.chat.completions.create(**changed).choices[0].message
    assert message.tool_calls is None
    assert message.content


def test_an_answer_of_a_tool_goes_into_the_next_prompt(
    client: openai.OpenAI, asked: dict[str, Any], called: ChatCompletion
) -> None:
    call = call_of(called)
    answer = {"role": "tool", "tool_call_id": call.id, "content": "It rains cats and dogs."}
    turn = called.choices[0].message.model_dump(exclude_none=True)
    changed = {**asked, "messages": [*QUESTION, turn, answer], "tool_choice": "none"}
    reply = client.chat.completions.create(**{**changed, "max_tokens": 24})
    assert reply.choices[0].message.content
    alone = client.chat.completions.create(**{**asked, "tool_choice": "none", "max_tokens": 1})
    assert check_usage(reply.usage).prompt_tokens > check_usage(alone.usage).prompt_tokens


def test_a_tool_that_is_not_offered_can_t_be_demanded(
    client: openai.OpenAI, asked: dict[str, Any], called: ChatCompletion
) -> None:
    choice = {"type": "function", "function": {"name": "get_rich"}}
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(**{**asked, "tool_choice": choice})


@pytest.mark.capability("logprobs")
def test_log_probabilities_of_a_call(
    client: openai.OpenAI, asked: dict[str, Any], called: ChatCompletion
) -> None:
    wanted = {**asked, "logprobs": True, "top_logprobs": 1}
    with honoured_or_refused("logprobs"):
        reply = client.chat.completions.create(**wanted)
    logprobs = reply.choices[0].logprobs
    assert logprobs is not None
    with honoured_or_refused("logprobs"):
        chunks = client.chat.completions.create(**wanted, stream=True)
    streamed = []
    for chunk in chunks:
        for choice in chunk.choices:
            streamed += (choice.logprobs.content or []) if choice.logprobs else []
    assert [token.token for token in streamed] == [token.token for token in logprobs.content or ()]
    assert call_of(reply).function == call_of(called).function
