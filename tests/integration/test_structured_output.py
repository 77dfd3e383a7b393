"""`response_format`, of any model that has it."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletion

from tests.integration.expectations import honoured_or_refused

MESSAGES: list[Any] = [{"role": "user", "content": "Describe the city of Paris as JSON."}]
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "enum": ["Paris", "London"]},
        "is_capital": {"type": "boolean"},
    },
    "required": ["city", "is_capital"],
    "additionalProperties": False,
}
JSON_SCHEMA: Any = {
    "type": "json_schema",
    "json_schema": {"name": "city", "schema": SCHEMA, "strict": True},
}


def ask(client: openai.OpenAI, model: str, response_format: Any, **options: Any) -> Any:
    with honoured_or_refused("response_format", response_format["type"]):
        return client.chat.completions.create(
            model=model,
            messages=MESSAGES,
            response_format=response_format,
            temperature=0,
            max_tokens=options.pop("max_tokens", 100),
            **options,
        )


def check_city(text: str) -> None:
    value = json.loads(text)
    assert set(value) == {"city", "is_capital"}
    assert value["city"] in ("Paris", "London")
    assert isinstance(value["is_capital"], bool)


@pytest.mark.capability("response_format: json_object")
def test_a_json_object_is_one(client: openai.OpenAI, model: str) -> None:
    reply: ChatCompletion = ask(client, model, {"type": "json_object"})
    (choice,) = reply.choices
    text = choice.message.content or ""
    if choice.finish_reason == "length":  # a small model may find no end
        assert text.lstrip().startswith("{")
    else:
        assert isinstance(json.loads(text), dict)


@pytest.mark.capability("response_format: json_schema")
def test_a_schema_is_kept_to(client: openai.OpenAI, model: str) -> None:
    reply: ChatCompletion = ask(client, model, JSON_SCHEMA)
    (choice,) = reply.choices
    assert choice.finish_reason == "stop"
    check_city(choice.message.content or "")


@pytest.mark.capability("response_format: json_schema")
def test_a_schema_is_kept_to_in_a_stream(client: openai.OpenAI, model: str) -> None:
    chunks = ask(client, model, JSON_SCHEMA, stream=True)
    check_city("".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices))


@pytest.mark.capability("response_format: json_schema")
def test_a_schema_that_is_none_is_refused(client: openai.OpenAI, model: str) -> None:
    ask(client, model, JSON_SCHEMA, max_tokens=1)  # refused as a whole by those that lack it
    nonsense = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "smell"}}}
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(
            model=model,
            messages=MESSAGES,
            response_format=nonsense,  # type: ignore[arg-type]
            max_tokens=1,
        )


@pytest.mark.capability("chat")
def test_text_is_a_format_too(client: openai.OpenAI, model: str) -> None:
    reply = ask(client, model, {"type": "text"}, max_tokens=3)
    assert reply.choices[0].message.content
