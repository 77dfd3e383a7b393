"""Steps of what can wait are short while people are about, and as long as may be otherwise."""

from __future__ import annotations

from providers.local.torch_engine.scheduling.courtesy import (
    LEAST_TOKENS,
    PEOPLE_SECONDS,
    SHARE,
    Courtesy,
    StepKind,
)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def steps(courtesy: Courtesy, clock: Clock, seconds_a_token: float, count: int = 50) -> int:
    """Steps of what can wait; what the last was allowed."""
    for _ in range(count):
        tokens = courtesy.tokens(people=True)
        courtesy.begins(StepKind.patient, tokens)
        clock.now += 0.001 + tokens * seconds_a_token
    return courtesy.tokens(people=True)


def prompted(courtesy: Courtesy, clock: Clock, seconds: float) -> None:
    courtesy.tokens(people=True)
    courtesy.begins(StepKind.prompt, 0)
    clock.now += seconds


def test_where_nobody_asks_there_is_no_bound() -> None:
    assert Courtesy(512, Clock()).tokens(people=False) == 512


def test_a_step_takes_a_share_of_a_prompt_s_time() -> None:
    clock = Clock()
    courtesy = Courtesy(512, clock)
    for seconds_a_token in (0.001, 0.0001, 0.002):
        prompted(courtesy, clock, 0.1)
        tokens = steps(courtesy, clock, seconds_a_token)
        assert 0.6 * SHARE * 0.1 <= 0.001 + tokens * seconds_a_token <= 1.2 * SHARE * 0.1


def test_there_is_always_something() -> None:
    clock = Clock()
    courtesy = Courtesy(512, clock)
    prompted(courtesy, clock, 0.01)
    assert steps(courtesy, clock, 1.0) == LEAST_TOKENS


def test_once_people_are_gone_there_is_no_bound() -> None:
    clock = Clock()
    courtesy = Courtesy(512, clock)
    prompted(courtesy, clock, 0.1)
    assert courtesy.tokens(people=False) < 512
    clock.now += PEOPLE_SECONDS
    assert courtesy.tokens(people=False) == 512
