"""What whole replies and chunks have in common: the finish reason and the reasoning."""

from __future__ import annotations

from msgspec import Raw

from llama_compat.dialects.openai.finish_reasons import finish_reason as finish_word
from llama_compat.dialects.openai.finish_reasons import stop_reason
from llama_compat.dialects.openai.mending.fields import NULL, lacks
from llama_compat.wire.json_fields import JSONFields, from_raw, to_raw

_OWN_WORDS = frozenset({"stop", "length", "tool_calls", "function_call", "content_filter"})
"""OpenAI's finish reasons."""


def is_null(value: Raw | None) -> bool:
    """Whether a member is not there, or null."""
    return value is None or value == NULL


def mended_finish_reason(raw: Raw, called_tools: bool) -> Raw | None:
    """OpenAI's word for what the vendor wrote; None where it needs no other.

    Raises:
        BrokenOffError: the vendor wrote that the reply is not all of it.
    """
    word = from_raw(raw)
    if not isinstance(word, str):
        return None
    if word in _OWN_WORDS:
        mended = "tool_calls" if called_tools and word in ("stop", "function_call") else word
    else:
        mended = finish_word(stop_reason(word), called_tools=called_tools)
    return None if mended == word else to_raw(mended)


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
    if not bytes(message[here]).startswith(b'"'):
        return False
    message[there] = message[here]
    return True
