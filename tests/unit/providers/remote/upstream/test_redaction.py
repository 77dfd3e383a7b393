"""No vendor's key leaves the process, whatever the vendor repeats it in and however it is cut."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from llama_compat.dialects.anthropic_messages.operations import MESSAGES
from llama_compat.dialects.openai.operations import CHAT, COMPLETIONS, EMBEDDINGS
from llama_compat.dialects.openai_responses.operations import RESPONSES
from llama_compat.errors import APIError
from llama_compat.exchange import Reply, Target
from providers.registry import provider_type
from providers.remote.openai.provider import RemoteOpenAIProvider
from providers.remote.upstream.redaction import Secrets, StreamCover, _Needle
from providers.remote.upstream.vendor_errors import MAX_TEXT, vendor_error
from tests.unit.calls import call_of

KEY = "sk-of/the-template-1234"
HEADER = "another-secret-5678"

# In bytes -----------------------------------------------------------------------------------------


def secrets(key: str | None = KEY, **headers: str) -> Secrets:
    return Secrets(key, headers)


@pytest.mark.parametrize(
    ("data", "covered"),
    [
        (KEY, "***"),
        (f"a {KEY}, {KEY} b", "a ***, *** b"),
        (KEY[:-1], KEY[:-1]),
        (KEY.upper(), KEY.upper()),
        (json.dumps({"key": KEY}), '{"key": "***"}'),
        (json.dumps({"key": KEY}).replace("/", "\\/"), '{"key": "***"}'),
        ("", ""),
    ],
)
def test_what_is_covered(data: str, covered: str) -> None:
    assert secrets().cover(data.encode()).decode() == covered


def test_a_key_as_json_writes_it() -> None:
    key = 'quo"te\\and\u00fcmlaut'
    for ascii_only in (True, False):
        written = json.dumps({"key": key}, ensure_ascii=ascii_only).encode()
        assert secrets(key).cover(written) == b'{"key": "***"}'


def test_a_key_as_other_languages_write_it_in_json() -> None:
    key = "abc<d>e&f+g'h/i"
    for written in (
        r"abc\u003cd\u003ee\u0026f+g'h/i",
        r"abc\u003Cd\u003Ee\u0026f\u002Bg\u0027h/i",
        r"abc<d>e&f+g'h\/i",
    ):
        assert json.loads(f'"{written}"') == key
        assert secrets(key).cover(written.encode()) == b"***"


@pytest.mark.parametrize("key", [None, "", "   ", "1234567", "lm-studio", "sk-no-key-required"])
def test_what_is_no_secret(key: str | None) -> None:
    assert not secrets(key)
    assert secrets(key).cover(b"1234567 lm-studio") == b"1234567 lm-studio"
    headers = {"x-a": "1234567 lm-studio"}
    assert secrets(key).cover_headers(headers) is headers


@pytest.mark.parametrize(
    ("name", "value", "is_key"),
    [
        ("x-key", "words words", True),
        ("Proxy-Authorization", "Basic words", True),
        ("x-session-token", "words-words", True),
        ("x-title", "words words", False),
        ("anthropic-beta", "prompt-caching", False),
        ("x-tenant", "abcdefghijklmno1", True),
        ("x-tenant", "abcdefghijklmn1", False),
        ("x-tenant", "abcdefghijklmnop", False),
        ("x-tenant", "1234567890123456", False),
        ("x-tenant", "abcdefgh ijklmno1", False),
    ],
)
def test_which_headers_are_keys(name: str, value: str, is_key: bool) -> None:
    hides = Secrets(None, {name: value})
    assert (value.encode() not in hides.cover(value.encode())) == is_key
    error = APIError(400, value)
    hides.cover_error(error)
    assert error.message == "***"


def test_a_key_without_the_word_before_it() -> None:
    hides = Secrets(None, {"authorization": "Bearer 12345678x"})
    assert hides.cover(b"'Bearer 12345678x' and 12345678x") == b"'***' and ***"


def test_the_longer_of_two_keys_that_begin_alike_is_covered_whole() -> None:
    assert Secrets("12345678", {"x-key": "1234567890"}).cover(b"1234567890") == b"***"


def test_all_that_an_error_says() -> None:
    body = {"error": {"message": KEY, "type": KEY, "param": KEY, "code": KEY}}
    error = vendor_error("mine", 400, {"x-ratelimit-of": KEY}, json.dumps(body).encode())
    secrets().cover_error(error)
    assert KEY not in str(error.body())
    assert error.headers == {"x-ratelimit-of": "***"}
    assert error.vendor_body is not None
    assert KEY.encode() not in error.vendor_body[1]


@given(st.text("aQ/", min_size=1, max_size=4), st.text("aQ/ ", max_size=60))
def test_a_text_is_found_where_it_is(text: str, data: str) -> None:
    assert _Needle(text.encode()).is_in(data.encode()) == (text in data)


@given(
    st.lists(st.sampled_from([KEY, KEY[:9], KEY[3:], "sk-", "s", HEADER, "a\n", "b", "\u00fc"])),
    st.lists(st.integers(0, 200)),
)
def test_a_stream_cut_anywhere_is_covered_like_a_whole(words: list[str], cuts: list[int]) -> None:
    hides = secrets(**{"x-key": HEADER})
    whole = "".join(words).encode()
    ends = sorted({min(cut, len(whole)) for cut in cuts})
    pieces = [whole[begin:end] for begin, end in zip([0, *ends], [*ends, len(whole)], strict=True)]
    cover = StreamCover(hides)
    out = [*map(cover.push, pieces), cover.end()]
    assert b"".join(out) == hides.cover(whole)
    assert cover.end() == b""


def test_only_what_may_be_a_key_is_held_back() -> None:
    cover = StreamCover(secrets())
    assert cover.push(b"data: a\n\n") == b"data: a\n\n"
    assert cover.push(b"data: sk-of") == b"data: "
    assert cover.push(b"fice") == b"sk-office"
    assert cover.push(b"s") == b""
    assert cover.push(b"s") == b"s"
    assert cover.push(b"\n") == b"s\n"
    assert cover.end() == b""
    assert cover.push(KEY[:-1].encode()) == b""
    assert cover.end() == KEY[:-1].encode()


# From a vendor to the client ----------------------------------------------------------------------

Answer = Callable[[web.Request], Any]


@asynccontextmanager
async def provider_of(answer: Answer, **settings: Any) -> AsyncIterator[RemoteOpenAIProvider]:
    """A provider whose vendor answers so; it speaks all of the wires."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made = provider_type("remote::passthrough")
    config = {
        "base_url": f"http://127.0.0.1:{runner.addresses[0][1]}/v1",
        "api_key": KEY,
        "headers": {"x-key": HEADER},
        "wires": ["chat", "completions", "embeddings", "responses", "messages"],
        **settings,
    }
    provider = made.make("mine", made.config.validate(config), ())
    assert isinstance(provider, RemoteOpenAIProvider)
    await provider.start()
    try:
        yield provider
    finally:
        await provider.stop()
        await runner.cleanup()


async def everything(reply: Reply) -> bytes:
    """All that the client gets of a reply, its headers included."""
    try:
        body = reply.body
        if not isinstance(body, bytes):
            body = reply.first + b"".join([each async for each in body])
    finally:
        await reply.aclose()
    return body + str(dict(reply.headers)).encode()


OPERATIONS = {each.name: each for each in (CHAT, COMPLETIONS, EMBEDDINGS, RESPONSES, MESSAGES)}

ASKED: dict[str, Any] = {"input": "a", "prompt": "a", "messages": []}

LEAKS = {
    "x-request-id": KEY,
    "x-ratelimit-limit-requests": f"10 of {HEADER}",
    "openai-processing-ms": f"Bearer {KEY}",
}
WHOLE = {
    "chat": {
        "id": "a",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": f"It is {KEY}"}}],
        "debug": {"headers": {"authorization": f"Bearer {KEY}", "x-key": HEADER}},
    },
    "completions": {"choices": [{"index": 0, "text": KEY, "finish_reason": "stop"}], "x": HEADER},
    "embeddings": {"data": [{"index": 0, "embedding": [0.5]}], "debug": KEY},
    "responses": {"id": "r", "output": [], "status": "completed", "metadata": {"key": KEY}},
    "messages": {"id": "m", "type": "message", "content": [], "usage": {}, "debug": KEY},
}


@pytest.mark.parametrize("operation", WHOLE)
async def test_whole_replies_and_their_headers(operation: str) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.json_response(WHOLE[operation], headers=LEAKS)

    async with provider_of(answer) as provider:
        reply = await provider.relay(call_of(ASKED, OPERATIONS[operation]), Target("theirs"))
        got = await everything(reply)
    assert b"***" in got
    assert KEY.encode() not in got
    assert HEADER.encode() not in got


def chat_chunk(text: str, finish: str = "null") -> str:
    return (
        'data: {"id":"a","object":"chat.completion.chunk","created":1,"model":"m","choices":[{'
        f'"index":0,"delta":{{"role":"assistant","content":"{text}"}},"finish_reason":{finish}}}]}}\n\n'
    )


STREAMS = {
    "chat": [
        chat_chunk("Hello"),
        f": asked with Bearer {KEY}\n\n",
        f'data: {{"ping": "{HEADER}"}}\n\n',
        chat_chunk(f"It is {KEY}"),
        chat_chunk("", '"stop"'),
        "data: [DONE]\n\n",
    ],
    "responses": [
        'event: response.created\ndata: {"type":"response.created","response":{}}\n\n',
        'event: response.x\ndata: {"type":"response.x","a":1}\n\n',
        f": asked with Bearer {KEY}\n\n",
        f'event: response.x\ndata: {{"type":"response.x","debug":"{HEADER}"}}\n\n',
        f'event: response.failed\ndata: {{"type":"response.failed","response":{{"error":{{"message"'
        f':"Bad {KEY}"}}}}}}\n\n',
    ],
    "messages": [
        'event: message_start\ndata: {"type":"message_start","message":{"id":"m","usage":{}}}\n\n',
        'event: content_block_start\ndata: {"type":"content_block_start","index":0,"content_block":'
        '{"type":"text","text":"a"}}\n\n',
        f": asked with Bearer {KEY}\n\n",
        f'event: ping\ndata: {{"type":"ping","debug":"{HEADER}"}}\n\n',
        'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"end_turn"},'
        '"usage":{"output_tokens":1}}\n\n',
        'event: message_stop\ndata: {"type":"message_stop"}\n\n',
    ],
}


@pytest.mark.parametrize("step", [1, 7, 10_000])
@pytest.mark.parametrize("operation", STREAMS)
async def test_streams_with_their_comments(operation: str, step: int) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream", **LEAKS})
        await response.prepare(request)
        body = "".join(STREAMS[operation]).encode()
        for begin in range(0, len(body), step):
            await response.write(body[begin : begin + step])
        return response

    async with provider_of(answer) as provider:
        call = call_of({**ASKED, "stream": True}, OPERATIONS[operation])
        got = await everything(await provider.relay(call, Target("theirs")))
    assert b"***" in got
    assert KEY.encode() not in got
    assert HEADER.encode() not in got


@pytest.mark.parametrize("before", range(MAX_TEXT - len(KEY) - 5, MAX_TEXT + 5))
@pytest.mark.parametrize("form", ["text", "page", "object"])
async def test_an_error_that_is_cut_inside_the_key(form: str, before: int) -> None:
    filler = "x" * before
    body = {
        "text": f"{filler}{KEY}{filler}",
        "page": f"<html><title>{filler}{KEY}{filler}</title>",
        "object": json.dumps({"odd": f"{filler}{KEY}{filler}"}),
    }[form]
    error = vendor_error("mine", 500, {}, secrets().cover(body.encode()))
    assert KEY[:4] not in error.message


@pytest.mark.parametrize("form", ["text", "page"])
async def test_the_error_of_a_vendor_is_covered_before_it_is_cut(form: str) -> None:
    async def answer(request: web.Request) -> web.Response:
        filler = "x" * (MAX_TEXT - 20)
        text = f"{filler}{KEY}{filler}"
        return web.Response(text=text if form == "text" else f"<title>{text}", status=500)

    async with provider_of(answer) as provider:
        with pytest.raises(APIError) as caught:
            await provider.relay(call_of(ASKED), Target("theirs"))
    assert "sk-" not in caught.value.message


async def test_an_error_that_is_longer_than_what_is_read_of_it() -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(text="[" + f'"{KEY}",' * 200_000, status=400)

    async with provider_of(answer) as provider:
        with pytest.raises(APIError) as caught:
            await provider.relay(call_of(ASKED), Target("theirs"))
    said = caught.value.json() + (caught.value.vendor_body or ("", b""))[1]
    assert b"sk-" not in said


async def test_a_list_of_models_has_a_bound() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b'{"data":[')
        try:
            while True:
                await response.write(b'{"id":"m"},' * 1000)
                written.append(11_000)
        except ConnectionError:
            return response

    written: list[int] = []
    async with provider_of(answer, max_list_bytes=100_000) as provider:
        with pytest.raises(APIError, match=r"larger than 100000 bytes.*max_list_bytes") as caught:
            await provider.live_models()
    assert caught.value.code == "upstream_reply_too_large"
    # What the sockets hold besides is not counted.
    assert sum(written) < 20_000_000
