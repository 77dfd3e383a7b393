"""Streams of Ollama's and Gemini's on their way to clients of theirs, cut anywhere."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_compat.dialects.gemini.frames import ArrayFrame, EventFrame, Frame
from llama_compat.errors import APIError
from llama_compat.types import Usage
from llama_compat.wire.json_fields import to_raw
from llama_compat.wire.sse import DONE
from providers.remote.gemini.relay import GeminiEvents
from providers.remote.ollama.relay import OllamaLines
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
