"""A stream's events put together again: the one way in which a whole reply is made."""

from __future__ import annotations

from collections.abc import Sequence

from llama_compat.types import (
    AnyToolCall,
    ChatCompletionResponse,
    CompletionMessage,
    CompletionResponse,
    ReasoningDelta,
    RefusalDelta,
    StopReason,
    StreamComplete,
    StreamEvent,
    StreamProgress,
    StreamStart,
    TextDelta,
    TokenLogProbs,
    Usage,
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
