"""The limits of one distribution, held against its requests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from llama_compat.catalog.prices import NANO_DOLLARS
from llama_compat.distribution import Distribution
from llama_compat.errors import APIError
from llama_compat.exchange import Call, Principal, Reply, done_soon
from llama_compat.off_loop import LARGE_BYTES, off_loop
from llama_compat.types import Usage
from routing.access.limits.limiter import Admission, Limiter, Tell
from routing.access.limits.rules import NO_DEMAND, Demand, Resource, Rule, rules_of
from routing.observability.records.estimate import sane

if TYPE_CHECKING:
    from llama_compat.exchange import Target
    from providers.base import Provider
    from routing.layers.policy import Ask
    from routing.request import Request

Rules = tuple[Rule, ...]

COMPLETION_TOKENS = 512
"""Of a reply whose request leaves open how long it may be."""


class RequestLimits:
    """Which rules hold for whom.

    Args:
        distribution: whose limits they are.
        limiter: where they are held.
    """

    def __init__(self, distribution: Distribution, limiter: Limiter) -> None:
        self._limiter = limiter
        self._own: dict[str, tuple[Principal, Rules]] = {}
        self._teams = {
            each.id: tuple(
                rules_of(f"team:{each.id}", f"team '{each.id}'", each.limits, each.budget)
            )
            for each in distribution.teams
        }
        self._models = {
            name: tuple(rules_of(f"model:{each.id}", f"model '{each.id}'", each.limits))
            for each in distribution.models
            if each.limits is not None
            for name in (each.id, *each.aliases)
        }
        self._providers = {
            each.id: tuple(rules_of(f"provider:{each.id}", f"provider '{each.id}'", each.limits))
            for each in distribution.providers
            if each.limits is not None
        }

    def rules(self, principal: Principal, model: str) -> Rules:
        """Those that a request for `model` meets before it goes to a provider."""
        rules: Rules = ()
        if principal.limits is not None or principal.budget is not None:
            rules = self._own_rules(principal)
        if principal.team:
            rules += self._teams.get(principal.team, ())
        if model in self._models:
            rules += self._models[model]
        return rules

    def _own_rules(self, principal: Principal) -> Rules:
        before, rules = self._own.get(principal.id, (None, ()))
        if before is not principal:
            name = f"key '{principal.name or principal.id}'"
            found = rules_of(f"key:{principal.id}", name, principal.limits, principal.budget)
            rules = tuple(found)
            self._own[principal.id] = principal, rules
        return rules

    async def admit(
        self,
        call: Call,
        model: str,
        cost: Callable[[Usage], int | None],
        tell: Tell = lambda limits: None,
    ) -> Admission | None:
        """Let `call` in, if every rule has room for it.

        Args:
            call: what is asked.
            model: of whom, by its public id or alias.
            cost: what a usage may cost, in billionths of a dollar; None where nobody knows.
            tell: is told what is left.

        Returns:
            What has to be settled; None where nothing is limited.

        Raises:
            APIError: 429, a rule has no room; 503, nobody knows, and the template wants it so.
        """
        rules = self.rules(call.principal, model)
        if not rules:
            return None
        return await self._limiter.admit(rules, await _demand(rules, call, cost), tell)

    @property
    def has_providers(self) -> bool:
        """Whether any provider is limited."""
        return bool(self._providers)

    def around_attempts(self, ask: Ask) -> Ask:
        """`ask`, as far as the limits of the providers go that it asks."""

        async def limited(request: Request, provider: Provider, target: Target) -> Reply:
            assert request.call is not None
            make = partial(ask, request, provider, target)
            return await self.attempt(provider.id, request.call, make)

        return limited

    async def attempt(
        self, provider: str, call: Call, ask: Callable[[], Awaitable[Reply]]
    ) -> Reply:
        """The reply of a provider that `ask` asks, if its own limits have room for that.

        Raises:
            APIError: 429, one has not; or whatever `ask` raises.
        """
        rules = self._providers.get(provider, ())
        if not rules:
            return await ask()
        demand = await _demand(rules, call, lambda usage: None)
        try:
            admission = await self._limiter.admit(rules, demand)
        except APIError as refusal:
            refusal.was_sent = False
            raise
        try:
            reply = await ask()
        except BaseException:
            if (settling := admission.settle(0, 0)) is not None:
                await done_soon(settling)
            raise
        reply.when_closed(partial(_settle_attempt, admission))
        return reply


async def _demand(rules: Rules, call: Call, cost: Callable[[Usage], int | None]) -> Demand:
    limits_tokens = limits_costs = False
    for rule in rules:
        if rule.resource is Resource.tokens:
            limits_tokens = True
        elif rule.resource is Resource.budget:
            limits_costs = True
    if not limits_tokens and not limits_costs:
        return NO_DEMAND
    extent = call.extent
    size = extent.prompt.size
    if size <= LARGE_BYTES:  # `off_loop` without its coroutine, as nearly all are small
        usage = extent.usage(COMPLETION_TOKENS)
    else:
        usage = await off_loop(size, extent.usage, COMPLETION_TOKENS)
    return Demand(
        usage.prompt_tokens + usage.completion_tokens,
        extent.max_tokens is None,
        (cost(usage) or 0) / NANO_DOLLARS if limits_costs else 0.0,
    )


def _settle_attempt(admission: Admission, reply: Reply) -> asyncio.Task[None] | None:
    usage = reply.usage
    if usage is None:
        return admission.settle(None, 0.0)
    return admission.settle_usage(sane(usage), 0)
