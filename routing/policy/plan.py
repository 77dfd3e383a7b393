"""The plan of one request: which target is asked first, and what follows a failure.

Three words, three meanings. A *retry* asks the same target again, after a while. A *fallback* asks
another one, at once. A *cooldown* keeps later requests away from a target that failed.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

from llama_compat.distribution.routing import RoutingSettings
from llama_compat.error_classes import ErrorClass
from llama_compat.errors import APIError, context_length_exceeded
from routing.policy.attempts import Why
from routing.policy.balance import BALANCERS, Random
from routing.policy.cooldown import CooldownRule
from routing.policy.gate import ProviderBusy
from routing.policy.retry import Backoff
from routing.policy.targets import LiveTarget
from routing.policy.wanted import Wanted, same_model


class Policy:
    """The policies of one public model, and what they remember from one request to the next.

    Args:
        settings: what the template says.
        chance: gives numbers from 0 up to 1.
    """

    def __init__(self, settings: RoutingSettings, chance: Random = random.random) -> None:
        self.settings = settings
        self.chance = chance
        self.balancer = BALANCERS[settings.balance](chance)
        self.fall_back_on = frozenset(ErrorClass(kind) for kind in settings.fall_back_on)
        cooldown, backoff = settings.cooldown, settings.retries.backoff
        self.rule = CooldownRule(cooldown.failures, cooldown.within, cooldown.seconds)
        self.backoff = Backoff(backoff.first, backoff.most)

    def mirrored(self) -> str | None:
        """The model that gets a copy of this request too; None for most."""
        mirror = self.settings.mirror
        if mirror is None or self.chance() >= mirror.sample:
            return None
        return mirror.model


class Step(NamedTuple):
    """One attempt that is due.

    Attributes:
        target: where it goes.
        why: first, retry, fallback or hedge.
        wait: so many seconds from now.
    """

    target: LiveTarget
    why: Why
    wait: float = 0.0


class Plan:
    """What one request does, step by step. It knows no clock: it is told the time.

    Args:
        policy: the model's.
        targets: the model's, in the order of the file.
        wanted: what the request wants.
        now: when it came.

    Attributes:
        passed_over: targets that can't be asked, and why.
    """

    def __init__(
        self, policy: Policy, targets: Sequence[LiveTarget], wanted: Wanted, now: float
    ) -> None:
        settings = policy.settings
        self._policy = policy
        self._wanted = wanted
        self._ends = None if settings.deadline is None else now + settings.deadline
        self._sent = 0
        self._tried: set[str] = set()
        self._retries: dict[str, int] = {}
        self._more_room_than = 0
        self._hedged = False
        self._errors: list[APIError] = []
        self.passed_over: list[str] = []
        self._targets = self._that_will_do(targets)

    def _that_will_do(self, targets: Sequence[LiveTarget]) -> Sequence[LiveTarget]:
        wanted = self._wanted
        if wanted.pinned is not None:
            return [each for each in targets if each.id == wanted.pinned]
        if not wanted.of_one_model:
            return targets
        first = min(targets, key=lambda each: each.priority)
        same = [each for each in targets if same_model(each.target.model, first.target.model)]
        self.passed_over += [
            f"{each.id} ({wanted.of_one_model})" for each in targets if each not in same
        ]
        return same

    # Steps ----------------------------------------------------------------------------------------

    def first(self, now: float) -> Step:
        """The first attempt.

        Raises:
            APIError: 400, no target has room for what is wanted.
        """
        target = self._choose(now)
        if target is None:
            room = max((each.room or 0 for each in self._targets), default=0)
            raise context_length_exceeded(room, 0, self._wanted.max_tokens or 0)
        return self._send(Step(target, Why.first), now)

    def after(self, step: Step, error: APIError, now: float) -> Step | None:
        """What follows the failure of `step`; None if the client is told of it.

        Args:
            step: the attempt that failed, before its first content.
            error: what it failed with.
            now: when.
        """
        self.failed(step, error)
        if self._is_over(now):
            return None
        other = self._choose(now) if self._falls_back(error) else None
        retry = None if _was_not_sent(error) else self._retry(step, error, now)
        if other is not None and (retry is None or self._is_as_good(other, step.target, now)):
            return self._send(Step(other, Why.fallback), now)
        return None if retry is None else self._send(retry, now)

    def failed(self, step: Step, error: APIError) -> None:
        """`step` failed; for one of two side by side, of which the other decides what follows."""
        self._errors.append(error)
        if _was_not_sent(error):
            self._sent -= 1
        if error.error_class is ErrorClass.context_length:
            self._more_room_than = max(self._more_room_than, step.target.room or 0)

    def is_final(self, error: APIError) -> bool:
        """Whether nothing can follow this failure, so that nobody else needs to be waited for."""
        return not self._falls_back(error) and not error.error_class.handling.retries

    def hedge(self, now: float) -> Step | None:
        """A second attempt beside one that takes its time; None if there is to be none."""
        if self._hedged or self._is_over(now):
            return None
        self._hedged = True
        other = self._choose(now)
        if other is None or not other.state.cooldown.admits(now):
            return None
        share = self._policy.settings.retries.budget
        if not _has_room(other) or not other.state.provider.budget.allows(now, share):
            return None
        return self._send(Step(other, Why.hedge), now)

    def told(self, error: APIError) -> APIError:
        """What the client is told when nothing follows: the last failure that says something of a
        target, rather than that one could not be asked."""
        told = [each for each in self._errors if not _was_not_sent(each)]
        return told[-1] if told else self._errors[0] if self._errors else error

    def patience(self, now: float) -> float | None:
        """How many seconds the attempt that begins now may take until its first content: its share
        of what is left until the deadline, so that a target that hangs leaves time for the others.
        None for as long as its provider lets it: nothing can be seen of a whole reply before its
        end, and one that takes long is not worth less."""
        if self._ends is None or not self._wanted.stream:
            return None
        left = max(self._ends - now, 0.0)
        if ErrorClass.timeout not in self._policy.fall_back_on:
            return left
        further = min(len(self._untried()), self._policy.settings.retries.attempts - self._sent)
        return left / (1 + max(further, 0))

    def until_deadline(self, now: float) -> float | None:
        """How many seconds are left to begin an attempt; None for any number."""
        return None if self._ends is None else max(self._ends - now, 0.0)

    # How they are chosen --------------------------------------------------------------------------

    def _send(self, step: Step, now: float) -> Step:
        self._sent += 1
        self._tried.add(step.target.id)
        budget = step.target.state.provider.budget
        if step.why is Why.retry:
            self._retries[step.target.id] = self._retries.get(step.target.id, 0) + 1
        if step.why in (Why.retry, Why.hedge):
            budget.retry(now)
        else:
            budget.request(now)
        return step

    def _falls_back(self, error: APIError) -> bool:
        return _was_not_sent(error) or error.error_class in self._policy.fall_back_on

    def _is_over(self, now: float) -> bool:
        late = self._ends is not None and now >= self._ends
        return late or self._sent >= self._policy.settings.retries.attempts

    def _untried(self) -> Sequence[LiveTarget]:
        if not self._tried and self._wanted.max_tokens is None:
            return self._targets  # so it is for most requests
        return [each for each in self._targets if each.id not in self._tried and self._fits(each)]

    def _fits(self, target: LiveTarget) -> bool:
        least = max(self._more_room_than + 1, self._wanted.max_tokens or 0)
        return least <= 1 or (room := target.room) is None or room >= least

    def _choose(self, now: float) -> LiveTarget | None:
        """One that has not been asked yet: of the first priority that has any, one with room before
        one where the request has to wait; if all cool, the one whose time ends first."""
        untried, wanted = self._untried(), self._wanted
        best: list[LiveTarget] = []
        for each in untried:
            if best and each.priority > best[0].priority:
                continue
            if each.state.cooldown.admits(now) and not _full(each):
                if best and each.priority < best[0].priority:
                    best = []
                best.append(each)
        if not best:
            return min(
                untried, key=lambda each: (_full(each), each.state.cooldown.until), default=None
            )
        free = [each for each in best if _has_room(each)]
        return self._policy.balancer.pick(free or best, now, key=wanted.key, stream=wanted.stream)

    def _is_as_good(self, other: LiveTarget, target: LiveTarget, now: float) -> bool:
        """Whether to go to `other` at once rather than to wait for `target` to recover."""
        if not other.state.cooldown.admits(now):
            return False
        return other.priority <= target.priority or not target.state.cooldown.admits(now)

    def _retry(self, step: Step, error: APIError, now: float) -> Step | None:
        """The same target once more, if that is of use and leaves an attempt to each other one."""
        settings, target = self._policy.settings.retries, step.target
        done = self._retries.get(target.id, 0)
        if not error.error_class.handling.retries or done >= settings.same_target:
            return None
        if settings.attempts - self._sent <= len(self._untried()):
            return None
        wait = max(self._policy.backoff.seconds(done, self._policy.chance), error.retry_after or 0)
        too_late = self._ends is not None and now + wait >= self._ends
        if wait > settings.backoff.most or too_late:
            return None
        if not target.state.provider.budget.allows(now, settings.budget):
            return None
        return Step(target, Why.retry, wait)


def _was_not_sent(error: APIError) -> bool:
    return error.error_class.handling.skips or isinstance(error, ProviderBusy)


def _has_room(target: LiveTarget) -> bool:
    gate = target.state.provider.gate
    return gate is None or gate.has_room


def _full(target: LiveTarget) -> bool:
    gate = target.state.provider.gate
    return gate is not None and gate.is_full
