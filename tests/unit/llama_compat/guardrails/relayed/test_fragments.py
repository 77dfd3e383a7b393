"""No field of an event goes by unread: every one that the vendors' own SDKs know has a canary."""

from __future__ import annotations

import collections.abc
import json
import types
from collections.abc import Iterator
from enum import Enum
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import anthropic.types
import google.genai.interactions
import google.genai.types
import ollama
import openai.types
import openai.types.chat
import openai.types.responses
import pytest
from pydantic import BaseModel

from llama_compat.guardrails.documents import SEALS
from tests.unit.llama_compat.guardrails.relayed.test_stream import guard_of, relayed
from tests.unit.llama_compat.guardrails.relayed.wires import WIRES

CANARY = "alice@example.com"
DEEPEST = 12

EVENTS = {
    "chat": openai.types.chat.ChatCompletionChunk,
    "completions": openai.types.Completion,
    "responses": openai.types.responses.ResponseStreamEvent,
    "messages": anthropic.types.RawMessageStreamEvent,
    "gemini": google.genai.types.GenerateContentResponse,
    "ollama_chat": ollama.ChatResponse,
    "ollama_generate": ollama.GenerateResponse,
    "interactions": google.genai.interactions.InteractionSSEEvent,
}


OTHERS = {"responses": 8}
"""Where events have whole responses in them, with all that there was in the request."""

UNSENT = {
    "sdkHttpResponse": "what the SDK says of the HTTP response",
    "automaticFunctionCallingHistory": "what the SDK has called itself",
    "parsed": "what the SDK makes of a text",
}
"""Members that SDKs add to what was sent, which no stream has."""


def canaries(kind: Any, depth: int = 0) -> Iterator[Any]:
    """Values of a type, in each of which one text is the canary."""
    origin = get_origin(kind)
    if kind in (str, Any, object) or (isinstance(kind, type) and issubclass(kind, Enum)):
        # What is one of a list of words to an SDK may be any to who sends it.
        yield CANARY
    elif depth > DEEPEST:
        return
    elif origin in (Union, types.UnionType):
        for each in get_args(kind):
            yield from canaries(each, depth)
    elif origin is Annotated:
        yield from canaries(get_args(kind)[0], depth)
    elif origin is list or origin is collections.abc.Sequence:
        yield from ([each] for each in canaries(get_args(kind)[0], depth + 1))
    elif origin is dict or origin is collections.abc.Mapping:
        yield from ({"a": each} for each in canaries(get_args(kind)[1], depth + 1))
    elif isinstance(kind, type) and issubclass(kind, BaseModel):
        fixed = dict(literals(kind))
        for name, field in kind.model_fields.items():
            known_as = field.alias or name
            if known_as in SEALS or (fixed.get("type") == "redacted_thinking" and name == "data"):
                continue  # nobody reads them, and who changes them breaks them
            if known_as in UNSENT:
                continue
            for value in canaries(field.annotation, depth + 1):
                yield {**fixed, known_as: value}


def literals(kind: type[BaseModel]) -> Iterator[tuple[str, Any]]:
    """What every value of a type says of itself."""
    for name, field in kind.model_fields.items():
        if get_origin(field.annotation) is Literal:
            yield field.alias or name, get_args(field.annotation)[0]


@pytest.mark.parametrize("name", EVENTS)
def test_each_field_that_an_sdk_knows_is_read(name: str) -> None:
    events = {json.dumps(each): each for each in canaries(EVENTS[name], OTHERS.get(name, 0))}
    assert len(events) >= 5
    frame = b"%b\n" if name.startswith("ollama") else b"data: %b\n\n"
    for event in events:
        shown = relayed(WIRES[name], [frame % event.encode()], guard_of(mode="redact"))
        assert CANARY.encode() not in shown, event
        assert b"<EMAIL_1>" in shown, event
