"""Replies cut at stop strings that their vendor was not told."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

import pytest

from llama_compat.events import ReplyParts, collected
from llama_compat.extent import Prompt
from llama_compat.fitting.cut import cut_at
from llama_compat.hosted.vocabulary import Citation, CitationDelta, WebSource
from llama_compat.types import (
    ReasoningDelta,
    StopReason,
    StreamComplete,
    StreamEvent,
    StreamProgress,
    StreamStart,
    TextDelta,
    TokenLogProb,
    TokenLogProbs,
    ToolCall,
    ToolCallDelta,
    ToolCallParseStatus,
    Usage,
)
from llama_compat.wire.json_fields import to_raw

PROMPT = Prompt({"prompt": to_raw("x" * 38)}, "prompt")
COUNTED = Usage(7, 900)


class Vendor:
    """Says `deltas`, and notes whether it was heard to its end, or left."""

    def __init__(self, *deltas: object, start: StreamStart | None = None) -> None:
        parts = ReplyParts()
        self._events: list[StreamEvent] = [start or StreamStart()]
        for delta in deltas:
            if isinstance(delta, str):
                delta = TextDelta(delta)
            event = delta if isinstance(delta, StreamProgress) else parts.progress(delta)  # type: ignore[arg-type]
            self._events.append(event)
        self._events.append(StreamComplete(StopReason.out_of_tokens, COUNTED))
        self.said = 0
        self.closed = False

    async def events(self) -> AsyncGenerator[StreamEvent, None]:
        try:
            for event in self._events:
                self.said += 1
                yield event
        finally:
            self.closed = True


async def cut(vendor: Vendor, *stops: str, streams: bool = True) -> list[StreamEvent]:
    return [event async for event in cut_at(vendor.events(), stops, PROMPT, streams=streams)]


def text_of(events: Sequence[StreamEvent]) -> str:
    return "".join(
        event.delta.text
        for event in events
        if isinstance(event, StreamProgress) and isinstance(event.delta, TextDelta)
    )


def end_of(events: Sequence[StreamEvent]) -> StreamComplete:
    assert isinstance(events[-1], StreamComplete)
    assert sum(isinstance(event, StreamComplete) for event in events) == 1
    return events[-1]


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("size", [1, 2, 3, 5, 99])
@pytest.mark.parametrize(
    ("said", "stops", "shown", "stopped_by"),
    [
        ("one END two", ["END"], "one ", "END"),
        ("one EN two", ["END"], "one EN two", None),
        ("one END", ["END", "E"], "one ", "E"),
        ("aab aabc", ["aabc", "bc"], "aab ", "aabc"),
        ("xababac", ["abac"], "xab", "abac"),
        ("END", ["END"], "", "END"),
        ("ends in EN", ["END"], "ends in EN", None),
        ("\n\n", ["\n"], "", "\n"),
    ],
)
async def test_the_text_ends_at_the_first_of_them(
    said: str, stops: list[str], shown: str, stopped_by: str | None, size: int, streams: bool
) -> None:
    pieces = [said[at : at + size] for at in range(0, len(said), size)]
    vendor = Vendor(*pieces)
    events = await cut(vendor, *stops, streams=streams)
    end = end_of(events)
    assert text_of(events) == shown
    assert end.stop_string == stopped_by
    assert end.stop_reason == (
        StopReason.out_of_tokens if stopped_by is None else StopReason.end_of_turn
    )
    assert vendor.closed


async def test_a_stream_is_left_where_it_is_cut_and_a_whole_reply_is_not() -> None:
    said = ["one ", "two ", "END", *(["more"] * 50)]
    vendor = Vendor(*said)
    assert end_of(await cut(vendor, "END")).usage != COUNTED
    assert (vendor.said, vendor.closed) == (4, True)
    vendor = Vendor(*said)
    assert end_of(await cut(vendor, "END", streams=False)).usage == COUNTED
    assert vendor.said == 55


async def test_it_is_left_before_its_end_is_told() -> None:
    vendor = Vendor("one END", "more")
    async for event in cut_at(vendor.events(), ["END"], PROMPT, streams=True):
        assert vendor.closed == isinstance(event, StreamComplete)


async def test_what_a_stream_came_to_is_estimated_where_it_was_not_counted() -> None:
    vendor = Vendor(ReasoningDelta("t" * 80), "w" * 40, "END")
    assert end_of(await cut(vendor, "END")).usage == Usage(10, 31, estimated=True)


async def test_what_its_vendor_has_counted_by_then_counts() -> None:
    counted = StreamProgress(TextDelta("one END"), completion_tokens=500)
    vendor = Vendor(counted, start=StreamStart(prompt_tokens=77))
    assert end_of(await cut(vendor, "END")).usage == Usage(77, 500, estimated=True)


async def test_thoughts_and_arguments_are_not_looked_at() -> None:
    call = ToolCall("c1", "say", {"word": "END"}, '{"word": "END"}')
    vendor = Vendor(
        ReasoningDelta("the END"),
        "E",
        ToolCallDelta(0, ToolCallParseStatus.succeeded, tool_call=call),
        "ND",
    )
    events = await cut(vendor, "END")
    message = collected(events).chat_completion().completion_message
    assert message.content == "END"
    assert message.tool_calls == (call,)
    assert end_of(events).stop_string is None


@pytest.mark.parametrize("streams", [True, False])
async def test_a_call_after_the_cut_is_none_of_the_reply(streams: bool) -> None:
    call = ToolCall("c1", "say", {}, "{}")
    vendor = Vendor(
        "well END so", ToolCallDelta(0, ToolCallParseStatus.succeeded, tool_call=call), "more"
    )
    message = collected(await cut(vendor, "END", streams=streams)).chat_completion()
    assert message.completion_message.content == "well "
    assert message.completion_message.tool_calls == ()


async def test_texts_in_a_row_are_read_as_one_and_keep_their_parts() -> None:
    texts = ["a E", "", "N", "D b"]
    pieces = [StreamProgress(TextDelta(text), part=part) for part, text in enumerate(texts)]
    events = await cut(Vendor(*pieces), "END")
    assert text_of(events) == "a "
    whole = await cut(Vendor(*pieces), "ENT")
    assert [(each.part, each.delta) for each in whole if isinstance(each, StreamProgress)] == [
        (0, TextDelta("a ")),
        (0, TextDelta("E")),
        (1, TextDelta("")),
        (2, TextDelta("N")),
        (3, TextDelta("D b")),
    ]


def tokens(*words: str) -> tuple[TokenLogProbs, ...]:
    return tuple(TokenLogProbs(TokenLogProb(word, word.encode(), -1.0)) for word in words)


@pytest.mark.parametrize("streams", [True, False])
async def test_log_probabilities_are_those_of_what_is_shown(streams: bool) -> None:
    words = ["one", " tw", "o E", "ND", " three"]
    if streams:
        vendor = Vendor(*(StreamProgress(TextDelta(word), tokens(word)) for word in words))
    else:
        vendor = Vendor(StreamProgress(TextDelta("".join(words)), tokens(*words)))
    shown = collected(await cut(vendor, "END", streams=streams)).chat_completion()
    assert shown.completion_message.content == "one two "
    assert shown.logprobs == tokens("one", " tw", "o E")


async def test_ids_of_tokens_are_said_once() -> None:
    said = [StreamProgress(TextDelta("a E"), token_ids=(0,))]
    said.append(StreamProgress(TextDelta("N."), token_ids=(1,)))
    shown = await cut(Vendor(*said), "END")
    ids = [each.token_ids for each in shown if isinstance(each, StreamProgress) and each.token_ids]
    assert ids == [(0,), (1,)]


def cited(start: int, end: int) -> CitationDelta:
    return CitationDelta(Citation(start, end, WebSource("https://x.example", "X"), "…"))


@pytest.mark.parametrize("streams", [True, False])
async def test_places_are_cited_as_far_as_they_are_shown(streams: bool) -> None:
    vendor = Vendor("Water is wet EN", cited(0, 5), cited(0, 14), "D Fire", cited(17, 21))
    events = await cut(vendor, "END", streams=streams)
    shown = [
        each.delta
        for each in events
        if isinstance(each, StreamProgress) and isinstance(each.delta, CitationDelta)
    ]
    assert text_of(events) == "Water is wet "
    assert shown == [cited(0, 5)]


async def test_a_place_waits_for_its_text() -> None:
    events = await cut(Vendor("Water EN", cited(0, 8), "T"), "END")
    kinds = [each.delta for each in events if isinstance(each, StreamProgress)]
    assert kinds == [TextDelta("Water "), TextDelta("EN"), cited(0, 8), TextDelta("T")]
