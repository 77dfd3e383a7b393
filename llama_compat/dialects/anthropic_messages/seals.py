"""Whose reasoning a thinking block holds: Anthropic's own, sealed, or somebody else's.

A thinking block has a signature, and Anthropic's models take no block back whose signature is not
theirs. Reasoning of others is given to clients under a mark of ours in its place, behind which is
the seal that its own maker wants back, if there is one. A seal that belongs to a call of a tool has
a redacted block of its own.
"""

from __future__ import annotations

from msgspec import Raw

from llama_compat.dialects.seals import call_seal
from llama_compat.types import ReasoningContent, ToolCall
from llama_compat.wire.json_fields import JSONFields, from_raw, parse_objects, to_raw

FAMILY = "anthropic"
"""Who seals what Anthropic's models thought, in the vocabulary."""

MARK = "llama_compat:"
"""What the signatures of all other reasoning begin with; it is followed by `FAMILY:SEAL`."""

_SEAL_OF = {"thinking": "signature", "redacted_thinking": "data"}
"""Where a block of each type has its seal."""


def render_seal(signature: str | None, sealed_by: str) -> str:
    """The signature of a thinking block, or the data of one that is redacted."""
    if sealed_by == FAMILY:
        return signature or ""
    return f"{MARK}{sealed_by}:{signature or ''}"


NOBODYS = render_seal(None, "")
"""The signature of a thinking block in which something was changed: it goes back to no vendor."""


def parse_seal(text: str, seal: str, *, redacted: bool = False) -> ReasoningContent:
    """The reasoning of a block with this text and seal."""
    if not seal.startswith(MARK):
        return ReasoningContent(text, seal, FAMILY, redacted)
    sealed_by, _, signature = seal.removeprefix(MARK).partition(":")
    return ReasoningContent(text, signature or None, sealed_by, redacted)


def render_call_seal(call: ToolCall) -> dict[str, str] | None:
    """The block that holds what a call's maker wants back with it; None where that is nothing."""
    seal = call_seal(call)
    if seal is None:
        return None
    return {"type": "redacted_thinking", "data": render_seal(seal.signature, seal.sealed_by)}


def without_marked(messages: Raw) -> Raw:
    """A request's messages without the blocks that are marked as ours; all else keeps its bytes.

    A message of which nothing is left is left out.

    Raises:
        ValueError: they are no messages.
    """
    if MARK.encode() not in bytes(messages):
        return messages
    kept = []
    for message in parse_objects(messages):
        content = message.get("content", Raw(b""))
        if MARK.encode() in bytes(content) and bytes(content).startswith(b"["):
            blocks = [block for block in parse_objects(content) if not _is_marked(block)]
            if not blocks:
                continue
            message["content"] = to_raw(blocks)
        kept.append(message)
    return to_raw(kept)


def _is_marked(block: JSONFields) -> bool:
    kind = from_raw(block["type"]) if "type" in block else None
    seal = _SEAL_OF.get(kind) if isinstance(kind, str) else None
    if seal is None or seal not in block:
        return False
    value = from_raw(block[seal])
    return isinstance(value, str) and value.startswith(MARK)
