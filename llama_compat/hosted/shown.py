"""What a client sees of all turns of a reply as one: its parts are numbered through, and the calls
that the server runs are not the client's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import structs

from llama_compat.hosted.citations import Citer
from llama_compat.hosted.vocabulary import CitationDelta, HostedCall, HostedCallDelta, Source
from llama_compat.types import (
    Delta,
    StreamComplete,
    StreamEvent,
    StreamProgress,
    StreamStart,
    TextDelta,
    ToolCallDelta,
)


class Shown:
    """What the client sees of all turns as one reply.

    Args:
        names: of the server's tools.
        sources: what they have found.

    Attributes:
        has_started: whether the reply has begun.
        has_listed: whether it was shown where the tools come from.
        has_called: whether the model has called a tool of the client's.
    """

    def __init__(self, names: set[str], sources: Sequence[Source]) -> None:
        self._names = names
        self._citer = Citer(sources)
        self._parts: dict[int, int] = {}
        self._next_part = 0
        self._own: set[int] = set()
        self._calls: dict[int, int] = {}
        self._calls_before = 0
        self._text_part = -1
        self.has_started = False
        self.has_listed = False
        self.has_called = False

    def new_part(self) -> int:
        """The number of a part that begins."""
        self._next_part += 1
        return self._next_part - 1

    def news(self, call: HostedCall, part: int) -> StreamProgress:
        """The event of a call that the server runs."""
        return StreamProgress(HostedCallDelta(call), part=part)

    def of(self, event: StreamEvent, completed: int) -> Iterator[StreamEvent]:
        """What the client sees of `event`, before which `completed` tokens were generated in
        earlier turns."""
        if isinstance(event, StreamStart):
            if not self.has_started:
                self.has_started = True
                yield event
            return
        if isinstance(event, StreamComplete):
            return
        delta: Delta = event.delta
        if isinstance(delta, ToolCallDelta):
            delta_shown = self._call(delta)
            if delta_shown is None:
                return
            delta = delta_shown
        part = self._parts.get(event.part)
        if part is None:
            yield from self.end_text()
            part = self._parts[event.part] = self.new_part()
        tokens = event.completion_tokens
        yield structs.replace(
            event, delta=delta, part=part, completion_tokens=tokens and tokens + completed
        )
        if isinstance(delta, TextDelta):
            self._text_part = part
            for citation in self._citer.push(delta.text):
                yield StreamProgress(CitationDelta(citation), part=part)

    def _call(self, delta: ToolCallDelta) -> ToolCallDelta | None:
        name = delta.tool_call.tool_name if delta.tool_call else delta.tool_name
        if delta.index not in self._calls and (delta.index in self._own or name in self._names):
            self._own.add(delta.index)
            return None
        index = self._calls.setdefault(delta.index, self._calls_before + len(self._calls))
        self.has_called = True
        return structs.replace(delta, index=index)

    def end_text(self) -> Iterator[StreamEvent]:
        """What the end of the part of text that is open makes whole."""
        if self._text_part >= 0:
            for citation in self._citer.finish():
                yield StreamProgress(CitationDelta(citation), part=self._text_part)
        self._text_part = -1

    def ended(self) -> Iterator[StreamEvent]:
        """A turn has ended: the parts of the next are others."""
        yield from self.end_text()
        self._calls_before += len(self._calls)
        self._parts, self._calls, self._own = {}, {}, set()
