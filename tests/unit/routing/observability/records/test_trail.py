"""What was tried, kept beside a record."""

from __future__ import annotations

from llama_compat.errors import APIError
from routing.observability.records.trail import MAX_ERROR, MOST_STEPS, TrailStep, steps_of, trail_of
from routing.policy.attempts import Attempt, Why
from routing.policy.targets import States, TargetState


def target(name: str) -> TargetState:
    return States().provider(name).target("m")


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_each_attempt_with_its_moments() -> None:
    clock = Clock()
    clock.now = 100.5
    first = Attempt(target("a"), clock=clock)
    clock.now = 101.0
    first.fail(APIError(429, "Full.\nTry later."))
    second = Attempt(target("b"), Why.fallback, clock=clock)
    clock.now = 101.25
    second.has_content()
    trail = trail_of([first, second], 100.0, 102.0)
    assert steps_of(trail) == [
        TrailStep(
            first.target.id, "first", "failed", 0.5, 1.0, None, "rate_limit", "Full.\\nTry later."
        ),
        # It still runs: the request's end is its.
        TrailStep(second.target.id, "fallback", "running", 1.0, 2.0, 1.25),
    ]


def test_what_is_kept_is_bounded() -> None:
    clock = Clock()
    attempts = []
    for _ in range(MOST_STEPS + 5):
        attempts.append(Attempt(target("a"), clock=clock))
        attempts[-1].fail(APIError(503, "x" * 5000))
    steps = steps_of(trail_of(attempts, 100.0, 101.0))
    assert len(steps) == MOST_STEPS
    assert len(steps[0].message) <= MAX_ERROR


def test_what_cannot_be_read_is_nothing() -> None:
    assert steps_of("") == steps_of("{") == steps_of('{"a": 1}') == []
