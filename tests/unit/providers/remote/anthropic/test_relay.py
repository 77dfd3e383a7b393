"""Messages relayed: what the vendor gets, and what the client gets of its answer."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, cast

import pytest
from anthropic import types
from hypothesis import given
from hypothesis import strategies as st

from llama_compat.dialects.anthropic_messages.errors import DIALECT
from llama_compat.dialects.anthropic_messages.operations import COUNT_TOKENS, MESSAGES
from llama_compat.dialects.base import Operation
from llama_compat.errors import APIError
from llama_compat.exchange import Call, Reply
from llama_compat.types import ChatCompletionResponse, Units, Usage
from llama_compat.wire import sse
from llama_compat.wire.json_fields import to_raw
from providers.remote.anthropic.relay import MessagesStream, relay_messages
from providers.remote.upstream.exchanges import UpstreamResponse
from providers.remote.upstream.vendor_errors import vendor_error
from tests import sdk_anthropic as sdk
from tests.unit import vocabulary
from tests.unit.calls import call_of
from tests.unit.llama_compat.dialects.test_anthropic_messages import write_reply

MESSAGE = sdk.message([sdk.text("It is 20 °C."), sdk.tool_use("1", "f", {"a": 1})], "tool_use")
STREAM = sdk.stream_bytes(sdk.stream_events(MESSAGE))
HEADERS = {
    "request-id": "req_vendor",
    "anthropic-ratelimit-requests-remaining": "5",
    "retry-after": "7",
    "set-cookie": "no",
}


class Answer:
    """A vendor's answer as it would come from the network, `UpstreamResponse`'s reading side."""

    def __init__(self, chunks: Sequence[bytes]) -> None:
        self._chunks = iter(chunks)
        self.headers: Mapping[str, str] = HEADERS
        self.drained = False

    async def next_chunk(self) -> bytes:
        return next(self._chunks, b"")

    async def read(self) -> bytes:
        return b"".join(self._chunks)

    async def drain(self) -> None:
        self.drained = True


class Vendor:
    """Answers with `chunks`, or with an error, and remembers what it was asked."""

    def __init__(self, *chunks: bytes, status: int = 200) -> None:
        self.answer = Answer([chunk for chunk in chunks if chunk])
        self.status = status
        self.body: Any = None
        self.raw = b""
        self.headers: Mapping[str, str] = {}

    def post(
        self, body: bytes, headers: Mapping[str, str]
    ) -> AbstractAsyncContextManager[UpstreamResponse]:
        self.raw, self.body, self.headers = body, json.loads(body), headers
        return self._exchange()

    @asynccontextmanager
    async def _exchange(self) -> AsyncIterator[UpstreamResponse]:
        if self.status >= 300:
            body = await self.answer.read()
            raise vendor_error("p", self.status, HEADERS, body)
        yield cast(UpstreamResponse, self.answer)

    async def relay(self, call: Call) -> Reply:
        return await relay_messages("p", call, "own", self.post)


def message_call(operation: Operation = MESSAGES, **members: Any) -> Call:
    return call_of({"max_tokens": 9, "messages": [], **members}, operation)


async def said(reply: Reply) -> bytes:
    if isinstance(reply.body, bytes):
        return reply.body
    return reply.first + b"".join([part async for part in reply.body])


async def relayed(*chunks: bytes) -> bytes:
    return await said(await Vendor(*chunks).relay(message_call(stream=True)))


PUBLIC = STREAM.replace(b'"model": "claude"', b'"model": "public"')
"""The stream but for the model's name; what is around it is written without blanks."""


def compact(stream: bytes) -> list[tuple[bytes, Any]]:
    return [
        (event.name, json.loads(event.data or b"null")) for event in sse.EventDecoder().feed(stream)
    ]


# Requests -----------------------------------------------------------------------------------------


async def test_a_request_is_passed_on_as_it_came_but_for_the_model() -> None:
    raw = b'{"model":"public","max_tokens":9,"brand_new":1.0,"messages":[ {"content":"\\u00fc"}]}'
    vendor = Vendor(MESSAGE.model_dump_json().encode())
    await vendor.relay(call_of(raw, MESSAGES))
    assert vendor.raw == raw.replace(b"public", b"own")
    assert vendor.headers == {"anthropic-version": "2023-06-01"}


async def test_the_clients_version_and_betas_go_along() -> None:
    headers = {"anthropic-version": "2024-01-01", "anthropic-beta": "one, two"}
    call = message_call()
    vendor = Vendor(MESSAGE.model_dump_json().encode())
    await vendor.relay(Call(call.operation, call.fields, "public", False, "req_1", headers=headers))
    assert vendor.headers == headers


async def test_thoughts_that_are_marked_as_ours_are_left_out() -> None:
    ours = {"type": "thinking", "thinking": "x", "signature": "llama_compat::"}
    sealed = {"type": "thinking", "thinking": "x", "signature": "c2VhbA=="}
    call = message_call(messages=[{"role": "assistant", "content": [ours, sealed]}])
    vendor = Vendor(MESSAGE.model_dump_json().encode())
    await vendor.relay(call)
    assert vendor.body["messages"] == [{"role": "assistant", "content": [sealed]}]
    nonsense = message_call(messages=["llama_compat:"])
    await Vendor(MESSAGE.model_dump_json().encode()).relay(nonsense)


async def test_a_thread_is_for_those_who_hold_threads() -> None:
    # Others pass the word over, and answer the next request from what is new in it alone.
    call = message_call(thread={"type": "continue", "previous_message_id": "msg_1"})
    vendor = Vendor(MESSAGE.model_dump_json().encode())
    with pytest.raises(APIError, match="holds no threads") as caught:
        await vendor.relay(call)
    assert (caught.value.code, vendor.body) == ("thread_unsupported_request", None)
    await relay_messages("p", call, "claude", vendor.post, has_threads=True)
    assert vendor.body["thread"]["type"] == "continue"
    await Vendor(MESSAGE.model_dump_json().encode()).relay(message_call(thread=None))


# Whole replies ------------------------------------------------------------------------------------


async def test_a_whole_reply_keeps_its_bytes_but_for_the_model() -> None:
    body = b'{"id":"1","content":[ {"n": 1.0}],"model":"claude","usage":{"input_tokens":3}}'
    reply = await Vendor(body).relay(message_call())
    assert reply.body == body.replace(b"claude", b"public")
    assert reply.usage == Usage(3)
    assert reply.headers == {
        "content-type": "application/json",
        "request-id": "req_vendor",
        "x-upstream-request-id": "req_vendor",
        "anthropic-ratelimit-requests-remaining": "5",
        "retry-after": "7",
    }


async def test_a_count_is_relayed() -> None:
    reply = await Vendor(b'{"input_tokens":7,"more":[1.0]}').relay(message_call(COUNT_TOKENS))
    assert reply.body == b'{"input_tokens":7,"more":[1.0]}'
    # No stream of it, whatever else the client says.
    call = message_call(COUNT_TOKENS, stream=True)
    assert isinstance((await Vendor(b'{"input_tokens":7}').relay(call)).body, bytes)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "empty|without a single event"),
        (b"<html><title>Sorry</title>", "web page instead of JSON: Sorry"),
        (b'{"a": 1}', "no 'content'"),
        (b'{"content": [', "makes no sense"),
        (b'{"type":"error","error":{"type":"api_error","message":"Oh"}}', "an error: Oh"),
    ],
)
async def test_nonsense_is_502(body: bytes, said: str, stream: bool) -> None:
    with pytest.raises(APIError) as failed:
        await Vendor(body).relay(message_call(stream=stream))
    assert failed.value.status == 502
    assert re.search(said, failed.value.message)


# Errors -------------------------------------------------------------------------------------------

ERROR = b'{ "type": "error", "error": {"type": "rate_limit_error", "message": "Slow down", "x": 1}}'


@pytest.mark.parametrize("stream", [False, True])
async def test_the_vendors_own_words_reach_the_client(stream: bool) -> None:
    with pytest.raises(APIError) as failed:
        await Vendor(ERROR, status=429).relay(message_call(stream=stream))
    assert failed.value.status == 429
    assert failed.value.vendor_body == (DIALECT, ERROR)
    assert failed.value.headers["request-id"] == "req_vendor"
    assert failed.value.headers["retry-after"] == "7"


@pytest.mark.parametrize("body", [b'{"error": {"message": "Slow down"}}', b'{"type":"error"}', b""])
async def test_words_of_another_api_do_not(body: bytes) -> None:
    with pytest.raises(APIError) as failed:
        await Vendor(body, status=429).relay(message_call())
    assert failed.value.status == 429
    assert failed.value.vendor_body is None or failed.value.vendor_body[0] != DIALECT
    assert "request-id" not in failed.value.headers


@pytest.mark.parametrize("status", [401, 403])
async def test_the_vendors_401_is_not_the_clients(status: int) -> None:
    body = ERROR.replace(b"rate_limit_error", b"authentication_error")
    with pytest.raises(APIError) as failed:
        await Vendor(body, status=status).relay(message_call())
    assert (failed.value.status, failed.value.code) == (502, "upstream_authentication")
    assert failed.value.vendor_body is None


def error_event(kind: bytes = b"overloaded_error") -> bytes:
    return b"event: error\ndata: %b\n\n" % ERROR.replace(b"rate_limit_error", kind)


async def test_an_error_in_a_stream_comes_after_what_came_before() -> None:
    begun = STREAM[: STREAM.index(b"event: content_block_stop")]
    reply = await Vendor(begun, error_event()).relay(message_call(stream=True))
    assert not isinstance(reply.body, bytes)
    got = [reply.first]
    with pytest.raises(APIError) as failed:  # noqa: PT012
        async for part in reply.body:
            got.append(part)
    assert compact(b"".join(got)) == compact(
        begun.replace(b'"model": "claude"', b'"model": "public"')
    )
    assert failed.value.status == 529
    assert failed.value.vendor_body == (
        DIALECT,
        ERROR.replace(b"rate_limit_error", b"overloaded_error"),
    )


@pytest.mark.parametrize(
    ("event", "status"),
    [
        (error_event(), 529),
        (error_event(b"authentication_error"), 502),
        (b"event: error\ndata: out of order\n\n", 502),
        (b'data: {"error": {"message": "x"}}\n\n', 502),
        (b"event: ping\ndata: {}\n\n" + error_event(), 529),
        (STREAM[STREAM.index(b"event: content_block_start") :], 502),
        (b"event: message_start\ndata: {}\n\n", 502),
        (b"event: message_start\ndata: {\n\n", 502),
    ],
)
async def test_a_stream_that_fails_at_once_has_a_status_of_its_own(
    event: bytes, status: int
) -> None:
    with pytest.raises(APIError) as failed:
        await Vendor(event).relay(message_call(stream=True))
    assert failed.value.status == status


def test_an_error_that_names_the_key_is_not_told_in_the_vendors_words() -> None:
    stream = MessagesStream("p", to_raw("public"))
    with pytest.raises(APIError) as failed:
        stream.push(error_event(b"authentication_error"), [])
    assert failed.value.vendor_body is None
    assert "Slow down" not in failed.value.message


# Streams ------------------------------------------------------------------------------------------


async def test_a_stream_is_passed_on_but_for_the_model() -> None:
    assert compact(await relayed(STREAM)) == compact(PUBLIC)
    # What comes after the start keeps its bytes.
    rest = STREAM[STREAM.index(b"event: content_block_start") :]
    assert (await relayed(STREAM)).endswith(rest)


@given(st.data())
async def test_a_stream_cut_anywhere_is_the_same(data: st.DataObject) -> None:
    pieces = data.draw(vocabulary.cuts(STREAM))
    assert await relayed(*pieces) == await relayed(STREAM)


def block(index: int, **members: Any) -> bytes:
    event = {"type": "content_block_start", "index": index, "content_block": members}
    return b"event: content_block_start\ndata: %b\n\n" % json.dumps(event).encode()


@given(st.data())
async def test_searches_are_counted_until_a_stream_breaks_off(data: st.DataObject) -> None:
    kind = "web_search_tool_result"
    quoted = {"type": "content_block_delta", "delta": {"text": f'"{kind}"'}}
    searched = (
        block(1, type="server_tool_use", name="web_search", id="s1", input={}),
        block(2, type=kind, tool_use_id="s1", content=[{"type": "web_search_result"}]),
        b"event: content_block_delta\ndata: %b\n\n" % json.dumps(quoted).encode(),
        block(3, type=kind, tool_use_id="s2", content={"error_code": "max_uses_exceeded"}),
        block(4, type=kind, tool_use_id="s3", content=[]),
    )
    cut = STREAM[: STREAM.index(b"event: content_block_stop")] + b"".join(searched)
    stream, out = MessagesStream("p", to_raw("public")), list[bytes]()
    for piece in filter(None, data.draw(vocabulary.cuts(cut))):
        stream.push(piece, out)
    assert b"".join(out).endswith(b"".join(searched))
    assert stream.usage is not None
    assert stream.usage.units == Units(searches=2)
    # What the vendor says in the end is how it is.
    usage = {"output_tokens": 9, "server_tool_use": {"web_search_requests": 3}}
    event = {"type": "message_delta", "delta": {}, "usage": usage}
    stream.push(b"event: message_delta\ndata: %b\n\n" % json.dumps(event).encode(), out)
    assert stream.usage.units == Units(searches=3)


@given(st.data(), vocabulary.ordered_responses())
async def test_any_reply_is_the_same(data: st.DataObject, response: ChatCompletionResponse) -> None:
    stream = sdk.stream_bytes(sdk.stream_events(write_reply(response)))
    pieces = data.draw(vocabulary.cuts(stream))
    got = await relayed(*pieces)
    expected = stream.replace(b'"model": "claude"', b'"model": "public"')
    assert compact(got) == compact(expected)


@given(st.data())
async def test_other_ways_to_write_events_are_mended(data: st.DataObject) -> None:
    nameless = b"".join(
        b": note\r\ndata:%b\r\n\r\n" % line.removeprefix(b"data: ")
        for line in STREAM.splitlines()
        if line.startswith(b"data: ")
    )
    got = await relayed(*data.draw(vocabulary.cuts(nameless + b"data: [DONE]\r\n\r\n")))
    shown = [event for event in compact(got) if event[1] is not None]
    assert shown == compact(PUBLIC)


async def test_pings_and_what_is_new_pass_once_the_message_has_begun() -> None:
    more = b'event: ping\ndata: {"type": "ping"}\n\nevent: new\ndata: {"type": "new", "n": 1.0}\n\n'
    at = STREAM.index(b"event: content_block_stop")
    got = await relayed(b": hello\n\nevent: ping\ndata: {}\n\n" + STREAM[:at] + more + STREAM[at:])
    assert more in got
    assert got.startswith(b"event: message_start")


async def test_data_over_several_lines_is_one_line() -> None:
    at = STREAM.index(b"event: content_block_stop")
    spread = b'event: content_block_delta\ndata: {"type": "content_block_delta",\ndata: "n": 1}\n\n'
    got = await relayed(STREAM[:at] + spread + STREAM[at:])
    joined = b'event: content_block_delta\ndata: {"type": "content_block_delta", "n": 1}\n\n'
    assert joined in got


async def test_lines_of_one_event_are_not_taken_for_another() -> None:
    at = STREAM.index(b"event: content_block_stop")
    begun = b'data: {"type": "content_block_delta", "n":\n'
    ended = b"event: content_block_delta\ndata: {}}\n\n"
    got = await relayed(STREAM[:at] + begun, ended + STREAM[at:])
    assert b'event: content_block_delta\ndata: {"type": "content_block_delta", "n": {}}\n\n' in got


@pytest.mark.parametrize(
    ("said_so", "told"),
    [(b"\xff", "not valid UTF-8"), (b"\x00", "invalid character"), (b"\t", "invalid character")],
)
async def test_what_is_no_text_is_not_passed_on(said_so: bytes, told: str) -> None:
    start, delta = re.split(rb"(?=event: content_block_delta)", STREAM)[:2]
    vendor = Vendor(start + delta, delta.replace(b'"It', b'"' + said_so))
    with pytest.raises(APIError, match=told):
        await said(await vendor.relay(message_call(stream=True)))


async def test_nonsense_inside_of_a_stream_is_an_error() -> None:
    at = STREAM.index(b"event: content_block_stop")
    torn = b'event: content_block_delta\ndata: {"type": "content_block_delta"\n\n'
    reply = await Vendor(STREAM[:at] + torn + STREAM[at:]).relay(message_call(stream=True))
    with pytest.raises(APIError, match="makes no sense"):
        await said(reply)


@pytest.mark.parametrize("events", range(1, STREAM.count(b"\n\n")))
async def test_a_stream_that_is_cut_is_never_a_finished_one(events: int) -> None:
    begun = b"\n\n".join(STREAM.split(b"\n\n")[:events]) + b"\n\n"
    for cut in (begun, begun + b"event: content_block_delta\nda"):
        with pytest.raises(APIError, match="before the reply was complete") as failed:
            await said(await Vendor(cut).relay(message_call(stream=True)))
        assert failed.value.code == "upstream_stream_ended"


async def test_what_follows_the_end_is_left_out() -> None:
    assert await relayed(STREAM + STREAM) == await relayed(STREAM)
    vendor = Vendor(STREAM, STREAM)
    await said(await vendor.relay(message_call(stream=True)))
    assert vendor.answer.drained


async def test_the_usage_of_a_stream_is_what_was_counted_last() -> None:
    reply = await Vendor(STREAM).relay(message_call(stream=True))
    await said(reply)
    assert reply.usage == Usage(30, 25, 10, 5, 5)
    assert reply.headers["request-id"] == "req_vendor"
    strange = STREAM.replace(b'"usage": {', b'"usage": 5, "other": {')
    reply = await Vendor(strange).relay(message_call(stream=True))
    await said(reply)
    assert reply.usage is None


@pytest.mark.parametrize("stream", [False, True])
async def test_all_models_that_took_part_are_counted(stream: bool) -> None:
    iterations = [
        {"type": "message", "input_tokens": 7, "output_tokens": 4},
        {"type": "fallback_message", "input_tokens": 15, "output_tokens": 25},
    ]
    told = b'"iterations": %b, "output_tokens"' % json.dumps(iterations).encode()
    whole = MESSAGE.model_dump_json().encode().replace(b'"output_tokens"', told, 1)
    # In a stream they come with the last count of the output.
    at = STREAM.rindex(b'"output_tokens"')
    streamed = STREAM[:at] + told + STREAM[at + len(b'"output_tokens"') :]
    reply = await Vendor(streamed if stream else whole).relay(message_call(stream=stream))
    assert b"iterations" in await said(reply)
    assert reply.usage is not None
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (22, 29)


async def test_a_whole_reply_to_a_request_for_a_stream_becomes_one() -> None:
    citation = {"type": "char_location", "cited_text": "a", "document_index": 0}
    blocks = [
        sdk.thinking("Hm"),
        types.RedactedThinkingBlock(type="redacted_thinking", data="b3Bhcw=="),
        sdk.text("It is 20 °C."),
        sdk.tool_use("1", "f", {"a": [1]}),
    ]
    whole = sdk.dump(sdk.message(blocks, "stop_sequence", stop_sequence="END"))
    whole["content"][2]["citations"] = [citation]
    vendor = Vendor(json.dumps(whole).encode())
    reply = await vendor.relay(message_call(stream=True))
    events = [value for _, value in compact(await said(reply))]
    assert events[0]["message"]["content"] == []
    assert events[0]["message"]["stop_reason"] is None
    assert events[0]["message"]["model"] == "public"
    assert [event["type"] for event in events if "block" not in event["type"]] == [
        "message_start",
        "message_delta",
        "message_stop",
    ]
    deltas = [
        (event["index"], event["delta"])
        for event in events
        if event["type"] == "content_block_delta"
    ]
    assert deltas == [
        (0, {"type": "thinking_delta", "thinking": "Hm"}),
        (0, {"type": "signature_delta", "signature": "c2VhbGVk"}),
        (2, {"type": "text_delta", "text": "It is 20 °C."}),
        (2, {"type": "citations_delta", "citation": citation}),
        (3, {"type": "input_json_delta", "partial_json": '{"a": [1]}'}),
    ]
    assert events[-2]["delta"]["stop_sequence"] == "END"
    assert events[-2]["usage"] == whole["usage"]
    assert reply.usage == Usage(30, 25, 10, 5, 5)
