"""What was tried to answer a request, kept beside its record where it was more than one target."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from llama_compat.hosted.parts import ReplyPart
from llama_compat.text.one_line import one_line
from routing.policy.attempts import Attempt, Outcome

MOST_STEPS = 32
MAX_ERROR = 200


class TrailStep(Struct, frozen=True, omit_defaults=True):
    """One attempt, or a part of the reply in which the server ran tools.

    Attributes:
        target: where it went; of a part the tool that was called, and empty for a turn.
        why: `first`, `retry`, `fallback` or `hedge`; of a part `turn` or `tool`.
        outcome: what became of it.
        begun, ended: seconds after the request came.
        content: when its first content was there, likewise; None where there was none.
        error: the class of what went wrong; empty where nothing did.
        message: what was said of that; of parts nothing.
        tool: what kind of tool it is, such as `web_search` or `mcp`.
        input_tokens, output_tokens: of a turn.
    """

    target: str
    why: str
    outcome: str
    begun: float
    ended: float
    content: float | None = None
    error: str = ""
    message: str = ""
    tool: str = ""
    input_tokens: int | None = None
    output_tokens: int | None = None


def trail_of(
    attempts: Sequence[Attempt], parts: Sequence[ReplyPart], begun: float, ended: float
) -> str:
    """The steps as JSON, the first of them that are `MOST_STEPS`; empty where a single attempt is
    all that there was, of which the record says the same.

    Args:
        attempts: in the order in which they began.
        parts: of the reply, likewise.
        begun, ended: of the request, on the clock of `time.monotonic`.
    """
    if len(attempts) < 2 and not parts:
        return ""
    steps = [_step(each, begun, ended) for each in attempts[:MOST_STEPS]]
    steps += [_step_of_part(each, begun, ended) for each in parts[: MOST_STEPS - len(steps)]]
    return msgspec.json.encode(steps).decode()


def steps_of(trail: str) -> list[TrailStep]:
    """What `trail_of` kept; nothing of what can't be read."""
    try:
        return msgspec.json.decode(trail, type=list[TrailStep]) if trail else []
    except msgspec.DecodeError:
        return []


def parts_of(trail: str) -> list[TrailStep]:
    """Of what `trail_of` kept the turns and the tools that were run."""
    return [step for step in steps_of(trail) if step.why in ("turn", "tool")]


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


def outcome_of(part: ReplyPart) -> Outcome:
    """What became of a part."""
    if not part.ended:
        return Outcome.cancelled
    return Outcome.failed if part.error else Outcome.answered


def _step_of_part(part: ReplyPart, begun: float, ended: float) -> TrailStep:
    usage = part.usage
    return TrailStep(
        target=one_line(part.name, MAX_ERROR),
        why=part.kind,
        outcome=outcome_of(part).value,
        begun=_after(begun, part.begun),
        ended=_after(begun, part.ended or ended),
        error=part.error,
        tool=part.tool,
        input_tokens=None if usage is None else usage.prompt_tokens,
        output_tokens=None if usage is None else usage.completion_tokens,
    )


def _after(begun: float, moment: float) -> float:
    return round(max(0.0, moment - begun), 4)
