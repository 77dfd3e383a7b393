"""No field of a request or of a whole reply goes by unread: every one that the vendors' own SDKs
know has a canary. Those of streams are in `relayed/test_fragments.py`."""

from __future__ import annotations

import collections.abc
import json
import types
from collections.abc import Iterator
from enum import Enum
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    Required,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import anthropic.types
import anthropic.types.message_create_params
import google.genai.interactions
import google.genai.types
import ollama
import ollama._types
import openai.types
import openai.types.audio
import openai.types.chat
import openai.types.chat.completion_create_params
import openai.types.completion_create_params
import openai.types.image_generate_params
import openai.types.responses
import openai.types.responses.response_create_params
import pytest
from pydantic import BaseModel
from typing_extensions import TypeAliasType, is_typeddict

from llama_compat.guardrails.documents import SEALS
from llama_compat.guardrails.guard import Blocked, Guard
from llama_compat.wire.json_fields import from_raw, to_raw
from tests.unit.llama_compat.guardrails.relayed.test_fragments import UNSENT
from tests.unit.llama_compat.guardrails.test_replies import guard_of

CANARY = "alice@example.com"
DEEPEST = 5
"""Types that hold themselves go no deeper."""

REQUESTS = {
    "chat": openai.types.chat.completion_create_params.CompletionCreateParamsNonStreaming,
    "completions": openai.types.completion_create_params.CompletionCreateParamsNonStreaming,
    "responses": openai.types.responses.response_create_params.ResponseCreateParamsNonStreaming,
    "embeddings": openai.types.EmbeddingCreateParams,
    "moderations": openai.types.ModerationCreateParams,
    "images": openai.types.image_generate_params.ImageGenerateParamsNonStreaming,
    "speech": openai.types.audio.SpeechCreateParams,
    "input_tokens": openai.types.responses.InputTokenCountParams,
    "compact": openai.types.responses.ResponseCompactParams,
    "messages": anthropic.types.message_create_params.MessageCreateParamsNonStreaming,
    "count_tokens": anthropic.types.MessageCountTokensParams,
    "gemini": google.genai.types.Content,
    "gemini_config": google.genai.types.GenerateContentConfig,
    "interactions": google.genai.interactions.CreateModelInteractionParam,
    "ollama_chat": ollama._types.ChatRequest,
    "ollama_generate": ollama._types.GenerateRequest,
    "ollama_embed": ollama._types.EmbedRequest,
}

REPLIES = {
    "chat": openai.types.chat.ChatCompletion,
    "completions": openai.types.Completion,
    "responses": openai.types.responses.Response,
    "messages": anthropic.types.Message,
    "gemini": google.genai.types.GenerateContentResponse,
    "interactions": google.genai.interactions.Interaction,
    "ollama_chat": ollama.ChatResponse,
    "ollama_generate": ollama.GenerateResponse,
    "transcriptions": openai.types.audio.TranscriptionVerbose,
    "diarized": openai.types.audio.TranscriptionDiarized,
    "images": openai.types.ImagesResponse,
    "compact": openai.types.responses.CompactedResponse,
}


_LISTS = (list, collections.abc.Sequence, collections.abc.Iterable)
_OBJECTS = (dict, collections.abc.Mapping)


def canaries(kind: Any, depth: int = 0) -> Iterator[Any]:
    """Values of a type, in each of which one text is the canary."""
    origin = get_origin(kind)
    if isinstance(kind, TypeAliasType) or hasattr(kind, "__value__"):
        yield from canaries(kind.__value__, depth)
    elif kind in (str, Any, object) or (isinstance(kind, type) and issubclass(kind, Enum)):
        yield CANARY
    elif depth > DEEPEST:
        return
    elif origin in (Union, types.UnionType):
        for each in get_args(kind):
            yield from canaries(each, depth)
    elif origin in (Annotated, Required, NotRequired):
        yield from canaries(get_args(kind)[0], depth)
    elif origin in _LISTS:
        yield from ([each] for each in canaries(get_args(kind)[0], depth + 1))
    elif origin in _OBJECTS:
        yield {CANARY: 1}
        yield from ({"a": each} for each in canaries(get_args(kind)[1], depth + 1))
    elif is_typeddict(kind):
        yield from _members(get_type_hints(kind), depth)
    elif isinstance(kind, type) and issubclass(kind, BaseModel):
        fields = kind.model_fields.items()
        yield from _members({each.alias or name: each.annotation for name, each in fields}, depth)


def _members(fields: dict[str, Any], depth: int) -> Iterator[Any]:
    fixed = {name: get_args(each)[0] for name, each in fields.items() if _is_literal(each)}
    for name, each in fields.items():
        if name in SEALS or name in UNSENT:
            continue  # nobody reads them, and who changes them breaks them
        if name == "data" and fixed.get("type") == "redacted_thinking":
            continue
        for value in canaries(each, depth + 1):
            yield {**fixed, name: value}


def _is_literal(kind: Any) -> bool:
    return get_origin(kind) is Literal


def values(kind: Any) -> list[dict[str, Any]]:
    return [json.loads(each) for each in {json.dumps(each) for each in canaries(kind)}]


def asked(guard: Guard, value: dict[str, Any]) -> dict[str, Any]:
    fields = guard.fields({name: to_raw(each) for name, each in value.items()})
    return {name: from_raw(raw) for name, raw in fields.items()}


@pytest.mark.parametrize("name", REQUESTS)
def test_each_field_of_a_request_that_an_sdk_knows_is_read(name: str) -> None:
    found = values(REQUESTS[name])
    assert len(found) >= 4
    for value in found:
        guard = guard_of(mode="redact")
        shown = json.dumps(asked(guard, value))
        assert CANARY not in shown, value
        assert "<EMAIL_1>" in shown, value
        assert guard.verdicts == {("pii", "redact"): 1}, value
        with pytest.raises(Blocked):
            asked(guard_of(), value)


@pytest.mark.parametrize("name", REPLIES)
def test_each_field_of_a_reply_that_an_sdk_knows_is_read(name: str) -> None:
    found = values(REPLIES[name])
    assert len(found) >= 4
    for value in found:
        guard = guard_of(mode="redact")
        shown = json.dumps(guard.said(value))
        assert CANARY not in shown, value
        # What tells the tokens of a text that is changed is left out.
        assert "<EMAIL_1>" in shown or '": []' in shown or '": null' in shown, value
        assert guard.verdicts == {("pii", "redact"): 1}, value
        with pytest.raises(Blocked):
            guard_of().said(value)
