"""A stream's events: made part by part, put together to a whole reply, and taken apart again."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import aclosing
from typing import TypeVar

from msgspec import structs

from llama_compat.hosted.vocabulary import Citation, CitationDelta, HostedCall, HostedCallDelta
from llama_compat.types import (
    AnyToolCall,
    ChatCompletionResponse,
    CompletionMessage,
    CompletionResponse,
    Delta,
    ImageContent,
    ImageDelta,
    MessagePart,
    ReasoningContent,
    ReasoningDelta,
    RefusalContent,
    RefusalDelta,
    StopReason,
    StreamComplete,
    StreamEvent,
    StreamProgress,
    StreamStart,
    TextContent,
    TextDelta,
    TokenLogProbs,
    ToolCall,
    ToolCallDelta,
    ToolCallParseStatus,
    Units,
    Usage,
)


class ReplyParts:
    """Makes the `StreamProgress` events of one reply, each with the number of its part.

    Text follows text, and reasoning reasoning, in one part until something else comes between them
    or `end_part` is called. Every image is a part of its own, and every call of a tool, whoever
    runs it, whenever its deltas come. A delta of no text, which only brings log probabilities,
    begins none.
    """

    def __init__(self) -> None:
        self._count = 0
        self._open: type[Delta] | None = None
        self._calls: dict[int, int] = {}
        self._hosted: dict[str, int] = {}

    def progress(
        self,
        delta: Delta,
        logprobs: tuple[TokenLogProbs, ...] | None = None,
        completion_tokens: int = 0,
        token_ids: tuple[int, ...] | None = None,
    ) -> StreamProgress:
        """The event of `delta`, whose part it continues or begins."""
        return StreamProgress(delta, logprobs, completion_tokens, self._number(delta), token_ids)

    def end_part(self) -> None:
        """What comes next begins another part, even if it is of the same kind."""
        self._open = None

    def _number(self, delta: Delta) -> int:
        kind = type(delta)
        if isinstance(delta, CitationDelta):
            return max(self._count - 1, 0)
        if kind is self._open:
            return self._count - 1
        if isinstance(delta, ToolCallDelta):
            number = self._calls.get(delta.index)
            if number is not None:
                return number
            self._open = None
            self._calls[delta.index] = self._count
        elif isinstance(delta, HostedCallDelta):
            number = self._hosted.get(delta.call.call_id)
            if number is not None:
                return number
            self._open = None
            self._hosted[delta.call.call_id] = self._count
        elif isinstance(delta, TextDelta) and not delta.text:
            return max(self._count - 1, 0)
        else:
            self._open = None if kind is ImageDelta else kind
        self._count += 1
        return self._count - 1


class Collector:
    """Takes the events of one choice; after `StreamComplete` the reply can be asked for.

    Of a tool call only its last event counts, which holds the whole call.
    """

    def __init__(self) -> None:
        self._parts: dict[tuple[int, type[Delta], int], list[Delta]] = {}
        self._citations: dict[int, list[Citation]] = {}
        self._logprobs: list[TokenLogProbs] | None = None
        self._prompt_token_ids: tuple[int, ...] | None = None
        self._token_ids: list[int] = []
        self._complete = StreamComplete(StopReason.end_of_turn)
        self.usage = Usage()

    def add(self, event: StreamEvent) -> None:
        """Take the next event."""
        if isinstance(event, StreamProgress):
            if event.logprobs is not None:
                if self._logprobs is None:
                    self._logprobs = []
                self._logprobs.extend(event.logprobs)
            self._token_ids += event.token_ids or ()
            delta = event.delta
            if isinstance(delta, CitationDelta):
                self._citations.setdefault(event.part, []).append(delta.citation)
            elif not isinstance(delta, ToolCallDelta):
                if not (isinstance(delta, TextDelta) and not delta.text):
                    self._parts.setdefault((event.part, type(delta), 0), []).append(delta)
            elif delta.tool_call is not None:
                self._parts[event.part, ToolCallDelta, delta.index] = [delta]
        elif isinstance(event, StreamComplete):
            self._complete = event
            self.usage = event.usage
        elif isinstance(event, StreamStart):
            self.usage = Usage(prompt_tokens=event.prompt_tokens)
            self._prompt_token_ids = event.token_ids

    def completion(self) -> CompletionResponse:
        """The events as the continuation of a prompt."""
        message = self._message()
        assert isinstance(message.content, str)
        return CompletionResponse(
            content=message.content,
            stop_reason=self._complete.stop_reason,
            logprobs=self._whole_logprobs(),
            usage=self.usage,
            stop_string=self._complete.stop_string,
            prompt_token_ids=self._prompt_token_ids,
            token_ids=self._whole_token_ids(),
        )

    def chat_completion(self) -> ChatCompletionResponse:
        """The events as the next message of a conversation."""
        return ChatCompletionResponse(
            completion_message=self._message(),
            logprobs=self._whole_logprobs(),
            usage=self.usage,
            prompt_token_ids=self._prompt_token_ids,
            token_ids=self._whole_token_ids(),
            service_tier=self._complete.service_tier,
        )

    def _message(self) -> CompletionMessage:
        return CompletionMessage(
            tuple(self._part(key) for key in sorted(self._parts, key=_number)),
            self._complete.stop_reason,
            self._complete.stop_string,
        )

    def _part(self, key: tuple[int, type[Delta], int]) -> MessagePart:
        part = _part(self._parts[key])
        if isinstance(part, TextContent) and key[0] in self._citations:
            return TextContent(part.text, tuple(self._citations[key[0]]))
        return part

    def _whole_logprobs(self) -> tuple[TokenLogProbs, ...] | None:
        return None if self._logprobs is None else tuple(self._logprobs)

    def _whole_token_ids(self) -> tuple[int, ...] | None:
        return None if self._prompt_token_ids is None else tuple(self._token_ids)


def collected(events: Iterable[StreamEvent]) -> Collector:
    """All events of one choice."""
    collector = Collector()
    for event in events:
        collector.add(event)
    return collector


def _number(key: tuple[int, type[Delta], int]) -> int:
    """A part's number; parts that were not told apart stay in the order in which they began."""
    return key[0]


def _part(deltas: Sequence[Delta]) -> MessagePart:
    """The part that `deltas`, all of one kind, add up to."""
    last = deltas[-1]
    if isinstance(last, ToolCallDelta):
        assert last.tool_call is not None
        return last.tool_call
    if isinstance(last, ImageDelta):
        return last.image
    if isinstance(last, HostedCallDelta):
        return last.call
    assert not isinstance(last, CitationDelta)
    text = "".join(
        delta.text
        for delta in deltas
        if isinstance(delta, TextDelta | RefusalDelta | ReasoningDelta)
    )
    if isinstance(last, TextDelta):
        return TextContent(text)
    if isinstance(last, RefusalDelta):
        return RefusalContent(text)
    return ReasoningContent(text, last.signature, last.sealed_by, last.redacted)


def says_something(event: StreamEvent) -> bool:
    """Whether the model says something with it, or has come to its end."""
    if not isinstance(event, StreamProgress):
        return isinstance(event, StreamComplete)
    delta = event.delta
    if isinstance(delta, ReasoningDelta):
        return bool(delta.text or delta.signature)
    if isinstance(delta, TextDelta | RefusalDelta):
        return bool(delta.text)
    return not isinstance(delta, CitationDelta)


def add_usage(
    usages: Sequence[Usage], choices_per_prompt: int, *, pays_each_choice: bool = False
) -> Usage:
    """The usage of a reply of several choices: every prompt counted once, every completion.

    Args:
        usages: the choices' own, in the order of the choices.
        choices_per_prompt: how many choices in a row share a prompt.
        pays_each_choice: the prompt was really read, and is paid for, once a choice.
    """
    prompts = usages if pays_each_choice else usages[::choices_per_prompt]
    return Usage(
        prompt_tokens=sum(usage.prompt_tokens for usage in prompts),
        completion_tokens=sum(usage.completion_tokens for usage in usages),
        cached_tokens=_sum_known(usage.cached_tokens for usage in prompts),
        reasoning_tokens=_sum_known(usage.reasoning_tokens for usage in usages),
        cache_write_tokens=_sum_known(usage.cache_write_tokens for usage in prompts),
        units=_sum_units([usage.units for usage in usages if usage.units is not None]),
        estimated=any(usage.estimated for usage in usages),
    )


def _sum_units(units: Sequence[Units]) -> Units | None:
    if len(units) <= 1:
        return units[0] if units else None
    return Units(*(_sum_known(counts) for counts in zip(*map(structs.astuple, units), strict=True)))


_Count = TypeVar("_Count", int, float)


def _sum_known(counts: Iterable[_Count | None]) -> _Count | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def with_told(
    events: AsyncGenerator[StreamEvent, None],
    *,
    dropped: Sequence[str] = (),
    adapted: Sequence[str] = (),
) -> AsyncGenerator[StreamEvent, None]:
    """`events`, of which the first says what of the request the vendor was not sent, and what it
    was told in another way, by name; besides what it says itself."""
    return _with_told(events, dropped, adapted) if dropped or adapted else events


async def _with_told(
    events: AsyncGenerator[StreamEvent, None], dropped: Sequence[str], adapted: Sequence[str]
) -> AsyncGenerator[StreamEvent, None]:
    async with aclosing(events) as stream:
        async for event in stream:
            if isinstance(event, StreamStart):
                event = structs.replace(
                    event,
                    dropped=tuple(dict.fromkeys((*event.dropped, *dropped))),
                    adapted=tuple(dict.fromkeys((*event.adapted, *adapted))),
                )
            yield event


def reply_events(response: ChatCompletionResponse) -> Iterator[StreamEvent]:
    """The events that a whole reply is put together from again; tool calls come whole."""
    message = response.completion_message
    parts = ReplyParts()
    logprobs = response.logprobs
    calls = 0
    yield StreamStart(response.usage.prompt_tokens, dropped=response.dropped)
    if logprobs is not None and not any(isinstance(part, TextContent) for part in message.parts):
        yield parts.progress(TextDelta(""), logprobs)
    for part in message.parts:
        match part:
            case TextContent(text, citations):
                yield parts.progress(TextDelta(text), logprobs)
                for citation in citations:
                    yield parts.progress(CitationDelta(citation))
                logprobs = None
            case ReasoningContent(text, signature, sealed_by, redacted):
                yield parts.progress(ReasoningDelta(text, signature, sealed_by, redacted))
            case RefusalContent(text):
                yield parts.progress(RefusalDelta(text))
            case ImageContent():
                yield parts.progress(ImageDelta(part))
            case HostedCall():
                yield parts.progress(HostedCallDelta(part))
            case _:
                yield parts.progress(_whole_call(calls, part))
                calls += 1
        parts.end_part()
    reason = message.stop_reason or StopReason.end_of_turn
    yield StreamComplete(reason, response.usage, message.stop_string, response.service_tier)


def _whole_call(index: int, call: AnyToolCall) -> ToolCallDelta:
    succeeded = isinstance(call, ToolCall)
    status = ToolCallParseStatus.succeeded if succeeded else ToolCallParseStatus.failed
    return ToolCallDelta(index, status, tool_call=call)
