"""What was tried to answer a request, kept beside its record where it was more than one target."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from llama_compat.text.one_line import one_line
from routing.policy.attempts import Attempt

MOST_STEPS = 32
MAX_ERROR = 200


class TrailStep(Struct, frozen=True, omit_defaults=True):
    """One attempt.

    Attributes:
        target: where it went.
        why: `first`, `retry`, `fallback` or `hedge`.
        outcome: what became of it.
        begun, ended: seconds after the request came.
        content: when its first content was there, likewise; None where there was none.
        error: the class of what went wrong; empty where nothing did.
        message: what was said of that.
    """

    target: str
    why: str
    outcome: str
    begun: float
    ended: float
    content: float | None = None
    error: str = ""
    message: str = ""


def trail_of(attempts: Sequence[Attempt], begun: float, ended: float) -> str:
    """The steps as JSON, the first of them that are `MOST_STEPS`.

    Args:
        attempts: in the order in which they began.
        begun, ended: of the request, on the clock of `time.monotonic`.
    """
    return msgspec.json.encode(
        [_step(each, begun, ended) for each in attempts[:MOST_STEPS]]
    ).decode()


def steps_of(trail: str) -> list[TrailStep]:
    """What `trail_of` kept; nothing of what can't be read."""
    try:
        return msgspec.json.decode(trail, type=list[TrailStep]) if trail else []
    except msgspec.DecodeError:
        return []


def _step(each: Attempt, begun: float, ended: float) -> TrailStep:
    return TrailStep(
        target=each.target.id,
        why=each.why.value,
        outcome=each.outcome.value,
        begun=_after(begun, each.begun),
        ended=_after(begun, each.ended or ended),
        content=_after(begun, each.content) if each.content else None,
        error="" if each.error_class is None else each.error_class.value,
        message=one_line(each.error, MAX_ERROR),
    )


def _after(begun: float, moment: float) -> float:
    return round(max(0.0, moment - begun), 4)
