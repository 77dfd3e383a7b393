"""Targets and policies for tests: providers that are asked nothing, and chance that is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llama_compat.distribution import ProviderSettings, RoutingSettings
from llama_compat.exchange import Target
from providers.base import Provider, ProviderConfig
from routing.policy.plan import Policy
from routing.policy.targets import LiveTarget, ProviderState

NOW = 1000.0


class Holding(Provider):
    """Knows how much its models hold."""

    holds: int | None = None

    def context_length(self, model: str) -> int | None:
        return self.holds


def target(
    name: str,
    *,
    model: str = "m",
    weight: float = 1.0,
    priority: int = 0,
    room: int | None = None,
    max_concurrent: int | None = None,
    max_waiting: int = 0,
) -> LiveTarget:
    """The target `NAME/MODEL` of a provider of its own."""
    settings = ProviderSettings(
        id=name, type="local::test", max_concurrent=max_concurrent, max_waiting=max_waiting
    )
    provider = Holding(name, ProviderConfig(), [])
    provider.holds = room
    state = ProviderState(name, settings).target(model)
    return LiveTarget(provider, Target(model), state, weight, priority)


def policy(chance: Callable[[], float] = lambda: 0.0, **settings: Any) -> Policy:
    """A policy whose `retries` may be given one by one."""
    return Policy(RoutingSettings.model_validate(settings), chance)
