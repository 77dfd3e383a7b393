"""Where a relayed stream's first content is: until there, another provider may still answer."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from msgspec import Raw

from llama_compat.dialects.gemini.operations import GENERATE, new_frame
from llama_compat.dialects.openai.repair import CHAT, TEXT, StreamMender
from llama_compat.errors import APIError
from llama_compat.wire.sse import EventDecoder
from providers.remote.anthropic.relay import MessagesStream
from providers.remote.gemini.interactions import InteractionStream
from providers.remote.gemini.relay import GeminiEvents
from providers.remote.ollama.relay import OllamaLines
from providers.remote.openai.relays.event_stream import EventStream
from providers.remote.openai.relays.media import MediaEvents
from providers.remote.openai.relays.responses import ResponseStream
from providers.remote.relaying.streams import RelayedStream, stream_reply
from providers.remote.upstream.exchanges import UpstreamResponse


class Vendor:
    """An answer of these chunks, as it would come from the network."""

    headers: Mapping[str, str] = {}

    def __init__(self, *chunks: bytes) -> None:
        self._chunks = iter(chunks)
        self.closed = False

    async def next_chunk(self) -> bytes:
        return next(self._chunks, b"")

    async def drain(self) -> None:
        """What follows is of no interest."""

    @asynccontextmanager
    async def exchange(self) -> AsyncIterator[UpstreamResponse]:
        try:
            yield cast(UpstreamResponse, self)
        finally:
            self.closed = True


MODEL = Raw(b'"m"')

WIRES: dict[str, Any] = {
    "chat": lambda: EventStream("p", StreamMender(CHAT, MODEL), CHAT, MODEL),
    "text": lambda: EventStream("p", StreamMender(TEXT, MODEL), TEXT, MODEL),
    "messages": lambda: MessagesStream("p", MODEL),
    "responses": lambda: ResponseStream("p", "m"),
    "gemini": lambda: GeminiEvents("p", new_frame(GENERATE), 1),
    "ollama": lambda: OllamaLines("p", MODEL, ("message", "done")),
    "interactions": lambda: InteractionStream("p"),
    "transcriptions": lambda: MediaEvents("p", "transcriptions", "m", 1),
}


def delta(**members: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": members, "finish_reason": None}]}


def text(said: str, reason: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "text": said, "finish_reason": reason}]}


def block(kind: str, **members: Any) -> dict[str, Any]:
    return {"type": f"content_block_{kind}", "index": 0, **members}


START = {"type": "message_start", "message": {"usage": {"input_tokens": 3}}}
EMPTY_BLOCK = block("start", content_block={"type": "text", "text": ""})
CREATED = {"type": "response.created", "response": {"id": "r"}}
IN_PROGRESS = {"type": "response.in_progress", "response": {"id": "r"}}


def added(kind: str, **members: Any) -> dict[str, Any]:
    return {"type": "response.output_item.added", "item": {"type": kind, **members}}


def parts(*said: Any, **members: Any) -> dict[str, Any]:
    return {"candidates": [{"content": {"parts": list(said)}, **members}]}


NOTHING_YET: list[tuple[str, Any]] = [
    ("chat", delta(role="assistant")),
    ("chat", delta(role="assistant", content="", refusal=None)),
    ("chat", delta(content=None, tool_calls=[], reasoning_content="")),
    ("chat", delta()),
    ("chat", {"choices": []}),
    ("text", text("")),
    ("messages", START),
    ("messages", [START, {"type": "ping"}]),
    ("messages", [START, EMPTY_BLOCK]),
    ("messages", [START, block("start", content_block={"type": "thinking", "thinking": ""})]),
    ("messages", [START, EMPTY_BLOCK, block("delta", delta={"type": "text_delta", "text": ""})]),
    ("responses", CREATED),
    ("responses", [CREATED, IN_PROGRESS, added("message", content=[])]),
    ("responses", [CREATED, added("reasoning", summary=[])]),
    ("responses", [CREATED, added("message"), {"type": "response.content_part.added"}]),
    ("gemini", {"usageMetadata": {}}),
    ("gemini", parts()),
    ("gemini", parts({"text": ""})),
    ("ollama", {"message": {"role": "assistant", "content": ""}, "done": False}),
    ("ollama", {"response": "", "done": False}),
]

CONTENT: list[tuple[str, Any, Any]] = [
    ("chat", delta(role="assistant"), delta(content="a")),
    ("chat", delta(role="assistant"), delta(reasoning="hm")),
    ("chat", delta(content=""), delta(refusal="no")),
    ("chat", delta(), delta(tool_calls=[{"index": 0, "function": {"name": "f"}}])),
    ("chat", delta(), {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}),
    ("text", text(""), text("a")),
    ("text", text(""), text("", "stop")),
    ("messages", [START, EMPTY_BLOCK], block("delta", delta={"type": "text_delta", "text": "a"})),
    ("messages", START, block("start", content_block={"type": "tool_use", "name": "f"})),
    ("messages", START, block("start", content_block={"type": "redacted_thinking", "data": "x"})),
    ("messages", START, {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}),
    ("responses", CREATED, {"type": "response.output_text.delta", "delta": "a"}),
    ("responses", CREATED, added("function_call", name="f")),
    ("responses", CREATED, {"type": "response.completed", "response": {"id": "r"}}),
    ("gemini", parts(), parts({"text": "a"})),
    ("gemini", parts(), parts({"functionCall": {"name": "f"}})),
    ("gemini", parts(), parts(finishReason="STOP")),
    ("gemini", parts(), {"promptFeedback": {"blockReason": "SAFETY"}}),
    ("ollama", {"message": {"content": ""}}, {"message": {"content": "a"}}),
    ("ollama", {"message": {"content": ""}}, {"message": {"content": "", "thinking": "a"}}),
    ("ollama", {"message": {"content": ""}}, {"message": {"tool_calls": [{"function": {}}]}}),
    ("ollama", {"response": ""}, {"response": "a"}),
    ("ollama", {"response": ""}, {"response": "", "done": True}),
]


def encoded(wire: str, events: Any) -> bytes:
    events = events if isinstance(events, list) else [events]
    lines = [json.dumps(event).encode() for event in events]
    if wire == "ollama":
        return b"".join(line + b"\n" for line in lines)
    return b"".join(b"data: " + line + b"\n\n" for line in lines)


def named(case: tuple[Any, ...]) -> str:
    return f"{case[0]} {json.dumps(case[1:])[:60]}"


@pytest.mark.parametrize("case", NOTHING_YET, ids=named)
def test_what_says_nothing_yet(case: tuple[str, Any]) -> None:
    wire, events = case
    stream: RelayedStream = WIRES[wire]()
    stream.push(encoded(wire, events), [])
    assert not stream.spoken


@pytest.mark.parametrize("case", CONTENT, ids=named)
def test_what_is_content_or_an_end(case: tuple[str, Any, Any]) -> None:
    wire, before, event = case
    stream: RelayedStream = WIRES[wire]()
    stream.push(encoded(wire, before), [])
    assert not stream.spoken
    stream.push(encoded(wire, event), [])
    assert stream.spoken


def test_chunks_that_differ_in_their_text_alone_are_looked_at_until_one_has_some() -> None:
    stream = WIRES["chat"]()
    for said, spoken in (("", False), ("", False), ("a", True)):
        stream.push(encoded("chat", delta(content=said)), [])
        assert stream.spoken is spoken


LAST_OF_ALL: dict[str, Any] = {
    "chat": {
        "choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2},
    },
    "text": {**text("a", "stop"), "usage": {"prompt_tokens": 3, "completion_tokens": 2}},
    "messages": [
        START,
        {"type": "message_delta", "delta": {}, "usage": {"output_tokens": 2}},
        {"type": "message_stop"},
    ],
    "responses": {
        "type": "response.completed",
        "response": {"id": "r", "usage": {"input_tokens": 3, "output_tokens": 2}},
    },
    "gemini": {
        "candidates": [{"finishReason": "STOP"}],
        "usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 2},
    },
    "ollama": {"response": "", "done": True, "prompt_eval_count": 3, "eval_count": 2},
    "interactions": {
        "event_type": "interaction.completed",
        "interaction": {
            "status": "completed",
            "usage": {"total_input_tokens": 3, "total_output_tokens": 2},
        },
    },
    "transcriptions": {
        "type": "transcript.text.done",
        "text": "a",
        "usage": {"type": "tokens", "input_tokens": 3, "output_tokens": 2},
    },
}


@pytest.mark.parametrize("wire", WIRES)
def test_each_tells_that_it_is_whole_and_what_was_counted(wire: str) -> None:
    stream: RelayedStream = WIRES[wire]()
    assert (stream.complete, stream.usage) == (False, None)
    stream.push(encoded(wire, LAST_OF_ALL[wire]), [])
    assert stream.complete
    assert stream.usage is not None
    assert (stream.usage.prompt_tokens, stream.usage.completion_tokens) == (3, 2)


async def test_a_reply_begins_with_all_that_came_before_its_content() -> None:
    empty, said = encoded("chat", delta(role="assistant")), encoded("chat", delta(content="a"))
    rest = encoded("chat", delta(content="b"))
    vendor = Vendor(empty, said, rest)
    reply = await stream_reply("p", vendor.exchange(), WIRES["chat"]())
    assert reply.first.count(b"data: ") == 2
    assert b'"content":"a"' in reply.first.replace(b": ", b":")
    await reply.aclose()
    assert vendor.closed


async def test_what_breaks_off_before_its_content_is_an_error_and_no_reply() -> None:
    vendor = Vendor(encoded("chat", delta(role="assistant")))
    with pytest.raises(APIError) as failed:
        await stream_reply("p", vendor.exchange(), WIRES["chat"]())
    assert failed.value.code == "upstream_stream_ended"
    assert vendor.closed


async def test_a_stream_that_ends_without_content_is_finished() -> None:
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    vendor = Vendor(encoded("chat", [delta(role="assistant"), end]), b"data: [DONE]\n\n")
    reply = await stream_reply("p", vendor.exchange(), WIRES["chat"]())
    assert not isinstance(reply.body, bytes)
    assert [piece async for piece in reply.body] == []


@pytest.mark.parametrize("wire", ["chat", "text", "messages", "interactions", "responses"])
def test_blank_lines_are_not_looked_at_one_by_one(
    wire: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of what is compressed 100 KB are 100 MB of them."""
    fed: list[bytes] = []
    monkeypatch.setattr(EventDecoder, "feed", lambda _, chunk: fed.append(chunk) or [])
    out: list[bytes] = []
    WIRES[wire]().push(b"\n" * 1000 + b": hi\n\n" + b"\r\n" * 1000, out)
    assert b"".join(fed).strip() == b": hi"
    assert len(fed) < 4
    assert not out
