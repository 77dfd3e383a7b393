"""Replies as a list of blocks, as Anthropic's and Bedrock's APIs have them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llama_compat.tools.calls import arguments_text, new_call_id, parse_tool_call
from llama_compat.types import (
    EMPTY_PARTS,
    AnyToolCall,
    MessagePart,
    StopReason,
    UnparseableToolCall,
)


def parse_blocks(
    blocks: Sequence[Any], reason: StopReason, parse: Callable[[Any, bool], MessagePart | None]
) -> tuple[MessagePart, ...]:
    """The parts of a reply that has come whole.

    Args:
        blocks: what the vendor says.
        reason: why it ended.
        parse: makes a part of a block, told whether the tokens may have run out within it.

    Raises:
        Exception: what `parse` raises; TypeError, these are no blocks.
    """
    last = len(blocks) - 1
    parts = (
        parse(block, reason is StopReason.out_of_tokens and place == last)
        for place, block in enumerate(blocks)
    )
    return tuple(part for part in parts if part is not None and part not in EMPTY_PARTS)


def parse_whole_call(call_id: str, name: str, given: Any, *, cut: bool) -> AnyToolCall:
    """A call of a reply that has come whole. One in which the tokens ran out has no arguments where
    they were still to come."""
    call_id = call_id or new_call_id()
    if cut and not given:
        return UnparseableToolCall(call_id, name, "")
    return parse_tool_call(call_id, name, arguments_text(given))
