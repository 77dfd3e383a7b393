"""The parts of one reply, numbered in the order in which they begin."""

from __future__ import annotations

from llama_compat.types import (
    Delta,
    ImageDelta,
    StreamProgress,
    TextDelta,
    TokenLogProbs,
    ToolCallDelta,
)


class ReplyParts:
    """Makes the `StreamProgress` events of one reply, each with the number of its part.

    Text follows text, and reasoning reasoning, in one part until something else comes between them
    or `end_part` is called. Every image is a part of its own, and every tool call, whenever its
    deltas come. A delta of no text, which only brings log probabilities, begins none.
    """

    def __init__(self) -> None:
        self._count = 0
        self._open: type[Delta] | None = None
        self._calls: dict[int, int] = {}

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
        if kind is self._open:
            return self._count - 1
        if isinstance(delta, ToolCallDelta):
            number = self._calls.get(delta.index)
            if number is not None:
                return number
            self._open = None
            self._calls[delta.index] = self._count
        elif isinstance(delta, TextDelta) and not delta.text:
            return max(self._count - 1, 0)
        else:
            self._open = None if kind is ImageDelta else kind
        self._count += 1
        return self._count - 1
