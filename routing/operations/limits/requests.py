"""The limits of one distribution, held against its requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from llama_compat.distribution import BudgetSettings, Distribution, LimitSettings
from llama_compat.exchange import Call, Principal, Reply
from llama_compat.types import Usage
from routing.operations.keys.ring import Key
from routing.operations.limits.estimates import Estimate, estimate
from routing.operations.limits.limiter import Admission, Limiter, Tell
from routing.operations.limits.rules import Demand, Resource, Rule, rules_of

Price = Callable[[str, Usage], float | None]
"""What the usage of a public model costs in US dollars; None where nobody knows."""

Rules = tuple[Rule, ...]

_COUNTED = (Resource.tokens, Resource.budget)
"""What needs to know how many tokens a request was."""


class RequestLimits:
    """Which rules hold for whom.

    Args:
        distribution: whose limits they are.
        limiter: where they are held.
        price: of a model's tokens.
    """

    def __init__(self, distribution: Distribution, limiter: Limiter, price: Price) -> None:
        self._limiter = limiter
        self._price = price
        self._teams = {
            team.id: tuple(
                rules_of(f"team:{team.id}", f"team '{team.id}'", team.limits, team.budget)
            )
            for team in distribution.teams
        }
        self._models: dict[str, Rules] = {}
        for model in distribution.models:
            rules = tuple(rules_of(f"model:{model.id}", f"model '{model.id}'", model.limits))
            self._models |= dict.fromkeys((model.id, *model.aliases), rules)
        self._providers = {
            each.id: tuple(rules_of(f"provider:{each.id}", f"provider '{each.id}'", each.limits))
            for each in distribution.providers
        }

    def rules(self, principal: Principal, key: Key | None, model: str) -> Rules:
        """Those that a request for `model` meets before it goes to a provider."""
        return (
            *(_key_rules(principal, key.limits, key.budget) if key is not None else ()),
            *self._teams.get(principal.team or "", ()),
            *self._models.get(model, ()),
        )

    def provider_rules(self, provider: str) -> Rules:
        """Those that an attempt at a provider meets."""
        return self._providers.get(provider, ())

    async def admit(self, rules: Rules, call: Call, tell: Tell = lambda limits: None) -> Admitted:
        """Let `call` in, if every one of `rules` has room for it.

        Raises:
            APIError: 429, one has not; 503, nobody knows, and the template wants it so.
        """
        guess = estimate(call) if counts_tokens(rules) else Estimate(0)
        demand = Demand(
            guess.prompt_tokens + guess.completion_tokens,
            guess.is_guess,
            self._price(call.model, Usage(guess.prompt_tokens, guess.completion_tokens)) or 0.0,
        )
        admission = await self._limiter.admit(rules, demand, tell)
        return Admitted(admission, guess, lambda usage: self._price(call.model, usage))


def _key_rules(
    principal: Principal, limits: LimitSettings | None, budget: BudgetSettings | None
) -> Iterator[Rule]:
    return rules_of(
        f"key:{principal.id}", f"key '{principal.name or principal.id}'", limits, budget
    )


def counts_tokens(rules: Rules) -> bool:
    """Whether one of `rules` needs to know a reply's usage."""
    return any(rule.resource in _COUNTED for rule in rules)


class Admitted:
    """A request that was let in. One of its ends has to be told, and only the first counts."""

    def __init__(
        self, admission: Admission, guess: Estimate, price: Callable[[Usage], float | None]
    ) -> None:
        self._admission = admission
        self._guess = guess
        self._price = price

    def failed(self) -> asyncio.Task[None] | None:
        """It ended with nothing that anybody pays for."""
        return self._admission.settle(0, 0)

    def ended(self, reply: Reply) -> asyncio.Task[None] | None:
        """Its reply has ended, or was left: what was counted is what it came to, and what it was
        thought to be if nobody counted."""
        usage = reply.usage
        if usage is None:
            return self._admission.settle(None, None)
        tokens = usage.prompt_tokens + usage.completion_tokens
        return self._admission.settle(tokens, self._price(usage) or 0.0)
