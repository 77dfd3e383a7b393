"""The plan of one request: which target is asked first, and what follows a failure.

Three words, three meanings. A *retry* asks the same target again, after a while. A *fallback* asks
another one, at once. A *cooldown* keeps later requests away from a target that failed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from llama_compat.distribution.routing import RoutingSettings
from llama_compat.error_classes import ErrorClass
from llama_compat.errors import (
    APIError,
    StaleConnection,
    context_length_exceeded,
    targets_drained,
)
from llama_compat.exchange import Call
from routing.asgi import RawHeaders
from routing.policy.attempts import FIRST, Why
from routing.policy.balance import BALANCERS, Balancer
from routing.policy.cooldown import CooldownRule
from routing.policy.group import Group, Random, Targets
from routing.policy.retry import Backoff, Budget
from routing.policy.targets import LiveTarget
from routing.policy.wanted import Key, Wanted, reader_of, sticky_key


class Policy:
    """The policies of one public model, and what they remember from one request to the next.

    Args:
        settings: what the template says.
        chance: gives numbers from 0 up to 1.

    Attributes:
        settings: as they are given; those that every request needs are here besides.
        key_of: what a request has in common with those that belong to it; None if that does not
            matter.
        deadline, hedge_after: in seconds; None for never.
        pin: whether a client may choose its target.
        attempts: how many there may be.
        balancer: picks a target.
        rule: when a target cools.
        hedges: how many there may be, of the requests for this model: whoever stands by for others
            has none of its own to have a share of.
    """

    def __init__(self, settings: RoutingSettings, chance: Random = random.random) -> None:
        self.settings = settings
        self.chance = chance
        self.deadline = settings.deadline
        self.hedge_after = settings.hedge_after
        self.hedges = Budget()
        self.pin = settings.pin
        self.attempts = settings.retries.attempts
        self._mirror = settings.mirror
        self.balancer, self.key_of = _balancer(settings, chance)
        self.fall_back_on = frozenset(ErrorClass(kind) for kind in settings.fall_back_on)
        cooldown, backoff = settings.cooldown, settings.retries.backoff
        self.rule = CooldownRule(cooldown.failures, cooldown.within, cooldown.seconds)
        self.backoff = Backoff(backoff.first, backoff.most)

    @property
    def mirrors(self) -> bool:
        """Whether another model gets some of its requests too."""
        return self._mirror is not None

    def mirrored(self) -> str | None:
        """The model that gets a copy of this request too; None for most."""
        mirror = self._mirror
        if mirror is None or self.chance() >= mirror.sample:
            return None
        return mirror.model


KeyOf = Callable[[Call, RawHeaders], Key | None]


def _balancer(settings: RoutingSettings, chance: Random) -> tuple[Balancer, KeyOf | None]:
    """What picks targets, and what it goes by."""
    if settings.balance == "prefix":
        from llama_compat.prefixes.chain import chain_of
        from routing.policy.prefix.affinity import PrefixAffinity

        return PrefixAffinity(chance, settings.prefix), lambda call, headers: chain_of(call)
    balancer = BALANCERS[settings.balance](chance)
    if settings.balance == "sticky":
        readers = tuple(map(reader_of, settings.sticky_on))
        return balancer, lambda call, headers: sticky_key(readers, call.fields, headers)
    return balancer, None


class Step(Struct, frozen=True):
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

    Most requests take one step: what only failures need is worked out when there is one.

    Args:
        policy: the model's.
        targets: the model's.
        wanted: what the request wants.
        now: when it came.

    Attributes:
        policy: the model's.
        passed_over: targets that can't be asked, and why.
    """

    passed_over: Sequence[str] = ()
    _steps: tuple[Step, ...] = ()
    _failures: tuple[tuple[Step, APIError], ...] = ()
    _hedged = False

    def __init__(self, policy: Policy, targets: Targets, wanted: Wanted, now: float) -> None:
        self.policy = policy
        self._wanted = wanted
        self._ends = None if policy.deadline is None else now + policy.deadline
        self._targets = targets
        if wanted.pinned is not None:
            self._targets = Targets(each for each in targets if each.id == wanted.pinned)
        elif wanted.of_one_model:
            self._targets = same = targets.of_one_model
            self.passed_over = [
                f"{each.id} ({wanted.of_one_model})" for each in targets if each not in same
            ]
        if wanted.unable and wanted.pinned is None:
            self._pass_over(wanted.unable)

    def _pass_over(self, unable: Mapping[str, str]) -> None:
        """Leave out the targets that can't do what is asked, if any is left."""
        able = [each for each in self._targets if each.id not in unable]
        if able and len(able) < len(self._targets):
            others = [each.id for each in self._targets if each.id in unable]
            self.passed_over = [*self.passed_over, *(f"{id} ({unable[id]})" for id in others)]
            self._targets = Targets(able)

    # Steps ----------------------------------------------------------------------------------------

    def first(self, now: float) -> Step:
        """The first attempt.

        Raises:
            APIError: 400, no target has room for what is wanted; 503, all that there are have been
                drained.
        """
        targets, wanted = self._targets, self._wanted
        target: LiveTarget | None
        if targets.first_are_free(wanted.max_tokens):
            target = self.policy.balancer.pick(targets.first, now, wanted.key, wanted.stream)
        elif (target := self._choose(now)) is None:
            if all(each.state.cooldown.is_drained for each in targets):
                raise targets_drained([each.id for each in targets])
            room = max((each.room or 0 for each in targets), default=0)
            raise context_length_exceeded(room, 0, wanted.max_tokens or 0)
        step = Step(target, FIRST)
        self._steps = (step,)
        target.state.provider.budget.request(now)
        if self.policy.hedge_after is not None:
            self.policy.hedges.request(now)
        return step

    def after(self, step: Step, error: APIError, now: float) -> Step | None:
        """What follows the failure of `step`; None if the client is told of it.

        Args:
            step: the attempt that failed, before its first content.
            error: what it failed with.
            now: when.
        """
        self.failed(step, error)
        if error.is_last or self._is_over(now):
            return None
        other = self._choose(now) if self._falls_back(error) else None
        retry = self._retry(step, error, now) if error.was_sent else None
        if other is not None and (retry is None or self._is_as_good(other, step.target, now)):
            return self._send(Step(other, Why.fallback), now)
        return None if retry is None else self._send(retry, now)

    def failed(self, step: Step, error: APIError) -> None:
        """`step` failed; for one of two side by side, of which the other decides what follows."""
        self._failures += ((step, error),)

    def is_final(self, error: APIError) -> bool:
        """Whether nothing can follow this failure, so that nobody else needs to be waited for."""
        if error.is_last:
            return True
        return not self._falls_back(error) and not error.error_class.handling.retries

    def hedge(self, now: float) -> Step | None:
        """A second attempt beside one that takes its time; None if there is to be none."""
        if self._hedged or self._is_over(now):
            return None
        self._hedged = True
        other = self._choose(now)
        if other is None or not other.state.cooldown.admits(now):
            return None
        policy = self.policy
        if not _has_room(other) or not policy.hedges.allows(now, policy.settings.retries.budget):
            return None
        policy.hedges.retry(now)
        return self._send(Step(other, Why.hedge), now)

    def told(self, error: APIError) -> APIError:
        """What the client is told when nothing follows: the last failure that says something of a
        target, rather than that one could not be asked."""
        errors = [each for _, each in self._failures]
        told = [each for each in errors if each.was_sent]
        return told[-1] if told else errors[0] if errors else error

    def patience(self, now: float) -> float | None:
        """How many seconds the attempt that begins now may take until its first content: its share
        of what is left until the deadline, so that a target that hangs leaves time for the others.
        None for as long as its provider lets it: nothing can be seen of a whole reply before its
        end, and one that takes long is not worth less."""
        if self._ends is None or not self._wanted.stream:
            return None
        falls_back = ErrorClass.timeout in self.policy.fall_back_on
        return self._share(self._ends - now, self._attempts_left() if falls_back else 0)

    def patience_at_gate(self, now: float) -> float | None:
        """How many seconds the request may wait for room at the provider: its share of what is left
        until the deadline, whole replies too, so that a queue before a target that hangs holds
        nobody back while another has room. None for any number."""
        if self._ends is None:
            return None
        # What is not sent is no attempt, and leaves its own to another target.
        return self._share(self._ends - now, self._attempts_left() + 1)

    def _share(self, left: float, attempts: int) -> float:
        """What one of the targets that can be asked yet gets of so many seconds, where there may be
        so many `attempts` after this one."""
        further = min(len(self._untried()), attempts)
        return max(left, 0.0) / (1 + max(further, 0))

    # How they are chosen --------------------------------------------------------------------------

    def _send(self, step: Step, now: float) -> Step:
        self._steps += (step,)
        budget = step.target.state.provider.budget
        if step.why is Why.retry:
            budget.retry(now)
        else:
            budget.request(now)
        return step

    def _falls_back(self, error: APIError) -> bool:
        return not error.was_sent or error.error_class in self.policy.fall_back_on

    def _is_over(self, now: float) -> bool:
        late = self._ends is not None and now >= self._ends
        return late or self._attempts_left() <= 0

    def _attempts_left(self) -> int:
        left = self.policy.attempts - len(self._steps)
        for _, error in self._failures:
            left += not error.was_sent
        return left

    def _untried(self) -> Sequence[LiveTarget]:
        tried = [step.target.id for step in self._steps]
        least = self._least_room()
        return [
            each
            for each in self._targets
            if each.id not in tried and each.holds(least) and not each.state.cooldown.is_drained
        ]

    def _least_room(self) -> int:
        """How many tokens a target has to hold, as far as it is known; 0 for any number."""
        least = self._wanted.max_tokens or 0
        for step, error in self._failures:
            if error.error_class is ErrorClass.context_length:
                least = max(least, (step.target.room or 0) + 1)
        return least

    def _choose(self, now: float) -> LiveTarget | None:
        """One that has not been asked yet: of the first priority that has any, one with room before
        one where the request has to wait; if all cool, the one whose time ends first."""
        untried = self._untried()
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
        wanted = self._wanted
        return self.policy.balancer.pick(Group(free or best), now, wanted.key, wanted.stream)

    def _is_as_good(self, other: LiveTarget, target: LiveTarget, now: float) -> bool:
        """Whether to go to `other` at once rather than to wait for `target` to recover."""
        if not other.state.cooldown.admits(now):
            return False
        return other.priority <= target.priority or not target.state.cooldown.admits(now)

    def _retry(self, step: Step, error: APIError, now: float) -> Step | None:
        """The same target once more, if that is of use and leaves an attempt to each other one."""
        settings, target = self.policy.settings.retries, step.target
        done = sum(each.why is Why.retry and each.target is target for each in self._steps)
        if not error.error_class.handling.retries or done >= settings.same_target:
            return None
        if self._attempts_left() <= len(self._untried()):
            return None
        wait = 0.0
        if not isinstance(error, StaleConnection):
            pause = self.policy.backoff.seconds(done, self.policy.chance)
            wait = max(pause, error.heeded_wait or 0)
        too_late = self._ends is not None and now + wait >= self._ends
        if wait > settings.backoff.most or too_late:
            return None
        if not target.state.provider.budget.allows(now, settings.budget):
            return None
        return Step(target, Why.retry, wait)


def _has_room(target: LiveTarget) -> bool:
    gate = target.state.provider.gate
    return gate is None or gate.has_room


def _full(target: LiveTarget) -> bool:
    gate = target.state.provider.gate
    return gate is not None and gate.is_full
