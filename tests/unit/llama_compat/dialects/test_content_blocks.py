"""Replies as a list of blocks: what is empty is no part, and the last may have been cut."""

from __future__ import annotations

import pytest

from llama_compat.dialects.content_blocks import parse_blocks, parse_whole_call
from llama_compat.types import (
    MessagePart,
    StopReason,
    TextContent,
    ToolCall,
    UnparseableToolCall,
)


@pytest.mark.parametrize("reason", [StopReason.out_of_tokens, StopReason.end_of_turn])
def test_only_the_last_block_may_be_cut(reason: StopReason) -> None:
    told: list[bool] = []

    def parse(block: str, cut: bool) -> MessagePart | None:
        told.append(cut)
        return None if block == "unknown" else TextContent(block)

    # Two that are the same are not both the last.
    same = "b"
    assert parse_blocks([same, "", "unknown", same], reason, parse) == (
        TextContent("b"),
        TextContent("b"),
    )
    assert told == [False, False, False, reason is StopReason.out_of_tokens]


def test_a_call_that_was_cut_before_its_arguments_has_none() -> None:
    assert parse_whole_call("c", "f", {}, cut=True) == UnparseableToolCall("c", "f", "")
    whole = parse_whole_call("c", "f", {}, cut=False)
    assert isinstance(whole, ToolCall)
    assert whole.arguments == {}
    begun = parse_whole_call("c", "f", {"a": 1}, cut=True)
    assert isinstance(begun, ToolCall)
    assert begun.arguments == {"a": 1}
    assert parse_whole_call("", "f", {}, cut=True).call_id
