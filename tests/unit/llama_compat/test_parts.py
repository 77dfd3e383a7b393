"""The numbers of a reply's parts."""

from llama_compat.parts import ReplyParts
from llama_compat.types import (
    ReasoningDelta,
    RefusalDelta,
    StreamProgress,
    TextDelta,
    ToolCallDelta,
    ToolCallParseStatus,
)


def call(index: int) -> ToolCallDelta:
    return ToolCallDelta(index, ToolCallParseStatus.in_progress, arguments="1")


def test_parts_are_numbered_in_the_order_in_which_they_begin() -> None:
    parts = ReplyParts()
    deltas = [
        (ReasoningDelta("a"), 0),
        (ReasoningDelta("b"), 0),
        (TextDelta("c"), 1),
        (TextDelta("d"), 1),
        (call(0), 2),
        (call(1), 3),
        (call(0), 2),
        (TextDelta("e"), 4),
        (ReasoningDelta("f"), 5),
        (RefusalDelta("g"), 6),
    ]
    assert [parts.progress(delta).part for delta, _ in deltas] == [part for _, part in deltas]


def test_a_part_may_end_before_another_kind_comes() -> None:
    parts = ReplyParts()
    assert parts.progress(TextDelta("a")).part == 0
    parts.end_part()
    assert parts.progress(TextDelta("b")).part == 1


def test_log_probabilities_without_text_begin_no_part() -> None:
    parts = ReplyParts()
    assert parts.progress(TextDelta(""), ()) == StreamProgress(TextDelta(""), (), 0, 0)
    assert parts.progress(call(0)).part == 0
    assert parts.progress(TextDelta(""), ()).part == 0
    assert parts.progress(TextDelta("a"), None, 7) == StreamProgress(TextDelta("a"), None, 7, 1)
