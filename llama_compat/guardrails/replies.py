"""Replies on their way through the checks, as events of the vocabulary."""

from __future__ import annotations

from asyncio import to_thread
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import aclosing

from msgspec import structs

from llama_compat.errors import APIError
from llama_compat.fan_out import Events
from llama_compat.guardrails.asked.drawn import seen_event
from llama_compat.guardrails.asked.searches import Searched, VendorSearches
from llama_compat.guardrails.asked.windows import Windows
from llama_compat.guardrails.documents import Strand
from llama_compat.guardrails.given import guarded_call, looked_through, looked_through_source
from llama_compat.guardrails.guard import Blocked, Guard
from llama_compat.guardrails.guarded_text import GuardedText, seen_together
from llama_compat.hosted.citations import SaidParts
from llama_compat.hosted.vocabulary import Citation, CitationDelta, HostedCall, HostedCallDelta
from llama_compat.text.changes import InTurn
from llama_compat.types import (
    ReasoningDelta,
    RefusalDelta,
    StopReason,
    StreamComplete,
    StreamEvent,
    StreamProgress,
    StreamStart,
    TextDelta,
    TokenLogProbs,
    ToolCallDelta,
    ToolCallParseStatus,
    Usage,
)

_Words = TextDelta | ReasoningDelta | RefusalDelta

_STRANDS: Mapping[type, Strand] = {
    TextDelta: "text",
    ReasoningDelta: "thought",
    RefusalDelta: "refusal",
}


async def guarded(events: Events, guard: Guard, *, streams: bool) -> Events:
    """The events of one choice as its client may have them: what was blocked ends there.

    Args:
        events: as the model says them.
        guard: of the request.
        streams: whether the client reads along. A whole reply that is blocked has nothing of what
            came before.
    """
    choice = _Choice(guard)
    windows = Windows(guard, streams=streams) if guard.checks.asks_about_replies else None
    searches = VendorSearches(guard)
    kept: list[StreamEvent] = []
    async with aclosing(events) as stream:
        try:
            async for came in stream:
                event = await seen_event(came, guard) if guard.checks.sees_replies else came
                slow = guard.checks.is_slow_with_replies and choice.takes_long(event)
                shown = await to_thread(choice.shown, event) if slow else choice.shown(event)
                for each in shown:
                    if isinstance(each, StreamProgress) and isinstance(each.delta, Searched):
                        await searches.ask(each.delta)
                is_end = isinstance(event, StreamComplete)
                if windows is None:
                    kept += shown
                else:
                    for each in shown:
                        kept += await windows.passed(each)
                    if is_end:
                        kept += await windows.rest()
                if streams or is_end:
                    ready, kept = kept if streams else _together(kept, guard), []
                    for each in ready:
                        yield each
        except Blocked:
            kept = [each for each in kept if isinstance(each, StreamStart)]
            kept.append(choice.blocked())
        except APIError as error:
            await guard.look_through(error)
            raise
    for each in kept:
        yield each


def _together(events: list[StreamEvent], guard: Guard) -> list[StreamEvent]:
    """The events of a whole choice with what is shown of its texts together: many clients see them
    as one.

    Raises:
        Blocked: they may not be shown.
    """
    # Texts in a row were looked through as one already.
    rows: list[dict[int, str]] = []
    is_open = False
    for event in events:
        if not isinstance(event, StreamProgress) or isinstance(event.delta, CitationDelta):
            continue
        if not isinstance(event.delta, TextDelta):
            is_open = False
            continue
        if not is_open:
            rows.append({})
        is_open = True
        rows[-1][event.part] = rows[-1].get(event.part, "") + event.delta.text
    if len(rows) < 2:
        return events
    changed: dict[int, str] = {}
    texts = ["".join(row.values()) for row in rows]
    for row, old, new in zip(rows, texts, seen_together(guard, "output", texts), strict=True):
        if new != old:
            changed |= {**dict.fromkeys(row, ""), next(iter(row)): new}
    return [new for event in events for new in _with_text(event, changed)] if changed else events


def _with_text(event: StreamEvent, changed: dict[int, str]) -> list[StreamEvent]:
    """What becomes of an event where the texts of these parts are others; each is said once."""
    if not isinstance(event, StreamProgress) or event.part not in changed:
        return [event]
    if isinstance(event.delta, CitationDelta):
        return []
    if not isinstance(event.delta, TextDelta):
        return [event]
    text, changed[event.part] = changed[event.part], ""
    if not text:
        return []
    return [structs.replace(event, delta=TextDelta(text), logprobs=None, token_ids=None)]


class _Choice:
    """One choice as far as it has come."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._words: _Part | None = None
        self._calls: dict[int, _Call] = {}
        self._given: dict[str, str] = {}
        self._said: dict[int, _Part] = {}
        self._usage = Usage()

    def shown(self, event: StreamEvent) -> list[StreamEvent]:
        if isinstance(event, StreamStart):
            self._usage = Usage(prompt_tokens=event.prompt_tokens)
            return [event]
        if isinstance(event, StreamComplete):
            calls = [each for call in self._calls.values() for each in call.rest()]
            return [*self._end_of_words(), *calls, event]
        if event.completion_tokens:
            self._usage = structs.replace(self._usage, completion_tokens=event.completion_tokens)
        delta = event.delta
        if isinstance(delta, ToolCallDelta):
            call = self._calls.get(delta.index)
            if call is None:
                call = self._calls[delta.index] = _Call(self._guard)
            return [*self._end_of_words(), *call.shown(event, delta)]
        if isinstance(delta, HostedCallDelta):
            seen = looked_through(self._searched(delta.call), self._guard)
            return [
                *self._end_of_words(),
                structs.replace(event, delta=HostedCallDelta(seen)),
            ]
        if isinstance(delta, CitationDelta):
            return self._cited(event, delta.citation)
        if not isinstance(delta, _Words):
            return [*self._end_of_words(), event]
        before: list[StreamEvent] = []
        if self._words is None or not self._words.goes_on_with(event):
            before = self._end_of_words()
            self._words = _Part(self._guard, event)
        if isinstance(delta, TextDelta):
            self._said[event.part] = self._words
        return before + self._words.shown(event, delta)

    def _searched(self, call: HostedCall) -> HostedCall:
        """A call that the vendor has run, with what it was given as it may be shown."""
        given = self._given.get(call.call_id)
        if given is None:
            text = GuardedText(self._guard, "tool_arguments", in_json=True, is_reply=True)
            given = self._given[call.call_id] = text.push(call.arguments_json) + text.flush()
        return structs.replace(call, arguments_json=given)

    def _cited(self, event: StreamProgress, citation: Citation) -> list[StreamEvent]:
        """A place in a text that the vendor names, where its words are now."""
        source = looked_through_source(citation.source, self._guard)
        shown = structs.replace(citation, source=source)
        event = structs.replace(event, delta=CitationDelta(shown))
        said = self._said.get(event.part)
        if said is None:
            return [*self._end_of_words(), event]
        return said.cited(event, shown)

    def takes_long(self, event: StreamEvent) -> bool:
        """Whether it may take longer than an event loop has to say what is shown of `event`."""
        delta = event.delta if isinstance(event, StreamProgress) else None
        words = self._words
        if words is None or not isinstance(delta, _Words) or not isinstance(event, StreamProgress):
            return True
        is_sealed = isinstance(delta, ReasoningDelta) and delta.signature
        return bool(is_sealed) or not words.goes_on_with(event) or len(delta.text) >= words.room

    def blocked(self) -> StreamComplete:
        """The end of a choice of which no more may be shown."""
        return StreamComplete(StopReason.content_filter, self._usage)

    def _end_of_words(self) -> list[StreamEvent]:
        words, self._words = self._words, None
        return [] if words is None else words.rest()


class _Part:
    """Words that are read as one (`Strand`), with the places that are cited in them, which stay at
    their words.

    What came with its tokens (probabilities and ids) is given when nothing is held back, and not at
    all where something else is shown than came, as it would tell what.
    """

    def __init__(self, guard: Guard, first: StreamProgress) -> None:
        self._text = GuardedText(guard, "output", is_reply=True, counts_bytes=False)
        self._last = first
        self._waiting: deque[tuple[StreamProgress, int]] = deque()
        self._held = ""  # what came and was not given, as long as it is given as it came
        self._differs = False
        self._changed: set[int] = set()
        self._logprobs: tuple[TokenLogProbs, ...] = ()
        self._token_ids: tuple[int, ...] = ()
        self._places = _Places(self._text.changes)

    @property
    def room(self) -> int:
        """So many characters may come before it takes long to look through them."""
        return self._text.room

    def goes_on_with(self, event: StreamProgress) -> bool:
        return _STRANDS.get(type(event.delta)) == _STRANDS[type(self._last.delta)]

    def cited(self, event: StreamProgress, citation: Citation) -> list[StreamEvent]:
        """A place is cited in what came, of which some may be held back."""
        return [*self._places.cited(event, citation, waits=self._text.holds)]

    def shown(self, event: StreamProgress, delta: _Words) -> list[StreamEvent]:
        self._places.came(event.part, delta.text)
        text = self._text.push(delta.text)
        if isinstance(delta, ReasoningDelta) and delta.signature:
            text += self._text.flush()
        self._last = event
        waits = self._held or self._differs or self._text.holds
        if text == delta.text and not waits:
            return [*self._places.given([event])]
        self._held += delta.text
        self._waiting.append((event, len(delta.text)))
        self._logprobs += event.logprobs or ()
        self._token_ids += event.token_ids or ()
        return self._given(text)

    def rest(self) -> list[StreamEvent]:
        text = self._text.flush()
        given = self._given(text) if text or self._waiting or self._differs else []
        return [*given, *self._places.rest()]

    def _given(self, text: str) -> list[StreamEvent]:
        out = self._placed(text)
        logprobs: tuple[TokenLogProbs, ...] = ()
        token_ids: tuple[int, ...] = ()
        if not self._text.holds:
            if self._held:  # nothing is shown in its place
                self._differ()
            if not self._differs:
                logprobs, token_ids = self._logprobs, self._token_ids
            self._held, self._differs = "", False
            self._waiting.clear()
            self._logprobs, self._token_ids = (), ()
        delta = self._last.delta
        changes: dict[str, object] = {}
        is_sealed = isinstance(delta, ReasoningDelta) and delta.signature
        if is_sealed and self._last.part in self._changed:
            changes = {"signature": None, "sealed_by": ""}  # it seals what was there
        if logprobs or is_sealed:
            # They are the last event's, as the client gets it.
            if not out or (is_sealed and out[-1].part != self._last.part):
                out.append(_saying(self._last, ""))
            out[-1] = structs.replace(
                self._last,
                part=out[-1].part,
                delta=structs.replace(delta, text=_said(out[-1]), **changes),
                logprobs=logprobs or None,
                token_ids=token_ids or None,
            )
        return [*self._places.given(out)]

    def _placed(self, text: str) -> list[StreamProgress]:
        """The events that give `text`, each in the part that it came in; where it is another, in
        the last one that came."""
        out: list[StreamProgress] = []
        if self._differs or not self._held.startswith(text):
            self._differ()
            return [_saying(self._last, text)] if text else []
        self._held = self._held[len(text) :]
        while text and self._waiting:
            event, size = self._waiting.popleft()
            piece, text = text[:size], text[size:]
            if piece and out and out[-1].part == event.part:
                out[-1] = _saying(event, _said(out[-1]) + piece)
            elif piece:
                out.append(_saying(event, piece))
            if len(piece) < size:
                self._waiting.appendleft((event, size - len(piece)))
        return out

    def _differ(self) -> None:
        self._differs = True
        self._held = ""
        self._changed |= {event.part for event, _ in self._waiting} | {self._last.part}
        self._waiting.clear()


class _Places:
    """Places that are cited in words of several parts, which are read as one, where these are now.

    Args:
        changes: what becomes of the words.
    """

    def __init__(self, changes: InTurn) -> None:
        self._changes = changes
        self._begins: dict[int, int] = {}
        self._came = 0
        self._shown = SaidParts()
        self._waiting: list[tuple[StreamProgress, Citation]] = []

    def came(self, part: int, text: str) -> None:
        """More of a part."""
        self._begins.setdefault(part, self._came)
        self._came += len(text)

    def cited(
        self, event: StreamProgress, citation: Citation, *, waits: bool
    ) -> Iterator[StreamProgress]:
        """A place is cited, of which not all may be shown yet, or none (`waits`)."""
        if waits and self._end(event, citation) > len(self._shown.text):
            self._waiting.append((event, citation))
        else:
            yield self._moved(event, citation)

    def given(self, events: Sequence[StreamProgress]) -> Iterator[StreamProgress]:
        """`events`, which say more of the words as they are shown, with the places in them."""
        for said in events:
            self._shown.say(said.part, _said(said))
            yield said
            if self._waiting:
                waiting, self._waiting = self._waiting, []
                for event, citation in waiting:
                    yield from self.cited(event, citation, waits=True)

    def rest(self) -> Iterator[StreamProgress]:
        """The words have ended."""
        waiting, self._waiting = self._waiting, []
        for event, citation in waiting:
            yield self._moved(event, citation)

    def _end(self, event: StreamProgress, citation: Citation) -> int:
        at = self._begins.get(event.part, self._came) + citation.end
        return self._changes.place(at, is_end=True)

    def _moved(self, event: StreamProgress, citation: Citation) -> StreamProgress:
        if not self._changes.are_some:
            return event
        begin = self._begins.get(event.part, self._came) + citation.start
        start = self._changes.place(begin, is_end=False)
        end = max(start, min(self._end(event, citation), len(self._shown.text)))
        part, placed = self._shown.placed(structs.replace(citation, start=start, end=end))
        at = self._shown.begin(part)
        text = self._shown.text[at + placed.start : at + placed.end]
        delta = CitationDelta(structs.replace(placed, text=text))
        return structs.replace(event, part=part, delta=delta)


def _said(event: StreamProgress) -> str:
    assert isinstance(event.delta, _Words)
    return event.delta.text


def _saying(event: StreamProgress, text: str) -> StreamProgress:
    """`event` with another text, and nothing of its tokens."""
    assert isinstance(event.delta, _Words)
    return structs.replace(
        event, delta=structs.replace(event.delta, text=text), logprobs=None, token_ids=None
    )


class _Call:
    """One tool call, whose arguments are looked through as they grow."""

    def __init__(self, guard: Guard) -> None:
        self._text = GuardedText(guard, "tool_arguments", in_json=True, is_reply=True)
        self._gave: list[str] = []
        self._last: StreamProgress | None = None
        self._has_grown = False

    def shown(self, event: StreamProgress, delta: ToolCallDelta) -> list[StreamEvent]:
        self._last = event
        call = delta.tool_call
        if call is not None:
            if not self._has_grown:
                self._gave.append(self._text.push(call.arguments_json) + self._text.flush())
                before: list[StreamEvent] = []
            else:
                before = self.rest()
            whole = structs.replace(delta, tool_call=guarded_call(call, "".join(self._gave)))
            return [*before, structs.replace(event, delta=whole)]
        if not delta.arguments:
            return [event]
        self._has_grown = True
        return self._given(self._text.push(delta.arguments))

    def rest(self) -> list[StreamEvent]:
        return self._given(self._text.flush()) if self._has_grown else []

    def _given(self, text: str) -> list[StreamEvent]:
        self._gave.append(text)
        if not text or self._last is None:
            return []
        delta = self._last.delta
        assert isinstance(delta, ToolCallDelta)
        more = ToolCallDelta(delta.index, ToolCallParseStatus.in_progress, arguments=text)
        return [StreamProgress(more, None, self._last.completion_tokens, self._last.part)]
