"""What was tried, kept beside a record."""

from __future__ import annotations

from llama_compat.errors import APIError
from llama_compat.hosted.parts import ReplyPart
from llama_compat.types import Usage
from routing.observability.records.trail import (
    MAX_ERROR,
    MOST_STEPS,
    TrailStep,
    parts_of,
    steps_of,
    trail_of,
)
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
    trail = trail_of([first, second], (), 100.0, 102.0)
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
    steps = steps_of(trail_of(attempts, (), 100.0, 101.0))
    assert len(steps) == MOST_STEPS
    assert len(steps[0].message) <= MAX_ERROR


def test_what_cannot_be_read_is_nothing() -> None:
    assert steps_of("") == steps_of("{") == steps_of('{"a": 1}') == []


def test_the_parts_of_a_reply_in_which_tools_were_run() -> None:
    clock = Clock()
    attempt = Attempt(target("a"), clock=clock)
    assert trail_of([attempt], (), 100.0, 103.0) == ""
    turn = ReplyPart("turn", begun=100.5, ended=101.0, usage=Usage(7, 3))
    good = ReplyPart("tool", "search", "web_search", begun=101.0, ended=101.5)
    bad = ReplyPart("tool", "fetch", "web_fetch", begun=101.0, ended=102.0, error="unavailable")
    broken_off = ReplyPart("turn", begun=102.0)
    trail = trail_of([attempt], [turn, good, bad, broken_off], 100.0, 103.0)
    assert len(steps_of(trail)) == 5
    assert parts_of(trail) == [
        TrailStep("", "turn", "answered", 0.5, 1.0, input_tokens=7, output_tokens=3),
        TrailStep("search", "tool", "answered", 1.0, 1.5, tool="web_search"),
        TrailStep("fetch", "tool", "failed", 1.0, 2.0, error="unavailable", tool="web_fetch"),
        TrailStep("", "turn", "cancelled", 2.0, 3.0),
    ]
