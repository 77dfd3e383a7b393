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
"""Of a piece, as long as nothing is known, and of a small one."""

SMALL_SHARE = 0.25
"""Of what fits, what a small piece has where even `FIRST_TOKENS` take longer than a piece may, as
near the end of a prompt on a CPU."""

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
        self._is_small = False

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
        if usual is not None:
            fits = self._pieces.tokens(MARGIN * (self._slowdown - 1), usual)
        self._is_small, self._small_next = self._small_next or fits is None, False
        if fits is None:
            return self._rounded(FIRST_TOKENS)
        if self._is_small:
            return self._rounded(FIRST_TOKENS if fits >= FIRST_TOKENS else SMALL_SHARE * fits)
        return self._rounded(min(fits, MOST_GROWTH * self._largest))

    def _rounded(self, tokens: float) -> int:
        if tokens >= self._most:
            return self._most
        whole = int(tokens)
        return min(self._most, max(LEAST_TOKENS, whole - whole % MULTIPLE))

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
            self._pieces.learn(self._tokens, more, is_small=self._is_small)
            self._largest = max(self._largest, self._tokens)

    def _usual_seconds(self, replies: int) -> float | None:
        """What a step with so many replies takes without a prompt: one with about as many."""
        if not self._usual:
            return None
        return self._usual[min(self._usual, key=lambda each: abs(each - replies))]


class _Pieces:
    """What steps with a piece of a prompt take longer than others: something for each token, and
    something at least. On a GPU that is much, as such a step is launched kernel by kernel where
    others are one graph; on a CPU it is what reading the prompt's keys and values takes. Small
    pieces and others together tell the two."""

    def __init__(self) -> None:
        self._small: deque[tuple[float, int]] = deque(maxlen=SMALL_PIECES)
        self._others: tuple[float, float] | None = None

    def learn(self, tokens: int, seconds: float, *, is_small: bool) -> None:
        """A piece of so many tokens took so long."""
        if is_small:
            self._small.append((seconds, tokens))
        elif self._others is None:
            self._others = float(tokens), seconds
        else:
            other_tokens, other_seconds = self._others
            self._others = _recent(other_tokens, tokens), _recent(other_seconds, seconds)

    def tokens(self, share: float, usual: float) -> float | None:
        """How many take, with what any piece takes, `share` of `usual` seconds; or `share` of what
        any piece takes at least, if that is more. None where nothing is known."""
        if len(self._small) < LEAST_SMALL_PIECES:
            return None
        # Of few the soonest: what held up the others was something else.
        seconds, tokens = min(self._small)
        if self._others is None:
            fits = share * usual * tokens / max(seconds, 1e-9)
            # One that is larger tells whether it is the tokens that take so long.
            return max(fits, 2 * FIRST_TOKENS)
        other_tokens, other_seconds = self._others
        of_token, at_least = other_seconds / other_tokens, 0.0
        if other_tokens >= tokens + MULTIPLE:
            sloped = (other_seconds - seconds) / (other_tokens - tokens)
            if seconds > sloped * tokens:
                of_token, at_least = sloped, seconds - sloped * tokens
        return max(share * usual - at_least, share * at_least) / max(of_token, 1e-9)


def _recent(before: float | None, now: float) -> float:
    return now if before is None else before + RECENT * (now - before)
