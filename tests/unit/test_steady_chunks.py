"""Chunks that differ in their text alone: what comes out is what mending alone would give."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_compat.json_fields import encode_fields, parse_fields, to_raw
from llama_compat.mending import CHAT, TEXT, ReplyKind, StreamMender
from llama_compat.steady_chunks import SteadyChunks


def mender(kind: ReplyKind = CHAT) -> StreamMender:
    return StreamMender(kind, to_raw("asked"), include_usage=True)


def chunk(choice: dict[str, Any], **members: Any) -> bytes:
    whole = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "theirs",
        "choices": [{"index": 0, "finish_reason": None, **choice}],
        **members,
    }
    return json.dumps(whole, ensure_ascii=False, separators=(",", ":")).encode()


def said(content: str, **members: Any) -> bytes:
    return chunk({"delta": {"content": content}}, **members)


def mended(data: bytes, by: StreamMender) -> bytes | None:
    fields = by.mend(parse_fields(data))
    return None if fields is None else encode_fields(fields)


def test_a_chunk_like_the_last_one_gets_its_text_put_in() -> None:
    steady, first = SteadyChunks(), said("one")
    assert steady.mend(first) is None
    steady.learn(first, mended(first, mender()) or b"")
    for text in (" two", "", "drei ü 🎉", "a" * 100_000):
        assert json.loads(steady.mend(said(text)) or b"")["choices"][0]["delta"] == {
            "content": text
        }
        assert json.loads(steady.mend(said(text)) or b"")["model"] == "asked"


def test_blanks_around_the_text_stay() -> None:
    steady = SteadyChunks()
    spaced = b'{"choices": [{"delta": {"content": "x"}, "index": 0}], "model": "theirs"}'
    steady.learn(spaced, spaced.replace(b"theirs", b"asked"))
    assert steady.mend(spaced.replace(b'"x"', b'"y"')) == spaced.replace(b'"x"', b'"y"').replace(
        b"theirs", b"asked"
    )


@pytest.mark.parametrize(
    "other",
    [
        said("x", created=2),
        said("x", usage={"total_tokens": 1}),
        said('a "quote"'),
        said("a \\ backslash"),
        said("a\nline"),
        chunk({"delta": {"content": "x"}, "finish_reason": "stop"}),
        chunk({"delta": {"content": "x", "role": "assistant"}}),
        chunk({"delta": {"reasoning": "x"}}),
        chunk({"delta": {"content": "x"}, "index": 1}),
        said("x").replace(b'"x"', b'"\xff"'),
        said("x")[:-1],
        said("x")[10:],
        b"[DONE]",
        b"",
        b"{}",
    ],
)
def test_anything_else_is_left_to_mending(other: bytes) -> None:
    steady = SteadyChunks()
    steady.learn(said("one"), mended(said("one"), mender()) or b"")
    assert steady.mend(other) is None


@pytest.mark.parametrize(
    "special",
    [
        chunk({"delta": {"content": "x", "role": "assistant"}}),
        chunk({"delta": {"content": "x", "tool_calls": []}}),
        chunk({"delta": {"content": "x", "reasoning": "why"}}),
        chunk({"delta": {"content": "x"}, "finish_reason": "stop"}),
        said("x", usage={"total_tokens": 1}),
        said("x", error={"message": "no"}),
        chunk({"delta": {"content": "x"}}, note={"text": "x"}),
        chunk({"delta": {"content": "esc\\aped"}}),
        chunk({"delta": {}}),
    ],
)
def test_chunks_that_are_not_steady_are_not_remembered(special: bytes) -> None:
    steady = SteadyChunks()
    steady.learn(special, special)
    assert steady.mend(special) is None


def test_a_text_too_short_for_what_is_around_it_is_no_match() -> None:
    steady = SteadyChunks()
    steady.learn(b'{"text":"a{"text":"', b'{"text":"a{"text":"')
    steady.learn(b'{"text":"aba"}', b'{"text":"aba"}')
    assert steady.mend(b'{"text":"}') is None


DELTAS = st.one_of(
    st.fixed_dictionaries({"content": st.text(max_size=8)}),
    st.fixed_dictionaries({"content": st.text('ab\\"', max_size=4)}),
    st.fixed_dictionaries({"reasoning_content": st.text(max_size=4)}),
    st.fixed_dictionaries({"role": st.just("assistant"), "content": st.text(max_size=3)}),
    st.just({}),
)
CHOICES = st.fixed_dictionaries(
    {"delta": DELTAS},
    optional={
        "index": st.integers(0, 1),
        "finish_reason": st.sampled_from([None, None, None, "stop", "eos", ""]),
        "logprobs": st.none(),
    },
)
CHUNKS = st.builds(
    lambda choice, members: json.dumps(
        {"id": "c", "created": 1, "choices": [choice], **members}, ensure_ascii=False
    ).encode(),
    CHOICES,
    st.fixed_dictionaries(
        {},
        optional={
            "usage": st.sampled_from([None, {"total_tokens": 3}]),
            "model": st.sampled_from(["a", "b"]),
        },
    ),
)


@pytest.mark.parametrize("kind", [CHAT, TEXT])
@given(chunks=st.lists(CHUNKS, max_size=12))
def test_a_stream_comes_out_as_from_mending_alone(kind: ReplyKind, chunks: list[bytes]) -> None:
    alone, beside, steady = mender(kind), mender(kind), SteadyChunks()
    for data in chunks:
        expected = mended(data, alone)
        got = steady.mend(data)
        if got is None:
            got = mended(data, beside)
            if got is not None:
                steady.learn(data, got)
        if got is not None and expected is not None:
            assert json.loads(got) == json.loads(expected)
        assert (got is None) == (expected is None)
    assert alone.finished == beside.finished
    assert alone.end() == beside.end()
