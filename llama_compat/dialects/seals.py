"""Seals of reasoning, which vendors give out and want back as they were."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import structs

from llama_compat.types import MessagePart, ReasoningContent, ToolCall

OF_A_CALL = "call"
"""In place of a family: the seal belongs to a call, for which an API has no place."""


def parse_seal(value: Any) -> str | None:
    """A vendor's seal; None where there is none.

    Raises:
        ValueError: it is none, which are ASCII in all families.
    """
    if value is None or (isinstance(value, str) and value.isascii()):
        return value
    raise ValueError("the signature of a thought is no text in ASCII")


def call_seal(call: ToolCall) -> ReasoningContent | None:
    """What a call's maker wants back with it, as a thought beside the call; None where that is
    nothing."""
    if call.thought_signature is None:
        return None
    seal = f"{call.thought_signature} {call.call_id}"
    return ReasoningContent("", seal, OF_A_CALL, redacted=True)


def with_call_seals(parts: Sequence[MessagePart]) -> Iterator[MessagePart]:
    """`parts` whose calls have their seals again, of which each came as a part of its own."""
    seals = {}
    for part in parts:
        if isinstance(part, ReasoningContent) and part.sealed_by == OF_A_CALL:
            signature, _, call_id = (part.signature or "").partition(" ")
            seals[call_id] = signature
    for part in parts:
        if isinstance(part, ToolCall):
            yield structs.replace(part, thought_signature=seals.get(part.call_id))
        elif not (isinstance(part, ReasoningContent) and part.sealed_by == OF_A_CALL):
            yield part
