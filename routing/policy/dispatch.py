"""A request sent where its plan says, until one target has begun to answer it.

A provider gives a `Reply` once there is content, and raises before that: so whatever is raised here
has not been seen by the client, and another target may answer. What fails later is in the reply.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any

from llama_compat.distribution.routing import RetrySettings
from llama_compat.errors import APIError, StaleConnection, internal_error, targets_drained
from llama_compat.exchange import Call, Reply, Target
from providers.base import Provider
from routing.policy.attempts import FIRST, Attempt, Attempts, Why
from routing.policy.gate import Gate
from routing.policy.group import Targets
from routing.policy.plan import Plan, Policy, Step
from routing.policy.targets import LiveTarget
from routing.policy.wanted import Wanted, of_one_model, pinned_target

AskTarget = Callable[[Provider, Target], Awaitable[Reply]]
"""Makes one attempt."""

_RETRIES = RetrySettings()

_Answered = tuple[Attempt, Reply]
_Failures = list[tuple[Step, APIError]]


def dispatch(
    targets: Targets, policy: Policy | None, call: Call, ask: AskTarget, attempts: Attempts
) -> Coroutine[Any, Any, Reply]:
    """The reply of the first target that answers.

    Args:
        targets: of the call's model.
        policy: of the model; None where the only target gets the call as it is.
        call: what the client asks.
        ask: asks a provider.
        attempts: where what was tried is noted.

    Raises:
        APIError: nobody answers; the last failure of a target.
    """
    if policy is None:
        pinned_target(attempts.headers, targets, call.model, allowed=False)
        if targets[0].state.cooldown.is_drained:
            raise targets_drained([targets[0].id])
        return _ask_the_only(targets[0], call, ask, attempts)
    return _ask_by_plan(targets, policy, call, ask, attempts)


async def ask_one(target: LiveTarget, call: Call, ask: AskTarget, attempts: Attempts) -> Reply:
    """The reply of one target, whether it cools, is drained or neither: for who tries it.

    Raises:
        APIError: it does not answer.
    """
    return (await _attempt(target, FIRST, None, ask, attempts, call))[1]


async def _ask_by_plan(
    targets: Targets, policy: Policy, call: Call, ask: AskTarget, attempts: Attempts
) -> Reply:
    """The reply of the first target that answers, in the order of the policy."""
    now = time.monotonic()
    wanted = Wanted(
        call.stream,
        policy.key_of(call, attempts.headers) if policy.key_of is not None else None,
        call.extent.max_tokens,
        of_one_model(call),
        pinned_target(attempts.headers, targets, call.model, allowed=policy.pin),
        targets.abilities.lacking(call),
    )
    plan = Plan(policy, targets, wanted, now)
    attempts.passed_over = plan.passed_over
    step: Step | None = plan.first(now)
    # What two of them ran would be done twice.
    hedge_after = policy.hedge_after if call.toolbox is None or not call.toolbox.kinds else None
    while step is not None:
        if step.wait:
            await asyncio.sleep(step.wait)
        if hedge_after is None:
            try:
                target, why = step.target, step.why
                return (await _attempt(target, why, plan, ask, attempts, call))[1]
            except APIError as failure:
                failure.let_go()
                failures = [(step, failure)]
        else:
            outcome = await _race(plan, step, ask, attempts, call, hedge_after)
            if isinstance(outcome, Reply):
                return outcome
            failures = outcome
        *others, (failed, error) = failures
        for other, others_error in others:
            plan.failed(other, others_error)
        step = plan.after(failed, error, time.monotonic())
    raise plan.told(error)


async def _ask_the_only(
    target: LiveTarget, call: Call, ask: AskTarget, attempts: Attempts
) -> Reply:
    """The reply of the only target of a model without policies, which gets the call as it is.

    Nothing that it says is asked again. But that a vendor closes an idle connection in the moment
    in which a request is written is nobody's fault, and a client could not know of it: that is
    tried once more, within the budget that a template has by default.
    """
    budget = target.state.provider.budget
    budget.request(time.monotonic())
    try:
        return (await _attempt(target, FIRST, None, ask, attempts, call))[1]
    except StaleConnection as stale:
        now = time.monotonic()
        if stale.is_last or not budget.allows(now, _RETRIES.budget):
            raise
        budget.retry(now)
    return (await _attempt(target, Why.retry, None, ask, attempts, call))[1]


async def _race(
    plan: Plan, step: Step, ask: AskTarget, attempts: Attempts, call: Call, seconds: float
) -> Reply | _Failures:
    """Make the attempt; another target is asked too if that one takes longer than `seconds`.

    The one that comes second is cancelled before the first one's reply goes anywhere.
    """

    def begin(step: Step) -> asyncio.Task[_Answered]:
        return asyncio.create_task(_attempt(step.target, step.why, plan, ask, attempts, call))

    running = {begin(step): step}
    failed: _Failures = []
    reply: Reply | None = None
    timeout: float | None = seconds
    try:
        is_final = False
        while running and reply is None and not is_final:
            done, _ = await asyncio.wait(
                running, timeout=timeout, return_when=asyncio.FIRST_COMPLETED
            )
            timeout = None
            if not done and (second := plan.hedge(time.monotonic())) is not None:
                running[begin(second)] = second
            for task in done:
                if reply is None:
                    asked = running.pop(task)
                    try:
                        _, reply = task.result()
                    except APIError as error:
                        error.let_go()
                        failed.append((asked, error))
                        is_final = is_final or plan.is_final(error)
        await _give_up(running)
    except BaseException:
        if reply is not None:
            await reply.aclose()
        await _give_up(running)
        raise
    return failed if reply is None else reply


async def _give_up(running: Iterable[asyncio.Task[_Answered]]) -> None:
    """Cancel the attempts that nobody waits for any more; one that has just answered is closed."""
    for task in running:
        task.cancel()
    for late in await asyncio.gather(*running, return_exceptions=True):
        if isinstance(late, tuple):
            attempt, reply = late
            attempt.lose(reply)
            await reply.aclose()


async def _attempt(
    target: LiveTarget,
    why: Why,
    plan: Plan | None,
    ask: AskTarget,
    attempts: Attempts,
    call: Call,
) -> _Answered:
    """Ask one target.

    Args:
        target, why: whom, and why.
        plan: the request's; None for one that no policy sees to.
        ask: asks it.
        attempts: where it is noted.
        call: what the client asks.

    Raises:
        APIError: it failed, before there was any content.
    """
    gate = target.state.provider.gate
    if gate is not None:
        await _enter(gate, plan, can_wait=call.can_wait)
    rule = None if plan is None else plan.policy.rule
    attempt = Attempt(target.state, why, call.stream, rule)
    try:
        attempts.add(attempt)
        patience = plan.patience(attempt.begun) if call.stream and plan is not None else None
        if patience is None:
            reply = await ask(target.provider, target.target)
        else:
            reply = await _in_time(ask(target.provider, target.target), patience, target)
    except APIError as error:
        attempt.fail(error)
        raise
    except Exception:
        attempt.fail(internal_error())
        raise
    except BaseException:  # cancelled, or the loop is closed under it
        attempt.cancel(lost=attempts.is_answered)
        raise
    attempt.has_content()
    reply.when_closed(attempt.finish)
    return attempt, reply


async def _enter(gate: Gate, plan: Plan | None, *, can_wait: bool) -> None:
    """Wait for room at a provider, for the share of the deadline that waiting there gets.

    Raises:
        ProviderBusy: there was none.
    """
    if plan is None or gate.has_room:
        await gate.enter(can_wait=can_wait)
        return
    seconds = plan.patience_at_gate(time.monotonic())
    try:
        async with asyncio.timeout(seconds):
            await gate.enter(can_wait=can_wait)
    except TimeoutError:
        raise gate.refusal() from None


async def _in_time(asking: Awaitable[Reply], seconds: float, target: LiveTarget) -> Reply:
    timer = asyncio.timeout(seconds)
    try:
        async with timer:
            return await asking
    except TimeoutError:
        if not timer.expired():
            raise
        raise APIError(
            504,
            f"Provider '{target.provider.id}': no content within {seconds:.3g} s, its share of the"
            " model's `deadline`.",
            code="upstream_timeout",
        ) from None
