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
from llama_compat.types import Usage
from routing.access.limits.limiter import Admission, Limiter, Tell, nobody
from routing.access.limits.rules import NO_DEMAND, Charge, Demand, Rules, rules_of
from routing.observability.records.estimate import sane

if TYPE_CHECKING:
    from llama_compat.exchange import Target
    from providers.base import Provider
    from routing.layers.policy import Ask
    from routing.request import Request

NO_RULES = Rules()

COMPLETION_TOKENS = 512
"""Of a reply whose request leaves open how long it may be."""

MOST_MET = 4096
"""Of so many pairs of who asks and what for it is remembered which rules they meet."""


def _free(usage: Usage) -> None:
    """Nobody pays for it here."""


class RequestLimits:
    """Which rules hold for whom.

    Args:
        distribution: whose limits they are.
        limiter: where they are held.
    """

    def __init__(self, distribution: Distribution, limiter: Limiter) -> None:
        self._limiter = limiter
        self._met: dict[tuple[str, str], tuple[Principal, Rules]] = {}
        self._teams = {
            each.id: Rules(
                rules_of(f"team:{each.id}", f"team '{each.id}'", each.limits, each.budget)
            )
            for each in distribution.teams
        }
        self._models = {
            name: Rules(rules_of(f"model:{each.id}", f"model '{each.id}'", each.limits))
            for each in distribution.models
            if each.limits is not None
            for name in (each.id, *each.aliases)
        }
        self._providers = {
            each.id: Rules(rules_of(f"provider:{each.id}", f"provider '{each.id}'", each.limits))
            for each in distribution.providers
            if each.limits is not None
        }

    def rules(self, principal: Principal, model: str) -> Rules:
        """Those that a request for `model` meets before it goes to a provider."""
        before, rules = self._met.get((principal.id, model), (None, NO_RULES))
        if before is not principal:
            rules = self._rules(principal, model)
            if len(self._met) >= MOST_MET:
                self._met.clear()
            self._met[principal.id, model] = principal, rules
        return rules

    def _rules(self, principal: Principal, model: str) -> Rules:
        own, team = rules_of_key(principal), self.rules_of_team(principal.team or "")
        return Rules((*own, *team, *self._models.get(model, NO_RULES)))

    def rules_of_team(self, team: str) -> Rules:
        """Those of a team, by its id."""
        return self._teams.get(team, NO_RULES)

    @property
    def is_away(self) -> bool:
        """Whether nobody can be asked at the moment what is used."""
        return self._limiter.counters.is_away

    async def look(self, rules: Rules) -> list[tuple[Charge, float, float]]:
        """What is used and what is reserved of each of `rules`.

        Raises:
            CountersAway: nobody knows.
        """
        return await self._limiter.look(rules)

    def admit(
        self,
        rules: Rules,
        call: Call,
        cost: Callable[[Usage], int | None] = _free,
        tell: Tell = nobody,
    ) -> Awaitable[Admission]:
        """Let `call` in, if every rule has room for it.

        Args:
            rules: that it meets, at least one.
            call: what is asked.
            cost: what a usage may cost, in billionths of a dollar; None where nobody knows.
            tell: called with what is left.

        Returns:
            What has to be settled.

        Raises:
            APIError: 429, a rule has no room; 503, nobody knows, and the template wants it so.
        """
        demand = NO_DEMAND
        if rules.limits_tokens or rules.limits_costs:
            usage = call.extent.usage(COMPLETION_TOKENS)
            demand = Demand(
                usage.prompt_tokens + usage.completion_tokens,
                call.extent.max_tokens is None,
                (cost(usage) or 0) / NANO_DOLLARS if rules.limits_costs else 0.0,
            )
        return self._limiter.admit(rules, demand, tell)

    def take(self, rules: Rules, demand: Demand) -> Awaitable[Admission]:
        """As `admit`, of what is no call: lines that are handed over together."""
        return self._limiter.admit(rules, demand)

    def owe(self, rules: Rules, demand: Demand) -> Admission:
        """What has to be settled of what was let in by a process that has ended."""
        return self._limiter.owe(rules, demand)

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
        rules = self._providers.get(provider, NO_RULES)
        if not rules:
            return await ask()
        try:
            admission = await self.admit(rules, call)
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


def rules_of_key(principal: Principal) -> Rules:
    """Those of a key itself."""
    name = f"key '{principal.name or principal.id}'"
    return Rules(rules_of(f"key:{principal.id}", name, principal.limits, principal.budget))


def _settle_attempt(admission: Admission, reply: Reply) -> asyncio.Task[None] | None:
    usage = reply.usage
    if usage is None or not (reply.is_complete or usage.prompt_tokens):
        return admission.settle(None, 0.0)
    return admission.settle_usage(sane(usage))
