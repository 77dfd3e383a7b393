"""Events put together to replies, and replies taken apart."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest
from hypothesis import given

from llama_compat.events import Collector, ReplyParts, add_usage, reply_events, with_told
from llama_compat.types import (
    ChatCompletionResponse,
    CompletionMessage,
    CompletionResponse,
    ReasoningContent,
    ReasoningDelta,
    RefusalContent,
    RefusalDelta,
    StopReason,
    StreamComplete,
    StreamEvent,
    StreamProgress,
    StreamStart,
    TextContent,
    TextDelta,
    TokenLogProb,
    TokenLogProbs,
    ToolCall,
    ToolCallDelta,
    ToolCallParseStatus,
    UnparseableToolCall,
    Usage,
)
from tests.unit import vocabulary

A = TokenLogProbs(TokenLogProb("a", b"a", -1.0))
B = TokenLogProbs(TokenLogProb("b", b"b", -2.0))
CALL = ToolCall("c1", "f", {}, "{}")
TORN = UnparseableToolCall("c2", "g", "{")


async def test_the_start_tells_what_the_vendor_was_not_told_besides_what_it_says() -> None:
    async def said() -> AsyncGenerator[StreamEvent, None]:
        yield StreamStart(3, dropped=("a",))
        yield StreamComplete(StopReason.end_of_turn)

    told = with_told(said(), dropped=("a", "b"), adapted=("c=d",))
    start, end = [event async for event in told]
    assert start == StreamStart(3, dropped=("a", "b"), adapted=("c=d",))
    assert end == StreamComplete(StopReason.end_of_turn)
    nothing = said()
    assert with_told(nothing) is nothing


def collect(*events):
    collector = Collector()
    for event in events:
        collector.add(event)
    return collector


def test_every_kind_of_event_is_put_together():
    status = ToolCallParseStatus
    collector = collect(
        StreamStart(5),
        StreamProgress(ReasoningDelta("wh")),
        StreamProgress(ReasoningDelta("y")),
        StreamProgress(ReasoningDelta("", "sealed", "anthropic")),
        StreamProgress(TextDelta("a"), (A,), part=1),
        StreamProgress(TextDelta("b"), (B,), part=1),
        StreamProgress(ToolCallDelta(1, status.started, call_id="c2", tool_name="g"), part=4),
        StreamProgress(ToolCallDelta(1, status.in_progress, arguments="{"), part=4),
        StreamProgress(ToolCallDelta(1, status.failed, tool_call=TORN), part=4),
        StreamProgress(ToolCallDelta(0, status.succeeded, tool_call=CALL), part=3),
        StreamProgress(TextDelta("c"), part=5),
        StreamProgress(RefusalDelta("No"), part=2),
        StreamProgress(RefusalDelta("."), part=2),
        StreamComplete(StopReason.end_of_message, Usage(5, 9), "STOP"),
    )
    assert collector.chat_completion() == ChatCompletionResponse(
        CompletionMessage(
            (
                ReasoningContent("why", "sealed", "anthropic"),
                TextContent("ab"),
                RefusalContent("No."),
                CALL,
                TORN,
                TextContent("c"),
            ),
            StopReason.end_of_message,
            "STOP",
        ),
        logprobs=(A, B),
        usage=Usage(5, 9),
    )
    assert collector.completion() == CompletionResponse(
        "abc", StopReason.end_of_message, (A, B), Usage(5, 9), "STOP"
    )


def test_what_did_not_come_is_none_and_not_empty():
    collector = collect(StreamStart(5), StreamComplete(StopReason.out_of_tokens))
    message = CompletionMessage.of("", stop_reason=StopReason.out_of_tokens)
    assert collector.chat_completion() == ChatCompletionResponse(message)


def test_logprobs_that_were_asked_for_may_be_none_at_all():
    collector = collect(StreamProgress(TextDelta(""), ()))
    assert collector.completion().logprobs == ()


def test_the_prompt_is_counted_as_soon_as_the_stream_starts():
    assert collect(StreamStart(5)).usage == Usage(prompt_tokens=5)


@given(vocabulary.responses(signed=True))
def test_a_reply_taken_apart_is_put_together_as_the_same(response):
    assert collect(*reply_events(response)).chat_completion() == response


@pytest.mark.parametrize(
    "message",
    [
        CompletionMessage.of("", tool_calls=(TORN,), stop_reason=StopReason.end_of_message),
        CompletionMessage.of("", refusal="No.", stop_reason=StopReason.end_of_turn),
    ],
)
def test_failed_calls_and_refusals_survive_it_too(message):
    response = ChatCompletionResponse(message, logprobs=None)
    assert collect(*reply_events(response)).chat_completion() == response


def test_a_reply_without_a_reason_has_come_to_its_end():
    events = list(reply_events(ChatCompletionResponse(CompletionMessage.of("a"), logprobs=(A,))))
    assert events == [
        StreamStart(),
        StreamProgress(TextDelta("a"), (A,)),
        StreamComplete(StopReason.end_of_turn),
    ]


def test_parts_of_a_content_become_one_text():
    message = CompletionMessage.of(
        (TextContent("a"), TextContent("b")), stop_reason=StopReason.end_of_turn
    )
    assert message.content == "ab"
    assert collect(*reply_events(ChatCompletionResponse(message))).completion().content == "ab"


def test_prompts_are_counted_once_and_completions_all():
    usages = [Usage(3, 1, 2, 1), Usage(3, 2, 2, None), Usage(5, 4, None, 3), Usage(5, 8, None, 0)]
    assert add_usage(usages, 2) == Usage(8, 15, 2, 4)


def test_what_nobody_told_stays_untold():
    assert add_usage([Usage(1, 1), Usage(1, 1)], 1) == Usage(2, 2)
    assert add_usage([Usage(1, 1, 0, 0)], 1) == Usage(1, 1, 0, 0)


# The numbers of a reply's parts -------------------------------------------------------------------


def begun(index: int) -> ToolCallDelta:
    return ToolCallDelta(index, ToolCallParseStatus.in_progress, arguments="1")


def test_parts_are_numbered_in_the_order_in_which_they_begin() -> None:
    parts = ReplyParts()
    deltas = [
        (ReasoningDelta("a"), 0),
        (ReasoningDelta("b"), 0),
        (TextDelta("c"), 1),
        (TextDelta("d"), 1),
        (begun(0), 2),
        (begun(1), 3),
        (begun(0), 2),
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
    assert parts.progress(begun(0)).part == 0
    assert parts.progress(TextDelta(""), ()).part == 0
    assert parts.progress(TextDelta("a"), None, 7) == StreamProgress(TextDelta("a"), None, 7, 1)
