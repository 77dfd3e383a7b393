"""Streams that are relayed through the checks: no cut changes what becomes of them, and what is
clean goes by as it came."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llama_compat.guardrails.checks import Checks
from llama_compat.guardrails.guard import Guard
from llama_compat.guardrails.relayed.stream import GuardedStream
from llama_compat.guardrails.settings import CheckSettings
from tests.examples import examples
from tests.unit.llama_compat.guardrails.relayed.wires import WIRES, Wire, read
from tests.unit.llama_compat.guardrails.test_scanner import CUTS, TEXTS, cut

MAIL, CARD = "alice@example.com", "4111 1111 1111 1111"

each_wire = pytest.mark.parametrize("wire", WIRES.values(), ids=WIRES)


def guard_of(**check: Any) -> Guard:
    settings = {"name": "pii", "patterns": ["cards", "emails"], **check}
    return Guard(Checks([CheckSettings.model_validate(settings)]))


def relayed(wire: Wire, events: Sequence[bytes], guard: Guard) -> bytes:
    assert wire.operation.withheld is not None
    stream = GuardedStream(guard, wire.operation.withheld, {})
    shown = []
    for each in events:
        shown.append(stream.push(each))
        if stream.blocked:
            return b"".join(shown)
    shown.append(stream.finish())
    return b"".join(shown)


def together(events: Sequence[bytes], cuts: Sequence[int]) -> list[bytes]:
    """The same events, some of which arrive together."""
    places = sorted({0, len(events), *(each % (len(events) + 1) for each in cuts)})
    return [b"".join(events[a:b]) for a, b in pairwise(places)]


def meant(wire: Wire, stream: bytes) -> tuple[str, str, Any]:
    """What a client reads: of arguments what they say, however their JSON is written."""
    said = read(wire, stream)
    return said.thoughts, said.text, json.loads(said.arguments or "null")


@each_wire
@settings(max_examples=examples(60), deadline=None)
@given(
    st.tuples(TEXTS, TEXTS, TEXTS),
    CUTS,
    CUTS,
    st.sampled_from(["block", "redact", "monitor"]),
)
def test_no_cut_changes_what_becomes_of_a_stream(
    wire: Wire, texts: tuple[str, str, str], cuts: list[int], reads: list[int], mode: str
) -> None:
    thoughts, text, argument = texts
    arguments = json.dumps({"a": argument})
    once, again = guard_of(mode=mode), guard_of(mode=mode)
    whole = wire.rendered([thoughts], [text], [arguments])
    pieces = wire.rendered(cut(thoughts, cuts), cut(text, cuts), cut(arguments, cuts))
    first = relayed(wire, whole, once)
    second = relayed(wire, together(pieces, reads), again)
    assert once.verdicts == again.verdicts
    if mode == "monitor":
        assert second == b"".join(pieces)
    if mode != "block":
        assert meant(wire, first) == meant(wire, second)
        assert not once.verdicts or mode == "monitor" or first != b"".join(whole)


@each_wire
def test_what_is_found_is_nowhere(wire: Wire) -> None:
    """Not in an event that repeats all of a text either; and it is found once in each."""
    said = [f"Mail {MAIL} or p", "ay ", CARD[:7], CARD[7:], ", ", "bye."]
    arguments = ['{"to": "ali', 'ce\\u0040example.com", "n": "', CARD[:9], f'{CARD[9:]}"', "}"]
    guard = guard_of(mode="redact")
    events = wire.rendered(said, said, arguments)
    shown = relayed(wire, events, guard)
    for each in (MAIL, CARD, CARD[:7], CARD[7:], "ce@example"):
        assert each.encode() not in shown
        assert each.encode() not in shown.replace(b"\\u0040", b"@")
    texts = read(wire, shown)
    assert texts.text == "Mail <EMAIL_1> or pay <CARD_1>, bye."
    if wire.calls:
        assert json.loads(texts.arguments) == {"to": "<EMAIL_1>", "n": "<CARD_1>"}
    if wire.thinks:
        assert texts.thoughts == texts.text
    assert guard.verdicts == {("pii", "redact"): 2 * (1 + wire.calls + wire.thinks)}


@each_wire
def test_what_is_clean_is_not_held_back(wire: Wire) -> None:
    words = [" one", " two", " three ", " four", ". ", "Five. "]
    events = wire.rendered([], words, [])
    stream = GuardedStream(guard_of(), wire.operation.withheld, {})  # type: ignore[arg-type]
    came, shown = b"", b""
    for each in events:
        came += each
        shown += stream.push(each)
        assert came.startswith(shown)
        # One event at most waits: its last word may go on.
        assert len(read(wire, came).text) - len(read(wire, shown).text) <= 5
    assert shown + stream.finish() == came


@each_wire
def test_of_what_is_blocked_only_what_came_before_is_shown(wire: Wire) -> None:
    guard = guard_of(mode="block")
    events = wire.rendered([], ["It is. ", "And: ", "4111 1111", " 1111 1111", " and more."], [])
    shown = relayed(wire, events, guard)
    assert guard.verdicts == {("pii", "block"): 1}
    assert read(wire, shown).text == "It is. And: "
    assert b" 1111" not in shown  # nor half of it; a time may have 1111 in it
    assert b"more" not in shown
    words = (b"content_filter", b"refusal", b"SAFETY", b"content_blocked")
    assert any(each in shown for each in words)


def test_tokens_do_not_tell_what_is_hidden() -> None:
    wire = WIRES["chat"]

    def chunk(text: str) -> bytes:
        logprobs = {"content": [{"token": text, "logprob": -1.0, "bytes": list(text.encode())}]}
        choice = {"index": 0, "delta": {"content": text}, "logprobs": logprobs}
        return b"data: %b\n\n" % json.dumps({"choices": [choice]}).encode()

    shown = relayed(
        wire, [*map(chunk, ["Hi. ", "a@", "example.com", " "])], guard_of(mode="redact")
    )
    assert read(wire, shown).text == "Hi. <EMAIL_1> "
    assert b'"a@"' not in shown
    assert b'"example.com"' not in shown
    assert shown.startswith(chunk("Hi. "))


def test_nor_do_those_of_an_event_that_repeats_a_text() -> None:
    at = {"item_id": "m", "output_index": 0, "content_index": 0}
    tokens = [{"token": each, "logprob": -1.0} for each in ("4111", " 1111", " 1111 1111", ". ")]
    events = [
        {"type": "response.output_text.delta", **at, "delta": f"{CARD}. ", "logprobs": tokens},
        {"type": "response.output_text.done", **at, "text": f"{CARD}. ", "logprobs": tokens},
    ]
    raw = [b"data: %b\n\n" % json.dumps(each).encode() for each in events]
    shown = relayed(WIRES["responses"], raw, guard_of(mode="redact"))
    assert b"1111" not in shown
    assert shown.count(b"<CARD_1>. ") == 2
    assert relayed(WIRES["responses"], raw, guard_of(mode="monitor")) == b"".join(raw)


def test_a_seal_of_thoughts_that_are_changed_is_none() -> None:
    wire = WIRES["messages"]
    sealed = b'"signature":"of the thoughts"'
    events = wire.rendered([f"Mail {MAIL}. ", "So. "], ["Done."], [])
    delta = b'"type":"signature_delta",'
    events = [re.sub(delta + rb'"signature":"[^"]*"', delta + sealed, each) for each in events]
    assert sealed in b"".join(events)
    assert sealed not in relayed(wire, events, guard_of(mode="redact"))
    assert sealed in relayed(wire, events, guard_of(mode="monitor"))


def test_what_holds_a_thought_itself_stays() -> None:
    item = {
        "id": "rs_1",
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": f"Mail {MAIL}."}],
        "encrypted_content": "of the thoughts",
    }
    events = [
        {
            "type": "response.reasoning_summary_text.delta",
            "item_id": "rs_1",
            "output_index": 0,
            "summary_index": 0,
            "delta": f"Mail {MAIL}.",
        },
        {"type": "response.output_item.done", "output_index": 0, "item": item},
    ]
    shown = relayed(
        WIRES["responses"],
        [b"data: %b\n\n" % json.dumps(each).encode() for each in events],
        guard_of(mode="redact"),
    )
    assert MAIL.encode() not in shown
    assert b'"encrypted_content":"of the thoughts"' in shown.replace(b'": "', b'":"')


@pytest.mark.parametrize(
    "odd",
    [
        b": ping %b\n\n" % MAIL.encode(),
        b'event: %b\ndata: {"a": 1}\n\n' % MAIL.encode(),
        b'event: ping\nid: %b\ndata: {"a": 1}\n\n' % MAIL.encode(),
        b"data: no JSON, %b\n\n" % MAIL.encode(),
        b'data: {"choices": [],\ndata: "mail": "alice\\u0040example.com"}\n\n',
        b'event: x\r\ndata: {"mail": "%b"}\r\n\r\n' % MAIL.encode(),
        b'id: 7\ndata: {"%b": 1}\n\n' % MAIL.encode(),
    ],
)
def test_no_event_is_too_odd(odd: bytes) -> None:
    shown = relayed(WIRES["chat"], [odd, b"\r\n", b"data: [DONE]\n\n"], guard_of(mode="redact"))
    assert b"example.com" not in shown
    assert shown.endswith(b"\r\ndata: [DONE]\n\n")
