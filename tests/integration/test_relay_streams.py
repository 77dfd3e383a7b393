"""Streams from a vendor: relayed as they come, mended where they are wrong, never glossed over."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletion

from tests.integration import wire
from tests.integration.relay import Gateway, chat
from tests.integration.upstream_behaviours import (
    ARGUMENTS,
    BEGUN_EVENTS,
    HUGE_TEXT,
    ODD_EVENT,
    PIECES,
    TEXT,
    USAGE,
)

WELL_FORMED = [
    "plain",
    "all-at-once",
    "byte-by-byte",
    "crlf",
    "crlf-split",
    "comments",
    "multi-line-data",
    "byte-order-mark",
    "other-fields",
    "gzipped",
]
MENDED = [
    "done-missing",
    "done-twice",
    "last-event-unfinished",
    "usage-absent",
    "usage-unasked",
    "finish-eos",
    "finish-eos-token",
    "finish-empty",
    "reasoning",
    "reasoning-content",
    "bare",
    "cut-after-finish-reason",
    "done-before-finish-reason",
    "ignores-stream",
]
CALLS = [
    "tool-call",
    "tool-call-without-index",
    "tool-call-without-id",
    "tool-call-without-anything",
    "tool-call-id-repeated",
    "tool-call-name-repeated",
]
TWO_CALLS = ["two-tool-calls", "two-tool-calls-without-index", "two-tool-calls-in-one-chunk"]

TOOLS: list[Any] = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}
    for name in ("weather", "time")
]


def streamed(gateway: Gateway, name: str, **members: Any) -> list[dict[str, Any]]:
    """The chunks of a whole stream."""
    with gateway.open(chat(name, stream=True, **members)) as reply:
        assert reply.status == 200
        assert (reply.headers["content-type"] or "").startswith("text/event-stream")
        return wire.chunks(reply)


def text_of(chunks: list[dict[str, Any]]) -> str:
    return "".join(
        choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"]
    )


def reasons(chunks: list[dict[str, Any]]) -> list[str]:
    found = [choice["finish_reason"] for chunk in chunks for choice in chunk["choices"]]
    return [reason for reason in found if reason is not None]


def accumulated(gateway: Gateway, name: str, **members: Any) -> ChatCompletion:
    """What the SDK's own helper makes of a stream."""
    with gateway.openai.chat.completions.stream(**chat(name), **members) as stream:
        stream.until_done()
        return stream.get_final_completion()


# --------------------------------------------------------------------------------------------------
# All that ends well
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WELL_FORMED + MENDED)
def test_the_client_sees_one_correct_stream(gateway: Gateway, name: str) -> None:
    chunks = streamed(gateway, name)
    assert text_of(chunks) == TEXT
    assert reasons(chunks) == ["stop"]
    assert all(chunk["model"] == f"scripted/{name}" for chunk in chunks)
    assert all(chunk["object"] == "chat.completion.chunk" for chunk in chunks)
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert all(isinstance(chunk["created"], int) for chunk in chunks)
    assert all(chunk["choices"] for chunk in chunks), "usage that nobody asked for"
    assert not any(chunk.get("usage") for chunk in chunks)


@pytest.mark.parametrize("name", WELL_FORMED + MENDED)
def test_the_sdk_accumulates_it(gateway: Gateway, name: str) -> None:
    completion = accumulated(gateway, name)
    assert completion.choices[0].message.content == TEXT
    assert completion.choices[0].finish_reason == "stop"
    assert completion.model == f"scripted/{name}"


async def test_the_asynchronous_sdk_reads_it_too(relay_client: openai.AsyncOpenAI) -> None:
    stream: Any = await relay_client.chat.completions.create(**chat("byte-by-byte", stream=True))
    text = ""
    async for chunk in stream:
        text += chunk.choices[0].delta.content or ""
    assert text == TEXT


def test_chunks_keep_all_that_is_not_mended(gateway: Gateway) -> None:
    with gateway.open(chat("odd-numbers", stream=True)) as reply:
        first = next(wire.events(reply))
    sent = ODD_EVENT.removeprefix(b"data: ").rstrip()
    assert b"123456789012345678901234567890" in first
    assert b'"x_vendor":{"big":123456789012345678901234567890,"model":"inner"}' in first
    assert b'"score":1.0' in first
    assert json.loads(first) == {**json.loads(sent), "model": "scripted/odd-numbers"}


def test_events_are_relayed_as_they_come(gateway: Gateway, request_id: str) -> None:
    question = chat("one-at-a-time", stream=True)
    with gateway.open(question, headers={"x-request-id": request_id}) as reply:
        events = wire.events(reply)
        # The upstream holds still after the first piece: it must be here all the same.
        assert wire.next_text(events) == PIECES[0]
        gateway.upstream.request(request_id).release()
        assert wire.next_text(events) == PIECES[1]
        assert list(events)[-1] == b"[DONE]"


def test_an_event_of_megabytes(gateway: Gateway) -> None:
    assert text_of(streamed(gateway, "huge-event")) == HUGE_TEXT


def test_usage_comes_where_it_was_asked_for(gateway: Gateway, request_id: str) -> None:
    question = chat("plain", stream=True, stream_options={"include_usage": True})
    with gateway.open(question, headers={"x-request-id": request_id}) as reply:
        *_, last = wire.chunks(reply)
    assert last["choices"] == []
    assert last["usage"] == USAGE
    assert last["model"] == "scripted/plain"
    assert gateway.upstream.request(request_id).json()["stream_options"] == {"include_usage": True}


def test_absent_usage_is_not_made_up_but_logged(gateway: Gateway, request_id: str) -> None:
    question = chat("usage-absent", stream=True, stream_options={"include_usage": True})
    with gateway.open(question, headers={"x-request-id": request_id}) as reply:
        chunks = wire.chunks(reply)
    assert not any(chunk.get("usage") for chunk in chunks)
    assert "sent no usage" in gateway.server.wait_for_log(f"{request_id}: ")


@pytest.mark.parametrize("name", ["reasoning", "reasoning-content"])
def test_reasoning_goes_by_both_names(gateway: Gateway, name: str) -> None:
    for field in ("reasoning", "reasoning_content"):
        deltas = [
            chunk["choices"][0]["delta"].get(field) or "" for chunk in streamed(gateway, name)
        ]
        assert "".join(deltas) == "Let me think."
        message = gateway.post(chat(name)).json()["choices"][0]["message"]
        assert message[field] == "Let me think."


@pytest.mark.parametrize("name", ["finish-eos", "finish-eos-token"])
def test_finish_reasons_of_whole_replies_are_openais(gateway: Gateway, name: str) -> None:
    assert gateway.post(chat(name)).json()["choices"][0]["finish_reason"] == "stop"


def test_a_bare_reply_gets_what_it_lacks(gateway: Gateway) -> None:
    reply = gateway.post(chat("bare")).json()
    assert reply["object"] == "chat.completion"
    assert reply["id"]
    assert isinstance(reply["created"], int)


# --------------------------------------------------------------------------------------------------
# Tool calls
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CALLS)
def test_the_sdk_accumulates_a_mended_tool_call(gateway: Gateway, name: str) -> None:
    choice = accumulated(gateway, name, tools=TOOLS).choices[0]
    assert choice.finish_reason == "tool_calls"
    (call,) = choice.message.tool_calls or []
    assert call.id
    assert call.type == "function"
    assert call.function.name == "weather"
    assert call.function.arguments == "".join(ARGUMENTS)


@pytest.mark.parametrize("name", TWO_CALLS)
def test_the_sdk_accumulates_two_tool_calls(gateway: Gateway, name: str) -> None:
    calls: Any = accumulated(gateway, name, tools=TOOLS).choices[0].message.tool_calls
    assert [call.function.name for call in calls] == ["weather", "time"]
    assert [json.loads(call.function.arguments) for call in calls] == [
        {"city": "Zürich"},
        {"zone": "CET"},
    ]
    assert len({call.id for call in calls}) == 2


@pytest.mark.parametrize("name", CALLS + TWO_CALLS)
def test_each_call_is_introduced_once(gateway: Gateway, name: str) -> None:
    """Many clients join the ids and the names of all fragments of an index."""
    fragments = [
        fragment
        for chunk in streamed(gateway, name, tools=TOOLS)
        for choice in chunk["choices"]
        for fragment in choice["delta"].get("tool_calls") or []
    ]
    assert all(isinstance(fragment["index"], int) for fragment in fragments)
    for index in {fragment["index"] for fragment in fragments}:
        own = [fragment for fragment in fragments if fragment["index"] == index]
        assert [bool(fragment.get("id")) for fragment in own] == [True] + [False] * (len(own) - 1)
        names = [fragment["function"].get("name") for fragment in own]
        assert [bool(one) for one in names] == [True] + [False] * (len(own) - 1)


def test_a_whole_call_gets_what_it_lacks(gateway: Gateway) -> None:
    reply = gateway.post(chat("whole-tool-call-without-id")).json()
    (call,) = reply["choices"][0]["message"]["tool_calls"]
    assert call["id"]
    assert call["type"] == "function"
    assert call["function"]["name"] == "weather"


# --------------------------------------------------------------------------------------------------
# Streams that fail say so
# --------------------------------------------------------------------------------------------------

BROKEN = [
    "cut-between-events",
    "cut-inside-event",
    "closed-between-events",
    "ended-before-finish-reason",
    "error-midway",
    "error-event-midway",
    "torn-event",
]


def failed(gateway: Gateway, name: str, request_id: str) -> tuple[str, dict[str, Any]]:
    """The text of a stream that breaks off, and the error that it ends with."""
    question = chat(name, stream=True)
    with gateway.open(question, headers={"x-request-id": request_id}) as reply:
        assert reply.status == 200
        events = wire.events(reply)
        received = [next(events) for _ in range(BEGUN_EVENTS)]
        gateway.upstream.request(request_id).release()
        received += events
    *chunks, error, done = received
    assert done == b"[DONE]"
    return text_of([json.loads(data) for data in chunks]), json.loads(error)["error"]


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_stream_ends_with_an_error(gateway: Gateway, name: str, request_id: str) -> None:
    text, error = failed(gateway, name, request_id)
    assert text == "".join(PIECES[:2])
    assert error["message"]
    assert {"message", "type", "param", "code"} <= set(error)
    if name.startswith("error-"):
        assert "The GPU fell over." in error["message"]


@pytest.mark.parametrize("name", BROKEN)
def test_the_sdk_raises_what_a_broken_stream_says(gateway: Gateway, name: str) -> None:
    if name.startswith("cut-"):
        name = "closed-between-events"
    with pytest.raises(openai.APIError):
        for _ in gateway.openai.chat.completions.create(**chat(name, stream=True)):
            pass


@pytest.mark.parametrize("name", ["impatient/hangs-between-events", "hurried/comments-forever"])
def test_a_stream_that_hangs_ends_with_an_error(
    gateway: Gateway, name: str, request_id: str
) -> None:
    question = chat(name, stream=True)
    with gateway.open(question, headers={"x-request-id": request_id}) as reply:
        *_, error, done = wire.events(reply)
    assert done == b"[DONE]"
    assert json.loads(error)["error"]["type"] == "timeout_error"
    gateway.upstream.request(request_id).wait_until_disconnected()


@pytest.mark.parametrize("name", ["cut-before-first-event", "empty-stream", "only-done"])
def test_a_stream_without_any_event_is_502(gateway: Gateway, name: str) -> None:
    reply = gateway.post(chat(name, stream=True))
    assert reply.status == 502
    reply.error()
