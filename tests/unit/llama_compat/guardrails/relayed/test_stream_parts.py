"""Values that are cut over parts of a stream that is relayed: blocks, items, steps."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llama_compat.events import ReplyParts
from llama_compat.guardrails.relayed.stream import GuardedStream
from llama_compat.tools.calls import ToolCallAssembler
from llama_compat.types import (
    ReasoningDelta,
    StopReason,
    StreamComplete,
    StreamEvent,
    StreamStart,
    TextDelta,
    Usage,
)
from tests.examples import examples
from tests.unit.llama_compat.guardrails.relayed.test_stream import (
    MAIL,
    each_wire,
    guard_of,
    relayed,
    together,
)
from tests.unit.llama_compat.guardrails.relayed.wires import WIRES, Wire, read
from tests.unit.llama_compat.guardrails.test_replies import VALUES, parts_of
from tests.unit.llama_compat.guardrails.test_scanner import CUTS, cut

CARD = "4111 1111 1111 1111"


@each_wire
@given(data=st.data(), value=VALUES, mode=st.sampled_from(["redact", "monitor", "block"]))
@settings(max_examples=examples(60), deadline=None)
def test_no_cut_into_parts_changes_what_is_found(
    wire: Wire, data: Any, value: str, mode: str
) -> None:
    parts = [cut(each, data.draw(CUTS)) for each in data.draw(parts_of(value))]
    events = wire.rendered_parts([], parts)
    once, again = guard_of(mode=mode), guard_of(mode=mode)
    whole = relayed(wire, wire.rendered([], [value], []), once)
    shown = relayed(wire, together(events, data.draw(CUTS)), again)
    assert once.verdicts == again.verdicts
    if mode == "monitor":
        assert shown == b"".join(events)
    elif mode == "redact":
        assert read(wire, shown).text == read(wire, whole).text
        assert not once.verdicts or value not in repeated(shown)
    else:
        assert value.startswith(read(wire, shown).text)
        assert CARD not in read(wire, shown).text


def repeated(stream: bytes) -> str:
    """What the last event of a stream of responses has of all of its texts."""
    data = [line[6:] for line in stream.split(b"\n") if line.startswith(b'data: {"type":"resp')]
    output = json.loads(data[-1]).get("response", {}).get("output", ()) if data else ()
    return "".join(part["text"] for item in output for part in item.get("content", ()))


@given(data=st.data(), value=VALUES)
@settings(max_examples=examples(100), deadline=None)
def test_what_is_repeated_of_parts_is_what_was_shown(data: Any, value: str) -> None:
    wire = WIRES["responses"]
    parts = [cut(each, data.draw(CUTS)) for each in data.draw(parts_of(value))]
    shown = relayed(wire, wire.rendered_parts([], parts), guard_of(mode="redact"))
    assert repeated(shown) == read(wire, shown).text


SEGMENTS = st.tuples(
    st.sampled_from(["text", "another text", "thought", "another thought", "call"]),
    st.sampled_from([CARD, MAIL, "nothing"]),
    CUTS,
)


@each_wire
@given(st.lists(SEGMENTS, min_size=1, max_size=5), CUTS, st.sampled_from(["redact", "block"]))
@settings(max_examples=examples(40), deadline=None)
def test_no_order_of_parts_lets_a_value_by(
    wire: Wire, segments: list[tuple[str, str, list[int]]], reads: list[int], mode: str
) -> None:
    parts, calls = ReplyParts(), ToolCallAssembler()
    events: list[StreamEvent] = [StreamStart(3)]
    for index, (kind, value, cuts) in enumerate(segments):
        said = f"Use {value} now. "
        if kind.startswith("another"):
            parts.end_part()
        if kind == "call" and wire.calls:
            deltas = calls.push(index=index, call_id=str(index), tool_name="f", arguments="")
            for each in cut(json.dumps({"a": said}), cuts):
                deltas += calls.push(index=index, call_id=None, tool_name=None, arguments=each)
            events += map(parts.progress, deltas)
        elif kind.endswith("thought") and wire.thinks:
            events += [parts.progress(ReasoningDelta(each)) for each in cut(said, cuts)]
        else:
            events += [parts.progress(TextDelta(each)) for each in cut(said, cuts)]
    events += map(parts.progress, calls.finish())
    events.append(StreamComplete(StopReason.end_of_turn, Usage(3, 5)))
    raw = wire.rendered_events(events)
    once, again = guard_of(mode=mode), guard_of(mode=mode)
    whole = relayed(wire, [b"".join(raw)], once)
    shown = relayed(wire, together(raw, reads), again)
    assert once.verdicts == again.verdicts
    for each in (whole, shown):
        assert CARD.encode() not in each
        assert MAIL.encode() not in each
        said = read_in(wire, each)
        assert CARD not in said
        assert MAIL not in said
    if mode == "redact":
        assert read_in(wire, whole) == read_in(wire, shown)


def read_in(wire: Wire, stream: bytes) -> str:
    """All that a client reads."""
    said = read(wire, stream)
    return "\n".join((said.thoughts, said.text, said.arguments))


def events_of(*events: dict[str, Any]) -> list[bytes]:
    return [b"data: %b\n\n" % json.dumps(each).encode() for each in events]


def blocks(*between: dict[str, Any]) -> list[dict[str, Any]]:
    """Two blocks of a message over which a card is cut."""

    def block(index: int, text: str) -> list[dict[str, Any]]:
        kind, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": text}
        return [
            {"type": "content_block_start", "index": index, "content_block": kind},
            {"type": "content_block_delta", "index": index, "delta": delta},
            {"type": "content_block_stop", "index": index},
        ]

    return [*block(0, "Pay 4111 1111"), *between, *block(len(between) + 1, " 1111 1111 now. ")]


PING = {"type": "ping"}
CITED = {
    "type": "content_block_delta",
    "index": 0,
    "delta": {
        "type": "citations_delta",
        "citation": {"type": "char_location", "cited_text": "It is.", "document_index": 0},
    },
}
TOOL = {
    "type": "content_block_start",
    "index": 1,
    "content_block": {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
}


def items(kind: str, member: str, *between: dict[str, Any]) -> list[dict[str, Any]]:
    """Two items of a response over which a card is cut."""

    def item(index: int, text: str) -> list[dict[str, Any]]:
        at = {"output_index": index, "item_id": f"i_{index}"}
        whole = {"id": f"i_{index}", "type": kind, member: [{"type": "x_text", "text": text}]}
        place = {"content": "output_text", "summary": "reasoning_summary_text"}[member]
        delta, done = (f"response.{place}.{each}" for each in ("delta", "done"))
        return [
            {"type": "response.output_item.added", **at, "item": {"id": "i", "type": kind}},
            {"type": delta, **at, "content_index": 0, "delta": text},
            {"type": done, **at, "content_index": 0, "text": text},
            {"type": "response.output_item.done", "output_index": index, "item": whole},
        ]

    return [*item(0, "Pay 4111 1111"), *between, *item(1, " 1111 1111 now. ")]


def steps() -> list[dict[str, Any]]:
    """Two steps of an interaction over which a card is cut."""

    def step(index: int, text: str) -> list[dict[str, Any]]:
        kind = {"type": "model_output"}
        delta = {"type": "text", "text": text}
        return [
            {"event_type": "step.start", "index": index, "step": kind},
            {"event_type": "step.delta", "index": index, "delta": delta},
            {"event_type": "step.stop", "index": index},
        ]

    return [*step(0, "Pay 4111 1111"), *step(1, " 1111 1111 now. ")]


def chunks() -> list[dict[str, Any]]:
    """Chunks of a chat whose content is a text, and then parts."""
    texts = ["Pay 4111 1111", [{"type": "text", "text": " 1111 1111 now. "}]]
    return [{"choices": [{"index": 0, "delta": {"content": each}}]} for each in texts]


def candidates() -> list[dict[str, Any]]:
    """Parts of one candidate, of which one says that it is no thought."""
    parts = [{"text": "Pay 4111 1111", "thought": False}], [{"text": " 1111 "}, {"text": "1111. "}]
    return [{"candidates": [{"index": 0, "content": {"parts": each}}]} for each in parts]


CUT_OVER = {
    "blocks": ("messages", blocks()),
    "blocks, with what is no text between": ("messages", blocks(CITED, PING)),
    "items": ("responses", items("message", "content")),
    "items of reasoning": ("responses", items("reasoning", "summary")),
    "steps": ("interactions", steps()),
    "contents": ("chat", chunks()),
    "candidates": ("gemini", candidates()),
}


@pytest.mark.parametrize(("wire", "events"), CUT_OVER.values(), ids=CUT_OVER)
def test_what_is_cut_over_parts_is_hidden_where_it_begins(
    wire: str, events: list[dict[str, Any]]
) -> None:
    guard = guard_of(mode="redact")
    shown = relayed(WIRES[wire], events_of(*events), guard)
    assert guard.verdicts == {("pii", "redact"): 1}
    assert b"1111" not in shown
    assert b"Pay <CARD_1>" in shown
    assert guard.hid == ["pii"]


@pytest.mark.parametrize(("wire", "events"), CUT_OVER.values(), ids=CUT_OVER)
def test_it_ends_a_stream_before_it_begins(wire: str, events: list[dict[str, Any]]) -> None:
    guard = guard_of(mode="block")
    shown = relayed(WIRES[wire], events_of(*events), guard)
    assert guard.verdicts == {("pii", "block"): 1}
    assert b"1111" not in shown
    assert b"now" not in shown


@pytest.mark.parametrize("wire", ["messages", "responses", "interactions"])
def test_parts_in_which_nothing_is_go_by_as_they_came(wire: str) -> None:
    found = {name: list(each) for name, each in CUT_OVER.values() if name == wire}
    events = [
        event.replace(b" 1111 1111 now", b" 1112 1112 now") for event in events_of(*found[wire])
    ]
    assert relayed(WIRES[wire], events, guard_of(mode="redact")) == b"".join(events)


@pytest.mark.parametrize(
    ("wire", "events"),
    [
        ("messages", blocks(TOOL)),
        (
            "responses",
            items(
                "message",
                "content",
                {
                    "type": "response.output_item.added",
                    "output_index": 1,
                    "item": {"id": "w", "type": "web_search_call"},
                },
            ),
        ),
    ],
)
def test_nothing_is_held_back_once_something_else_has_begun(
    wire: str, events: list[dict[str, Any]]
) -> None:
    operation = WIRES[wire].operation
    assert operation.withheld is not None
    stream = GuardedStream(guard_of(mode="redact"), operation.withheld, {})
    raw = events_of(*events)
    tool = next(at for at, each in enumerate(raw) if b'e": "server_' in each or b"_search" in each)
    came = b"".join(stream.push(each) for each in raw[: tool + 1])
    assert came == b"".join(raw[: tool + 1])


def test_what_one_event_repeats_of_parts_that_nobody_saw_is_read_as_one() -> None:
    content = [{"type": "output_text", "text": each} for each in ("Pay 4111 1111", " 1111 1111. ")]
    output = [{"type": "message", "role": "assistant", "content": content}]
    event = {"type": "response.completed", "response": {"output": output}}
    for mode in ("redact", "block"):
        guard = guard_of(mode=mode)
        shown = relayed(WIRES["responses"], events_of(event), guard)
        assert guard.verdicts == {("pii", mode): 1}
        assert b"1111" not in shown


def test_nothing_goes_on_behind_an_event_that_may_not() -> None:
    """It is looked through in its turn: what came behind it has to wait for that."""
    titled = {"type": "content_block_delta", "index": 0, "delta": {"type": "x", "title": MAIL}}
    guard = guard_of(mode="block")
    events = events_of(*blocks(titled), {"type": "ping", "say": "more"})
    events = [each.replace(b" 1111 1111 now", b" is a number") for each in events]
    for size in (1, len(events)):
        guard = guard_of(mode="block")
        cuts = list(range(0, len(events), size))
        shown = relayed(WIRES["messages"], together(events, cuts), guard)
        assert guard.verdicts == {("pii", "block"): 1}
        assert MAIL.encode() not in shown
        assert b"is a number" not in shown
        assert b"more" not in shown


def test_a_seal_is_none_once_the_thoughts_before_it_are_others() -> None:
    thought = {"type": "thought_summary", "content": {"type": "text", "text": f"Ask {MAIL}. "}}
    seal = {"type": "thought_signature", "signature": "of the thoughts"}
    events = events_of(
        {"event_type": "step.start", "index": 0, "step": {"type": "thought"}},
        {"event_type": "step.delta", "index": 0, "delta": thought},
        {"event_type": "step.delta", "index": 0, "delta": seal},
    )
    shown = relayed(WIRES["interactions"], events, guard_of(mode="redact"))
    assert b"Ask <EMAIL_1>. " in shown
    assert b"of the thoughts" not in shown


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ([["Pay ", "4111 ", "1111"], [" 1111", " 1111"]], ["Pay "]),
        ([["4111 ", "1111"], [" 1111 1111"]], [""]),
        ([["One. "], ["Pay ", CARD]], ["One. ", "Pay "]),
    ],
)
def test_parts_that_the_client_knows_of_end_once(parts: list[list[str]], said: list[str]) -> None:
    wire = WIRES["responses"]
    shown = relayed(wire, wire.rendered_parts([], parts), guard_of(mode="block"))
    events = [json.loads(each[6:]) for each in shown.split(b"\n") if each[:6] == b"data: "]
    assert [each["type"] for each in events].count("response.content_part.added") == len(said)
    for kind, member in (("output_text", "text"), ("content_part", "part")):
        ends = [each[member] for each in events if each["type"] == f"response.{kind}.done"]
        assert [each["text"] if member == "part" else each for each in ends] == said
    (message,) = events[-1]["response"]["output"]
    assert [each["text"] for each in message["content"]] == said


def test_the_escapes_of_what_is_nested_too_deeply_are_read() -> None:
    nested = b"[" * 5000 + b'"alice\\u0040example.com"' + b"]" * 5000
    event = b'data: {"choices": [{"index": 0, "delta": {"x": %b}}]}\n\n' % nested
    guard = guard_of(mode="redact")
    assert relayed(WIRES["chat"], [event], guard) == b""
    assert guard.verdicts == {("pii", "redact"): 1}


def test_a_value_cut_over_segments_of_a_transcription_is_found() -> None:
    """They repeat what the deltas say, among which they come: neither ends the other."""

    def delta(text: str) -> dict[str, Any]:
        return {"type": "transcript.text.delta", "delta": text}

    def segment(number: int, text: str) -> dict[str, Any]:
        return {"type": "transcript.text.segment", "id": f"s{number}", "start": 1.5, "text": text}

    events = [
        delta("It is "),
        delta(CARD[:9]),
        segment(0, f"It is {CARD[:9]}"),
        delta(CARD[9:]),
        segment(1, CARD[9:14]),
        delta(". Bye."),
        segment(2, f"{CARD[14:]}. Bye."),
        {"type": "transcript.text.done", "text": f"It is {CARD}. Bye."},
    ]
    guard = guard_of(mode="redact")
    stream = GuardedStream(guard, None, {})
    raw = [b"data: %b\n\n" % json.dumps(each).encode() for each in events]
    lines = (b"".join(map(stream.push, raw)) + stream.finish()).decode().splitlines()
    shown = [json.loads(line.removeprefix("data: ")) for line in lines if line]
    assert [each["type"] for each in shown] == [each["type"] for each in events]
    assert "".join(each.get("delta", "") for each in shown) == "It is <CARD_1>. Bye."
    segments = [each for each in shown if each["type"].endswith("segment")]
    assert [each["text"] for each in segments] == ["It is <CARD_1>", "", ". Bye."]
    assert shown[-1]["text"] == "It is <CARD_1>. Bye."
    assert guard.verdicts == {("pii", "redact"): 2}
