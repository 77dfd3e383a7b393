"""A vendor's OpenAI stream, read into the vocabulary and relayed: where it begins and ends."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any, cast

import pytest
from msgspec import Raw

from llama_compat.dialects.openai.repair import CHAT, StreamMender
from llama_compat.errors import APIError, upstream_error
from llama_compat.types import StreamComplete, StreamProgress, TextDelta
from providers.remote.openai.events import read_chat
from providers.remote.openai.relays.event_stream import EventStream
from providers.remote.relaying.streams import relay_stream
from providers.remote.upstream.exchanges import UpstreamResponse
from tests.unit.llama_compat.dialects.openai.test_repair import chunk

BROKEN = upstream_error("p", "the connection broke.", code="upstream_connection_lost")
DONE = b"data: [DONE]\n\n"


def data(*events: bytes) -> bytes:
    return b"".join(b"data: " + event + b"\n\n" for event in events)


SAID = data(chunk({"role": "assistant", "content": "Hi"}))
FINISHED = SAID + data(chunk({}, "stop"))
WHOLE = json.dumps(
    {"choices": [{"message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}]}
).encode()


class Vendor:
    """An answer of these chunks, the last of which may be how it breaks."""

    headers: Mapping[str, str] = {}

    def __init__(self, *chunks: bytes | APIError) -> None:
        self._chunks = iter(chunks)

    async def next_chunk(self) -> bytes:
        chunk = next(self._chunks, b"")
        if isinstance(chunk, APIError):
            raise chunk
        return chunk

    async def read(self) -> bytes:
        return b"".join([piece async for piece in self._pieces()])

    async def _pieces(self) -> AsyncIterator[bytes]:
        while piece := await self.next_chunk():
            yield piece

    async def drain(self) -> None:
        """What follows is of no interest."""


async def translated(*chunks: bytes | APIError) -> str:
    vendor = cast(UpstreamResponse, Vendor(*chunks))
    events = [event async for event in read_chat("p", vendor, stream=True)]
    assert isinstance(events[-1], StreamComplete)
    deltas = [event.delta for event in events if isinstance(event, StreamProgress)]
    return "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))


async def relayed(*chunks: bytes | APIError) -> str:
    vendor = cast(UpstreamResponse, Vendor(*chunks))
    stream = EventStream("p", StreamMender(CHAT, Raw(b'"m"')), CHAT, Raw(b'"m"'))
    seen = b"".join([piece async for piece in relay_stream("p", vendor, stream)])
    events = [json.loads(each.removeprefix(b"data: ")) for each in seen.split(b"\n\n") if each]
    choices: list[Any] = [choice for event in events for choice in event["choices"]]
    assert [each["finish_reason"] for each in choices if each["finish_reason"]] == ["stop"]
    return "".join(choice["delta"].get("content", "") for choice in choices)


READERS = [translated, relayed]


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize(
    "before", [b"", b"\n", b"\r\n \n", b"\xef\xbb\xbf"], ids=["nothing", "lf", "blank", "bom"]
)
@pytest.mark.parametrize("answer", [WHOLE, FINISHED + DONE], ids=["whole", "stream"])
async def test_what_keeps_a_connection_alive_may_come_first(
    read: Any, before: bytes, answer: bytes
) -> None:
    assert await read(before + answer) == "Hi"
    if before:
        assert await read(before, before.strip(b"\xef\xbb\xbf") or b"\n", answer) == "Hi"


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize(
    "after",
    [
        b"",
        BROKEN,
        b"data: null\n\n",
        b'data: "[DONE]"\n\n',
        b"data: [done]\n\n",
        b'data: {"choices":[],"usa',
        b"event: done\ndata:\n\n",
    ],
    ids=["end", "broken", "null", "quoted", "lower case", "torn", "event"],
)
async def test_what_comes_when_all_was_said_changes_nothing(
    read: Any, after: bytes | APIError
) -> None:
    assert await read(FINISHED, after) == "Hi"


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize(
    ("after", "code", "words"),
    [
        (b"", "upstream_stream_ended", "before the reply was complete"),
        (BROKEN, "upstream_connection_lost", "broke"),
        (b"data: null\n\n", "upstream_error", "makes no sense"),
        (b'data: {"choices":[{"del', "upstream_error", "makes no sense"),
        (b"event: error\ndata: It fell over.\n\n", None, "It fell over."),
        (data(b'{"error":{"message":"It fell over."}}'), None, "It fell over."),
    ],
    ids=["end", "broken", "null", "torn", "error in words", "error"],
)
async def test_a_reply_that_stops_half_way_says_so(
    read: Any, after: bytes | APIError, code: str | None, words: str
) -> None:
    with pytest.raises(APIError, match=words) as caught:
        await read(SAID, after)
    assert (caught.value.status, caught.value.code) == (502, code)


@pytest.mark.parametrize("read", READERS)
async def test_an_error_is_told_even_when_all_was_said(read: Any) -> None:
    with pytest.raises(APIError, match="It fell over"):
        await read(FINISHED, data(b'{"error":{"message":"It fell over."}}'))


@pytest.mark.parametrize("read", READERS)
async def test_a_web_page_is_named(read: Any) -> None:
    with pytest.raises(APIError, match="a web page instead of JSON: Log in"):
        await read(b"<html><title>Log in</title></html>")
    for nothing in ([], [DONE], [b": waiting\n\n", DONE]):
        with pytest.raises(APIError, match="without a single event"):
            await read(*nothing)


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"object":"error","message":"It fell over.","code":404}', 404),
        (b'{"detail":"It fell over."}', 502),
        (b'{"message":"It fell over."}', 502),
        (b'{"success":false,"errors":[{"message":"It fell over."}]}', 502),
        (b'{"error":{"message":"It fell over.","code":429}}', 429),
    ],
)
async def test_an_error_in_a_whole_reply_is_told_in_its_own_words(
    read: Any, body: bytes, status: int
) -> None:
    with pytest.raises(APIError, match=r"It fell over\.") as caught:
        await read(body)
    assert caught.value.status == status


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"choices":[{"index":0}]}', "without a message"),
        (b'{"choices":[{"index":0,"message":null}]}', "without a message"),
        (b'{"id":"x"}', "no '?choices"),
    ],
)
async def test_a_reply_that_says_nothing_is_none(read: Any, body: bytes, words: str) -> None:
    with pytest.raises(APIError, match=words) as caught:
        await read(body)
    assert caught.value.status == 502


@pytest.mark.parametrize("read", READERS)
async def test_a_delta_may_be_called_a_message(read: Any) -> None:
    whole = data(chunk({"content": "Hi"}, "stop").replace(b'"delta"', b'"message"'))
    assert await read(whole, DONE) == "Hi"
    parts = (chunk({"content": text}).replace(b'"delta"', b'"message"') for text in ("H", "i"))
    assert await read(*map(data, parts), FINISHED.replace(b"Hi", b"")) == "Hi"
    # Where deltas came, it is all of the reply once more.
    assert await read(SAID, whole) == "Hi"


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("done", [b"", b"data: [DONE]\n"])
async def test_blank_lines_between_events_may_be_missing(read: Any, done: bytes) -> None:
    assert await read((FINISHED + done).replace(b"\n\n", b"\n")) == "Hi"
    with pytest.raises(APIError, match="before the reply was complete"):
        await read((SAID + SAID).replace(b"\n\n", b"\n"))


@pytest.mark.parametrize("read", READERS)
async def test_an_object_may_have_several_lines(read: Any) -> None:
    lines = json.dumps(json.loads(chunk({"content": "Hi"})), indent=1).split("\n")
    event = b"".join(f"data: {line}\n".encode() for line in lines) + b"\n"
    assert await read(event + data(chunk({}, "stop"))) == "Hi"
    error = json.dumps({"error": {"message": "It fell over."}}, indent=1).replace("\n", "\ndata: ")
    with pytest.raises(APIError, match="It fell over"):
        await read(SAID + f"data: {error}\n\n".encode())
    with pytest.raises(APIError, match="over, and out"):
        await read(SAID + b"event: error\ndata: It fell\ndata: over, and out\n\n")
    torn = b"".join(f"data: {line}\n".encode() for line in lines[:-1]) + b"\n"
    with pytest.raises(APIError, match="makes no sense"):
        await read(torn + data(chunk({}, "stop")))
