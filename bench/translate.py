"""How fast a stream is translated from Anthropic's wire to OpenAI's, beside relaying OpenAI's own.

    python -m bench.translate [--events 20000] [--rounds 5]

Bytes in, bytes out, one core, no sockets: each event of the vendor arrives in a chunk of its own
and goes all the way that it goes in the server, between the connection to the vendor and that to
the client. Text, a tool call's arguments and the relay take turns; the best CPU time of each
counts. Prints the figures and writes them to `bench/results/translate.json`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any, cast

from msgspec import Raw

from bench.machine import write_results
from llama_compat.dialects.anthropic_messages import StreamParser
from llama_compat.dialects.openai.mending import CHAT, StreamMender
from llama_compat.exchange import OpenAIRequest
from llama_compat.mixins import OpenAIChatCompletionUnsupportedMixin
from llama_compat.types import ChatCompletionRequest, StreamEvent
from llama_compat.wire.json_fields import to_raw
from providers.base import Provider, ProviderConfig
from providers.remote.json_events import JSONEvents
from providers.remote.json_objects import read_events
from providers.remote.relay import Relay
from providers.remote.upstream import UpstreamResponse

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


class ReplayingProvider(OpenAIChatCompletionUnsupportedMixin, Provider):
    """Answers every chat with the same stream of Anthropic's."""

    def __init__(self, recorded: Sequence[bytes]) -> None:
        super().__init__("recorded", ProviderConfig(), ())
        self._recorded = recorded

    async def chat_completion(
        self, request: ChatCompletionRequest
    ) -> AsyncGenerator[StreamEvent, None]:
        response = cast(UpstreamResponse, Recording(self._recorded))
        decoder = JSONEvents(self.id)
        async with aclosing(read_events(self.id, response, decoder, StreamParser())) as events:
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


def openai_stream(events: int) -> list[bytes]:
    """The same text as a stream of OpenAI's."""
    deltas = [({"content": PIECE}, None)] * (events - 3)
    return [
        b"data: %b\n\n" % json.dumps(chunk).encode()
        for chunk in (
            {
                "id": "chatcmpl-1",
                "object": "chat.completion.chunk",
                "created": 1,
                "model": "m",
                "choices": [
                    {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
                ],
            }
            for delta, reason in (({"role": "assistant"}, None), *deltas, ({}, "stop"))
        )
    ] + [b"data: [DONE]\n\n"]


async def translate(recorded: Sequence[bytes]) -> int:
    """Translate the stream; the bytes that came out."""
    fields = {
        "messages": to_raw([{"role": "user", "content": "Hi"}]),
        "stream": Raw(b"true"),
        "stream_options": Raw(b'{"include_usage":true}'),
    }
    request = OpenAIRequest("m", "m", fields, stream=True, request_id="r")
    reply = await ReplayingProvider(recorded).openai_chat_completion(request)
    assert not isinstance(reply.body, bytes)
    return len(reply.first) + sum([len(chunk) async for chunk in reply.body])


async def relay(recorded: Sequence[bytes]) -> int:
    """Relay the stream; the bytes that came out."""
    response = cast(UpstreamResponse, Recording(recorded))
    model = to_raw("m")
    mender = StreamMender(CHAT, model, include_usage=False, continuous_usage=False)
    relayed = Relay("recorded").stream(response, CHAT, model, mender)
    return sum([len(chunk) async for chunk in relayed])


async def cpu_seconds(
    way: Callable[[Sequence[bytes]], Awaitable[int]], chunks: list[bytes]
) -> float:
    """What one stream takes."""
    begun = time.process_time()
    size = await way(chunks)
    spent = time.process_time() - begun
    assert size > len(chunks) * len(PIECE)
    return spent


async def measure(events: int, rounds: int) -> dict[str, Any]:
    """Events a second of each subject, at its best."""
    text = anthropic_stream(
        events, {"type": "text", "text": ""}, {"type": "text_delta", "text": PIECE}
    )
    call = anthropic_stream(
        events,
        {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}},
        {"type": "input_json_delta", "partial_json": PIECE},
    )
    subjects = {
        "translated text": (translate, text),
        "translated tool call": (translate, call),
        "relayed text": (relay, openai_stream(events)),
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
        print(f"{name:22}{figures['events_per_second']:>9,} events/s")
    path = write_results(
        "translate", {"events": options.events, "rounds": options.rounds, **measured}, "msgspec"
    )
    print(f"Written to {path}")


if __name__ == "__main__":
    main()
