"""Tool calls and reasoning in the replies of a model that writes nothing but text.

For engines in this process: `read_reply` makes the events of an engine's text into those of the
reply.

The log probabilities are those of every token that was generated, those of calls and reasoning
included. A stop string ends the reply wherever it stands, in a call too; only for a demanded call,
beside which there is no text, an engine should leave stop strings out.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Protocol

from msgspec import structs

from llama_compat.events import ReplyParts
from llama_compat.tools.formats import TextParser
from llama_compat.types import (
    Delta,
    StopReason,
    StreamComplete,
    StreamEvent,
    StreamProgress,
    StreamStart,
    TextDelta,
    TokenLogProbs,
    ToolCallDelta,
    Usage,
)


class CallingParser(TextParser, Protocol):
    """A parser that says whether a tool has been called."""

    @property
    def called(self) -> bool:
        """Whether a tool has been called."""


async def read_reply(
    source: AsyncGenerator[StreamEvent, None], parser: CallingParser, *, single_call: bool
) -> AsyncGenerator[StreamEvent, None]:
    """The events of a reply, from those of its text.

    Args:
        source: an engine's events; all deltas are text, and each says how many tokens have been
            generated with it. It is closed when the reply has ended, which may be before its end.
        parser: of this reply.
        single_call: the reply ends with its first call.
    """
    held = _Held()
    parts = ReplyParts()
    complete: StreamComplete | None = None
    prompt_tokens = tokens = 0
    async with aclosing(source) as events:
        async for event in events:
            if isinstance(event, StreamStart):
                prompt_tokens = event.prompt_tokens
                yield event
                continue
            if isinstance(event, StreamComplete):
                complete = event
                tokens = event.usage.completion_tokens
                deltas: Sequence[Delta] = parser.flush()
            else:
                assert isinstance(event.delta, TextDelta)
                held.push(event)
                tokens = event.completion_tokens
                deltas = parser.push(event.delta.text)
            if single_call:
                deltas = _through_first_call(deltas)
            for delta in deltas:
                logprobs, token_ids = held.pop()
                yield parts.progress(delta, logprobs, tokens, token_ids)
            if complete is None and single_call and deltas and _is_whole_call(deltas[-1]):
                complete = StreamComplete(StopReason.end_of_turn, Usage(prompt_tokens, tokens))
                break
    assert complete is not None
    logprobs, token_ids = held.pop()
    if logprobs is not None or token_ids is not None:
        yield parts.progress(TextDelta(""), logprobs, tokens, token_ids)
    yield structs.replace(complete, stop_reason=complete.stop_reason.with_calls(parser.called))


class _Held:
    """The log probabilities and the ids of tokens of which nothing has been given yet."""

    def __init__(self) -> None:
        self._logprobs: list[TokenLogProbs] | None = None
        self._token_ids: list[int] | None = None

    def push(self, event: StreamProgress) -> None:
        """Those of more tokens, where they are wanted."""
        if event.logprobs is not None:
            self._logprobs = self._logprobs or []
            self._logprobs += event.logprobs
        if event.token_ids is not None:
            self._token_ids = self._token_ids or []
            self._token_ids += event.token_ids

    def pop(self) -> tuple[tuple[TokenLogProbs, ...] | None, tuple[int, ...] | None]:
        """Those that go with what is given now."""
        logprobs, token_ids = self._logprobs, self._token_ids
        self._logprobs = self._token_ids = None
        return (
            None if logprobs is None else tuple(logprobs),
            None if token_ids is None else tuple(token_ids),
        )


def _through_first_call(deltas: Sequence[Delta]) -> Sequence[Delta]:
    ends = (index + 1 for index, delta in enumerate(deltas) if _is_whole_call(delta))
    return deltas[: next(ends, len(deltas))]


def _is_whole_call(delta: Delta) -> bool:
    return isinstance(delta, ToolCallDelta) and delta.tool_call is not None
