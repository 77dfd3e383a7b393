"""A reply cut at stop strings that its vendor was not told."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import aclosing

from msgspec import structs

from llama_compat.extent import Prompt, about_tokens
from llama_compat.fan_out import Events
from llama_compat.hosted.vocabulary import CitationDelta
from llama_compat.off_loop import off_loop
from llama_compat.text.stop_strings import StopStrings
from llama_compat.types import (
    ReasoningDelta,
    RefusalDelta,
    StopReason,
    StreamComplete,
    StreamProgress,
    StreamStart,
    TextDelta,
    TokenLogProbs,
    ToolCallDelta,
    Usage,
)


async def cut_at(events: Events, stops: Sequence[str], prompt: Prompt, *, streams: bool) -> Events:
    """The events of one choice up to the first of `stops` in what it says; nothing of that string
    is ever shown, and what follows is none of the reply, calls of tools included.

    Texts in a row are read as one. What the model thinks, and calls tools with, is not looked at,
    as vendors do not.

    Args:
        events: as the vendor says them.
        stops: at least one, none of them empty.
        prompt: of the request, for what it comes to where the vendor has not counted yet.
        streams: whether the vendor was asked for a stream. It is closed where it is cut, so that no
            more is generated and paid for; what it came to is estimated then. Of a whole reply all
            is there and paid for, counted by its vendor.
    """
    cutter, spent = _Cutter(stops), _Spent(prompt)
    async with aclosing(events) as stream:
        async for event in stream:
            if isinstance(event, StreamStart):
                spent.start = event
                yield event
                continue
            if isinstance(event, StreamComplete):
                for each in cutter.rest():
                    yield each
                if cutter.matched is not None:
                    event = structs.replace(
                        event, stop_reason=StopReason.end_of_turn, stop_string=cutter.matched
                    )
                yield event
                continue
            spent.add(event)
            if isinstance(event.delta, TextDelta):
                work = len(event.delta.text) * len(stops)
                shown = await off_loop(work, cutter.text, event, event.delta)
            else:
                shown = cutter.other(event)
            for each in shown:
                yield each
            if streams and cutter.matched is not None:
                break
        else:
            return
    yield StreamComplete(StopReason.end_of_turn, spent.usage, cutter.matched)


class _Spent:
    """What a stream has come to that is not read to its end."""

    def __init__(self, prompt: Prompt) -> None:
        self.start = StreamStart()
        self._prompt = prompt
        self._counted = 0
        self._bytes = 0

    def add(self, event: StreamProgress) -> None:
        self._counted = max(self._counted, event.completion_tokens)
        delta = event.delta
        if isinstance(delta, TextDelta | ReasoningDelta | RefusalDelta):
            self._bytes += len(delta.text.encode("utf-8", "replace"))
        elif isinstance(delta, ToolCallDelta):
            self._bytes += len(delta.arguments.encode("utf-8", "replace"))

    @property
    def usage(self) -> Usage:
        """As the vendor has counted so far, and otherwise about."""
        return Usage(
            self.start.prompt_tokens or self._prompt.tokens,
            max(self._counted, about_tokens(self._bytes)),
            estimated=True,
        )


class _Cutter:
    """What is shown of one choice. Citations wait for the text before them."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = StopStrings(stops)
        self._waiting: deque[StreamProgress] = deque()
        self._shown: dict[int, int] = {}

    @property
    def matched(self) -> str | None:
        """The stop string that has ended the text."""
        return self._stops.matched

    def text(self, event: StreamProgress, delta: TextDelta) -> list[StreamProgress]:
        """More of the text."""
        if self.matched is not None:
            return []
        self._waiting.append(event)
        shown, stopped = self._stops.push(delta.text)
        out = self._given(len(shown))
        if stopped:
            out += [each for each in self._waiting if self._is_cited(each)]
        return out

    def other(self, event: StreamProgress) -> list[StreamProgress]:
        """What is no text."""
        if isinstance(event.delta, CitationDelta):
            if self.matched is not None:
                return [event] if self._is_cited(event) else []
            if not self._waiting:
                return [event]
            self._waiting.append(event)
            return []
        return [] if self.matched is not None else [*self.rest(), event]

    def rest(self) -> list[StreamProgress]:
        """What was held back, which was no stop string after all."""
        return [] if self.matched is not None else self._given(len(self._stops.flush()))

    def _given(self, size: int) -> list[StreamProgress]:
        """The next `size` characters, each in the event that it came in."""
        out: list[StreamProgress] = []
        while self._waiting:
            event = self._waiting[0]
            if isinstance(event.delta, TextDelta):
                length = len(event.delta.text)
                if length > size:
                    if size:
                        begin, self._waiting[0] = _split(event, event.delta.text, size)
                        out.append(begin)
                        self._count(event.part, size)
                    break
                size -= length
                self._count(event.part, length)
            out.append(self._waiting.popleft())
        return out

    def _is_cited(self, event: StreamProgress) -> bool:
        """Whether it cites a place that is shown, however much of the text after it is not."""
        delta = event.delta
        shown = self._shown.get(event.part, 0)
        return isinstance(delta, CitationDelta) and 0 < delta.citation.end <= shown

    def _count(self, part: int, length: int) -> None:
        self._shown[part] = self._shown.get(part, 0) + length


def _split(event: StreamProgress, text: str, size: int) -> tuple[StreamProgress, StreamProgress]:
    """`event` in two, of which the first says `size` characters: each with the log probabilities of
    the tokens that begin in it."""
    first, second = _split_logprobs(event.logprobs, size)
    return (
        structs.replace(event, delta=TextDelta(text[:size]), logprobs=first),
        structs.replace(event, delta=TextDelta(text[size:]), logprobs=second, token_ids=None),
    )


def _split_logprobs(
    logprobs: tuple[TokenLogProbs, ...] | None, size: int
) -> tuple[tuple[TokenLogProbs, ...] | None, tuple[TokenLogProbs, ...] | None]:
    if logprobs is None:
        return None, None
    position = count = 0
    for each in logprobs:
        if position >= size:
            break
        count += 1
        position += len(each.chosen.token)
    return logprobs[:count], logprobs[count:]
