"""The limits of one distribution, held against its requests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from llama_compat.distribution import Distribution
from llama_compat.exchange import Call, Principal, Reply
from llama_compat.types import Usage
from routing.operations.limits.estimates import expected_usage
from routing.operations.limits.limiter import NANO_DOLLARS, Admission, Limiter, Tell
from routing.operations.limits.rules import Demand, Resource, Rule, rules_of

if TYPE_CHECKING:
    from llama_compat.exchange import Target
    from providers.base import Provider
    from routing.policy.dispatch import Ask

Rules = tuple[Rule, ...]


class RequestLimits:
    """Which rules hold for whom. Who observes requests settles each when it has ended.

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
        own: Rules = ()
        if principal.limits is not None or principal.budget is not None:
            own = self._own_rules(principal)
        team = self._teams.get(principal.team, ()) if principal.team else ()
        return own + team + self._models.get(model, ())

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
        return await self._limiter.admit(rules, _demand(rules, call, cost), tell)

    def around(self, call: Call, ask: Ask) -> Ask:
        """`ask`, as far as the limits of the providers go that it asks."""
        if not self._providers:
            return ask

        async def limited(provider: Provider, target: Target) -> Reply:
            return await self.attempt(provider.id, call, partial(ask, provider, target))

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
        admission = await self._limiter.admit(rules, _demand(rules, call, lambda usage: None))
        try:
            reply = await ask()
        except BaseException:
            admission.settle(0, 0)
            raise
        reply.when_closed(partial(_settle_attempt, admission))
        return reply


def _demand(rules: Rules, call: Call, cost: Callable[[Usage], int | None]) -> Demand:
    resources = {rule.resource for rule in rules}
    if not resources & {Resource.tokens, Resource.budget}:
        return Demand()
    usage = expected_usage(call)
    return Demand(
        usage.prompt_tokens + usage.completion_tokens,
        is_guess=call.max_tokens is None,
        cost=(cost(usage) or 0) / NANO_DOLLARS if Resource.budget in resources else 0.0,
    )


def _settle_attempt(admission: Admission, reply: Reply) -> None:
    usage = reply.usage
    admission.settle(None if usage is None else usage.prompt_tokens + usage.completion_tokens, 0.0)
