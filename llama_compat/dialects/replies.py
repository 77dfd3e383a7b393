"""What readers of vendors' replies share: wire -> vocabulary, whole or as a stream."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Protocol

from msgspec import Raw

from llama_compat.events import ReplyParts
from llama_compat.text.surrogates import SurrogateJoiner
from llama_compat.tools.calls import (
    ToolCallAssembler,
    arguments_text,
    new_call_id,
    parse_tool_call,
)
from llama_compat.types import (
    EMPTY_PARTS,
    AnyToolCall,
    Delta,
    MessagePart,
    ReasoningDelta,
    StopReason,
    StreamEvent,
    StreamProgress,
    TextDelta,
    TokenLogProbs,
    UnparseableToolCall,
)
from llama_compat.wire import sse
from llama_compat.wire.json_fields import from_raw
from llama_compat.wire.malformed import MALFORMED

# --------------------------------------------------------------------------------------------------
# Whole replies
# --------------------------------------------------------------------------------------------------


def parse_blocks(
    blocks: Sequence[Any], reason: StopReason, parse: Callable[[Any, bool], MessagePart | None]
) -> tuple[MessagePart, ...]:
    """The parts of a reply that has come whole, as a list of blocks.

    Args:
        blocks: what the vendor says.
        reason: why it ended.
        parse: makes a part of a block, told whether the tokens may have run out within it.

    Raises:
        Exception: what `parse` raises; TypeError, these are no blocks.
    """
    last = len(blocks) - 1
    parts = (
        parse(block, reason is StopReason.out_of_tokens and place == last)
        for place, block in enumerate(blocks)
    )
    return tuple(part for part in parts if part is not None and part not in EMPTY_PARTS)


def parse_whole_call(call_id: str, name: str, given: Any, *, cut: bool) -> AnyToolCall:
    """A call of a reply that has come whole. One in which the tokens ran out has no arguments where
    they were still to come."""
    call_id = call_id or new_call_id()
    if cut and not given:
        return UnparseableToolCall(call_id, name, "")
    return parse_tool_call(call_id, name, arguments_text(given))


# --------------------------------------------------------------------------------------------------
# Streams
# --------------------------------------------------------------------------------------------------


class ObjectParser(Protocol):
    """What takes a stream's objects; it raises ValueError for nonsense."""

    def push(self, event: Mapping[str, Any], /) -> list[StreamEvent]:
        """The events of the next object."""
        ...


class StreamParser(ObjectParser, Protocol):
    """What a dialect parses a stream with."""

    def finish(self) -> Iterable[StreamEvent]:
        """The events that are due at the end of the stream. Raises ValueError: it broke off."""
        ...


class EventParser:
    """The `StreamParser` of an API whose streams say in pieces what the model says, and then that
    this was all."""

    event: ClassVar[str]
    """What the vendor's event is, in a message that says what it is not."""

    end: ClassVar[str]
    """The name of that with which a stream comes to its end."""

    def __init__(self) -> None:
        self._text = SurrogateJoiner()
        self._reasoning = SurrogateJoiner()
        self._calls = ToolCallAssembler()
        self._parts = ReplyParts()
        self._ended = False

    def push(self, event: Mapping[str, Any]) -> list[StreamEvent]:
        """The vocabulary's events for one of the vendor's; kinds that are not known give none.

        Raises:
            ValueError: it is not an event of this API, or says that the model failed.
        """
        try:
            return self._push(event)
        except MALFORMED as error:
            raise ValueError(f"the event is not {self.event}: {error!r}") from error

    def finish(self) -> Iterator[StreamEvent]:
        """What is due at the end of the stream.

        Raises:
            ValueError: it broke off; the tool calls that it broke off in have failed before.
        """
        if not self._ended:
            yield from self._progress(self._calls.finish(cut=True))
            raise self._broken_off()

    def _broken_off(self) -> ValueError:
        return ValueError(f"the stream broke off before its {self.end}")

    def _push(self, event: Mapping[str, Any]) -> list[StreamEvent]:
        raise NotImplementedError

    def _progress(self, deltas: Iterable[Delta]) -> list[StreamEvent]:
        return [self._parts.progress(delta) for delta in deltas]


def text_deltas(text: str) -> list[Delta]:
    """What the next piece of a text adds, which may be nothing."""
    return [TextDelta(text)] if text else []


def reasoning_deltas(text: str) -> list[Delta]:
    """What the next piece of a thought adds, which may be nothing."""
    return [ReasoningDelta(text)] if text else []


def with_logprobs(
    parts: ReplyParts, deltas: Sequence[Delta], logprobs: tuple[TokenLogProbs, ...] | None
) -> list[StreamProgress]:
    """What a piece of a stream says, the first of it with the probabilities of its tokens; these
    come with a text that is empty where nothing else is said."""
    if logprobs is not None and not deltas:
        deltas = [TextDelta("")]
    return [
        parts.progress(delta, None if place else logprobs) for place, delta in enumerate(deltas)
    ]


def pushed(parser: ObjectParser, objects: Iterable[Mapping[str, Any]]) -> Iterator[StreamEvent]:
    """The events of a stream as far as it has come.

    Raises (from the generator):
        ValueError: an object is none of this API.
    """
    for each in objects:
        yield from parser.push(each)


def parsed(parser: StreamParser, objects: Iterable[Mapping[str, Any]]) -> Iterator[StreamEvent]:
    """The events of a stream that has come to its end.

    Raises (from the generator):
        ValueError: an object is none of this API, or the stream broke off.
    """
    yield from pushed(parser, objects)
    yield from parser.finish()


def objects_in(body: bytes) -> Iterator[Mapping[str, Any]]:
    """The objects in a stream of server-sent events, as far as it has come.

    Raises (from the generator):
        ValueError: one is no JSON, or too large.
    """
    for data in sse.objects_in(body):
        yield from_raw(Raw(data))
