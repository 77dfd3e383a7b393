"""A vendor's OpenAI replies as events of the vocabulary."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import aclosing
from functools import partial
from itertools import chain
from typing import Any

from llama_compat.dialects.counts import members
from llama_compat.dialects.openai import chat, completions
from llama_compat.dialects.openai.chunks import ChunkParser
from llama_compat.dialects.openai_responses.replies import StreamParser as ResponseParser
from llama_compat.dialects.openai_responses.replies import parse_reply as parse_response
from llama_compat.errors import upstream_error
from llama_compat.events import reply_events
from llama_compat.types import (
    CompletionResponse,
    StreamComplete,
    StreamEvent,
    StreamProgress,
    StreamStart,
    TextDelta,
)
from llama_compat.wire import sse
from llama_compat.wire.json_lines import decode_object
from providers.remote.openai.relays.replies import is_error_chunk
from providers.remote.relaying.answers import NO_EVENTS, opening
from providers.remote.relaying.json_events import JSONEvents
from providers.remote.relaying.json_objects import encode, parse_object, read_reply
from providers.remote.relaying.server_sent import meant_events
from providers.remote.relaying.streams import ended_early, next_chunk
from providers.remote.upstream.exchanges import UpstreamExchange, UpstreamResponse
from providers.remote.upstream.vendor_errors import (
    error_in_stream,
    makes_no_sense,
)


async def read_chat(
    provider: str, response: UpstreamResponse, *, stream: bool
) -> AsyncGenerator[StreamEvent, None]:
    """The events of a chat completion, whole or streamed.

    Raises (from the generator):
        APIError: 502 if the reply breaks off or makes no sense; what the vendor says in it.
    """
    if not stream:
        for event in _whole(provider, await response.read(), _chat_events):
            yield event
        return
    parser = chat.StreamParser()
    async with aclosing(_read_chunks(provider, response, parser, _chat_events)) as events:
        async for event in events:
            yield event


async def read_completion(
    provider: str, response: UpstreamResponse, *, stream: bool, echo: bool
) -> AsyncGenerator[StreamEvent, None]:
    """The events of a text completion, which begins with the prompt if `echo`; as `read_chat`."""
    whole = partial(_text_events, echo=echo)
    if not stream:
        for event in _whole(provider, await response.read(), whole):
            yield event
        return
    parser = completions.StreamParser(echo=echo)
    async with aclosing(_read_chunks(provider, response, parser, whole)) as events:
        async for event in events:
            yield event


def read_response(
    provider: str, exchange: UpstreamExchange, *, stream: bool
) -> AsyncGenerator[StreamEvent, None]:
    """The events of a response of the Responses API, whole or streamed; as `read_chat`."""
    return read_reply(
        provider,
        exchange,
        parse_response,
        ResponseParser(),
        stream=stream,
        required=["output"],
        decoder=_ResponseEvents(provider),
    )


_SAYS_NOT_WHY = "The response has failed, and its vendor does not say why."


class _ResponseEvents(JSONEvents):
    """The events of a response, of which some say in a way of their own that it has failed."""

    def feed(self, chunk: bytes) -> Iterator[Mapping[str, Any]]:
        return map(self._good, super().feed(chunk))

    def flush(self) -> Iterator[Mapping[str, Any]]:
        return map(self._good, super().flush())

    def _good(self, event: Mapping[str, Any]) -> Mapping[str, Any]:
        kind, response = event.get("type"), members(event.get("response"))
        if kind == "error":
            raise error_in_stream(self._provider, encode({"error": event}))
        if kind == "response.failed" or response.get("status") == "failed":
            error = response.get("error") or _SAYS_NOT_WHY
            raise error_in_stream(self._provider, encode({"error": error}))
        return event


def _whole(
    provider: str, body: bytes, events: Callable[[Mapping[str, Any]], list[StreamEvent]]
) -> list[StreamEvent]:
    return parse_object(provider, body, events, ["choices"])


def _chat_events(reply: Mapping[str, Any]) -> list[StreamEvent]:
    return list(reply_events(chat.parse_reply(reply)[0]))


def _text_events(reply: Mapping[str, Any], *, echo: bool) -> list[StreamEvent]:
    first: CompletionResponse = completions.parse_reply(reply, echo=echo)[0]
    return [
        StreamStart(first.usage.prompt_tokens),
        StreamProgress(TextDelta(first.content), first.logprobs),
        StreamComplete(first.stop_reason, first.usage, first.stop_string),
    ]


async def _read_chunks(
    provider: str,
    response: UpstreamResponse,
    parser: ChunkParser,
    whole: Callable[[Mapping[str, Any]], list[StreamEvent]],
) -> AsyncGenerator[StreamEvent, None]:
    decoder = sse.EventDecoder()
    try:
        chunk, body = await opening(response, NO_EVENTS)
        if body is not None:
            for event in _whole(provider, body, whole):
                yield event
            return
        while chunk:
            for event in _parse(provider, decoder.feed(chunk), parser):
                yield event
                if isinstance(event, StreamComplete):
                    await response.drain()
                    return
            chunk = await next_chunk(response, parser)
        last = decoder.flush()
        for event in _parse(provider, [last] if last is not None else [], parser):
            yield event
            if isinstance(event, StreamComplete):
                return
        for event in _finish(provider, parser):
            yield event
    except sse.EventTooLargeError as error:
        raise upstream_error(provider, f"{error}.") from None
    except ValueError as error:
        raise makes_no_sense(provider, error) from None


def _finish(provider: str, parser: ChunkParser) -> Iterator[StreamEvent]:
    """The events of a stream's end that the vendor did not tell with `[DONE]`."""
    try:
        yield from parser.finish()
    except ValueError:
        if parser.complete:
            raise
        raise ended_early(provider, begun=parser.started) from None


def _parse(provider: str, events: list[sse.Event], parser: ChunkParser) -> Iterator[StreamEvent]:
    """The events of the vocabulary; `[DONE]` is the end, after which nothing is looked at."""
    for event in chain.from_iterable(map(meant_events, events)):
        if event.data is None:
            continue
        if event.is_done:
            if not parser.started:
                raise ended_early(provider, begun=False)
            yield from parser.finish(done=True)
            return
        try:
            chunk = decode_object(event.data)
        except ValueError:
            if event.name == b"error":
                raise error_in_stream(provider, event.data) from None
            if not parser.complete:
                raise
            yield from parser.finish()  # all was said before the nonsense
            return
        if event.name == b"error" or is_error_chunk(chunk):
            raise error_in_stream(provider, event.data)
        yield from parser.push(chunk)
