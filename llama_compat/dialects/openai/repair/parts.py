"""What whole replies and chunks have in common."""

from __future__ import annotations

import time
from typing import Annotated, Any

import msgspec
from msgspec import Raw

from llama_compat.dialects.openai.finish_reasons import NO_REASON, stop_reason
from llama_compat.dialects.openai.finish_reasons import finish_reason as finish_word
from llama_compat.dialects.openai.repair.fields import (
    NULL,
    as_text,
    begin,
    is_text,
    lacks,
)
from llama_compat.dialects.openai.usage import parse_usage
from llama_compat.wire.json_fields import JSONFields, from_raw, parse_object, to_raw

ASSISTANT = Raw(b'"assistant"')

_OWN_WORDS = frozenset({"stop", "length", "tool_calls", "function_call", "content_filter"})
"""OpenAI's finish reasons."""


def is_null(value: Raw | None) -> bool:
    """Whether a member is not there, or null."""
    return value is None or value == NULL


def names_no_reason(raw: Raw) -> bool:
    """Whether a finish reason is a word for none."""
    return is_text(raw) and str(from_raw(raw)).lower() in NO_REASON


def mended_finish_reason(raw: Raw, called_tools: bool) -> Raw | None:
    """OpenAI's word for what the vendor wrote; None where it needs no other.

    Raises:
        BrokenOffError: the vendor wrote that the reply is not all of it.
    """
    word = from_raw(raw) if is_text(raw) else ""
    if word in _OWN_WORDS:
        mended = "tool_calls" if called_tools and word in ("stop", "function_call") else word
    else:
        mended = finish_word(stop_reason(word), called_tools=called_tools)
    return None if mended == word else to_raw(mended)


def created_now() -> Raw:
    """The time (JSON) in place of one that the vendor left out."""
    return to_raw(int(time.time()))


def is_time(raw: Raw | None) -> bool:
    """Whether `raw` can be the time at which a reply was made."""
    return raw is not None and begin(raw).isdigit()


_Tokens = Annotated[int, msgspec.Meta(ge=0)]


class _Counts(msgspec.Struct):
    """What there is in every usage."""

    prompt_tokens: _Tokens
    completion_tokens: _Tokens
    total_tokens: _Tokens


_COUNTS = _Counts.__struct_fields__
_counts = msgspec.json.Decoder(_Counts)


def mended_usage(raw: Raw) -> Raw:
    """The usage with all of its counts; null where the vendor counted nothing."""
    try:
        _counts.decode(raw)
    except (msgspec.MsgspecError, RecursionError):
        pass
    else:
        return raw
    if begin(raw) != b"{":
        return NULL
    usage = parse_object(raw)
    if all(is_null(usage.get(name)) for name in _COUNTS):
        return NULL
    known = parse_usage(from_raw(raw))
    counts = (known.prompt_tokens, known.completion_tokens)
    for name, count in zip(_COUNTS, (*counts, sum(counts)), strict=True):
        if not bytes(usage.get(name, NULL)).isdigit():
            usage[name] = to_raw(count)
    return to_raw(usage)


def mend_content(message: JSONFields) -> bool:
    """Make text of a message's or a delta's content that is something else; Mistral has lists of
    parts there, of which those that are thoughts become its reasoning."""
    raw = message.get("content")
    if raw is None or raw == NULL or is_text(raw):
        return False
    if begin(raw) != b"[":
        message["content"] = as_text(raw)
        return True
    parts = [_text_of(part) for part in from_raw(raw)]
    if None in parts:
        return False  # more than text, which text can't say
    said = [part for part in parts if part is not None]
    message["content"] = to_raw("".join(text for text, is_thought in said if not is_thought))
    thoughts = "".join(text for text, is_thought in said if is_thought)
    if thoughts and lacks(message, "reasoning_content"):
        message["reasoning_content"] = to_raw(thoughts)
    return True


def _text_of(part: Any) -> tuple[str, bool] | None:
    """The text of a part, and whether it is a thought; None for a part of another kind."""
    if isinstance(part, str):
        return part, False
    if not isinstance(part, dict):
        return None
    if part.get("type") == "thinking":
        inner = part.get("thinking")
        inner = inner if isinstance(inner, list) else [inner]
        texts = [_text_of(each) for each in inner]
        return "".join(text[0] for text in texts if text is not None), True
    text = part.get("text")
    return (text, False) if isinstance(text, str) else None


def mend_reasoning(message: JSONFields) -> bool:
    """Give a message's or a delta's reasoning by both of its names."""
    if "reasoning_content" in message:
        here, there = "reasoning_content", "reasoning"
    elif "reasoning" in message:
        here, there = "reasoning", "reasoning_content"
    else:
        return False
    if lacks(message, here):
        here, there = there, here
    if lacks(message, here) or not lacks(message, there):
        return False
    if not is_text(message[here]):
        return False
    message[there] = message[here]
    return True
