"""Streams of Ollama's and Gemini's on their way to clients of theirs, cut anywhere."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from llama_compat.dialects.gemini import render_seal
from llama_compat.dialects.gemini.frames import ArrayFrame, EventFrame, Frame
from llama_compat.dialects.gemini_interactions.events import DONE as INTERACTION_DONE
from llama_compat.errors import APIError
from llama_compat.types import ReasoningContent, Units, Usage
from llama_compat.wire.json_fields import to_raw
from llama_compat.wire.sse import DONE
from providers.remote.gemini.interactions import InteractionStream, without_foreign_steps
from providers.remote.gemini.relay import GeminiEvents
from providers.remote.ollama.relay import OllamaLines
from tests import sdk_interactions as interactions
from tests.unit import vocabulary

lines = st.lists(vocabulary.json_objects.filter(lambda line: "error" not in line), max_size=4)
LAST = {"model": "own", "done": True, "prompt_eval_count": 3, "eval_count": 2}


def pushed(stream: Any, pieces: list[bytes]) -> list[bytes]:
    out: list[bytes] = []
    for piece in (*filter(None, pieces), b""):
        stream.push(piece, out)
    return out


def encoded(value: Any, **options: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, **options).encode()


@given(lines, st.sampled_from([b"\n", b"\r\n", b"\n\n"]), st.data())
def test_lines_come_whole_wherever_they_are_cut(
    sent: list[dict[str, Any]], end: bytes, data: st.DataObject
) -> None:
    sent = [{"model": "own", **line, "done": False} for line in sent]
    pieces = data.draw(vocabulary.cuts(b"".join(encoded(line) + end for line in [*sent, LAST])))
    stream = OllamaLines("ollama", to_raw("public"), ("message", "done"))
    out = pushed(stream, pieces)
    expected = [{**line, "model": "public"} for line in [*sent, LAST]]
    assert [json.loads(line) for line in out] == expected
    assert all(line.endswith(b"\n") and line.count(b"\n") == 1 for line in out)
    assert (stream.complete, stream.usage) == (True, Usage(3, 2))


@pytest.mark.parametrize("told", [-3, True, 1 << 70, "x", [3]])
def test_what_is_no_count_is_none_of_a_lines_usage(told: Any) -> None:
    stream = OllamaLines("ollama", to_raw("public"), ("message", "done"))
    pushed(stream, [encoded({**LAST, "prompt_eval_count": told}) + b"\n"])
    assert stream.usage == Usage(0, 2)


def test_what_nobody_counted_is_not_known() -> None:
    lines = OllamaLines("ollama", to_raw("public"), ("message", "done"))
    pushed(lines, [encoded({"done": True, "prompt_eval_count": None, "eval_count": None})])
    events = GeminiEvents("gemini", EventFrame(), 1)
    pushed(events, [b"data: " + encoded({**FINISHED, "usageMetadata": {}}) + b"\n\n"])
    for stream in (lines, events):
        assert stream.complete
        assert stream.usage is None


def test_a_last_line_needs_no_end_and_what_follows_it_is_left_out() -> None:
    stream = OllamaLines("ollama", to_raw("public"), ("message", "done"))
    assert len(pushed(stream, [encoded(LAST)])) == 1
    assert stream.ended
    again = OllamaLines("ollama", to_raw("public"), ("message", "done"))
    assert len(pushed(again, [encoded(LAST), b"\n", encoded(LAST), b"\nnonsense\n"])) == 1


def test_lines_before_the_last_count_nothing_and_complete_nothing() -> None:
    stream = OllamaLines("ollama", to_raw("public"), ("message", "done"))
    pushed(stream, [encoded({"model": "own", "done": False, "eval_count": 9}) + b"\n"])
    assert (stream.complete, stream.usage, stream.begun) == (False, None, True)


@pytest.mark.parametrize(
    ("line", "vendor_body"),
    [
        (b'{"error":"busy"}\n', ("", b'{"error":"busy"}')),
        (b'{"detail":"busy"}\n', ("", b'{"detail":"busy"}')),
        (b"nonsense\n", None),
        (b"[]\n", None),
    ],
)
def test_what_came_before_an_error_is_the_clients(line: bytes, vendor_body: Any) -> None:
    stream = OllamaLines("ollama", to_raw("public"), ("message", "done"))
    out: list[bytes] = []
    with pytest.raises(APIError) as raised:
        stream.push(encoded({"model": "own"}) + b"\n" + line, out)
    assert len(out) == 1
    assert raised.value.vendor_body == vendor_body


responses = st.lists(vocabulary.json_objects.filter(lambda each: "error" not in each), max_size=4)
FINISHED = {"candidates": [{"finishReason": "STOP"}], "usageMetadata": {"promptTokenCount": 3}}


@given(responses, st.sampled_from([b"\n\n", b"\r\n\r\n", b"\r\r"]), st.booleans(), st.data())
def test_events_come_whole_wherever_they_are_cut(
    sent: list[dict[str, Any]], end: bytes, as_array: bool, data: st.DataObject
) -> None:
    whole = b"".join(b"data: " + encoded(each) + end for each in [*sent, FINISHED])
    frame: Frame = ArrayFrame() if as_array else EventFrame()
    stream = GeminiEvents("gemini", frame, 1)
    relayed = b"".join(pushed(stream, data.draw(vocabulary.cuts(whole))))
    if as_array:
        assert json.loads(relayed + b"]") == [*sent, FINISHED]
    else:
        expected = b"".join(b"data: " + encoded(each) + b"\r\n\r\n" for each in [*sent, FINISHED])
        assert relayed == expected
    assert (stream.complete, stream.usage) == (True, Usage(3))


@pytest.mark.parametrize(
    ("candidates", "said", "complete"),
    [
        (1, [{"finishReason": "STOP"}], True),
        (1, [{"index": 0, "finishReason": "MAX_TOKENS"}], True),
        (1, [{"index": 0, "finishReason": None}], False),
        (1, [{"index": 0, "finishReason": "FINISH_REASON_UNSPECIFIED"}], False),
        (1, [{"content": {"parts": [{"text": "finishReason"}]}}], False),
        (2, [{"finishReason": "STOP"}], False),
        (2, [{"finishReason": "STOP"}, {"index": 1, "finishReason": "STOP"}], True),
        (1, [], False),
    ],
)
def test_a_stream_is_complete_when_every_candidate_is(
    candidates: int, said: list[Any], complete: bool
) -> None:
    stream = GeminiEvents("gemini", EventFrame(), candidates)
    pushed(stream, [b"data: " + encoded({"candidates": said}) + b"\n\n"])
    assert stream.complete is complete


def test_an_error_in_other_words_is_no_response() -> None:
    stream = GeminiEvents("gemini", EventFrame(), 1)
    with pytest.raises(APIError, match="no such route"):
        stream.push(b'data: {"detail": "no such route"}\n\n', [])
    out: list[bytes] = []
    stream.push(b'data: {"candidates": [], "message": "x"}\n\n', out)
    assert out


def test_json_in_several_lines_is_one_item() -> None:
    stream = GeminiEvents("gemini", ArrayFrame(), 1)
    assert json.loads(stream.whole(encoded(FINISHED, indent=2)) + b"]") == [FINISHED]
    with pytest.raises(APIError, match="finishReason"):
        GeminiEvents("gemini", ArrayFrame(), 1).whole(b'{"candidates": []}')


def test_openais_end_of_a_stream_is_no_response_of_gemini() -> None:
    candidate = {"index": 0, "finishReason": "STOP"}
    stream = GeminiEvents("gemini", EventFrame(), 1)
    out = pushed(stream, [b"data: " + encoded({"candidates": [candidate]}) + b"\n\n", DONE])
    assert len(out) == 1
    assert stream.complete


# Google's interactions ----------------------------------------------------------------------------


WHOLE = interactions.interaction(
    [
        interactions.thought("Hm."),
        interactions.output(interactions.text("It is 20 °C. 🌞")),
        interactions.function_call("c1", "f", {"a": 1}),
    ]
)
SENT = interactions.stream_bytes(interactions.stream_events(WHOLE))


@given(st.sampled_from([SENT, SENT.replace(b"\n", b"\r\n")]).flatmap(vocabulary.cuts))
def test_an_interaction_is_the_same_wherever_it_is_cut(pieces: list[bytes]) -> None:
    stream = InteractionStream("gemini")
    assert b"".join(pushed(stream, pieces)) + INTERACTION_DONE == SENT
    assert (stream.complete, stream.ended, stream.begun, stream.spoken) == (True,) * 4
    assert stream.usage == Usage(30, 25, cached_tokens=10, reasoning_tokens=5)


def test_an_interaction_says_nothing_before_its_first_step_has_content() -> None:
    stream = InteractionStream("gemini")
    spoken = []
    for event in SENT.split(b"\n\n")[:4]:
        pushed_so_far: list[bytes] = []
        stream.push(event + b"\n\n", pushed_so_far)
        spoken.append(stream.spoken)
    assert spoken == [False, False, False, True]


def status_update(status: str) -> bytes:
    update = {"event_type": "interaction.status_update", "interaction_id": "x", "status": status}
    return b"data: " + encoded(update) + b"\n\n"


@pytest.mark.parametrize(
    "status", ["completed", "failed", "cancelled", "incomplete", "requires_continuation"]
)
def test_an_interaction_may_end_with_its_status_alone(status: str) -> None:
    stream = InteractionStream("gemini")
    pushed(stream, [status_update(status)])
    assert stream.complete
    stream.push(DONE, [])
    assert stream.ended


def test_what_follows_the_last_status_of_an_interaction_is_the_clients() -> None:
    """Its usage is there."""
    stream = InteractionStream("gemini")
    *events, completed = SENT.removesuffix(INTERACTION_DONE).split(b"\n\n")[:-1]
    pushed(stream, [b"\n\n".join(events) + b"\n\n", status_update("requires_action")])
    assert not stream.ended
    out = pushed(stream, [completed + b"\n\n"])
    assert out == [completed + b"\n\n"]
    assert stream.ended
    assert stream.usage == Usage(30, 25, cached_tokens=10, reasoning_tokens=5)


@pytest.mark.parametrize(
    "event",
    [
        b'event: error\ndata: {"error":{"code":"service_unavailable","message":"Busy."}}\n\n',
        b'data: {"event_type":"error","error":{"code":"x","message":"Busy."}}\n\n',
        b"event: error\ndata: Busy.\n\n",
        b"data: nonsense\n\n",
        b'event: step.delta\ndata: {"delta":{"text":"a\x00b"}}\n\n',
        b'data: {"event_type":"interaction.completed","interaction":3}\n\n',
    ],
)
def test_an_interaction_that_fails_is_no_reply(event: bytes) -> None:
    stream = InteractionStream("gemini")
    out: list[bytes] = []
    with pytest.raises(APIError):
        stream.push(SENT[: SENT.index(b"event: step.stop")] + event, out)
    assert out
    assert not stream.complete


def wrapped(family: str, seal: str) -> str:
    signature = render_seal(ReasoningContent("", seal, family, redacted=True))
    assert signature is not None
    return signature


def test_thoughts_that_google_has_not_sealed_are_left_out() -> None:
    own = interactions.thought("Hm.", "c2VhbA==")
    steps = [
        {"type": "user_input", "content": "Hi", "novelty": 1.0},
        own,
        {"type": "google_search_call", "id": "hosted_abc0000"},
        {"type": "google_search_result", "call_id": "hosted_abc0000", "result": []},
        {"type": "thought", "summary": [interactions.text("Plain.")]},
        interactions.thought("Foreign.", wrapped("anthropic", "x")),
        interactions.thought("", wrapped("call", "c2VhbA== call_1")),
        interactions.function_call("call_1", "f", {}),
    ]
    kept = json.loads(bytes(without_foreign_steps(to_raw(steps))))
    assert kept == [steps[0], own, interactions.thought("", "c2VhbA=="), steps[-1]]


@pytest.mark.parametrize(
    "input",
    [
        b'"thought"',
        b'[ {"type" : "thought", "signature": "c2VhbA=="} ]',
        b'[{"type":"user_input","content":"\\"thought\\""}]',
        b'{"type":"thought"}',
    ],
)
def test_all_other_input_keeps_its_bytes(input: bytes) -> None:
    assert bytes(without_foreign_steps(Raw(input))) == input


# What a vendor has searched for, where its stream breaks off -------------------------------------


def grounded(*queries: str, **members: Any) -> bytes:
    metadata = {"webSearchQueries": list(queries)}
    content = {"parts": [{"text": "Hi"}]}
    candidate = {"content": content, "groundingMetadata": metadata}
    return b"data: " + encoded({"candidates": [candidate], **members}) + b"\n\n"


@pytest.mark.parametrize(("model", "searches"), [("gemini-2.5-flash", 1), ("gemini-3-flash", 2)])
def test_searches_of_gemini_are_counted_until_its_stream_breaks_off(
    model: str, searches: int
) -> None:
    stream = GeminiEvents("gemini", EventFrame(), 1)
    pushed(stream, [grounded("a", "b", modelVersion=model), grounded("b")])
    assert (stream.complete, stream.usage) == (False, Usage(units=Units(searches=searches)))
    counted = {"promptTokenCount": 3, "candidatesTokenCount": 2}
    pushed(stream, [grounded("a", usageMetadata=counted)])
    assert stream.usage == Usage(3, 2, units=Units(searches=searches))


@pytest.mark.parametrize(("model", "searches"), [("gemini-2.5-flash", 1), ("gemini-3-flash", 3)])
@given(st.data())
def test_searches_of_an_interaction_are_counted_until_its_stream_breaks_off(
    model: str, searches: int, data: st.DataObject
) -> None:
    steps = [
        interactions.output(interactions.text('Let me "google_search_call" see.')),
        {"type": "google_search_call", "id": "g1", "arguments": {"queries": ["a", "b"]}},
        {"type": "google_search_call", "id": "g2", "arguments": {"queries": ["c", "a", 1]}},
        {"type": "google_search_call", "id": "g3", "arguments": None},
        interactions.output(interactions.text("It is long.")),
    ]
    whole = interactions.interaction(steps, model=model)
    *events, completed = interactions.stream_events(whole)
    broken = interactions.stream_bytes(events).removesuffix(INTERACTION_DONE)
    stream = InteractionStream("gemini")
    out = pushed(stream, data.draw(vocabulary.cuts(broken)))
    assert b"".join(out) == broken
    assert (stream.complete, stream.usage) == (False, Usage(units=Units(searches=searches)))
    # What Google says in the end is how it is.
    told = {**completed["interaction"]["usage"]}
    told["grounding_tool_count"] = [{"type": "google_search", "count": 7}]
    completed["interaction"] = {**completed["interaction"], "usage": told}
    pushed(stream, [interactions.stream_bytes([completed])])
    assert stream.usage is not None
    assert stream.usage.units == Units(searches=7)
