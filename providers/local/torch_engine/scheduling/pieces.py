"""In what pieces a long prompt comes in while others' replies are generated.

A step computes the next token of each reply and, beside them, a part of a prompt: all of them wait
for it. A prompt that fits into a step holds them up once. A longer one would do so in each of many
steps, so it comes in pieces so small that a step takes not much longer than one without; how long
both take is measured. (Sarathi-Serve calls that stall-free batching, with pieces of a fixed size:
https://arxiv.org/abs/2403.02310.)
"""

from __future__ import annotations

import time
from collections import deque
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
"""After so many steps with a piece there is one without, and one with a small one: what they take
grows with the replies."""

RECENT = 0.2
"""What the last step counts for beside all before it."""

SMALL_PIECES = 4
"""The last so many small ones tell what any piece takes."""

LEAST_SMALL_PIECES = 2
"""So many have to be known: one may have been held up by something else."""

MOST_GROWTH = 4
"""So many times as large as the largest so far a piece may be: what is known of small ones may say
little of it."""


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
        self._pieces = _Pieces()
        self._largest = FIRST_TOKENS
        self._began = 0.0
        self._replies = 0
        self._tokens = 0
        self._in_a_row = 0
        self._small_next = False

    def tokens(self, replies: int) -> int:
        """What the next step may have, which is nothing now and then, and little after that, so
        that it is known what both take; the step before it is over.

        Args:
            replies: how many tokens of replies it computes.
        """
        if not replies:
            return self._most
        if self._in_a_row >= PIECES_IN_A_ROW:
            self._in_a_row = 0
            self._small_next = True
            return 0
        usual, fits = self._usual_seconds(replies), None
        if usual is not None and not self._small_next:
            fits = self._pieces.tokens(MARGIN * (self._slowdown - 1), usual)
        self._small_next = False
        if fits is None:
            return min(self._most, FIRST_TOKENS)
        tokens = int(min(fits, MOST_GROWTH * self._largest, self._most))
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
            more = max(seconds - usual, 0.0)
            self._pieces.learn(self._tokens, more)
            self._largest = max(self._largest, self._tokens)

    def _usual_seconds(self, replies: int) -> float | None:
        """What a step with so many replies takes without a prompt: one with about as many."""
        if not self._usual:
            return None
        return self._usual[min(self._usual, key=lambda each: abs(each - replies))]


class _Pieces:
    """What steps with a piece of a prompt take longer than others: something for each token, and
    something at least. On a GPU that is much, as such a step is launched kernel by kernel where
    others are one graph. Small pieces and large ones together tell the two."""

    def __init__(self) -> None:
        self._small: deque[tuple[float, int]] = deque(maxlen=SMALL_PIECES)
        self._large: tuple[float, float] | None = None

    def learn(self, tokens: int, seconds: float) -> None:
        """A piece of so many tokens took so long."""
        if tokens <= FIRST_TOKENS:
            self._small.append((seconds, tokens))
        elif self._large is None:
            self._large = float(tokens), seconds
        else:
            more_tokens, more_seconds = self._large
            self._large = _recent(more_tokens, tokens), _recent(more_seconds, seconds)

    def tokens(self, share: float, usual: float) -> float | None:
        """How many take `share` of `usual` seconds, and of what any piece takes; None where nothing
        is known."""
        if len(self._small) < LEAST_SMALL_PIECES:
            return None
        # Of few the soonest: what held up the others was something else.
        seconds, tokens = min(self._small)
        if self._large is None:
            fits = share * usual * tokens / max(seconds, 1e-9)
            # One that is larger tells whether it is the tokens that take so long.
            return max(fits, 2 * FIRST_TOKENS)
        more_tokens, more_seconds = self._large
        of_token = (more_seconds - seconds) / (more_tokens - tokens)
        at_least = seconds - of_token * tokens
        if at_least <= 0:
            of_token, at_least = more_seconds / more_tokens, 0.0
        return share * (usual + at_least) / max(of_token, 1e-9)


def _recent(before: float | None, now: float) -> float:
    return now if before is None else before + RECENT * (now - before)
