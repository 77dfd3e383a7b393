"""In what pieces a long prompt comes in while others' replies are generated.

A step computes the next token of each reply and, beside them, a part of a prompt: all of them wait
for it. A prompt that fits into a step holds them up once. A longer one would do so in each of many
steps, so it comes in pieces so small that a step takes not much longer than one without; how long
both take is measured. (Sarathi-Serve calls that stall-free batching, with pieces of a fixed size:
https://arxiv.org/abs/2403.02310.)
"""

from __future__ import annotations

import time
from collections.abc import Callable

FIRST_TOKENS = 8
"""Of a piece, as long as nothing is known."""

LEAST_TOKENS = 2
"""So many there are at least: the prompt comes in, however slow it is."""

MULTIPLE = 2
"""Tokens that pieces grow by, so that steps are alike."""

MARGIN = 0.8
"""Of what a piece may take, since steps vary."""

PIECES_IN_A_ROW = 16
"""After so many steps with a piece there is one without: what that takes grows with the replies."""

RECENT = 0.2
"""What the last step counts for beside all before it."""


class PromptPieces:
    """Says how many tokens of long prompts the next step may have.

    Args:
        most: what a step has at most.
        slowdown: how many times as long a step may take with a piece as without, about.
        clock: seconds, of no certain beginning.
    """

    def __init__(
        self, most: int, slowdown: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._most = most
        self._slowdown = slowdown
        self._clock = clock
        self._usual: dict[int, float] = {}
        self._token_seconds: float | None = None
        self._began = 0.0
        self._replies = 0
        self._tokens = 0
        self._in_a_row = 0

    def tokens(self, replies: int) -> int:
        """What the next step may have, which is nothing now and then; the step before it is over.

        Args:
            replies: how many tokens of replies it computes.
        """
        if not replies:
            return self._most
        if self._in_a_row >= PIECES_IN_A_ROW:
            self._in_a_row = 0
            return 0
        usual = self._usual_seconds(replies)
        if usual is None or self._token_seconds is None:
            return min(self._most, FIRST_TOKENS)
        fits = MARGIN * (self._slowdown - 1) * usual / max(self._token_seconds, 1e-9)
        tokens = int(min(fits, self._most))
        return min(self._most, max(LEAST_TOKENS, tokens - tokens % MULTIPLE))

    def begins(self, replies: int, tokens: int) -> None:
        """The next step computes so many tokens of replies and of long prompts, and nothing else.
        Of a step that computes anything else, or no replies, none is told: 0."""
        self._replies, self._tokens = replies, tokens
        self._in_a_row = self._in_a_row + 1 if replies and tokens else 0
        self._began = self._clock()

    def over(self) -> None:
        """The step is over, and the one after it begins at once."""
        seconds, replies = self._clock() - self._began, self._replies
        self._replies = 0
        if not replies:
            return
        if not self._tokens:
            self._usual[replies] = _recent(self._usual.get(replies), seconds)
            return
        usual = self._usual_seconds(replies)
        if usual is not None:
            more = max(seconds - usual, 0.0) / self._tokens
            self._token_seconds = _recent(self._token_seconds, more)

    def _usual_seconds(self, replies: int) -> float | None:
        """What a step with so many replies takes without a prompt: one with about as many."""
        if not self._usual:
            return None
        return self._usual[min(self._usual, key=lambda each: abs(each - replies))]


def _recent(before: float | None, now: float) -> float:
    return now if before is None else before + RECENT * (now - before)
