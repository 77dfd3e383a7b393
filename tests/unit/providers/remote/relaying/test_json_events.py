"""Answers that should be streams of events, and those that are not."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, cast

import pytest
from aiohttp import web

from llama_compat.dialects.openai.operations import CHAT
from llama_compat.errors import APIError
from llama_compat.exchange import Target
from llama_compat.types import StreamEvent
from llama_compat.wire.json_lines import NEWLINE, NUL
from providers.answer import answer
from providers.registry import provider_type
from providers.remote.relaying.json_events import JSONEvents
from providers.remote.relaying.json_objects import read_events, read_lines
from providers.remote.upstream.exchanges import UpstreamResponse
from tests.unit.calls import call_of
from tests.unit.providers.remote.openai.test_provider import vendor_that


class Vendor:
    """An answer of these chunks."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)

    async def next_chunk(self) -> bytes:
        return next(self._chunks, b"")

    async def read(self) -> bytes:
        return b"".join(self._chunks)


class Parser:
    """Says of no object that it is an event, and keeps it."""

    def __init__(self) -> None:
        self.objects: list[Any] = []

    def push(self, event: Mapping[str, Any]) -> list[StreamEvent]:
        self.objects.append(event)
        return []

    def finish(self) -> Iterable[StreamEvent]:
        return ()


async def objects(*chunks: bytes) -> list[Any]:
    parser = Parser()
    vendor = cast(UpstreamResponse, Vendor(chunks))
    assert [event async for event in read_events("p", vendor, parser)] == []
    return parser.objects


@pytest.mark.parametrize("before", [b"", b"\n", b"\xef\xbb\xbf", b" \r\n"])
@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("value", [{"a": 1}, [{"a": 1}, {"b": 2}], []])
async def test_what_is_no_stream_is_read_whole(
    before: bytes, indent: int | None, value: Any
) -> None:
    body = before + json.dumps(value, indent=indent).encode()
    expected = value if isinstance(value, list) else [value]
    assert await objects(body) == expected
    assert await objects(*(body[at : at + 1] for at in range(len(body)))) == expected


def test_events_are_read_one_by_one() -> None:
    decoder = JSONEvents("p")
    assert list(decoder.feed(b"\n")) == []
    assert list(decoder.feed(b'data: {"a": 1}\n\ndata: {"b"')) == [{"a": 1}]
    assert list(decoder.feed(b": 2}")) == []
    assert list(decoder.flush()) == [{"b": 2}]


@pytest.mark.parametrize("body", [b'{"error":{"message":"Oh","code":429}}', b'[{"error":"Oh"}]'])
async def test_an_error_in_place_of_a_stream_is_told(body: bytes) -> None:
    with pytest.raises(APIError, match="Oh"):
        await objects(body)


async def test_what_is_no_json_is_told() -> None:
    with pytest.raises(APIError, match="a web page instead of JSON: Log in"):
        await objects(b"<html><title>Log in</title>")
    with pytest.raises(APIError, match="makes no sense"):
        await objects(b'{"a": ')
    with pytest.raises(APIError, match="expected JSON objects, got int"):
        await objects(b"[1]")


@pytest.mark.parametrize("separator", [NEWLINE, NUL])
async def test_a_web_page_in_place_of_a_stream_of_lines_is_told(separator: bytes) -> None:
    vendor = cast(UpstreamResponse, Vendor([b"\n<html>\n<title>Log", b" in</title>\n"]))
    with pytest.raises(APIError, match="a web page instead of JSON: Log in"):
        await anext(read_lines("p", vendor, Parser(), separator))


async def test_a_whole_reply_in_place_of_a_stream_has_the_bound_of_every_reply() -> None:
    async def answers(request: web.Request) -> web.StreamResponse:
        return web.Response(body=json.dumps({"candidates": [{"text": "a" * (1 << 20)}]}))

    kind = provider_type("remote::gemini-native")
    async with vendor_that(answers) as vendor:
        settings = {"api_key": "sk-x", "base_url": vendor.url, "max_reply_bytes": 1 << 16}
        provider = kind.make("mine", kind.config.validate(settings), ())
        await provider.start()
        try:
            said = [{"role": "user", "content": "a"}]
            asked = {"model": "m", "messages": said, "stream": True}
            with pytest.raises(APIError, match="`max_reply_bytes`") as raised:
                await answer(provider, call_of(asked, CHAT), Target("gemini-3-pro"))
        finally:
            await provider.stop()
    assert (raised.value.status, raised.value.code) == (502, "upstream_reply_too_large")
