"""Targets and policies for tests: providers that are asked nothing, and chance that is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llama_compat.distribution import ProviderSettings, RoutingSettings
from llama_compat.error_classes import ErrorClass
from llama_compat.errors import APIError, UnsupportedHere
from llama_compat.exchange import Target
from providers.base import Provider, ProviderConfig
from routing.policy.plan import Policy
from routing.policy.targets import LiveTarget, ProviderState

NOW = 1000.0

C = ErrorClass

ERRORS: dict[ErrorClass, tuple[int, str | None]] = {
    C.context_length: (400, "context_length_exceeded"),
    C.content_filter: (400, "content_filter"),
    C.quota: (429, "insufficient_quota"),
    C.rate_limit: (429, None),
    C.authentication: (502, "upstream_authentication"),
    C.overloaded: (529, None),
    C.timeout: (504, None),
    C.connection: (502, "upstream_connection_failed"),
    C.not_found: (404, None),
    C.bad_request: (400, None),
    C.server_error: (500, None),
    C.other: (418, None),
}


def error_of(kind: ErrorClass, **headers: str) -> APIError:
    """An error of this class."""
    if kind is C.unsupported:
        return UnsupportedHere(400, "can't", param="seed", code="unsupported_parameter")
    status, code = ERRORS[kind]
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    made = APIError(status, f"it is {kind}", code=code, headers=named)
    assert made.error_class is kind
    return made


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
