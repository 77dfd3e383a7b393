"""How fast streams are relayed and translated, from every vendor's API to every client's.

    python -m bench.translate [--events 20000] [--rounds 5]

Bytes in, bytes out, one core, no sockets: each event of the vendor arrives in a chunk of its own
and goes all the way that it goes in the server, between the connection to the vendor and that to
the client. All ways take turns; the best CPU time of each counts. Prints the figures and writes
them to `bench/results/translate.json`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, cast

from bench.machine import write_results
from llama_compat.dialects import gemini, gemini_interactions, ollama
from llama_compat.dialects.anthropic_messages import StreamParser
from llama_compat.dialects.anthropic_messages.operations import MESSAGES
from llama_compat.dialects.base import Operation
from llama_compat.dialects.gemini.operations import STREAM_EVENTS as GEMINI_STREAM
from llama_compat.dialects.gemini_interactions.events import encode_event
from llama_compat.dialects.gemini_interactions.operations import INTERACTIONS
from llama_compat.dialects.ollama.operations import CHAT as OLLAMA_CHAT
from llama_compat.dialects.openai.operations import CHAT
from llama_compat.dialects.openai.repair import CHAT as CHAT_REPLY
from llama_compat.dialects.openai.repair import StreamMender
from llama_compat.dialects.openai_responses.operations import RESPONSES
from llama_compat.exchange import Call, Target
from llama_compat.mixins import OpenAIChatCompletionUnsupportedMixin
from llama_compat.types import ChatCompletionRequest, StreamEvent
from llama_compat.wire.json_fields import parse_fields, to_raw
from llama_compat.wire.json_lines import NEWLINE
from providers.base import Provider, ProviderConfig
from providers.remote.anthropic.relay import MessagesStream
from providers.remote.gemini.interactions import InteractionStream
from providers.remote.openai.events import read_chat
from providers.remote.openai.relays.event_stream import EventStream
from providers.remote.relaying.json_objects import read_events, read_lines
from providers.remote.relaying.streams import RelayedStream, relay_stream
from providers.remote.upstream.exchanges import UpstreamResponse

PIECE = " several"


class Recording:
    """A vendor's answer as it would come from the network, `UpstreamResponse`'s reading side."""

    def __init__(self, chunks: Sequence[bytes]) -> None:
        self._chunks = iter(chunks)

    async def next_chunk(self) -> bytes:
        return next(self._chunks, b"")

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        while chunk := await self.next_chunk():
            yield chunk

    async def drain(self) -> None:
        pass


Events = AsyncGenerator[StreamEvent, None]
Read = Callable[[UpstreamResponse], Events]


def read_messages(response: UpstreamResponse) -> Events:
    """Anthropic's stream in the vocabulary."""
    return read_events("recorded", response, StreamParser())


def read_chats(response: UpstreamResponse) -> Events:
    """OpenAI's stream in the vocabulary."""
    return read_chat("recorded", response, stream=True)


def read_gemini(response: UpstreamResponse) -> Events:
    """Gemini's stream in the vocabulary."""
    return read_events("recorded", response, gemini.StreamParser())


def read_interactions(response: UpstreamResponse) -> Events:
    """The stream of an interaction in the vocabulary."""
    return read_events("recorded", response, gemini_interactions.StreamParser())


def read_ollama(response: UpstreamResponse) -> Events:
    """Ollama's stream in the vocabulary."""
    return read_lines("recorded", response, ollama.StreamParser(), NEWLINE)


class ReplayingProvider(OpenAIChatCompletionUnsupportedMixin, Provider):
    """Answers every chat with the same stream of a vendor's."""

    parameters = frozenset({"max_tokens"})

    def __init__(self, recorded: Sequence[bytes], read: Read) -> None:
        super().__init__("recorded", ProviderConfig(), ())
        self._recorded = recorded
        self._read = read

    async def chat_completion(self, request: ChatCompletionRequest) -> Events:
        response = cast(UpstreamResponse, Recording(self._recorded))
        async with aclosing(self._read(response)) as events:
            async for event in events:
                yield event


def anthropic_stream(events: int, block: dict[str, Any], delta: dict[str, Any]) -> list[bytes]:
    """A reply of one block in `events` events."""
    usage = {"input_tokens": 10, "output_tokens": events}
    message = {"type": "message", "role": "assistant", "content": [], "usage": usage}
    deltas = [{"type": "content_block_delta", "index": 0, "delta": delta}] * (events - 5)
    return [
        b"event: %b\ndata: %b\n\n" % (event["type"].encode(), json.dumps(event).encode())
        for event in (
            {"type": "message_start", "message": message},
            {"type": "content_block_start", "index": 0, "content_block": block},
            *deltas,
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage},
            {"type": "message_stop"},
        )
    ]


def gemini_stream(events: int) -> list[bytes]:
    """A text as a stream of Gemini's."""

    def response(text: str, **members: Any) -> bytes:
        content = {"role": "model", "parts": [{"text": text}]}
        body = {"candidates": [{"content": content, "index": 0, **members}], "modelVersion": "m"}
        return b"data: %b\r\n\r\n" % json.dumps(body).encode()

    return [response(PIECE)] * (events - 1) + [response(PIECE, finishReason="STOP")]


def interactions_stream(events: int) -> list[bytes]:
    """A text as the stream of an interaction."""
    interaction = {"id": "v1_x", "status": "completed", "model": "m"}
    delta = {"index": 0, "delta": {"type": "text", "text": PIECE}}
    return [
        encode_event("interaction.created", {"interaction": interaction}),
        encode_event("step.start", {"index": 0, "step": {"type": "model_output"}}),
        *[encode_event("step.delta", delta)] * (events - 4),
        encode_event("step.stop", {"index": 0}),
        encode_event("interaction.completed", {"interaction": interaction}),
    ]


def ollama_stream(events: int) -> list[bytes]:
    """A text as a stream of Ollama's."""

    def line(text: str, **members: Any) -> bytes:
        body = {"model": "m", "message": {"role": "assistant", "content": text}, "done": False}
        return json.dumps({**body, **members}).encode() + b"\n"

    return [line(PIECE)] * (events - 1) + [line("", done=True, done_reason="stop")]


def openai_stream(
    events: int, delta: dict[str, Any], first: Sequence[dict[str, Any]] = ()
) -> list[bytes]:
    """The same as a stream of OpenAI's: `first`, and then the same delta again and again."""
    deltas = [*first, *[delta] * (events - 3 - len(first))]
    return [
        b"data: %b\n\n" % json.dumps(chunk).encode()
        for chunk in (
            {
                "id": "chatcmpl-1",
                "object": "chat.completion.chunk",
                "created": 1,
                "model": "m",
                "choices": [{"index": 0, "delta": said, "logprobs": None, "finish_reason": reason}],
            }
            for said, reason in (
                ({"role": "assistant"}, None),
                *((each, None) for each in deltas),
                ({}, "stop"),
            )
        )
    ] + [b"data: [DONE]\n\n"]


MESSAGE = {"role": "user", "content": "Hi"}

CLIENTS: dict[str, tuple[Operation, dict[str, Any]]] = {
    "chat": (CHAT, {"messages": [MESSAGE]}),
    "Responses": (RESPONSES, {"input": [MESSAGE]}),
    "Messages": (MESSAGES, {"messages": [MESSAGE], "max_tokens": 100}),
    "Ollama": (OLLAMA_CHAT, {"messages": [MESSAGE]}),
    "Gemini": (GEMINI_STREAM, {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]}),
    "Interactions": (INTERACTIONS, {"input": "Hi"}),
}
"""The client APIs, and what a client of each asks."""


async def translate(client: str, read: Read, recorded: Sequence[bytes]) -> int:
    """Translate the stream for a `client`; the bytes that came out."""
    operation, body = CLIENTS[client]
    fields = parse_fields(json.dumps({"model": "m", **body}).encode())
    call = Call(operation, fields, "m", True, request_id="r")
    provider = ReplayingProvider(recorded, read)
    reply = await provider.openai_chat_completion(call, Target("m"))
    assert not isinstance(reply.body, bytes)
    return len(reply.first) + sum([len(chunk) async for chunk in reply.body])


def chat_relay() -> RelayedStream:
    """What relays a chat."""
    model = to_raw("m")
    mender = StreamMender(CHAT_REPLY, model, include_usage=False, continuous_usage=False)
    return EventStream("recorded", mender, CHAT_REPLY, model)


def messages_relay() -> RelayedStream:
    """What relays a message."""
    return MessagesStream("recorded", to_raw("m"))


def interactions_relay() -> RelayedStream:
    """What relays an interaction."""
    return InteractionStream("recorded")


async def relay(make: Callable[[], RelayedStream], recorded: Sequence[bytes]) -> int:
    """Relay the stream; the bytes that came out."""
    response = cast(UpstreamResponse, Recording(recorded))
    return sum([len(chunk) async for chunk in relay_stream("recorded", response, make())])


async def cpu_seconds(
    way: Callable[[Sequence[bytes]], Awaitable[int]], chunks: list[bytes]
) -> float:
    """What one stream takes."""
    begun = time.process_time()
    size = await way(chunks)
    spent = time.process_time() - begun
    assert size > len(PIECE)
    return spent


async def measure(events: int, rounds: int) -> dict[str, Any]:
    """Events a second of each subject, at its best."""
    messages_text = anthropic_stream(
        events, {"type": "text", "text": ""}, {"type": "text_delta", "text": PIECE}
    )
    messages_call = anthropic_stream(
        events,
        {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}},
        {"type": "input_json_delta", "partial_json": PIECE},
    )
    chat_text = openai_stream(events, {"content": PIECE})
    begun = {"name": "f", "arguments": "{"}
    chat_call = openai_stream(
        events,
        {"tool_calls": [{"index": 0, "function": {"arguments": PIECE}}]},
        [{"tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": begun}]}],
    )
    vendors: dict[str, tuple[Read, list[bytes]]] = {
        "chat": (read_chats, chat_text),
        "Messages": (read_messages, messages_text),
        "Gemini": (read_gemini, gemini_stream(events)),
        "Interactions": (read_interactions, interactions_stream(events)),
        "Ollama": (read_ollama, ollama_stream(events)),
        "chat, a tool call": (read_chats, chat_call),
        "Messages, a tool call": (read_messages, messages_call),
    }
    subjects: dict[str, tuple[Callable[[Sequence[bytes]], Awaitable[int]], list[bytes]]] = {
        "chat relayed": (partial(relay, chat_relay), chat_text),
        "Messages relayed": (partial(relay, messages_relay), messages_text),
        "Interactions relayed": (partial(relay, interactions_relay), interactions_stream(events)),
        **{
            f"{vendor} -> {client}": (partial(translate, client, read), recorded)
            for vendor, (read, recorded) in vendors.items()
            for client in CLIENTS
            if vendor.partition(",")[0] != client or vendor == "chat"
        },
    }
    best = dict.fromkeys(subjects, float("inf"))
    for _ in range(rounds):
        for name, (way, chunks) in subjects.items():
            best[name] = min(best[name], await cpu_seconds(way, chunks))
    return {
        name: {
            "events_per_second": round(events / seconds),
            "microseconds_per_event": round(seconds / events * 1e6, 1),
        }
        for name, seconds in best.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    measured = asyncio.run(measure(options.events, options.rounds))
    for name, figures in measured.items():
        print(f"{name:36}{figures['events_per_second']:>9,} events/s")
    path = write_results(
        "translate", {"events": options.events, "rounds": options.rounds, **measured}, "msgspec"
    )
    print(f"Written to {path}")


if __name__ == "__main__":
    main()
