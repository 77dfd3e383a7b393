"""A request sent where its plan says, until one target has begun to answer it.

A provider gives a `Reply` once there is content, and raises before that: so whatever is raised here
has not been seen by the client, and another target may answer. What fails later is in the reply.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any

from llama_compat.errors import APIError, internal_error
from llama_compat.exchange import Call, Reply, Target
from providers.base import Provider
from routing.policy.attempts import Attempt, Attempts, Why
from routing.policy.cooldown import CooldownRule
from routing.policy.plan import Plan, Policy, Step
from routing.policy.targets import LiveTarget
from routing.policy.wanted import Wanted, of_one_model, pinned_target, sticky_key

Ask = Callable[[Provider, Target], Awaitable[Reply]]
"""Makes one attempt."""

_Answered = tuple[Attempt, Reply]
_Failures = list[tuple[Step, APIError]]


async def dispatch(
    targets: Sequence[LiveTarget],
    policy: Policy | None,
    call: Call,
    ask: Ask,
    attempts: Attempts,
    *,
    max_tokens: int | None = None,
) -> Reply:
    """The reply of the first target that answers.

    Args:
        targets: of the call's model.
        policy: of the model; None where the only target gets the call as it is.
        call: what the client asks.
        ask: asks a provider.
        attempts: where what was tried is noted.
        max_tokens: how many tokens may be generated, where the call says so.

    Raises:
        APIError: nobody answers; the last failure of a target.
    """
    headers = attempts.headers
    if policy is None:
        pinned_target(headers, targets, call.model, allowed=False)
        _, reply = await _attempt(targets[0], Why.first, ask, attempts, stream=call.stream)
        return reply
    settings = policy.settings
    sticky = settings.balance == "sticky"
    wanted = Wanted(
        stream=call.stream,
        key=sticky_key(settings.sticky_on, call.fields, headers) if sticky else None,
        max_tokens=max_tokens,
        of_one_model=of_one_model(call),
        pinned=pinned_target(headers, targets, call.model, allowed=settings.pin),
    )
    plan = Plan(policy, targets, wanted, time.monotonic())
    attempts.passed_over = plan.passed_over
    run = _Run(policy, plan, ask, attempts, stream=call.stream)
    return await run.reply()


class _Run:
    """One request on its way from step to step."""

    def __init__(
        self, policy: Policy, plan: Plan, ask: Ask, attempts: Attempts, *, stream: bool
    ) -> None:
        self._policy = policy
        self._plan = plan
        self._ask = ask
        self._attempts = attempts
        self._stream = stream
        self._has_answer = False

    async def reply(self) -> Reply:
        plan, hedges = self._plan, self._policy.settings.hedge_after is not None
        step: Step | None = plan.first(time.monotonic())
        while step is not None:
            if step.wait:
                await asyncio.sleep(step.wait)
            if hedges:
                outcome = await self._race(step)
                if isinstance(outcome, Reply):
                    return outcome
            else:
                try:
                    return (await self._attempt(step))[1]
                except APIError as failure:
                    outcome = [(step, failure)]
            *others, (failed, error) = outcome
            for other, others_error in others:
                plan.failed(other, others_error)
            step = plan.after(failed, error, time.monotonic())
        raise plan.told(error)

    def _attempt(self, step: Step) -> Coroutine[Any, Any, _Answered]:
        now = time.monotonic()
        return _attempt(
            step.target,
            step.why,
            self._ask,
            self._attempts,
            stream=self._stream,
            rule=self._policy.rule,
            patience=self._plan.patience(now),
            queueing=self._plan.until_deadline(now),
            is_lost=lambda: self._has_answer,
        )

    async def _race(self, step: Step) -> Reply | _Failures:
        """Make the attempt; another target is asked too if that one takes its time.

        The one that comes second is cancelled before the first one's reply goes anywhere.
        """
        running = {asyncio.create_task(self._attempt(step)): step}
        failed: _Failures = []
        reply: Reply | None = None
        timeout = self._policy.settings.hedge_after
        try:
            is_final = False
            while running and reply is None and not is_final:
                done, _ = await asyncio.wait(
                    running, timeout=timeout, return_when=asyncio.FIRST_COMPLETED
                )
                timeout = None
                if not done and (second := self._plan.hedge(time.monotonic())) is not None:
                    running[asyncio.create_task(self._attempt(second))] = second
                for task in done:
                    if reply is None:
                        asked = running.pop(task)
                        try:
                            _, reply = task.result()
                        except APIError as error:
                            failed.append((asked, error))
                            is_final = is_final or self._plan.is_final(error)
                self._has_answer = reply is not None
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
    ask: Ask,
    attempts: Attempts,
    *,
    stream: bool,
    rule: CooldownRule | None = None,
    patience: float | None = None,
    queueing: float | None = None,
    is_lost: Callable[[], bool] = lambda: False,
) -> _Answered:
    """Ask one target.

    Args:
        target: whom.
        why: why.
        ask: asks it.
        attempts: where it is noted.
        stream: whether the client wants a stream.
        rule: when the target cools; None for never.
        patience: how many seconds it has until its first content; None for any number.
        queueing: how many seconds it may wait for room at the provider; None for any number.
        is_lost: whether another has answered, should it be cancelled.

    Raises:
        APIError: it failed, before there was any content.
    """
    gate = target.state.provider.gate
    if gate is not None:
        try:
            async with asyncio.timeout(queueing):
                await gate.enter()
        except TimeoutError:
            raise gate.refusal() from None
    attempt = Attempt(target.state, why, stream=stream, rule=rule)
    attempts.add(attempt)
    try:
        if patience is None:
            reply = await ask(target.provider, target.target)
        else:
            reply = await _in_time(ask(target.provider, target.target), patience, target)
    except APIError as error:
        attempt.fail(error)
        raise
    except asyncio.CancelledError:
        attempt.cancel(lost=is_lost())
        raise
    except Exception:
        attempt.fail(internal_error())
        raise
    attempt.has_content()
    reply.when_closed(attempt.finish)
    return attempt, reply


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
