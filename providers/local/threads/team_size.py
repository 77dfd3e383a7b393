"""How many threads compute a step on a CPU that others use too.

A step of a model is some hundred products, and behind each all threads wait for the last one. If a
busy process has one of the cores, that one is late every time, and a step takes three times as long
as with a thread less. Who else is running can't be asked, but what a step takes can be measured:
now and then a few steps are computed with fewer threads, or with more, and what is soonest stays.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Hashable, Sequence

STEPS = 3
"""How many steps are compared with as many; single ones vary by a fifth."""
KNOWN = 9
"""By so many of the last it is known what a step takes: of fewer several may be late by chance."""
SOONER = 0.93
"""What of the time fewer threads may take at most to be better; less is noise. More threads need
only not be worse, so that of what is the same the most remain."""
LATER = 1.3
"""From how much of what they took on steps are so late that somebody else may have come."""
PAUSES = 0.25, 8.0
"""Seconds of steps between two trials: after one that was won, and the most that they become,
doubled by each that was lost. A trial with too many threads costs some 100 ms beside a neighbour,
and one with too few 10 ms without; of a batch of 32 sequences it is 250 ms."""
SHARE = 0.03
"""Of the time, what trials may cost that were lost: however late steps are, there is none before
that. The steps of a server that works on much else at the same time are late now and then, and no
other number of threads makes them sooner."""


def sizes(most: int) -> list[int]:
    """The numbers of threads that are tried where there may be `most`, ascending."""
    return sorted({most, most - 1, most * 3 // 4, most // 2, most // 4, 1} - {0})


class TeamSize:
    """Finds how many threads compute steps the soonest.

    It knows no clock: a step's seconds are handed in, so that they may be made up.

    Args:
        sizes: how many threads there may be, ascending; begun with the last.
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        self._sizes = sizes
        self._at = len(sizes) - 1
        self._up = False
        self._pause = PAUSES[0]
        self._work: Hashable = None
        self._settled = _Settled()
        self._trial: _Trial | None = None
        self._rest = 0.0

    @property
    def threads(self) -> int:
        """How many compute the next step."""
        return self._sizes[self._at if self._trial is None else self._trial.at]

    def took(self, work: Hashable, seconds: float) -> None:
        """A step was computed with `threads`.

        Args:
            work: what it computed; only steps with the same are compared.
            seconds: what it took.
        """
        self._rest -= seconds
        if work != self._work:
            self._work, self._settled, self._trial = work, _Settled(), None
        elif self._trial is not None:
            self._judge(self._trial, seconds)
        elif self._settled.took(seconds, self._pause) and self._rest <= 0:
            self._begin()
        if self._settled.late:
            self._pause = PAUSES[0]

    def _begin(self) -> None:
        """Try the next size, up and down in turns, as far as there is one."""
        if len(self._sizes) == 1:
            return
        if self._at in (0, len(self._sizes) - 1):
            self._up = self._at == 0
        self._trial = _Trial(self._at + (1 if self._up else -1))

    def _judge(self, trial: _Trial, seconds: float) -> None:
        usual = self._settled.median
        if not trial.took(seconds, usual):
            return
        if statistics.median(trial.taken) < (usual if self._up else SOONER * usual):
            self._at = trial.at
            self._pause = PAUSES[0]
        else:
            self._up = not self._up
            self._pause = min(2 * self._pause, PAUSES[1])
            self._rest = trial.lost(usual) / SHARE
        self._settled, self._trial = _Settled(), None


class _Settled:
    """The steps since a size was found."""

    def __init__(self) -> None:
        self._last: deque[float] = deque(maxlen=KNOWN)
        self._least = float("inf")
        self._elapsed = 0.0

    @property
    def median(self) -> float:
        return statistics.median(self._last)

    @property
    def late(self) -> bool:
        return len(self._last) >= STEPS and self.median > LATER * self._least

    def took(self, seconds: float, pause: float) -> bool:
        """Whether it is time for a trial."""
        self._last.append(seconds)
        self._elapsed += seconds
        if len(self._last) < STEPS:
            return False
        self._least = min(self._least, self.median)
        return self._elapsed >= (PAUSES[0] if self.late else pause)


class _Trial:
    """The steps of another size."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.taken: list[float] = []
        self._first: float | None = None

    def took(self, seconds: float, usual: float) -> bool:
        """Whether it can be judged. The first step pays for the threads that begin or end."""
        if self._first is None:
            self._first = seconds
            return False
        self.taken.append(seconds)
        return len(self.taken) == STEPS or seconds > LATER * usual

    def lost(self, usual: float) -> float:
        """Seconds that it took beyond what its steps take usually."""
        return max(0.0, (self._first or 0.0) + sum(self.taken) - (len(self.taken) + 1) * usual)
