"""How much of what can wait a step computes while people are about.

Somebody's prompt waits for the step that runs as it comes. So while somebody has asked not long
ago, a step of what can wait takes no longer than a share of what a prompt takes by itself: it has
fewer tokens, as far as that has shown to need. Where nobody asks there is no such bound.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import Enum

SHARE = 0.25
"""Of a prompt's time, what a step of what can wait may take. The prompt may wait for two of them:
one that runs, and one that was chosen ahead."""

PEOPLE_SECONDS = 10.0
"""Who asked so long ago may ask again."""

FIRST_TOKENS = 8
LEAST_TOKENS = 2
"""So many tokens such a step has at first, and at least."""


class StepKind(Enum):
    """What there is in a step."""

    prompt = "the prompt of somebody"
    patient = "something that can wait, and no prompt of anybody"
    other = "anything else, or nothing"


class Courtesy:
    """Says how many tokens of what can wait the next step may have.

    Args:
        most: what a step has at most.
        clock: seconds, of no certain beginning.
    """

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._clock = clock
        self._allowed = float(FIRST_TOKENS)
        self._prompt_seconds: float | None = None
        self._people_until = float("-inf")
        self._kind = StepKind.other
        self._tokens = 0
        self._began = 0.0

    def tokens(self, *, people: bool) -> int:
        """What the next step may have; the step before it is over.

        Args:
            people: whether there is anything that can't wait.
        """
        now = self._clock()
        self._learn(now - self._began)
        self._began, self._kind = now, StepKind.other
        if people:
            self._people_until = now + PEOPLE_SECONDS
        if now >= self._people_until:
            return self._most
        return max(LEAST_TOKENS, min(self._most, int(self._allowed)))

    def begins(self, kind: StepKind, tokens: int) -> None:
        """The step has so many tokens of this kind."""
        self._kind, self._tokens = kind, tokens

    def _learn(self, seconds: float) -> None:
        if self._kind is StepKind.prompt:
            before = self._prompt_seconds
            # Sooner by the short ones: who waits for those minds more.
            self._prompt_seconds = (
                seconds if before is None else min(seconds, 0.9 * before + 0.1 * seconds)
            )
        elif self._kind is StepKind.patient and self._prompt_seconds is not None:
            fits = self._tokens * SHARE * self._prompt_seconds / max(seconds, 1e-6)
            if fits < self._tokens:
                self._allowed = max(LEAST_TOKENS, fits)
            elif self._tokens >= int(self._allowed):
                self._allowed = min(
                    self._most, max(self._allowed + 1, 0.5 * (self._allowed + fits))
                )
