"""Streams of JSON objects, and the dialects that parse them."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from llama_compat.dialects import anthropic_messages, gemini
from llama_compat.errors import APIError, upstream_error
from llama_compat.types import StopReason, StreamComplete, StreamEvent
from providers.remote.relaying.json_objects import StreamParser, read_events
from providers.remote.upstream.exchanges import UpstreamResponse
from tests import sdk_anthropic as sdk


class Broken:
    """An answer whose connection breaks after some chunks."""

    def __init__(self, *chunks: bytes, status: int = 502) -> None:
        self._chunks = iter(chunks)
        self._status = status

    async def next_chunk(self) -> bytes:
        chunk = next(self._chunks, None)
        if chunk is None:
            error = upstream_error("p", "the connection broke.")
            error.status = self._status
            raise error
        return chunk

    async def drain(self) -> None:
        """Nothing is left."""


def gemini_said(**candidate: Any) -> bytes:
    content = {"role": "model", "parts": [{"text": "Hi"}]}
    frame = {"candidates": [{"content": content, "index": 0, **candidate}]}
    return b"data: %b\r\n\r\n" % json.dumps(frame).encode()


async def events_of(answer: Broken, parser: StreamParser) -> list[StreamEvent]:
    return [event async for event in read_events("p", cast(UpstreamResponse, answer), parser)]


async def test_a_break_is_the_end_where_all_was_said_and_no_event_says_so() -> None:
    answer = Broken(gemini_said(), gemini_said(finishReason="STOP"))
    last = (await events_of(answer, gemini.StreamParser()))[-1]
    assert isinstance(last, StreamComplete)
    assert last.stop_reason is StopReason.end_of_turn


async def test_a_break_before_that_is_told() -> None:
    with pytest.raises(APIError, match="broke"):
        await events_of(Broken(gemini_said()), gemini.StreamParser())
    slow = Broken(gemini_said(finishReason="STOP"), status=504)
    with pytest.raises(APIError, match="broke"):
        await events_of(slow, gemini.StreamParser())


async def test_a_break_before_the_event_of_the_end_is_told() -> None:
    stream = sdk.stream_bytes(sdk.stream_events(sdk.message([sdk.text("Hi")])))
    begun, end = stream.split(b"event: message_stop")
    with pytest.raises(APIError, match="broke"):
        await events_of(Broken(begun), anthropic_messages.StreamParser())
    whole = Broken(begun + b"event: message_stop" + end)
    assert isinstance(
        (await events_of(whole, anthropic_messages.StreamParser()))[-1], StreamComplete
    )
