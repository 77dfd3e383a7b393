"""Whole replies."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import Raw, Struct

from llama_compat.dialects.openai.embeddings import base64_of
from llama_compat.dialects.openai.repair.fields import (
    CHAT,
    EMPTY_LIST,
    EMPTY_OBJECT,
    EMPTY_STRING,
    NULL,
    ReplyKind,
    as_text,
    encode,
    generated_id,
    lacks,
)
from llama_compat.dialects.openai.repair.parts import (
    ASSISTANT,
    created_now,
    is_null,
    is_time,
    mend_content,
    mend_reasoning,
    mended_finish_reason,
    mended_usage,
)
from llama_compat.dialects.openai.repair.tool_calls import mend_whole_calls
from llama_compat.wire.json_fields import JSONFields, parse_object, parse_objects, to_raw


def mend_completion(fields: JSONFields, kind: ReplyKind, model: Raw) -> None:
    """Mend a whole chat or text completion, in place; it has `choices`.

    Args:
        fields: the reply.
        kind: `CHAT` or `TEXT`.
        model: the model id that the client asked for, in JSON.

    Raises:
        ValueError: `choices` is no list of objects, or one has no message.
    """
    fields["model"] = model
    if lacks(fields, "id"):
        fields["id"] = generated_id(kind.id_prefix)
    fields["id"] = as_text(fields["id"])
    fields["object"] = kind.object
    if not is_time(fields.get("created")):
        fields["created"] = created_now()
    if not is_null(fields.get("usage")):
        fields["usage"] = mended_usage(fields["usage"])
    if kind is CHAT and _are_usual(fields["choices"]):
        return
    choices = parse_objects(fields["choices"])
    mended = [_mend_whole_choice(choice, place, kind) for place, choice in enumerate(choices)]
    if any(mended):
        fields["choices"] = encode(choices)


class _UsualMessage(Struct):
    role: Literal["assistant"]
    content: str | None = None
    reasoning: None = None
    reasoning_content: None = None
    tool_calls: None = None


class _UsualChoice(Struct):
    """A choice of nothing but text, in which there is nothing to mend."""

    index: int
    message: _UsualMessage
    finish_reason: Literal["stop", "length", "content_filter"]


_usual_choices = msgspec.json.Decoder(list[_UsualChoice])


def _are_usual(choices: Raw) -> bool:
    """Whether nothing has to be mended in any of `choices`, which is looked at in one go."""
    try:
        _usual_choices.decode(choices)
    except (msgspec.MsgspecError, RecursionError):
        return False
    return True


def mend_embeddings(fields: JSONFields, model: Raw, *, as_base64: bool = False) -> None:
    """Mend a reply with embeddings, in place; it has `data`.

    Args:
        fields: the reply.
        model: the model id that the client asked for, in JSON.
        as_base64: whether the client asked for base64. OpenAI's SDKs do so unasked, and the one for
            JavaScript takes a list of numbers for base64 and makes nonsense of it.

    Raises:
        ValueError: `data` is no list of objects, or an embedding no list of numbers.
    """
    fields["model"] = model
    if lacks(fields, "object"):
        fields["object"] = Raw(b'"list"')
    embeddings = parse_objects(fields["data"])
    mended = [
        _mend_embedding(embedding, place, as_base64) for place, embedding in enumerate(embeddings)
    ]
    if any(mended):
        fields["data"] = encode(embeddings)


def _mend_embedding(embedding: JSONFields, place: int, as_base64: bool) -> bool:
    changed = False
    if lacks(embedding, "object"):
        embedding["object"] = Raw(b'"embedding"')
        changed = True
    if lacks(embedding, "index"):
        embedding["index"] = to_raw(place)
        changed = True
    vector = bytes(embedding.get("embedding", NULL))
    if as_base64 and vector.startswith(b"["):
        embedding["embedding"] = to_raw(base64_of(msgspec.json.decode(vector, type=list[float])))
        changed = True
    return changed


def _mend_whole_choice(choice: JSONFields, place: int, kind: ReplyKind) -> bool:
    changed = False
    called_tools = False
    if lacks(choice, "index"):
        choice["index"] = to_raw(place)
        changed = True
    if kind is CHAT:
        if lacks(choice, "message"):
            raise ValueError("the reply has a choice without a message")
        message = parse_object(choice["message"])
        called_tools = not lacks(message, "tool_calls") and message["tool_calls"] != EMPTY_LIST
        if _mend_message(message, called_tools):
            choice["message"] = encode(message)
            changed = True
    # A whole reply has come to its end, whether the vendor says why or not.
    reason = EMPTY_STRING if lacks(choice, "finish_reason") else choice["finish_reason"]
    mended_reason = mended_finish_reason(reason, called_tools)
    if mended_reason is not None:
        choice["finish_reason"] = mended_reason
        changed = True
    return changed


def _mend_message(message: JSONFields, called_tools: bool) -> bool:
    changed = mend_content(message)
    changed = mend_reasoning(message) or changed
    if message.get("role") != ASSISTANT:
        message["role"] = ASSISTANT
        changed = True
    if called_tools:
        calls = parse_objects(message["tool_calls"])
        if mend_whole_calls(calls):
            message["tool_calls"] = encode(calls)
            changed = True
    return changed


def chunks_of(completion: JSONFields, kind: ReplyKind) -> list[JSONFields]:
    """A whole, mended reply as the chunks of a stream: all its text, then why it ended, then usage.

    Raises:
        ValueError: its parts are not what they have to be.
    """
    choices = parse_objects(completion["choices"])
    said, ended = [], []
    for choice in choices:
        last = {"index": choice["index"], "finish_reason": choice.pop("finish_reason", NULL)}
        choice["finish_reason"] = NULL
        if kind is CHAT:
            message = parse_object(choice.pop("message", EMPTY_OBJECT))
            if not lacks(message, "tool_calls"):
                calls = parse_objects(message["tool_calls"])
                numbered = [{"index": to_raw(i), **call} for i, call in enumerate(calls)]
                message["tool_calls"] = encode(numbered)
            choice["delta"] = encode(message)
            last["delta"] = EMPTY_OBJECT
        else:
            last["text"] = EMPTY_STRING
        said.append(choice)
        ended.append(last)
    frame = {name: value for name, value in completion.items() if name not in ("usage", "choices")}
    frame["object"] = kind.chunk_object
    chunks = [{**frame, "choices": encode(each)} for each in (said, ended)]
    if not lacks(completion, "usage"):
        chunks.append({**frame, "choices": EMPTY_LIST, "usage": completion["usage"]})
    return chunks
