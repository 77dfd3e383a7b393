"""Simulated replicas behind the policies that a server has, on virtual time: nobody waits.

Which replica a request goes to is decided by `routing.policy` itself, from the JSON that a client
would send; how long it takes there is `providers.local.simulation`'s to say.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from bench.placing.workloads import Conversation, Turn
from llama_compat.dialects.openai.operations import CHAT
from llama_compat.distribution.routing import RoutingSettings
from llama_compat.exchange import Call, Reply, Target
from llama_compat.prefixes.marks import Marks, marks_of
from llama_compat.wire.json_fields import parse_fields
from providers.base import Provider, ProviderConfig
from providers.local.simulation.config import SimulationConfig
from providers.local.simulation.engine import (
    SimulatedEngine,
    SimulatedSequence,
    SimulatedStep,
)
from providers.remote.replicas.caches import SOONEST_SECONDS
from routing.policy.attempts import Attempt
from routing.policy.group import Targets
from routing.policy.plan import Plan, Policy
from routing.policy.prefix.sent import SentPrefixes
from routing.policy.targets import LiveTarget, ProviderState
from routing.policy.wanted import Wanted


@dataclass(slots=True)
class Served:
    """One request: where it went, and when what happened to it, in virtual seconds."""

    replica: int
    asked: float
    prompt_tokens: int
    reply_tokens: int
    cached_tokens: int = 0
    first: float = 0.0
    ended: float = 0.0


@dataclass(slots=True)
class Running:
    """A request at its replica."""

    served: Served
    attempt: Attempt
    left: Iterator[Turn]


class Replica:
    """One engine, and where it is in its time."""

    def __init__(self, number: int, config: SimulationConfig) -> None:
        self.number = number
        self.engine = SimulatedEngine(config)
        self.running: dict[SimulatedSequence, Running] = {}
        self.busy = 0.0
        self._begun = 0.0
        self._step: SimulatedStep | None = None

    @property
    def next_change(self) -> float | None:
        """When somebody may come or go there, if nobody else is sent; None while it is idle."""
        step = self._step
        return None if step is None else self._begun + step.seconds * step.repeats

    def add(self, sequence: SimulatedSequence, running: Running, now: float) -> None:
        """Send it a request; what it does now is done first."""
        self.advance(now)
        self.running[sequence] = running
        self.engine.add(sequence)
        if self._step is None:
            self._begun, self._step = now, self.engine.next_step()
        else:
            self._step = self._step._replace(repeats=1)

    def advance(self, now: float) -> list[tuple[Running, SimulatedSequence, float]]:
        """Let time pass until `now`; who has said something, and when that was last."""
        spoke = []
        while (step := self._step) is not None:
            # What is due at `now` is done: a sum of floats may lie beside their product.
            times = min(int((now - self._begun) / step.seconds + 1e-6), step.repeats)
            if not times:
                break
            self._begun += step.seconds * times
            self.busy += step.seconds * times
            for sequence in self.engine.done(step, times):
                spoke.append((self.running[sequence], sequence, self._begun))
            self._step = self.engine.next_step()
        return spoke


class PolicyOfOne:
    """What one gateway knows of the replicas.

    Args:
        replicas: how many.
        settings: the policy's.
        chance: of what the policy draws.
    """

    def __init__(self, replicas: int, settings: RoutingSettings, chance: random.Random) -> None:
        self.policy = Policy(settings, chance.random)
        self.targets = Targets(_target(f"r{number}") for number in range(replicas))
        self._heard = [("", 0)] * replicas
        self._asked_at = -SOONEST_SECONDS

    def hear(self, replicas: Sequence[Replica], now: float) -> None:
        """Ask all what they hold, as often as a gateway does."""
        if now - self._asked_at < SOONEST_SECONDS:
            return
        self._asked_at = now
        for number, replica in enumerate(replicas):
            news = replica.engine.held_prompts().news(*self._heard[number])
            self._heard[number] = news.log, news.number
            state = self.targets[number].state
            if state.prefixes is None:
                state.prefixes = SentPrefixes()
            state.prefixes.tells(news, now)


class Fleet:
    """Replicas, and one policy in front of them.

    Args:
        replicas: how many.
        settings: the policy's.
        config: of each engine.
        seed: of what the policy draws.
        gateways: so many share the requests, and tell each other nothing.
        are_told: whether the replicas tell what they hold.
    """

    def __init__(
        self,
        replicas: int,
        settings: RoutingSettings,
        config: SimulationConfig,
        seed: int,
        *,
        gateways: int = 1,
        are_told: bool = False,
    ) -> None:
        self.now = 0.0
        self.served: list[Served] = []
        self.replicas = [Replica(number, config) for number in range(replicas)]
        chance = random.Random(seed)
        self._gateways = [PolicyOfOne(replicas, settings, chance) for _ in range(gateways)]
        self._are_told = are_told
        self._events: list[tuple[float, int, Turn | Replica, Iterator[Turn]]] = []
        self._numbers = itertools.count()

    def run(self, conversations: Iterable[Conversation]) -> None:
        """Serve them all, to their ends."""
        for conversation in conversations:
            self._ask_next(iter(conversation))
        while self._events:
            self.now, _, event, left = heapq.heappop(self._events)
            if isinstance(event, Replica):
                self._tell(event)
            else:
                self._send(event, left)

    def _ask_next(self, left: Iterator[Turn]) -> None:
        turn = next(left, None)
        if turn is not None:
            event = (self.now + turn.pause, next(self._numbers), turn, left)
            heapq.heappush(self._events, event)

    def _send(self, turn: Turn, left: Iterator[Turn]) -> None:
        gateway = self._gateways[len(self.served) % len(self._gateways)]
        fields = parse_fields(turn.body)
        asked = CHAT.look(fields, {})
        call = Call(CHAT, fields, asked.model, asked.stream, "r", extent=asked.extent)
        marks: Marks = ()
        if self._are_told:
            gateway.hear(self.replicas, self.now)
            marks = marks_of(call, turn.words())
        target = self._place(gateway, call)
        number = gateway.targets.index(target)
        sequence = SimulatedSequence(turn.hashes, turn.prompt_tokens, turn.reply_tokens, marks)
        served = Served(number, self.now, turn.prompt_tokens, turn.reply_tokens)
        self.served.append(served)
        attempt = Attempt(target.state, stream=True, clock=lambda: self.now)
        replica = self.replicas[number]
        self._tell(replica)
        replica.add(sequence, Running(served, attempt, left), self.now)
        self._wake(replica)

    def _place(self, gateway: PolicyOfOne, call: Call) -> LiveTarget:
        """Where the policy sends it."""
        policy = gateway.policy
        key = policy.key_of(call, ()) if policy.key_of is not None else None
        plan = Plan(policy, gateway.targets, Wanted(stream=True, key=key), self.now)
        return plan.first(self.now).target

    def _tell(self, replica: Replica) -> None:
        """See to what has happened at a replica until now."""
        for running, sequence, at in replica.advance(self.now):
            served = running.served
            if not served.first:
                served.first = at
                served.cached_tokens = sequence.cached_tokens or 0
                running.attempt.has_content()
            if sequence.is_done:
                served.ended = at
                running.attempt.finish(Reply(b""))
                del replica.running[sequence]
                self._ask_next(running.left)
        self._wake(replica)

    def _wake(self, replica: Replica) -> None:
        at = replica.next_change
        if at is not None:
            heapq.heappush(self._events, (at, next(self._numbers), replica, iter(())))


def _target(name: str) -> LiveTarget:
    provider = Provider(name, ProviderConfig(), [])
    return LiveTarget(provider, Target("m"), ProviderState(name).target("m"))
