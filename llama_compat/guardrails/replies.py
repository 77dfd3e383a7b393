"""Replies on their way through the checks, as events of the vocabulary."""

from __future__ import annotations

from asyncio import to_thread
from contextlib import aclosing

from msgspec import structs

from llama_compat.errors import APIError
from llama_compat.fan_out import Events
from llama_compat.guardrails.asked.drawn import seen_event
from llama_compat.guardrails.asked.searches import Searched, VendorSearches
from llama_compat.guardrails.asked.windows import Windows
from llama_compat.guardrails.given import guarded_call, looked_through, looked_through_source
from llama_compat.guardrails.guard import Blocked, Guard
from llama_compat.guardrails.guarded_text import GuardedText
from llama_compat.hosted.vocabulary import Citation, CitationDelta, HostedCall, HostedCallDelta
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
                    ready, kept = kept, []
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


class _Choice:
    """One choice as far as it has come."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._words: _Part | None = None
        self._calls: dict[int, _Call] = {}
        self._given: dict[str, str] = {}
        self._changed: set[int] = set()
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
            return [*self._end_of_words(), *self._cited(event, delta.citation)]
        if not isinstance(delta, _Words):
            return [*self._end_of_words(), event]
        before: list[StreamEvent] = []
        if self._words is None or not self._words.goes_on_with(event):
            before = self._end_of_words()
            self._words = _Part(self._guard, event)
        return before + self._words.shown(event, delta)

    def _searched(self, call: HostedCall) -> HostedCall:
        """A call that the vendor has run, with what it was given as it may be shown."""
        given = self._given.get(call.call_id)
        if given is None:
            text = GuardedText(self._guard, "tool_arguments", in_json=True, is_reply=True)
            given = self._given[call.call_id] = text.push(call.arguments_json) + text.flush()
        return structs.replace(call, arguments_json=given)

    def _cited(self, event: StreamProgress, citation: Citation) -> list[StreamEvent]:
        """A place in a text that the vendor names, where it still is that place."""
        if event.part in self._changed:
            return []
        source = looked_through_source(citation.source, self._guard)
        shown = structs.replace(citation, source=source)
        return [structs.replace(event, delta=CitationDelta(shown))]

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
        if words is None:
            return []
        rest = words.rest()
        if words.has_changed:
            self._changed.add(words.part)
        return rest


class _Part:
    """One part of words: text, reasoning or a refusal.

    What came with its tokens (probabilities and ids) is given when nothing is held back, and not at
    all where something else is shown than came, as it would tell what.
    """

    def __init__(self, guard: Guard, first: StreamProgress) -> None:
        self._text = GuardedText(guard, "output", is_reply=True)
        self._last = first
        self._came: list[str] = []
        self._gave: list[str] = []
        self.part = first.part
        self.has_changed = False
        self._logprobs: tuple[TokenLogProbs, ...] = ()
        self._token_ids: tuple[int, ...] = ()

    @property
    def room(self) -> int:
        """So many characters may come before it takes long to look through them."""
        return self._text.room

    def goes_on_with(self, event: StreamProgress) -> bool:
        return event.part == self._last.part and type(event.delta) is type(self._last.delta)

    def shown(self, event: StreamProgress, delta: _Words) -> list[StreamEvent]:
        text = self._text.push(delta.text)
        if isinstance(delta, ReasoningDelta) and delta.signature:
            text += self._text.flush()
        self._last = event
        if text == delta.text and not self._came and not self._text.holds:
            return [event]
        self._came.append(delta.text)
        self._logprobs += event.logprobs or ()
        self._token_ids += event.token_ids or ()
        return self._given(text)

    def rest(self) -> list[StreamEvent]:
        text = self._text.flush()
        return self._given(text) if text or self._came else []

    def _given(self, text: str) -> list[StreamEvent]:
        self._gave.append(text)
        logprobs: tuple[TokenLogProbs, ...] = ()
        token_ids: tuple[int, ...] = ()
        if not self._text.holds:
            if "".join(self._came) == "".join(self._gave):
                logprobs, token_ids = self._logprobs, self._token_ids
            else:
                self.has_changed = True
            self._came, self._gave = [], []
            self._logprobs, self._token_ids = (), ()
        delta = self._last.delta
        assert isinstance(delta, _Words)
        changes: dict[str, object] = {"text": text}
        is_sealed = isinstance(delta, ReasoningDelta) and delta.signature
        if is_sealed and self.has_changed:
            changes |= {"signature": None, "sealed_by": ""}  # it seals what was there
        if not (text or logprobs or is_sealed):
            return []
        return [
            structs.replace(
                self._last,
                delta=structs.replace(delta, **changes),
                logprobs=logprobs or None,
                token_ids=token_ids or None,
            )
        ]


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
