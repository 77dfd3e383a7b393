"""Shapes and errors that OpenAI's clients count on, of any server."""

from __future__ import annotations

import json
import os
from typing import Any

import openai
import pytest
from openai.types import Completion, Model
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from pydantic import BaseModel

from tests.integration import wire
from tests.integration.expectations import honoured_or_refused

MESSAGES: list[Any] = [{"role": "user", "content": "Say hello."}]


@pytest.fixture
def headers() -> dict[str, str]:
    return {"authorization": f"Bearer {os.environ.get('OPENAI_API_KEY', 'none')}"}


def post(base_url: str, path: str, body: Any, headers: dict[str, str]) -> wire.Reply:
    return wire.request("POST", base_url + path, body, headers)


def check_shape(shape: type[BaseModel], value: Any) -> None:
    """Hold `value` against the SDK's type, which the SDK itself does not."""
    shape.model_validate(value)
    assert value.get("error") is None


def refusal(reply: wire.Reply) -> str:
    """The message of a 4xx, which has to be where OpenAI's clients look for it."""
    assert 400 <= reply.status < 500
    error = reply.json()["error"]
    assert isinstance(error["message"], str)
    return f"{error['message']} {error.get('param') or ''}"


# Shapes -------------------------------------------------------------------------------------------


@pytest.mark.capability("chat")
def test_a_reply_has_all_that_its_type_has(
    base_url: str, model: str, headers: dict[str, str]
) -> None:
    question = {"model": model, "messages": MESSAGES, "max_tokens": 4}
    reply = post(base_url, "/chat/completions", question, headers)
    assert reply.headers.get_content_type() == "application/json"
    check_shape(ChatCompletion, reply.json())


@pytest.mark.capability("streaming")
def test_every_chunk_has_all_that_its_type_has_and_done_is_last(
    base_url: str, model: str, headers: dict[str, str]
) -> None:
    question = {"model": model, "messages": MESSAGES, "max_tokens": 4, "stream": True}
    url = f"{base_url}/chat/completions"
    with wire.open_reply("POST", url, question, headers) as reply:
        assert reply.status == 200
        assert reply.headers.get_content_type() == "text/event-stream"
        chunks = wire.chunks(reply)
    for chunk in chunks:
        check_shape(ChatCompletionChunk, chunk)


@pytest.mark.capability("completions")
def test_a_completion_has_all_that_its_type_has(client: openai.OpenAI, model: str) -> None:
    with honoured_or_refused("completions", "/completions"):
        raw = client.completions.with_raw_response.create(model=model, prompt="Once", max_tokens=4)
    check_shape(Completion, raw.http_response.json())


@pytest.mark.capability("models")
def test_every_listed_model_has_all_that_its_type_has(
    base_url: str, headers: dict[str, str]
) -> None:
    listed = wire.request("GET", f"{base_url}/models", headers=headers).json()
    assert listed["object"] == "list"
    for model in listed["data"]:
        check_shape(Model, model)


# Tools in parallel --------------------------------------------------------------------------------


@pytest.mark.capability("parallel_tool_calls")
def test_no_more_than_one_tool_is_called_where_one_may_be(
    client: openai.OpenAI, model: str
) -> None:
    tool: Any = {
        "type": "function",
        "function": {
            "name": "get_weather",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        },
    }
    with honoured_or_refused("parallel_tool_calls", "tools", "tool_choice"):
        reply = client.chat.completions.create(
            model=model,
            messages=[{"role": "user", "content": "How is the weather in Paris and in London?"}],
            tools=[tool],
            parallel_tool_calls=False,
            max_tokens=200,
            temperature=0,
        )
    assert len(reply.choices[0].message.tool_calls or ()) <= 1


# Errors -------------------------------------------------------------------------------------------


@pytest.mark.capability("errors: shape")
def test_an_error_has_all_of_its_members(
    base_url: str, model: str, headers: dict[str, str]
) -> None:
    reply = post(base_url, "/chat/completions", {"model": model, "messages": "hello"}, headers)
    error = reply.error()
    assert isinstance(error["code"], str | None)
    assert isinstance(error["param"], str | None)


@pytest.mark.capability("errors: bad parameter")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", "hot"),
        ("temperature", 7),
        ("top_p", 2),
        ("max_tokens", -7),
        ("max_tokens", "many"),
        ("n", 0),
        ("stream", "yes"),
        ("stop", 5),
        ("top_logprobs", 99),
        ("tools", "none"),
        ("response_format", {"type": "smell"}),
    ],
)
def test_a_parameter_that_makes_no_sense_is_a_400(
    base_url: str, model: str, headers: dict[str, str], name: str, value: Any
) -> None:
    question = {"model": model, "messages": MESSAGES, "max_tokens": 2, name: value}
    if name == "top_logprobs":
        question["logprobs"] = True
    assert name in refusal(post(base_url, "/chat/completions", question, headers))


@pytest.mark.capability("errors: bad parameter")
@pytest.mark.parametrize(
    "messages",
    [
        "hello",
        [],
        [{"role": "robot", "content": "hello"}],
        [{"role": "user"}],
        [{"role": "user", "content": [{"type": "smell"}]}],
    ],
    ids=["text", "none", "a role of no one", "no content", "a part of no type"],
)
def test_messages_that_are_none_are_a_400(
    base_url: str, model: str, headers: dict[str, str], messages: Any
) -> None:
    question = {"model": model, "messages": messages, "max_tokens": 2}
    assert refusal(post(base_url, "/chat/completions", question, headers))


@pytest.mark.capability("errors: unknown parameter")
def test_what_nobody_knows_is_not_ignored(
    base_url: str, model: str, headers: dict[str, str]
) -> None:
    question = {"model": model, "messages": MESSAGES, "max_tokens": 2, "no_such_parameter": 1}
    assert "no_such_parameter" in refusal(post(base_url, "/chat/completions", question, headers))


@pytest.mark.capability("errors: bad body")
@pytest.mark.parametrize("body", [b"{", b"[]", b"nonsense"], ids=["half", "a list", "no JSON"])
def test_a_body_that_is_no_json_object_is_a_400(
    base_url: str, headers: dict[str, str], body: bytes
) -> None:
    assert refusal(post(base_url, "/chat/completions", body, headers))


@pytest.mark.capability("errors: bad body")
@pytest.mark.parametrize("levels", [300, 100_000])
def test_a_body_that_is_nested_without_end_harms_nobody(
    base_url: str, model: str, headers: dict[str, str], levels: int
) -> None:
    deep = b"[" * levels + b"]" * levels
    body = b'{"model": %b, "messages": %b}' % (json.dumps(model).encode(), deep)
    assert refusal(post(base_url, "/chat/completions", body, headers))
    question = {"model": model, "messages": MESSAGES, "max_tokens": 1}
    assert post(base_url, "/chat/completions", question, headers).status == 200


@pytest.mark.capability("errors: bad body")
def test_what_is_not_there_is_a_404(base_url: str, headers: dict[str, str]) -> None:
    assert post(base_url, "/no/such/route", {}, headers).status == 404
