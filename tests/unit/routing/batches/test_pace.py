"""As many lines at a time as targets take."""

from __future__ import annotations

from routing.batches.pace import FIRST_WIDTH, Pace


def test_it_doubles_until_somebody_refuses_and_creeps_from_there() -> None:
    pace = Pace(100, at_once=False)
    assert pace.room(1000) == FIRST_WIDTH
    for _ in range(FIRST_WIDTH):
        pace.answered()
    assert pace.room(1000) == 2 * FIRST_WIDTH
    for _ in range(10):  # together, they are one refusal
        pace.refused(1.0, None)
    assert pace.room(1000) == FIRST_WIDTH
    for _ in range(FIRST_WIDTH):
        pace.answered()
    assert pace.room(1000) == FIRST_WIDTH
    pace.answered()
    pace.answered()
    assert pace.room(1000) == FIRST_WIDTH + 1


def test_it_never_asks_more_than_it_may_nor_less_than_one() -> None:
    pace = Pace(4, at_once=True)
    assert [pace.room(share) for share in (1, 3, 9)] == [1, 3, 4]
    for _ in range(9):
        pace.answered()
    assert pace.room(9) == 4
    for now in range(0, 1000, 100):
        pace.refused(now, None)
    assert pace.room(9) == 1


def test_it_waits_for_as_long_as_it_is_told_or_longer_each_time() -> None:
    pace = Pace(8, at_once=True)
    pace.refused(0.0, 7.5)
    assert pace.paused_until == 7.5
    pauses = []
    now = 10.0
    for _ in range(9):
        pace.refused(now, None)
        pauses.append(pace.paused_until - now)
        now = pace.paused_until
    assert pauses == sorted(pauses)
    assert pauses[-1] == 30.0
    pace.answered()
    pace.refused(now, None)
    assert pace.paused_until - now == 1.0
