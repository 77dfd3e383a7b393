"""The attempts that one request takes, each at one target; for its headers, its log line and its
record."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

from llama_compat.error_classes import ErrorClass
from llama_compat.events import add_usage
from llama_compat.types import Usage
from routing.asgi import RawHeaders
from routing.policy.cooldown import CooldownRule
from routing.policy.targets import TargetState, header_text

if TYPE_CHECKING:
    from llama_compat.errors import APIError
    from llama_compat.exchange import Reply


class Why(StrEnum):
    """Why an attempt is made."""

    first = "first"
    retry = "retry"
    """The same target once more."""
    fallback = "fallback"
    """Another target, as one failed."""
    hedge = "hedge"
    """Another target beside one that takes its time."""


class Outcome(StrEnum):
    """What became of an attempt."""

    running = "running"
    answered = "answered"
    failed = "failed"
    skipped = "skipped"
    """Nothing was sent: the target can't do what the request asks for, or a limit refused it."""
    lost = "lost"
    """Another attempt answered sooner."""
    cancelled = "cancelled"
    """The client went away, or the server stopped."""


FIRST = Why.first
_RUNNING, _ANSWERED = Outcome.running, Outcome.answered
_SKIPPED, _LOST = Outcome.skipped, Outcome.lost
# What every request needs of the two is looked up once: that takes as long as three calls.

Clock = Callable[[], float]


class Attempt:
    """One attempt, begun as it is made. Whatever ends it ends it once.

    It counts as in flight until then, leaves the provider's gate, which was entered before, and
    gives the probe back, if it was that, whatever the outcome.

    Attributes:
        target: where it went: `target.id`, `target.provider.id`, `target.model`.
        why: first, retry, fallback or hedge.
        outcome: what became of it.
        error_class: what went wrong; None if nothing did.
        error: what was said of it.
        parameter: the request's field that it was about.
        begun, content, ended: when, on the clock of `time.monotonic`; 0 for what has not happened.
            `content` is a stream's first content or a whole reply.
        loading: as in the reply.
    """

    __slots__ = (
        "_clock",
        "_probe",
        "_read_usage",
        "_rule",
        "_usage",
        "begun",
        "content",
        "ended",
        "error",
        "error_class",
        "loading",
        "outcome",
        "parameter",
        "stream",
        "target",
        "why",
    )

    def __init__(
        self,
        target: TargetState,
        why: Why = FIRST,
        stream: bool = False,
        rule: CooldownRule | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        self.target = target
        self.why = why
        self.stream = stream
        self._rule = rule
        self._clock = clock
        self.outcome = _RUNNING
        self.error_class: ErrorClass | None = None
        self.error = ""
        self.parameter = ""
        self.content = 0.0
        self.ended = 0.0
        self.loading = 0.0
        self._usage: Usage | None = None
        self._read_usage: Callable[[], Usage | None] | None = None
        self.begun = now = clock()
        cooldown = target.cooldown
        self._probe = cooldown.begin(now, rule) if rule is not None and cooldown.until else None
        target.in_flight += 1
        target.attempts += 1

    def has_content(self) -> None:
        """Its first content is there: it is what the client gets."""
        target = self.target
        self.content = now = self._clock()
        (target.streams if self.stream else target.wholes).add(now - self.begun, now)
        if self._probe is not None:
            target.cooldown.answers(self._probe)

    def finish(self, reply: Reply) -> None:
        """Its reply is closed: read to the end, broken off, or left by the client."""
        if self.ended:
            return
        self._read_usage, self.loading = reply.read_usage, reply.loading
        if reply.error is not None:
            self.fail(reply.error)
        elif reply.is_complete:
            self._end(_ANSWERED)
            self.target.failures_in_a_row = 0
            self.target.cooldown.went_well(self.begun)
        else:
            self._end(Outcome.cancelled)

    def fail(self, error: APIError) -> None:
        """It failed, before its content or after."""
        if self.ended:
            return
        kind = error.error_class
        self.error_class, self.error = kind, error.message
        self.parameter = error.param or error.code or ""
        if not error.was_sent:
            self._end(Outcome.skipped)
            self.target.attempts -= 1
            return
        if error.blames_target:
            self._blame(kind, error)
        self._end(Outcome.failed)

    def lose(self, reply: Reply) -> None:
        """It answered too, but later than another; what it cost is known all the same."""
        if not self.ended:
            self._read_usage = reply.read_usage
            self._end(Outcome.lost)

    def cancel(self, *, lost: bool = False) -> None:
        """It was given up: another was sooner (`lost`), or nobody waits any more."""
        if not self.ended:
            self._end(Outcome.lost if lost else Outcome.cancelled)

    @property
    def usage(self) -> Usage | None:
        """What was counted, once it has ended; None if nobody counted. Read when it is wanted."""
        if self._read_usage is not None:
            self._usage, self._read_usage = self._read_usage(), None
        return self._usage

    @property
    def skipped_for(self) -> str:
        """The target and why it could not be asked; empty if it was."""
        return f"{self.target.id} ({self.parameter})" if self.outcome is _SKIPPED else ""

    def __str__(self) -> str:
        what = self.error_class or (self.outcome if self.outcome is not _ANSWERED else "")
        return f"{self.target.id} ({what})" if what else self.target.id

    def _blame(self, kind: ErrorClass, error: APIError) -> None:
        target = self.target
        target.errors += 1
        target.failures_in_a_row += 1
        target.last_error = kind
        if self._rule is not None:
            handling = kind.handling
            target.cooldown.failed(
                self._clock(),
                self._rule,
                at_once=handling.cools_at_once,
                retry_after=error.heeded_wait,
                probe=self._probe,
            )

    def _end(self, outcome: Outcome) -> None:
        self.outcome = outcome
        self.ended = self._clock()
        self.target.in_flight -= 1
        gate = self.target.provider.gate
        if gate is not None:
            gate.leave()
        if self._probe is not None:
            self.target.cooldown.end(self._probe)


_ATTEMPTS = b"x-llama-compat-attempts"
_ONE_ATTEMPT = (_ATTEMPTS, b"1")


class Attempts:
    """All the attempts of one request, in the order in which they were begun.

    Args:
        headers: the request's, as ASGI has them.

    Attributes:
        made: the attempts.
        passed_over: targets that were not asked, and why: `provider/model (why)`.
    """

    __slots__ = ("headers", "made", "passed_over")

    def __init__(self, headers: RawHeaders = ()) -> None:
        self.headers = headers
        self.made: list[Attempt] = []
        self.passed_over: Sequence[str] = ()

    def add(self, attempt: Attempt) -> None:
        """One is begun."""
        self.made.append(attempt)

    @property
    def sent(self) -> int:
        """How many were sent anywhere."""
        return len([each for each in self.made if each.outcome is not _SKIPPED])

    @property
    def is_answered(self) -> bool:
        """Whether one of them has got content."""
        return any(each.content for each in self.made)

    @property
    def last(self) -> Attempt | None:
        """The one whose answer the client gets; of those that all failed the last."""
        made = self.made
        if len(made) > 1:
            for attempt in reversed(made):
                if attempt.content and attempt.outcome is not _LOST:
                    return attempt
        return made[-1] if made else None

    @property
    def usage(self) -> Usage | None:
        """What all of them cost together; None if nobody counted."""
        counted = [each.usage for each in self.made if each.usage is not None]
        if len(counted) <= 1:
            return counted[0] if counted else None
        return add_usage(counted, 1)

    def answer_headers(self) -> RawHeaders:
        """What the answer says of them: who answered, in how many attempts, and who could not."""
        last = self.last
        if last is None:
            return ()
        if len(self.made) == 1 and not self.passed_over and last.outcome is not _SKIPPED:
            return (*last.target.headers, _ONE_ATTEMPT)
        headers = [*last.target.headers, (_ATTEMPTS, b"%d" % self.sent)]
        skipped = [*self.passed_over, *(each.skipped_for for each in self.made if each.skipped_for)]
        if skipped:
            headers.append((b"x-llama-compat-skipped", header_text(", ".join(skipped)).encode()))
        return headers

    def in_words(self) -> str:
        """For the log: `a/x (timeout), b/y`."""
        return ", ".join(map(str, self.made))
