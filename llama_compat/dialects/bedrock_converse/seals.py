"""Seals of thoughts: Claude's own, which Anthropic's API knows too, and bytes that are Bedrock's.

https://platform.claude.com/docs/en/build-with-claude/extended-thinking: signatures are good on all
platforms that have the model (2026-11-23).
"""

from __future__ import annotations

from typing import Any

from llama_compat.dialects.anthropic_messages.seals import FAMILY as CLAUDES
from llama_compat.dialects.seals import parse_seal
from llama_compat.types import ReasoningContent

BEDROCKS = "bedrock"
"""Who seals a redacted thought."""


def parse_thought(text: str, signature: Any) -> ReasoningContent:
    """The thought `text`, whose `signature` may be missing.

    Raises:
        ValueError: that is no signature.
    """
    seal = parse_seal(signature)
    return ReasoningContent(text, seal, CLAUDES) if seal else ReasoningContent(text)


def parse_redacted(data: Any) -> ReasoningContent:
    """A thought of which only the bytes `data` are given, in base64.

    Raises:
        ValueError: they are not.
    """
    return ReasoningContent("", parse_seal(data), BEDROCKS, redacted=True)


def render_thought(thought: ReasoningContent) -> dict[str, Any] | None:
    """The block in which Claude takes a thought of its own back; None for others' thoughts."""
    if thought.signature is None:
        return None
    if thought.redacted:
        if thought.sealed_by != BEDROCKS:
            return None
        return {"reasoningContent": {"redactedContent": thought.signature}}
    if thought.sealed_by != CLAUDES:
        return None
    text = {"text": thought.text, "signature": thought.signature}
    return {"reasoningContent": {"reasoningText": text}}
