"""Tool calls and reasoning in the replies of a model that writes nothing but text.

For engines in this process: `read_reply` makes the events of an engine's text into those of the
reply.

The log probabilities are those of every token that was generated, those of calls and reasoning
included. A stop string ends the reply wherever it stands, in a call too; only for a demanded call,
beside which there is no text, an engine should leave stop strings out.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from typing import Protocol

from msgspec import structs

from llama_compat.parts import ReplyParts
from llama_compat.tools.formats import TextParser
from llama_compat.types import (
    Delta,
    StopReason,
    StreamComplete,
    StreamEvent,
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
    held = _HeldLogprobs()
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
                held.push(event.logprobs)
                tokens = event.completion_tokens
                deltas = parser.push(event.delta.text)
            if single_call:
                deltas = _through_first_call(deltas)
            for delta in deltas:
                yield parts.progress(delta, held.pop(), tokens)
            if complete is None and single_call and deltas and _is_whole_call(deltas[-1]):
                complete = StreamComplete(StopReason.end_of_turn, Usage(prompt_tokens, tokens))
                break
    assert complete is not None
    left = held.pop()
    if left is not None:
        yield parts.progress(TextDelta(""), left, tokens)
    if parser.called and complete.stop_reason is StopReason.end_of_turn:
        complete = structs.replace(complete, stop_reason=StopReason.end_of_message)
    yield complete


class _HeldLogprobs:
    """The log probabilities of tokens of which nothing has been given yet."""

    def __init__(self) -> None:
        self._held: list[TokenLogProbs] | None = None

    def push(self, logprobs: Iterable[TokenLogProbs] | None) -> None:
        """Those of more tokens; None if none are wanted."""
        if logprobs is not None:
            self._held = self._held or []
            self._held.extend(logprobs)

    def pop(self) -> tuple[TokenLogProbs, ...] | None:
        """Those that go with what is given now."""
        held, self._held = self._held, None
        return None if held is None else tuple(held)


def _through_first_call(deltas: Sequence[Delta]) -> Sequence[Delta]:
    ends = (index + 1 for index, delta in enumerate(deltas) if _is_whole_call(delta))
    return deltas[: next(ends, len(deltas))]


def _is_whole_call(delta: Delta) -> bool:
    return isinstance(delta, ToolCallDelta) and delta.tool_call is not None
