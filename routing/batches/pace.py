"""How many lines of a batch are on their way at a time: as many as its targets take."""

from __future__ import annotations

FIRST_WIDTH = 8
"""So many lines are asked of vendors at first; who has room shows that by answering."""

FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 60.0
"""After a refusal nothing is asked for so long, at first and at most, where nobody says for how
long."""


class Pace:
    """The width of one batch in one process: it doubles with each round until somebody refuses a
    line for now, halves then, and grows by one a round from there (as TCP's does, RFC 5681).

    Args:
        most: what the template allows.
        at_once: whether to begin with that, as engines in this process want.

    Attributes:
        paused_until: nothing is asked before, on the clock that `refused` is told.
    """

    def __init__(self, most: int, *, at_once: bool) -> None:
        self._most = most
        self._width = float(most if at_once else min(FIRST_WIDTH, most))
        self._knows = False
        self._pause = FIRST_PAUSE_SECONDS
        self.paused_until = 0.0

    def room(self, share: int) -> int:
        """How many may be on their way.

        Args:
            share: of what the process may ask at a time.
        """
        return max(1, min(int(self._width), share))

    def answered(self) -> None:
        """A line was answered."""
        self._pause = FIRST_PAUSE_SECONDS
        self._width = min(self._most, self._width + (1 / self._width if self._knows else 1))

    def refused(self, now: float, retry_after: float | None) -> None:
        """A line was refused for now.

        Args:
            now: the time, in seconds.
            retry_after: in how many seconds to come back; None where nobody said.
        """
        if now >= self.paused_until:  # those that were refused together count once
            self._knows = True
            self._width = max(1.0, self._width / 2)
            self._pause = min(LONGEST_PAUSE_SECONDS, self._pause * 2)
        wait = self._pause / 2 if retry_after is None else retry_after
        self.paused_until = max(self.paused_until, now + wait)
