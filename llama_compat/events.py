"""A stream's events put together to a whole reply, and taken apart again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from llama_compat.types import (
    AnyToolCall,
    ChatCompletionResponse,
    CompletionMessage,
    CompletionResponse,
    Delta,
    ReasoningDelta,
    RefusalDelta,
    StopReason,
    StreamComplete,
    StreamEvent,
    StreamProgress,
    StreamStart,
    TextDelta,
    TokenLogProbs,
    ToolCall,
    ToolCallDelta,
    ToolCallParseStatus,
    Usage,
    content_text,
)


class Collector:
    """Takes the events of one choice; after `StreamComplete` the reply can be asked for.

    Of a tool call only its last event counts, which holds the whole call.
    """

    def __init__(self) -> None:
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._refusal: list[str] = []
        self._logprobs: list[TokenLogProbs] | None = None
        self._calls: dict[int, AnyToolCall] = {}
        self._stop_reason = StopReason.end_of_turn
        self.usage = Usage()

    def add(self, event: StreamEvent) -> None:
        """Take the next event."""
        if isinstance(event, StreamProgress):
            if event.logprobs is not None:
                if self._logprobs is None:
                    self._logprobs = []
                self._logprobs.extend(event.logprobs)
            delta = event.delta
            if isinstance(delta, TextDelta):
                self._text.append(delta.text)
            elif isinstance(delta, ReasoningDelta):
                self._reasoning.append(delta.text)
            elif isinstance(delta, RefusalDelta):
                self._refusal.append(delta.text)
            elif delta.tool_call is not None:
                self._calls[delta.index] = delta.tool_call
        elif isinstance(event, StreamComplete):
            self._stop_reason = event.stop_reason
            self.usage = event.usage
        elif isinstance(event, StreamStart):
            self.usage = Usage(prompt_tokens=event.prompt_tokens)

    def completion(self) -> CompletionResponse:
        """The events as the continuation of a prompt."""
        return CompletionResponse(
            content="".join(self._text),
            stop_reason=self._stop_reason,
            logprobs=self._whole_logprobs(),
            usage=self.usage,
        )

    def chat_completion(self) -> ChatCompletionResponse:
        """The events as the next message of a conversation."""
        return ChatCompletionResponse(
            completion_message=CompletionMessage(
                content="".join(self._text),
                tool_calls=tuple(call for _, call in sorted(self._calls.items())),
                reasoning="".join(self._reasoning) if self._reasoning else None,
                refusal="".join(self._refusal) if self._refusal else None,
                stop_reason=self._stop_reason,
            ),
            logprobs=self._whole_logprobs(),
            usage=self.usage,
        )

    def _whole_logprobs(self) -> tuple[TokenLogProbs, ...] | None:
        return None if self._logprobs is None else tuple(self._logprobs)


def add_usage(usages: Sequence[Usage], choices_per_prompt: int) -> Usage:
    """The usage of a reply of several choices: every prompt counted once, every completion.

    `usages` are the choices' own, in the order of the choices.
    """
    prompts = usages[::choices_per_prompt]
    return Usage(
        prompt_tokens=sum(usage.prompt_tokens for usage in prompts),
        completion_tokens=sum(usage.completion_tokens for usage in usages),
        cached_tokens=_sum_known([usage.cached_tokens for usage in prompts]),
        reasoning_tokens=_sum_known([usage.reasoning_tokens for usage in usages]),
    )


def _sum_known(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def reply_events(response: ChatCompletionResponse) -> Iterator[StreamEvent]:
    """The events that a whole reply is put together from again; tool calls come whole."""
    message = response.completion_message
    deltas: list[Delta] = []
    if message.reasoning:
        deltas.append(ReasoningDelta(message.reasoning))
    text = content_text(message.content)
    if text or response.logprobs:
        deltas.append(TextDelta(text))
    if message.refusal:
        deltas.append(RefusalDelta(message.refusal))
    for index, call in enumerate(message.tool_calls):
        succeeded = isinstance(call, ToolCall)
        status = ToolCallParseStatus.succeeded if succeeded else ToolCallParseStatus.failed
        deltas.append(ToolCallDelta(index, status, tool_call=call))
    yield StreamStart(response.usage.prompt_tokens)
    for delta in deltas:
        logprobs = response.logprobs if isinstance(delta, TextDelta) else None
        yield StreamProgress(delta, logprobs)
    yield StreamComplete(message.stop_reason or StopReason.end_of_turn, response.usage)
