"""Answers that are JSON objects, one or a stream of them, and dialects that parse those."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from contextlib import aclosing
from typing import Any, Protocol, TypeVar

from llama_compat.errors import APIError, upstream_error
from llama_compat.types import StreamComplete, StreamEvent
from llama_compat.wire.json_fields import to_raw
from llama_compat.wire.json_lines import decode_object
from providers.remote.upstream import UpstreamResponse
from providers.remote.upstream_errors import error_in_answer, no_json

Parsed = TypeVar("Parsed")


class ObjectDecoder(Protocol):
    """What the bytes of a stream become objects with; raises ValueError for nonsense."""

    def feed(self, chunk: bytes) -> Iterable[Mapping[str, Any]]: ...

    def flush(self) -> Iterable[Mapping[str, Any]]: ...


class StreamParser(Protocol):
    """What a dialect parses a stream's objects with; both raise ValueError for nonsense."""

    def push(self, event: Mapping[str, Any]) -> list[StreamEvent]: ...

    def finish(self) -> Iterable[StreamEvent]: ...


def encode(body: Mapping[str, Any]) -> bytes:
    """A request's body."""
    return bytes(to_raw(body))


async def read_object(
    provider: str,
    response: UpstreamResponse,
    parse: Callable[[Mapping[str, Any]], Parsed],
    *,
    max_bytes: int | None = None,
) -> Parsed:
    """The answer's one object, parsed.

    Args:
        provider: its id, for messages.
        response: the vendor's answer.
        parse: what is made of it.
        max_bytes: what it may come to, if less than a reply may.

    Raises:
        APIError: 502 if it is none, or too large, or an error in spite of its status, or `parse`
            raised ValueError.
    """
    return parse_object(provider, await response.read(max_bytes), parse)


def parse_object(
    provider: str, body: bytes, parse: Callable[[Mapping[str, Any]], Parsed]
) -> Parsed:
    """The one object that `body` is, parsed.

    Raises:
        APIError: as `read_object`.
    """
    try:
        answer = decode_object(body)
    except ValueError as error:
        raise no_json(provider, body, error) from None
    if answer.get("error"):
        raise error_in_answer(provider, body)
    try:
        return parse(answer)
    except ValueError as error:
        raise _nonsense(provider, error) from error


async def read_events(
    provider: str, response: UpstreamResponse, decoder: ObjectDecoder, parser: StreamParser
) -> AsyncGenerator[StreamEvent, None]:
    """The events of the answer's objects, as they come.

    A whole reply is a stream of one object. What follows the last event is not waited for.

    Raises (from the generator):
        APIError: 502 if the answer breaks off or makes no sense.
    """
    try:
        async with aclosing(response.chunks()) as chunks:
            async for chunk in chunks:
                for event in _parse(decoder.feed(chunk), parser):
                    yield event
                    if isinstance(event, StreamComplete):
                        await response.drain()
                        return
        for event in (*_parse(decoder.flush(), parser), *parser.finish()):
            yield event
    except ValueError as error:
        raise _nonsense(provider, error) from error


def _parse(objects: Iterable[Mapping[str, Any]], parser: StreamParser) -> Iterator[StreamEvent]:
    for each in objects:
        yield from parser.push(each)


def _nonsense(provider: str, error: ValueError) -> APIError:
    return upstream_error(provider, f"{error}.")
