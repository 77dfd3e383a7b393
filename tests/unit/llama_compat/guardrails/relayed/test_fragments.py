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
        guard = guard_of(mode="redact")
        shown = relayed(WIRES[name], [frame % event.encode()], guard)
        assert CANARY.encode() not in shown, event
        # What tells the tokens of a text that is changed is left out.
        assert b"<EMAIL_1>" in shown or b'":[]' in shown or b'":null' in shown, event
        assert guard.verdicts == {("pii", "redact"): 1}, event


HALVES = ("alice@exa", "mple.com")

WHOLE = {
    "says which, or of what kind, and is no text": """
        id item_id event_id responseId reviewId review_id placeId place_id chunkId fileId file_id
        mediaId media_id sourceId skill_id version model modelVersion modelStage system_fingerprint
        role name tool_name server_name function_names toolType language languageCode mimeType
        level outcome mediaProcessing scheduling jsonPath finishReason done_reason
        blockReason category probability severity overwrittenThreshold modality trafficType
        urlRetrievalStatus created_at startOffset endOffset start_offset end_offset
        duration contentLayers visibleCells style speaker speakerLabel key raw stop_sequence
        obfuscation encrypted_index encodedPolyline googleMapsWidgetContextToken
        widget_context_token fileSearchStore
    """,
    "is a file in base64": "data value image",
    "is where something is": """
        uri url urls fileUri sourceUri imageUri photoUri flagContentUri googleMapsUri retrievedUrl
        document_uri source domain
    """,
    "comes with what it is about, whole in its event": """
        title displayName documentName document_title file_name license cited_text review
        relativePublishTimeDescription renderedContent search_suggestions imageSearchQueries
        webSearchQueries retrievalQueries queries values explanation finishMessage
        blockReasonMessage message description short_description parameters word
    """,
    "is an object's, which comes whole": "a",
    "are the tokens of a text, which are taken out where that is changed": "token tokens",
}
"""Members that streams do not give piece by piece, with the reason why they need not be looked
through as pieces; each is looked through where it comes."""


def member(value: Any) -> str:
    """The name of the member that is the canary."""
    names = value.items() if isinstance(value, dict) else ()
    for name, each in names:
        if each == CANARY or each == [CANARY]:
            return str(name)
        if CANARY in json.dumps(each):
            return member(each) if isinstance(each, dict) else member(_holder(each))
    raise LookupError(value)


def _holder(values: list[Any]) -> Any:
    return next(each for each in values if CANARY in json.dumps(each))


def in_the_middle(event: dict[str, Any]) -> dict[str, Any]:
    """`event` as one after which the text goes on."""
    choices = event.get("choices")
    if choices:
        return {**event, "choices": [{**each, "finish_reason": None} for each in choices]}
    return event


@pytest.mark.parametrize("name", EVENTS)
def test_each_text_that_comes_in_pieces_is_read_as_one(name: str) -> None:
    whole = {each for names in WHOLE.values() for each in names.split()}
    frame = b"%b\n" if name.startswith("ollama") else b"data: %b\n\n"
    missed, joined = set(), 0
    for event in canaries(EVENTS[name], OTHERS.get(name, 0)):
        kind = str(event.get("type") or event.get("event_type") or "")
        if kind and "delta" not in kind:
            continue
        text = json.dumps(in_the_middle(event))
        pieces = [frame % text.replace(CANARY, half).encode() for half in HALVES]
        shown = relayed(WIRES[name], pieces, guard_of(mode="redact"))
        if all(half.encode() in shown for half in HALVES):
            missed.add(member(event))
        else:
            joined += 1
    assert joined
    assert missed <= whole
