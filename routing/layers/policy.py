"""What every chain ends in: the model's targets are asked, one after the other, by its policy."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any

from llama_compat.exchange import Reply, Target
from providers.answer import answer
from providers.base import Provider
from routing.policy.dispatch import dispatch
from routing.request import Handler, Request

Ask = Callable[[Request, Provider, Target], Awaitable[Reply]]
"""Makes one attempt."""

AttemptLayer = Callable[[Ask], Ask]
"""Sees to each attempt by itself; made of what sees to it next."""


def by_policy(layers: Iterable[AttemptLayer] = ()) -> Handler:
    """Answers a request from the first of its targets that answers.

    Args:
        layers: see to each attempt; the first is the outermost.
    """
    ask: Ask = _ask
    for layer in reversed(list(layers)):
        ask = layer(ask)

    def handle(request: Request) -> Coroutine[Any, Any, Reply]:
        call, route = request.call, request.route
        assert call is not None
        assert route is not None

        def attempt(provider: Provider, target: Target) -> Awaitable[Reply]:
            return ask(request, provider, target)

        return dispatch(route.targets, route.policy, call, attempt, request.attempts)

    return handle


def _ask(request: Request, provider: Provider, target: Target) -> Awaitable[Reply]:
    assert request.call is not None
    return answer(provider, request.call, target)
