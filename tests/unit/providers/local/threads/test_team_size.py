"""How many threads compute a step, on a machine that is made up."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Hashable, Sequence

import pytest

from providers.local.threads.team_size import TeamSize, sizes

STEP = 0.03
"""Seconds of a step with one thread."""


def alone(threads: int) -> float:
    return float(STEP / threads**0.5)


def beside(threads: int, cores: int) -> float:
    """One core is somebody else's: whoever needs all of them waits for it."""
    return alone(threads) if threads < cores else 4 * alone(threads)


def run(
    team: TeamSize,
    seconds: float,
    takes: Callable[[int], float],
    works: Sequence[Hashable] = ("decode",),
    noise: float = 0.0,
) -> Counter[int]:
    """Steps of some seconds; how many seconds each number of threads computed."""
    drawn = random.Random(7)
    spent: Counter[int] = Counter()
    step = 0
    while sum(spent.values()) < seconds:
        threads = team.threads
        took = takes(threads) * (1 + drawn.uniform(0, noise))
        team.took(works[step % len(works)], took)
        spent[threads] += took  # type: ignore[assignment]
        step += 1
    return spent


@pytest.mark.parametrize("cores", [2, 4, 16])
@pytest.mark.parametrize("noise", [0.0, 0.2])
def test_a_machine_of_ones_own_is_used_whole(cores: int, noise: float) -> None:
    team = TeamSize(sizes(cores))
    assert run(team, 100, alone, noise=noise)[cores] > 97


@pytest.mark.parametrize("cores", [2, 4, 16])
def test_beside_somebody_a_thread_less_computes_within_a_second(cores: int) -> None:
    team = TeamSize(sizes(cores))
    run(team, 100, alone)
    run(team, 1, lambda threads: beside(threads, cores))
    spent = run(team, 100, lambda threads: beside(threads, cores))
    assert spent[cores - 1] > 96
    assert spent[cores] < 3


def test_steps_that_are_late_now_and_then_are_no_reason_to_try_all_the_time() -> None:
    """As those of a server that sends what it computed, and reads what comes, meanwhile."""
    drawn = random.Random(7)

    def takes(threads: int) -> float:
        held_up = threads == 2 and drawn.randrange(5) == 0
        return alone(threads) * (1.5 if held_up else 1)

    team = TeamSize(sizes(2))
    assert run(team, 200, takes, noise=0.2)[1] < 20


@pytest.mark.parametrize("cores", [2, 16])
def test_all_compute_again_when_nobody_is_there_any_more(cores: int) -> None:
    team = TeamSize(sizes(cores))
    run(team, 100, lambda threads: beside(threads, cores))
    run(team, 20, alone)
    assert run(team, 100, alone)[cores] > 97


def test_half_of_many_threads_may_be_best() -> None:
    team = TeamSize(sizes(16))
    takes = {16: 5.0, 15: 4.5, 12: 3.0, 8: 1.0, 4: 2.0, 1: 8.0}
    run(team, 300, lambda threads: takes[threads] / 100)
    assert run(team, 100, lambda threads: takes[threads] / 100)[8] > 90


def test_steps_that_differ_in_their_work_are_not_compared() -> None:
    team = TeamSize(sizes(2))
    assert set(run(team, 20, alone, works=("prompt", "decode"))) == {2}


def test_work_that_changes_within_a_trial_ends_it() -> None:
    team = TeamSize(sizes(2))
    while team.threads == 2:
        team.took("one", STEP)
    team.took("two", STEP / 100)
    assert team.threads == 2


def test_one_core_leaves_nothing_to_try() -> None:
    assert sizes(1) == [1]
    assert set(run(TeamSize(sizes(1)), 5, alone)) == {1}


def test_sizes_ascend_and_end_with_all() -> None:
    assert sizes(2) == [1, 2]
    assert sizes(16) == [1, 4, 8, 12, 15, 16]
