"""Replies on their way through the checks: no cut changes what becomes of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from llama_compat.events import Collector, ReplyParts
from llama_compat.fan_out import Events
from llama_compat.guardrails.asked.said import Said
from llama_compat.guardrails.checks import Checks
from llama_compat.guardrails.guard import Guard
from llama_compat.guardrails.patterns import MOST_NEAR_MISSES
from llama_compat.guardrails.replies import guarded
from llama_compat.guardrails.settings import CheckSettings, Place
from llama_compat.hosted.vocabulary import (
    Citation,
    CitationDelta,
    HostedCall,
    HostedCallDelta,
    WebSource,
)
from llama_compat.tools.calls import ToolCallAssembler
from llama_compat.types import (
    CompletionMessage,
    ReasoningContent,
    ReasoningDelta,
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
    Usage,
)
from tests.examples import examples
from tests.unit.llama_compat.guardrails.test_scanner import CUTS, TEXTS, cut


def guard_of(**check: Any) -> Guard:
    settings = CheckSettings.model_validate(
        {"name": "pii", "patterns": ["cards", "emails"], **check}
    )
    return Guard(Checks([settings]))


def said(*pieces: StreamEvent) -> Events:
    async def events() -> Events:
        yield StreamStart(3)
        for piece in pieces:
            yield piece
        yield StreamComplete(StopReason.end_of_turn, Usage(3, 5))

    return events()


async def read(events: Events, guard: Guard, *, streams: bool = True) -> CompletionMessage:
    collector = Collector()
    async for event in guarded(events, guard, streams=streams):
        collector.add(event)
    return collector.chat_completion().completion_message


def reply(thoughts: Sequence[str], text: Sequence[str], arguments: Sequence[str]) -> Events:
    parts, calls = ReplyParts(), ToolCallAssembler()
    events = [parts.progress(ReasoningDelta(each)) for each in thoughts]
    events += [parts.progress(TextDelta(each)) for each in text]
    deltas = calls.push(index=0, call_id="1", tool_name="f", arguments="")
    for each in arguments:
        deltas += calls.push(index=0, call_id=None, tool_name=None, arguments=each)
    deltas += calls.finish()
    events += [parts.progress(each) for each in deltas]
    return said(*events)


@settings(max_examples=examples(150), deadline=None)
@given(TEXTS, TEXTS, TEXTS, CUTS, st.sampled_from(["block", "redact", "monitor"]))
async def test_no_cut_changes_the_verdict(
    thoughts: str, text: str, argument: str, cuts: list[int], mode: str
) -> None:
    arguments = json.dumps({"a": argument})
    once, again = guard_of(mode=mode), guard_of(mode=mode)
    whole = await read(reply([thoughts], [text], [arguments]), once)
    in_pieces = await read(reply(cut(thoughts, cuts), cut(text, cuts), cut(arguments, cuts)), again)
    assert once.verdicts == again.verdicts
    assert whole.stop_reason == in_pieces.stop_reason
    if mode != "block":
        assert whole.content == in_pieces.content
        assert whole.reasoning == in_pieces.reasoning
        assert whole.tool_calls == in_pieces.tool_calls
    if mode == "monitor":
        assert whole.reasoning == (thoughts or None)
        assert whole.content == text
        (call,) = whole.tool_calls
        assert isinstance(call, ToolCall)
        assert call.arguments == {"a": argument}


@pytest.mark.parametrize("streams", [True, False])
async def test_a_reply_that_is_blocked_ends_there(streams: bool) -> None:
    parts = ReplyParts()
    pieces = ["It is ", "4111 1111", " 1111 1111", " and more."]
    events = said(*(parts.progress(TextDelta(each)) for each in pieces))
    message = await read(events, guard_of(), streams=streams)
    assert message.stop_reason is StopReason.content_filter
    # Who reads along has what came before; who waits for the whole has nothing of it.
    assert message.content == ("It is " if streams else "")


async def test_what_is_said_of_tokens_does_not_tell_what_is_hidden() -> None:
    parts = ReplyParts()

    def token(text: str) -> StreamProgress:
        logprobs = (TokenLogProbs(TokenLogProb(text, text.encode(), -1.0)),)
        return parts.progress(TextDelta(text), logprobs)

    pieces = ["Hi, ", "a@", "example.com", ", ", "bye 12", " "]
    events = guarded(said(*map(token, pieces)), guard_of(mode="redact"), streams=True)
    tokens, text = [], ""
    async for event in events:
        if isinstance(event, StreamProgress):
            tokens += [each.chosen.token for each in event.logprobs or ()]
            assert isinstance(event.delta, TextDelta)
            text += event.delta.text
    assert text == "Hi, <EMAIL_1>, bye 12 "
    assert "a@" not in tokens
    assert "example.com" not in tokens
    assert tokens[0] == "Hi, "
    assert tokens[-2:] == ["bye 12", " "]


async def test_a_seal_of_thoughts_that_are_changed_is_none() -> None:
    parts = ReplyParts()
    events = [
        parts.progress(ReasoningDelta("Mail a@example.com")),
        parts.progress(ReasoningDelta("", "seal", "anthropic")),
        parts.progress(TextDelta("Done.")),
    ]
    message = await read(said(*events), guard_of(mode="redact"))
    thought, text = message.parts
    assert thought == ReasoningContent("Mail <EMAIL_1>")
    assert text == TextContent("Done.")
    message = await read(said(*events), guard_of(mode="monitor"))
    assert message.parts[0] == ReasoningContent("Mail a@example.com", "seal", "anthropic")


@settings(max_examples=examples(100), deadline=None)
@given(CUTS)
async def test_what_was_hidden_comes_back_across_pieces(cuts: list[int]) -> None:
    guard = guard_of(scan="input", mode="redact", restore=True)
    assert guard.text("input", 'Write to "a"@x.example, b@x.example') != ""
    word = guard.text("input", "b@x.example")
    text = f"To {word}, <{word}, <EMAIL_77> and <EM"
    arguments = json.dumps({"a": f'"{word}'})
    message = await read(reply([], cut(text, cuts), cut(arguments, cuts)), guard)
    assert message.content == "To b@x.example, <b@x.example, <EMAIL_77> and <EM"
    (call,) = message.tool_calls
    assert isinstance(call, ToolCall)
    assert call.arguments == {"a": '"b@x.example'}


def test_nothing_is_looked_through_twice() -> None:
    guard = guard_of(mode="monitor")
    for _ in range(2):
        assert guard.text("input", "a@example.com") == "a@example.com"
    assert guard.verdicts == {("pii", "monitor"): 1}
    hides = guard_of(mode="redact")
    word = hides.text("input", "a@example.com")
    assert hides.text("input", word) == word
    assert hides.verdicts == {("pii", "redact"): 1}


# What a vendor has searched for ---------------------------------------------------------------

FOUND = WebSource("https://a.example", "Mail of bob@example.com", "bob@example.com")


def searched(text: str) -> Events:
    parts = ReplyParts()
    call = HostedCall("1", "web_search", "s", '{"query": "eve@example.com"}')
    found = structs.replace(call, status="completed", sources=(FOUND,))
    cited = Citation(0, len(text), FOUND, text)
    return said(
        parts.progress(HostedCallDelta(call)),
        parts.progress(HostedCallDelta(found)),
        parts.progress(TextDelta(text)),
        parts.progress(CitationDelta(cited)),
    )


async def test_what_a_vendor_searches_for_and_finds_is_looked_through() -> None:
    guard = guard_of(mode="redact", scan=["tool_arguments", "tool_results"])
    message = await read(searched("It is known."), guard)
    call, text = message.parts
    assert isinstance(call, HostedCall)
    assert isinstance(text, TextContent)
    assert "@" not in repr(message)
    assert call.arguments_json == '{"query": "<EMAIL_1>"}'
    assert [each.text for each in call.sources if isinstance(each, WebSource)] == ["<EMAIL_2>"]
    (cited,) = text.citations
    assert text.text[cited.start : cited.end] == "It is known."


@pytest.mark.parametrize("place", ["tool_arguments", "tool_results"])
async def test_it_ends_a_reply_that_may_not_be_seen(place: str) -> None:
    message = await read(searched("It is known."), guard_of(mode="block", scan=place))
    assert message.stop_reason is StopReason.content_filter
    assert "bob@" not in repr(message)
    assert ("eve@" in repr(message)) == (place == "tool_results")


async def test_places_in_a_text_that_has_become_another_are_those_of_its_words() -> None:
    message = await read(searched("Ask amy@example.com."), guard_of(mode="redact", scan="output"))
    (text,) = [each for each in message.parts if isinstance(each, TextContent)]
    assert text.text == "Ask <EMAIL_1>."
    (cited,) = text.citations
    assert (cited.start, cited.end, cited.text) == (0, 14, "Ask <EMAIL_1>.")


@pytest.mark.parametrize("ends", [True, False])
async def test_a_text_that_nobody_could_look_through_goes_on_whole(ends: bool) -> None:
    near = "1700000000001 x " * (MOST_NEAR_MISSES + 1)
    pieces = ["Ask 4111 1111 ", near] if ends else ["Ask 4111 1111 ", near[:-4], near[-4:], " so."]
    guard = guard_of(mode="redact", on_error="allow")
    message = await read(said(*(StreamProgress(TextDelta(each)) for each in pieces)), guard)
    assert message.content == "".join(pieces)
    assert ("pii", "error") in guard.verdicts


CITED_WORDS = ["the Nile is löng", "alice@example.com", "Ask bob@example.com"]
CITED_TEXT = "Ask bob@example.com: the Nile is löng, as alice@example.com and bob@example.com know."


@given(data=st.data(), words=st.sampled_from(CITED_WORDS), comes_back=st.booleans())
@settings(max_examples=examples(100), deadline=None)
def test_places_stay_at_their_words_however_they_are_cut(
    data: Any, words: str, comes_back: bool
) -> None:
    """Hidden from the client, or put back for it."""
    guard = guard_of(mode="redact", scan=["input", "output"])
    if comes_back:
        guard = guard_of(mode="redact", scan="input", restore=True)
        asked = guard.text("input", CITED_TEXT)
        words_said, text_said = guard.text("input", words), asked
        words_shown, text_shown = words, CITED_TEXT
    else:
        words_said, text_said = words, CITED_TEXT
        text_shown = guard_of(mode="redact").said({"content": CITED_TEXT})["content"]
        names = {"alice@example.com": "<EMAIL_2>", "Ask bob@example.com": "Ask <EMAIL_1>"}
        words_shown = names.get(words, words)
    texts = data.draw(parts_of(text_said))
    start = text_said.index(words_said)
    end = start + len(words_said)
    events, parts, at = [], ReplyParts(), 0
    for text in texts:
        for piece in cut(text, data.draw(CUTS)):
            events.append(parts.progress(TextDelta(piece)))
        first, last = max(start, at), min(end, at + len(text))
        if first < last:
            place = Citation(first - at, last - at, FOUND, text_said[first:last])
            events.append(parts.progress(CitationDelta(place)))
        parts.end_part()
        at += len(text)

    async def check() -> None:
        for streams in (True, False):
            message = await read(said(*events), guard, streams=streams)
            assert message.content == text_shown
            found = [
                (each.text, part.text[each.start : each.end])
                for part in message.parts
                if isinstance(part, TextContent)
                for each in part.citations
            ]
            assert found
            assert all(told == shown for told, shown in found)
            if len(texts) == 1:
                assert [told for told, _ in found] == [words_shown]

    asyncio.run(check())


@pytest.mark.parametrize("place", ["tool_arguments", "tool_results", "output"])
async def test_judges_are_asked_about_what_a_vendor_searches_for_and_finds(place: Place) -> None:
    asked: list[tuple[Place, str]] = []

    async def judge(check: CheckSettings, said: Said) -> bool:
        asked.append((said.place, said.text))
        return "@" in said.text

    settings = {"name": "j", "judge": {"model": "j", "format": "llama_guard"}, "scan": place}
    guard = Guard(Checks([CheckSettings.model_validate(settings)]), judge)
    message = await read(searched("It is known."), guard)
    told = {
        "tool_arguments": '{"query": "eve@example.com"}',
        "tool_results": f"{FOUND.title}\n{FOUND.text}",
        "output": "It is known.",
    }
    assert asked == [(place, told[place])]
    blocked = message.stop_reason is StopReason.content_filter
    assert blocked is (place != "output")


@st.composite
def parts_of(draw: st.DrawFn, text: str) -> list[str]:
    """`text` over several parts, none of which is empty."""
    cuts = sorted(draw(st.sets(st.integers(1, len(text) - 1), min_size=1, max_size=4)))
    return [text[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]


VALUES = st.sampled_from(
    [
        "Pay 4111 1111 1111 1111 now, or write to alice@example.com.",
        "4111 1111 1111 1111",
        "a@example.com, b@example.com",
        "Nothing is in it: 4111 is no card.",
    ]
)


@given(data=st.data(), value=VALUES, mode=st.sampled_from(["redact", "monitor", "block"]))
@settings(max_examples=examples(150), deadline=None)
def test_no_cut_into_parts_changes_what_is_found(data: Any, value: str, mode: str) -> None:
    """As vendors cut a text where it cites something: each part whole, or in pieces of its own."""
    texts = data.draw(parts_of(value))
    reply_parts = ReplyParts()
    events: list[StreamEvent] = []
    for text in texts:
        for piece in cut(text, data.draw(CUTS)):
            events.append(reply_parts.progress(TextDelta(piece)))
        cited = Citation(0, len(text), WebSource("https://a.example"), text)
        events.append(reply_parts.progress(CitationDelta(cited)))
        reply_parts.end_part()

    async def check() -> None:
        alone = guard_of(mode=mode)
        whole = await read(said(StreamProgress(TextDelta(value))), alone)
        for streams in (True, False):
            guard = guard_of(mode=mode)
            message = await read(said(*events), guard, streams=streams)
            assert guard.verdicts.keys() == alone.verdicts.keys()
            assert message.stop_reason is whole.stop_reason
            if mode != "block":
                assert guard.verdicts == alone.verdicts
                assert message.content == whole.content
            elif guard.verdicts and not streams:
                assert message.content == ""
            elif streams:
                assert value.startswith(message.content)
                assert "4111 1111 1111 1111" not in message.content
            for part in message.parts:
                assert isinstance(part, TextContent)
                for each in part.citations:
                    assert part.text[each.start : each.end] == each.text

    asyncio.run(check())


@given(data=st.data(), value=VALUES)
@settings(max_examples=examples(100), deadline=None)
def test_nor_does_one_of_a_whole_reply_into_parts_with_others_between(
    data: Any, value: str
) -> None:
    events: list[StreamEvent] = []
    for place, text in enumerate(data.draw(parts_of(value))):
        thought = StreamProgress(ReasoningDelta("Hm."), part=2 * place)
        events += (thought, StreamProgress(TextDelta(text), part=2 * place + 1))

    async def check() -> None:
        whole = await read(said(StreamProgress(TextDelta(value))), guard_of(mode="redact"))
        message = await read(said(*events), guard_of(mode="redact"), streams=False)
        # What is a value by itself in a part of another's is hidden there, too.
        assert not any(each in str(message.content) for each in ("4111 1111 1111", "@example.com"))
        if "@" not in value:
            assert message.content == whole.content

    asyncio.run(check())


async def test_thoughts_that_follow_each_other_are_read_as_one() -> None:
    """And what seals those that are not changed stays."""
    thoughts = [("Pay 4111 1111", None), (" 1111 1111. ", None), ("So. ", "sealed")]
    events = [
        StreamProgress(ReasoningDelta(text, seal, "anthropic" if seal else ""), part=part)
        for part, (text, seal) in enumerate(thoughts)
    ]
    for streams in (True, False):
        guard = guard_of(mode="redact")
        message = await read(said(*events), guard, streams=streams)
        assert message.reasoning == "Pay <CARD_1>. So. "
        assert guard.verdicts == {("pii", "redact"): 1}
        assert message.parts[-1] == ReasoningContent("So. ", "sealed", "anthropic")


async def test_a_seal_is_that_of_its_own_thought() -> None:
    events = [
        StreamProgress(ReasoningDelta("Call 12"), part=0),
        StreamProgress(ReasoningDelta("", "sealed", "anthropic"), part=1),
    ]
    message = await read(said(*events), guard_of(mode="redact"))
    assert message.parts == (
        ReasoningContent("Call 12"),
        ReasoningContent("", "sealed", "anthropic"),
    )
