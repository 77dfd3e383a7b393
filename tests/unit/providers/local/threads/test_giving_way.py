"""Long work beside steps: at full speed where there are none, else one piece at a time."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from providers.local.threads import giving_way
from providers.local.threads.giving_way import computed_lately, piece, step


class Clock:
    """What the module reads and sleeps by."""

    def __init__(self) -> None:
        self.now = 100.0
        self.cpu = 0.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def thread_time(self) -> float:
        return self.cpu

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(giving_way, "time", clock)
    monkeypatch.setattr(giving_way, "_steps", giving_way._Steps())
    return clock


def test_an_engine_computes_during_its_steps_and_a_moment_longer(clock: Clock) -> None:
    assert not computed_lately()
    with step():
        clock.now += 1000
        assert computed_lately()
        with step():  # another engine's
            pass
        clock.now += 1
        assert computed_lately()
    clock.now += 0.05
    assert computed_lately()
    clock.now += 0.06
    assert not computed_lately()


def test_a_step_that_fails_is_over_too(clock: Clock) -> None:
    with pytest.raises(ValueError, match="of a step"), step():
        raise ValueError("of a step")
    clock.now += 1
    assert not computed_lately()


def test_a_piece_rests_as_long_as_it_took_of_a_core(clock: Clock) -> None:
    with step(), piece():
        clock.now += 5  # it waited for a disk
        clock.cpu += 0.004
    assert clock.slept == [pytest.approx(0.004)]


def test_where_nothing_computes_it_does_not_rest(clock: Clock) -> None:
    with piece():
        clock.cpu += 0.004
    assert clock.slept == []


def test_a_piece_that_fails_lets_others_go_on(clock: Clock) -> None:
    with step():
        for _ in range(2):
            with pytest.raises(OSError, match="unreadable"), piece():
                raise OSError("unreadable")


def test_one_piece_at_a_time_beside_an_engine() -> None:
    entered, leave = threading.Event(), threading.Event()
    order: list[str] = []

    def first() -> None:
        with piece():
            entered.set()
            leave.wait(30)
            order.append("first")

    def second() -> None:
        with piece():
            order.append("second")

    with step(), ThreadPoolExecutor(2) as pool:
        pool.submit(first)
        assert entered.wait(30)
        after = pool.submit(second)
        time.sleep(0.05)
        assert not after.done()
        leave.set()
        after.result(30)
    assert order == ["first", "second"]


def test_all_at_once_where_none_computes(clock: Clock) -> None:
    together = threading.Barrier(2)

    def work() -> None:
        with piece():
            together.wait(30)

    with ThreadPoolExecutor(2) as pool:
        for each in [pool.submit(work) for _ in range(2)]:
            each.result()
