"""Answers that are JSON objects, one or a stream of them, and dialects that parse those."""

from __future__ import annotations

from collections.abc import (
    AsyncGenerator,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import aclosing
from functools import partial
from typing import Any, Protocol, TypeVar

from msgspec import Raw

from llama_compat.dialects.replies import StreamParser
from llama_compat.errors import APIError, upstream_error
from llama_compat.events import reply_events
from llama_compat.types import ChatCompletionResponse, StreamComplete, StreamEvent
from llama_compat.wire.json_fields import from_raw, to_raw
from llama_compat.wire.json_lines import JSONLines, decode_object
from providers.remote.relaying.answers import NO_EVENTS, NO_LINES, opening
from providers.remote.relaying.json_events import JSONEvents
from providers.remote.relaying.streams import Completable, next_chunk
from providers.remote.relaying.whole_replies import check_reply
from providers.remote.upstream.exchanges import UpstreamExchange, UpstreamResponse
from providers.remote.upstream.vendor_errors import (
    error_in_answer,
    error_in_stream,
    is_error_in_other_words,
    no_json,
    says_error,
)

Parsed = TypeVar("Parsed")


class ObjectDecoder(Protocol):
    """What the bytes of a stream become objects with; raises ValueError for nonsense."""

    def feed(self, chunk: bytes) -> Iterable[Mapping[str, Any]]: ...

    def flush(self) -> Iterable[Mapping[str, Any]]: ...


def encode(body: Mapping[str, Any]) -> bytes:
    """A request's body."""
    return bytes(to_raw(body))


async def read_object(
    provider: str,
    response: UpstreamResponse,
    parse: Callable[[Mapping[str, Any]], Parsed],
    *,
    required: Collection[str] = (),
    max_bytes: int | None = None,
) -> Parsed:
    """The answer's one object, parsed.

    Args:
        provider: its id, for messages.
        response: the vendor's answer.
        parse: what is made of it.
        required: members of which it has at least one, if it is what was asked for.
        max_bytes: what it may come to, if less than a reply may.

    Raises:
        APIError: 502 if it is none, or too large, or an error in spite of its status, or `parse`
            raised ValueError.
    """
    return parse_object(provider, await response.read(max_bytes), parse, required)


def parse_object(
    provider: str,
    body: bytes,
    parse: Callable[[Mapping[str, Any]], Parsed],
    required: Collection[str] = (),
) -> Parsed:
    """The one object that `body` is, parsed.

    Raises:
        APIError: as `read_object`.
    """
    try:
        answer = decode_object(body)
    except ValueError as error:
        raise no_json(provider, body, error) from None
    if required:
        check_reply(provider, answer, body, required)
    elif says_error(answer.get("error")):
        raise error_in_answer(provider, body)
    try:
        return parse(answer)
    except ValueError as error:
        raise _nonsense(provider, error) from error


async def read_reply(
    provider: str,
    exchange: UpstreamExchange,
    parse: Callable[[Mapping[str, Any]], ChatCompletionResponse],
    parser: StreamParser,
    *,
    stream: bool,
    required: Collection[str],
    decoder: ObjectDecoder | None = None,
) -> AsyncGenerator[StreamEvent, None]:
    """The events of the vocabulary that a reply comes to, asked for whole or as a `stream`.

    Args:
        provider: its id, for messages.
        exchange: with the vendor; it is over when the generator is closed.
        parse: what is made of a whole reply.
        parser: takes a stream's objects.
        stream: which of the two was asked for.
        required: members of which a whole reply has at least one.
        decoder: what a stream's bytes become objects with, where they are no server-sent events.

    Raises (from the generator):
        APIError: as `read_object` and `read_events`.
    """
    async with exchange as response:
        if not stream:
            for event in reply_events(
                await read_object(provider, response, parse, required=required)
            ):
                yield event
            return
        async with aclosing(read_events(provider, response, parser, decoder)) as events:
            async for event in events:
                yield event


def read_events(
    provider: str,
    response: UpstreamResponse,
    parser: StreamParser,
    decoder: ObjectDecoder | None = None,
) -> AsyncGenerator[StreamEvent, None]:
    """The events of the vocabulary that an answer of server-sent events comes to, as they come.

    A whole reply is a stream of one object, and an array one of its items. What follows the last
    event is not waited for. Where there is a `decoder`, it takes another framing apart.

    Raises (from the generator):
        APIError: 502 if the answer breaks off or makes no sense; what the vendor says in it.
    """
    decoder = JSONEvents(provider) if decoder is None else decoder
    return _read(provider, response, decoder, parser, NO_EVENTS, ())


def read_lines(
    provider: str,
    response: UpstreamResponse,
    parser: StreamParser,
    separator: bytes,
    *,
    members: Collection[str] = (),
) -> AsyncGenerator[StreamEvent, None]:
    """The same of an answer of JSON objects, each ended by `separator`; as `read_events`.

    Where `members` are given, an object that has none of them may be an error in other words.
    """
    return _read(provider, response, JSONLines(separator), parser, NO_LINES, members)


async def _read(
    provider: str,
    response: UpstreamResponse,
    decoder: ObjectDecoder,
    parser: StreamParser,
    no_stream_begins: Sequence[bytes],
    members: Collection[str],
) -> AsyncGenerator[StreamEvent, None]:
    following = response.next_chunk
    if isinstance(parser, Completable):
        following = partial(next_chunk, response, parser)
    try:
        chunk, whole = await opening(response, no_stream_begins)
        while chunk:
            for event in _parse(provider, decoder.feed(chunk), parser, members):
                yield event
                if isinstance(event, StreamComplete):
                    await response.drain()
                    return
            chunk = await following()
        rest = decoder.flush() if whole is None else _whole_objects(provider, whole)
        for event in (*_parse(provider, rest, parser, members), *parser.finish()):
            yield event
    except ValueError as error:
        raise _nonsense(provider, error) from error


def _whole_objects(provider: str, body: bytes) -> Iterator[Mapping[str, Any]]:
    # Google answers with an array where `alt=sse` is not asked for, or not heeded.
    try:
        value = from_raw(Raw(body))
    except ValueError as error:
        raise no_json(provider, body, error) from None
    for each in value if isinstance(value, list) else [value]:
        if not isinstance(each, dict):
            raise ValueError(f"expected JSON objects, got {type(each).__name__}")
        if says_error(each.get("error")):
            raise error_in_answer(provider, body)
        yield each


def _parse(
    provider: str,
    objects: Iterable[Mapping[str, Any]],
    parser: StreamParser,
    members: Collection[str],
) -> Iterator[StreamEvent]:
    for each in objects:
        if members and is_error_in_other_words(each) and each.keys().isdisjoint(members):
            raise error_in_stream(provider, encode(each))
        yield from parser.push(each)


def _nonsense(provider: str, error: ValueError) -> APIError:
    return upstream_error(provider, f"{error}.")
