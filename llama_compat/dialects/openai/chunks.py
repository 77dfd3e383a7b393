"""What OpenAI's chat and text streams share, in both directions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, ClassVar

import msgspec
from msgspec import Raw

from llama_compat.dialects.base import SaidText, Withheld
from llama_compat.dialects.openai.errors import render_stream_error
from llama_compat.dialects.openai.finish_reasons import NO_REASON, matched_stop_string
from llama_compat.dialects.openai.shapes import check_reply
from llama_compat.dialects.openai.usage import (
    parse_service_tier,
    parse_usage,
    render_usage,
    wants_usage,
)
from llama_compat.dialects.replies import objects_in, pushed
from llama_compat.errors import APIError
from llama_compat.events import Collector, collected
from llama_compat.text.surrogates import SurrogateJoiner
from llama_compat.types import StreamEvent, StreamStart, Usage
from llama_compat.wire import sse
from llama_compat.wire.json_fields import encode_json
from llama_compat.wire.malformed import MALFORMED


class ChunkRenderer:
    """Renders what is the same in all chunks of a stream.

    Args:
        reply_id, model, created: what every chunk says.
        include_usage: whether the client asked for a last chunk with the usage.
    """

    object: ClassVar[str]
    """What every chunk says that it is."""

    def __init__(self, *, reply_id: str, model: str, created: int, include_usage: bool) -> None:
        self._frame = {"id": reply_id, "object": self.object, "created": created, "model": model}
        self._include_usage = include_usage

    def render(self, choice: int, event: StreamEvent) -> Iterator[dict[str, Any]]:
        """The chunks that `event` of the choice `choice` makes."""
        raise NotImplementedError

    def finish(self, usage: Usage) -> Iterator[dict[str, Any]]:
        """The chunk with the usage, if it was asked for."""
        if self._include_usage:
            yield {**self._frame, "choices": [], "usage": render_usage(usage)}

    def _chunk(self, choice: dict[str, Any]) -> dict[str, Any]:
        chunk: dict[str, Any] = {**self._frame, "choices": [choice]}
        if self._include_usage:
            chunk["usage"] = None
        return chunk


def token_ids(
    ids: Iterable[int] | None, *, prompt: Iterable[int] | None = None
) -> dict[str, list[int]]:
    """The members, vLLM's, that say of which tokens a reply and its prompt consist, if asked."""
    named = {"prompt_token_ids": prompt, "token_ids": ids}
    return {name: list(value) for name, value in named.items() if value is not None}


class EncodedChunks:
    """A `StreamRenderer` that writes the chunks of `renderer` as server-sent events."""

    def __init__(self, renderer: ChunkRenderer) -> None:
        self._renderer = renderer

    def render(self, choice: int, event: StreamEvent) -> bytes:
        """The chunks that `event` of the choice `choice` makes."""
        return _encode(self._renderer.render(choice, event))

    def finish(self, usage: Usage) -> bytes:
        """The chunk with the usage, if it was asked for."""
        return _encode(self._renderer.finish(usage))

    def fail(self, error: APIError) -> bytes:
        """The error, and the stream's end."""
        return render_stream_error(error, "")


def _encode(chunks: Iterable[dict[str, Any]]) -> bytes:
    return b"".join(sse.encode_data(encode_json(chunk)) for chunk in chunks)


def withheld(nothing: Mapping[str, Any]) -> Withheld:
    """Ends a stream that was relayed and of which no more may be shown.

    Args:
        nothing: what a choice has that says nothing.
    """

    def end(
        told: Sequence[Mapping[str, Any]], texts: Sequence[SaidText], fields: Mapping[str, Raw]
    ) -> bytes:
        known = (each for each in (*told, *(text.event for text in texts)) if "choices" in each)
        first = next(known, {})
        frame = {name: first[name] for name in _FRAME if name in first}
        choice = {"index": 0, **nothing, "finish_reason": "content_filter"}
        chunks = [{**frame, "choices": [choice]}]
        if wants_usage(fields)[0]:
            chunks.append({**frame, "choices": [], "usage": render_usage(Usage())})
        return _encode(chunks)

    return end


_FRAME = ("id", "object", "created", "model")


class ChunkParser:
    """Parses the chunks of a stream as the events of one choice.

    It is the first that the vendor begins, whatever number it has there; others are passed over. An
    object that reports an error is none; it is for whoever reads the stream to raise it.

    Attributes:
        started: whether a chunk has come.
    """

    kind: ClassVar[str]
    """What a chunk is called in messages."""

    def __init__(self) -> None:
        self._choice: Any = None
        self._has_null_reasons = False
        self._text = SurrogateJoiner()
        self.started = False
        self._finish_reason: Any = None
        self._stop_string: str | None = None
        self._usage = Usage()
        self._service_tier: str | None = None

    def push(self, chunk: Mapping[str, Any]) -> list[StreamEvent]:
        """The events of one chunk.

        Raises:
            ValueError: it is not such a chunk.
        """
        events: list[StreamEvent] = []
        if not self.started:
            self.started = True
            events.append(StreamStart())
        try:
            check_reply(chunk)
            if chunk.get("usage"):
                self._usage = parse_usage(chunk["usage"])
            if chunk.get("service_tier"):
                self._service_tier = parse_service_tier(chunk)
            for choice in chunk.get("choices") or ():
                index = choice.get("index") or 0
                if self._choice is None:
                    self._choice = index
                if index == self._choice:
                    self._look_for_reason(choice)
                    events.extend(self._parse_choice(choice))
        except msgspec.ValidationError as error:
            raise ValueError(f"the event is not a {self.kind} chunk: {error}") from None
        except MALFORMED as error:
            raise ValueError(f"the event is not a {self.kind} chunk: {error!r}") from error
        return events

    @property
    def complete(self) -> bool:
        """Whether the vendor has said why the choice ended."""
        return self._finish_reason is not None

    def _look_for_reason(self, choice: Mapping[str, Any]) -> None:
        reason = choice.get("finish_reason")
        if reason is None:
            self._has_null_reasons = True
        elif not isinstance(reason, str) or reason.lower() not in NO_REASON:
            self._finish_reason = reason
            self._stop_string = matched_stop_string(choice)
        elif not reason and self._has_null_reasons:
            self._finish_reason = reason  # elsewhere all chunks have it, as others have null

    def finish(self, *, done: bool = False) -> Iterator[StreamEvent]:
        """The events that are due at the end of the stream, which `[DONE]` ended or not."""
        raise NotImplementedError

    def _parse_choice(self, choice: Mapping[str, Any]) -> Iterable[StreamEvent]:
        raise NotImplementedError


def collected_chunks(parser: ChunkParser, body: bytes) -> Collector:
    """What a stream that was relayed has said.

    Raises:
        ValueError: it has an event that is no chunk.
    """
    return collected(chain(pushed(parser, objects_in(body)), parser.finish(done=True)))
