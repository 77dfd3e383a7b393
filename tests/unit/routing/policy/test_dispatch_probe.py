"""The probe: one request shows how a target is that has cooled, and whatever becomes of it, it is
given back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from llama_compat.dialects.openai.operations import CHAT
from llama_compat.error_classes import ErrorClass
from llama_compat.errors import APIError, UnsupportedHere
from llama_compat.exchange import Reply, Target
from providers.base import Provider
from routing.policy.attempts import Attempt, Attempts
from routing.policy.dispatch import dispatch
from routing.policy.gate import ProviderBusy
from routing.policy.group import Targets
from routing.policy.plan import Plan, Step
from routing.policy.targets import LiveTarget
from routing.policy.wanted import Wanted
from tests.examples import examples
from tests.unit.calls import call_of
from tests.unit.routing.policy.models import NOW, error_of, policy, target

SECONDS = 5.0


def refusal() -> APIError:
    """What a limit of the provider's own says here: nothing was sent."""
    error = APIError(429, "Rate limit reached", code="rate_limit_exceeded")
    error.was_sent = False
    return error


class Running:
    """A request, and its attempt that runs now."""

    def __init__(self, plan: Plan, step: Step, attempt: Attempt) -> None:
        self.plan = plan
        self.step = step
        self.attempt = attempt


class Probing(RuleBasedStateMachine):
    """Requests for a model of two targets, whose attempts end in every way there is, in any order;
    of each target only what can be seen from outside is known here."""

    def __init__(self) -> None:
        super().__init__()
        self.now = NOW
        self.policy = policy(
            cooldown={"failures": 2, "within": 30, "seconds": SECONDS},
            retries={"attempts": 4, "same_target": 1, "budget": 1},
            deadline=None,
        )
        self.targets = Targets([target("a"), target("b", priority=1)])
        self.running: list[Running] = []

    def send(self, plan: Plan, step: Step | None) -> None:
        if step is None:
            return
        self.now += step.wait
        attempt = Attempt(
            step.target.state, step.why, plan.policy is not None, plan.policy.rule, lambda: self.now
        )
        self.running.append(Running(plan, step, attempt))

    def take(self, number: int) -> Running:
        return self.running.pop(number % len(self.running))

    def fail(self, number: int, error: APIError) -> None:
        failed = self.take(number)
        has_content = failed.attempt.content
        failed.attempt.fail(error)
        if not has_content:
            self.send(failed.plan, failed.plan.after(failed.step, error, self.now))

    @rule()
    def a_request_comes(self) -> None:
        plan = Plan(self.policy, self.targets, Wanted(stream=True), self.now)
        self.send(plan, plan.first(self.now))

    @rule()
    def a_request_waits_at_a_gate_in_vain(self) -> None:
        plan = Plan(self.policy, self.targets, Wanted(stream=True), self.now)
        step = plan.first(self.now)
        self.send(plan, plan.after(step, ProviderBusy("a", 1, 1), self.now))

    @rule(seconds=st.sampled_from([0.01, 0.5, 2.0, SECONDS, 20.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @precondition(lambda self: self.running)
    @rule(
        number=st.integers(0, 9),
        kind=st.sampled_from([*ErrorClass]),
        retry_after=st.sampled_from([None, "0", "3"]),
    )
    def one_fails(self, number: int, kind: ErrorClass, retry_after: str | None) -> None:
        """Before its content, or with its stream cut after it."""
        headers = {} if retry_after is None else {"retry_after": retry_after}
        self.fail(number, error_of(kind, **headers))

    @precondition(lambda self: self.running)
    @rule(number=st.integers(0, 9))
    def a_limit_refuses_one(self, number: int) -> None:
        if not self.running[number % len(self.running)].attempt.content:
            self.fail(number, refusal())

    @precondition(lambda self: self.running)
    @rule(number=st.integers(0, 9))
    def one_has_content(self, number: int) -> None:
        attempt = self.running[number % len(self.running)].attempt
        if not attempt.content:
            attempt.has_content()

    @precondition(lambda self: self.running)
    @rule(number=st.integers(0, 9))
    def one_is_answered(self, number: int) -> None:
        attempt = self.take(number).attempt
        if not attempt.content:
            attempt.has_content()
        attempt.finish(Reply(b"{}"))
        # One from before the last failure says nothing of how the target is since.
        cooldown = attempt.target.cooldown
        assert cooldown.until == 0 or attempt.begun < cooldown._failures[-1]

    @precondition(lambda self: self.running)
    @rule(number=st.integers(0, 9), how=st.sampled_from(["cancelled", "lost", "left", "late"]))
    def one_is_given_up(self, number: int, how: str) -> None:
        async def body() -> AsyncGenerator[bytes, None]:
            yield b""

        attempt = self.take(number).attempt
        match how:
            case "cancelled" | "lost":
                attempt.cancel(lost=how == "lost")
            case "left":  # the client goes while it reads
                if not attempt.content:
                    attempt.has_content()
                attempt.finish(Reply(body()))
            case "late":
                attempt.lose(Reply(body()))

    @invariant()
    def what_is_known_of_who_runs_is_true(self) -> None:
        for each in self.targets:
            here = [one for one in self.running if one.attempt.target is each.state]
            assert each.state.in_flight == len(here)

    @invariant()
    def nobody_waits_for_a_probe_that_does_not_run(self) -> None:
        for each in self.targets:
            cooldown = each.state.cooldown
            if self.now < cooldown.until or cooldown.admits(self.now):
                continue
            probes = [
                one.attempt
                for one in self.running
                if one.attempt.target is each.state
                and not one.attempt.content
                and one.attempt.begun >= cooldown.until
                and self.now < one.attempt.begun + SECONDS
            ]
            assert probes

    @invariant()
    def one_probes_at_a_time(self) -> None:
        for each in self.targets:
            cooldown = each.state.cooldown
            if cooldown.until and not cooldown.admits(self.now):
                plan = Plan(self.policy, self.targets, Wanted(stream=True), self.now)
                others = [other for other in self.targets if other is not each]
                if any(other.state.cooldown.admits(self.now) for other in others):
                    assert plan.first(self.now).target is not each

    def teardown(self) -> None:
        """Whatever happened, a target that is well is asked again and all is as it was."""
        for one in self.running:
            one.attempt.cancel()
        self.running.clear()
        self.now += 1000
        for each in self.targets:
            assert each.state.cooldown.admits(self.now)
        self.a_request_comes()
        assert self.running[0].attempt.target is self.targets[0].state
        self.one_is_answered(0)
        assert self.targets[0].state.cooldown.until == 0


Probing.TestCase.settings = settings(
    max_examples=examples(150), stateful_step_count=40, deadline=None
)
TestProbing = Probing.TestCase


def test_one_client_s_mistake_does_not_keep_a_target_out() -> None:
    """As it was found: A cools, its probe gets a client's 400, and then A is well."""
    a, b = target("a"), target("b")
    rules = policy(cooldown={"failures": 1, "seconds": 1})
    now = NOW

    def asks(error: APIError | None) -> LiveTarget:
        plan = Plan(rules, Targets([a, b]), Wanted(), now)
        step = plan.first(now)
        attempt = Attempt(step.target.state, rule=rules.rule, clock=lambda: now)
        if error is None:
            attempt.has_content()
            attempt.finish(Reply(b"{}"))
        else:
            attempt.fail(error)
        return step.target

    assert asks(error_of(ErrorClass.server_error)) is a
    now += 1
    assert asks(error_of(ErrorClass.bad_request)) is a
    assert [asks(None) for _ in range(200)].count(a) == 200


# As requests really end ---------------------------------------------------------------------------

Ask = Callable[[str], Awaitable[Reply]]


async def mistake(name: str) -> Reply:
    raise APIError(400, "no such thing", param="x")


async def cannot(name: str) -> Reply:
    raise UnsupportedHere(400, "can't", param="seed", code="unsupported_parameter")


async def limited(name: str) -> Reply:
    raise refusal()


async def hangs(name: str) -> Reply:
    await asyncio.Event().wait()
    raise AssertionError


async def has_a_bug(name: str) -> Reply:
    raise ZeroDivisionError


async def leaves_the_loop(name: str) -> Reply:
    raise GeneratorExit


async def breaks_off(name: str) -> Reply:
    async def body() -> AsyncGenerator[bytes, None]:
        yield b"x"

    return Reply(body(), b"x", error=APIError(502, "gone", code="upstream_connection_lost"))


ENDS: dict[str, Ask] = {
    "a client's mistake": mistake,
    "it can't": cannot,
    "a limit": limited,
    "cancelled": hangs,
    "a time-out": hangs,
    "a bug": has_a_bug,
    "the loop ends": leaves_the_loop,
    "cut after its content": breaks_off,
    "left": breaks_off,
}


@pytest.mark.parametrize("end", ENDS)
async def test_the_probe_is_given_back_however_its_request_ends(end: str) -> None:
    one = target("one", max_concurrent=1, max_waiting=5)
    rules = policy(deadline=0.05 if end == "a time-out" else 60, retries={"same_target": 0})
    one.state.cooldown.until = 1e-9  # long ago

    async def ask(provider: Provider, target: Target) -> Reply:
        assert not one.state.cooldown.admits(NOW)  # this is the probe
        return await ENDS[end](provider.id)

    async def request() -> None:
        call = call_of({"messages": [], "stream": True}, CHAT)
        reply = await dispatch(Targets([one]), rules, call, ask, Attempts())
        if end == "left":
            reply.error = None
        await reply.aclose()

    task = asyncio.create_task(request())
    await asyncio.sleep(0)
    if end == "cancelled":
        task.cancel()
    await asyncio.wait([task])
    if not task.cancelled():
        task.exception()
    gate = one.state.provider.gate
    assert gate is not None
    assert (gate.running, one.state.in_flight) == (0, 0)
    assert one.state.cooldown.admits(one.state.cooldown.until)


async def test_who_waits_at_a_gate_in_vain_has_no_probe() -> None:
    one = target("one", max_concurrent=1, max_waiting=1)
    gate = one.state.provider.gate
    assert gate is not None
    await gate.enter()
    one.state.cooldown.until = 1e-9
    rules = policy(deadline=0.02)

    async def ask(provider: Provider, target: Target) -> Reply:
        raise AssertionError

    call = call_of({"messages": []}, CHAT)
    with pytest.raises(ProviderBusy):
        await dispatch(Targets([one]), rules, call, ask, Attempts())
    assert one.state.cooldown.admits(1.0)


async def test_a_probe_that_takes_long_is_not_the_only_one() -> None:
    one = target("one")
    rules = policy(cooldown={"seconds": SECONDS})
    one.state.cooldown.until = NOW
    first = Attempt(one.state, rule=rules.rule, clock=lambda: NOW)
    assert not one.state.cooldown.admits(NOW + SECONDS - 0.1)
    assert one.state.cooldown.admits(NOW + SECONDS)
    second = Attempt(one.state, rule=rules.rule, clock=lambda: NOW + SECONDS)
    first.cancel()  # what becomes of the first is not the second's affair
    assert not one.state.cooldown.admits(NOW + SECONDS + 1)
    second.has_content()
    assert one.state.cooldown.until == 0
