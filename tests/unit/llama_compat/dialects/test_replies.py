"""Replies as lists of blocks: what is empty is no part, and the last may have been cut. As streams:
what is malformed, and what breaks off, every dialect tells in the same way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from llama_compat.dialects import (
    anthropic_messages,
    bedrock_converse,
    gemini,
    gemini_interactions,
)
from llama_compat.dialects.openai_responses.replies import StreamParser as ResponseParser
from llama_compat.dialects.replies import (
    EventParser,
    objects_in,
    parse_blocks,
    parse_whole_call,
    parsed,
    pushed,
    reasoning_deltas,
    text_deltas,
    with_logprobs,
)
from llama_compat.events import ReplyParts, collected
from llama_compat.types import (
    MessagePart,
    ReasoningContent,
    StopReason,
    StreamComplete,
    StreamEvent,
    StreamProgress,
    TextContent,
    TextDelta,
    TokenLogProb,
    TokenLogProbs,
    ToolCall,
    ToolCallDelta,
    ToolCallParseStatus,
    UnparseableToolCall,
)
from llama_compat.wire.malformed import MALFORMED


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


class Letters(EventParser):
    """Of an API whose events are a text, a thought, a call that begins, or the end."""

    event = "one of letters"
    end = "last letter"

    def _push(self, event: Mapping[str, Any]) -> list[StreamEvent]:
        if "raises" in event:
            raise event["raises"]
        if event.get("end"):
            self._ended = True
            return [StreamComplete(StopReason.end_of_turn)]
        return self._progress(
            [
                *text_deltas(event.get("text", "")),
                *reasoning_deltas(event.get("thought", "")),
                *(self._calls.push(index=0, tool_name=event["call"]) if "call" in event else ()),
            ]
        )


@pytest.mark.parametrize("kind", MALFORMED)
def test_what_is_malformed_is_no_event(kind: type[Exception]) -> None:
    with pytest.raises(ValueError, match=f"the event is not one of letters: {kind.__name__}"):
        Letters().push({"raises": kind("x")})


def test_a_call_in_which_a_stream_broke_off_has_failed() -> None:
    parser = Letters()
    list(pushed(parser, [{"text": "a"}, {"call": "f"}]))
    rest = parser.finish()
    begun, failed = next(rest), next(rest)
    with pytest.raises(ValueError, match="the stream broke off before its last letter"):
        next(rest)
    assert isinstance(begun, StreamProgress)
    assert isinstance(failed, StreamProgress)
    assert isinstance(failed.delta, ToolCallDelta)
    assert failed.delta.parse_status is ToolCallParseStatus.failed


def test_a_stream_is_a_whole_reply_once_it_has_ended() -> None:
    pieces = [{"thought": "Hm"}, {"text": "a"}, {"text": "b"}, {}]
    said = collected(parsed(Letters(), [*pieces, {"end": True}])).chat_completion()
    assert said.completion_message.parts == (ReasoningContent("Hm"), TextContent("ab"))
    with pytest.raises(ValueError, match="broke off"):
        collected(parsed(Letters(), pieces))
    # So far as it has come, it is one too.
    begun = collected(pushed(Letters(), pieces)).chat_completion()
    assert begun.completion_message.parts == said.completion_message.parts


def test_the_objects_in_a_stream_are_those_that_have_come_whole() -> None:
    body = b'data: {"a": 1}\n\n: hm\n\ndata: [DONE]\n\nevent: x\ndata: {"b": 2}\n\ndata: {"c'
    assert list(objects_in(body)) == [{"a": 1}, {"b": 2}]


@pytest.mark.parametrize(
    ("parser", "malformed", "end"),
    [
        (anthropic_messages.StreamParser(), {"type": "message_start"}, "message_stop"),
        (bedrock_converse.StreamParser(), {"contentBlockDelta": {}}, "messageStop"),
        (gemini.StreamParser(), {"candidates": ["x"]}, "finishReason"),
        (
            gemini_interactions.StreamParser(),
            {"event_type": "interaction.completed", "interaction": []},
            "interaction.completed",
        ),
        (ResponseParser(), {"type": "response.completed"}, "response.completed"),
    ],
)
def test_every_dialect_tells_what_is_none_of_its_events_and_where_its_stream_broke_off(
    parser: EventParser, malformed: dict[str, Any], end: str
) -> None:
    with pytest.raises(ValueError, match=r"^the event is not (one of|a response) "):
        parser.push(malformed)
    with pytest.raises(ValueError, match=f"^the stream broke off before its {end}$"):
        list(parser.finish())


@pytest.mark.parametrize(
    ("reason", "called", "told"),
    [
        (StopReason.end_of_turn, True, StopReason.end_of_message),
        (StopReason.end_of_turn, False, StopReason.end_of_turn),
        (StopReason.end_of_message, False, StopReason.end_of_message),
        (StopReason.out_of_tokens, True, StopReason.out_of_tokens),
        (StopReason.content_filter, True, StopReason.content_filter),
    ],
)
def test_a_reply_that_called_tools_and_ended_its_turn_waits_for_them(
    reason: StopReason, called: bool, told: StopReason
) -> None:
    assert reason.with_calls(called) is told


def test_the_first_of_a_piece_has_the_probabilities_of_its_tokens() -> None:
    logprobs = (TokenLogProbs(TokenLogProb("a", b"a", -1.0)),)
    said = with_logprobs(ReplyParts(), [*reasoning_deltas("b"), *text_deltas("a")], logprobs)
    assert [each.logprobs for each in said] == [logprobs, None]
    (said_nothing,) = with_logprobs(ReplyParts(), [], logprobs)
    assert (said_nothing.delta, said_nothing.logprobs) == (TextDelta(""), logprobs)
    assert with_logprobs(ReplyParts(), [], None) == []
