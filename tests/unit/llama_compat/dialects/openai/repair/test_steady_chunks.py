"""Chunks that differ in their text alone: what comes out is what mending alone would give."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_compat.dialects.openai.repair import CHAT, TEXT, ReplyKind, StreamMender
from llama_compat.dialects.openai.repair.steady_chunks import SteadyChunks
from llama_compat.wire.json_fields import encode_fields, parse_fields, to_raw
from llama_compat.wire.sse import EventDecoder, encode_data


def mender(kind: ReplyKind = CHAT) -> StreamMender:
    """One that has mended the beginning of a stream, which is like no other chunk."""
    begun = StreamMender(kind, to_raw("asked"), include_usage=True)
    begun.mend(parse_fields(chunk({"delta": {"role": "assistant"}, "text": ""})))
    return begun


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
    return None if fields is None else encode_data(encode_fields(fields))


def content_of(events: bytes) -> list[Any]:
    return [json.loads(event.data or b"") for event in EventDecoder().feed(events)]


def taught() -> SteadyChunks:
    """One that has seen a chunk."""
    steady = SteadyChunks()
    assert steady.mend(encode_data(said("one")), 0) == (b"", 0)
    steady.learn(said("one"), mended(said("one"), mender()) or b"")
    return steady


@pytest.mark.parametrize("text", [" two", "", "drei ü 🎉", "a" * 100_000, '"\\\n\u2028\x00'])
def test_an_event_like_the_last_one_gets_its_text_put_in(text: str) -> None:
    event = encode_data(said(text))
    assert taught().mend(event, 0) == (mended(said(text), mender()), len(event))


def test_a_chunk_that_was_given_a_role_is_like_no_other() -> None:
    steady = SteadyChunks()
    first = mended(said("one"), StreamMender(CHAT, to_raw("asked"))) or b""
    assert b'"role":"assistant"' in first
    steady.learn(said("one"), first)
    assert steady.mend(encode_data(said("two")), 0) == (b"", 0)


def test_events_that_came_together_are_mended_together() -> None:
    texts = ["a", "", " b", "ü"]
    events = b"".join(encode_data(said(text)) for text in texts)
    result, size = taught().mend(events + b'data: {"id"', 0)
    assert size == len(events)
    assert [chunk["choices"][0]["delta"]["content"] for chunk in content_of(result)] == texts
    assert {chunk["model"] for chunk in content_of(result)} == {"asked"}


def test_what_follows_is_left() -> None:
    last = encode_data(chunk({"delta": {}, "finish_reason": "stop"}))
    event = encode_data(said("x"))
    assert taught().mend(event + last + b"data: [DONE]\n\n", 0)[1] == len(event)


def test_blanks_around_the_text_stay() -> None:
    steady = SteadyChunks()
    spaced = b'{"choices": [{"delta": {"content": "x"}, "index": 0}], "model": "theirs"}'
    other = spaced.replace(b'"x"', b'"y"')
    steady.learn(spaced, encode_data(spaced.replace(b"theirs", b"asked")))
    assert steady.mend(encode_data(other), 0)[0] == encode_data(other.replace(b"theirs", b"asked"))


@pytest.mark.parametrize(
    "other",
    [
        said("x", created=2),
        said("x", usage={"total_tokens": 1}),
        said("x").replace(b'"x"', b'"\\x"'),
        said("x").replace(b'"x"', b'"\\u00g0"'),
        said("x").replace(b'"x"', b'"\n"'),
        chunk({"delta": {"content": "x"}, "finish_reason": "stop"}),
        chunk({"delta": {"content": "x", "role": "assistant"}}),
        chunk({"delta": {"reasoning": "x"}}),
        chunk({"delta": {"content": "x"}, "index": 1}),
        said("x")[:-1],
        said("x")[10:],
        b"[DONE]",
        b"",
        b"{}",
    ],
)
def test_anything_else_is_left_to_mending(other: bytes) -> None:
    steady = taught()
    assert steady.mend(other, 0) == (b"", 0)
    assert steady.mend(encode_data(other), 0) == (b"", 0)
    like = encode_data(said("x"))
    assert steady.mend(like + encode_data(other) + like, 0)[1] == len(like)


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
        chunk({"delta": {}}),
    ],
)
def test_chunks_that_are_not_steady_are_not_remembered(special: bytes) -> None:
    steady = SteadyChunks()
    steady.learn(special, encode_data(special))
    assert steady.mend(encode_data(special), 0) == (b"", 0)


def test_what_is_not_utf_8_is_left_to_mending() -> None:
    broken = encode_data(said("x").replace(b'"x"', b'"\xff"'))
    assert taught().mend(broken, 0) == (b"", 0)
    assert taught().mend(encode_data(said("x")) + broken, 0) == (b"", 0)


def test_half_a_character_in_each_of_two_events_is_none() -> None:
    first, second = (encode_data(said("x").replace(b"x", half)) for half in (b"\xc3", b"\xbc"))
    assert taught().mend(first + second, 0) == (b"", 0)


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
        got: bytes | None = steady.mend(encode_data(data), 0)[0]
        if not got:
            got = mended(data, beside)
            if got is not None:
                steady.learn(data, got)
        assert (got and content_of(got)) == (expected and content_of(expected))
    assert alone.finished == beside.finished
    assert alone.end() == beside.end()
