"""The moving average of times to first content."""

from __future__ import annotations

import math

import pytest

from routing.policy.latency import DECAY_SECONDS, PeakAverage


def test_a_peak_counts_at_once_and_shorter_times_bring_it_down_slowly() -> None:
    average = PeakAverage()
    assert average.at(0) == 0
    average.add(1.0, 0)
    average.add(5.0, 0)
    assert average.at(0) == 5
    average.add(1.0, 1)
    kept = math.exp(-1 / DECAY_SECONDS)
    assert average.last == pytest.approx(5 * kept + 1 * (1 - kept))


def test_it_is_forgotten_when_nothing_comes() -> None:
    average = PeakAverage()
    average.add(4.0, 0)
    assert average.at(DECAY_SECONDS) == pytest.approx(4 / math.e)
    assert average.at(0) == average.at(-5) == 4
    assert average.last == 4
