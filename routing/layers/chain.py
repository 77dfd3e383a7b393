"""The chain of one runtime, put together once, of what its template asks for and nothing else.

    limits -> mirrors -> responses -> cache -> reasoning -> policy
        -> ( trace headers -> provider limits ) -> provider

What is in brackets sees to each attempt by itself. A mirror's copy begins behind the responses:
what it costs is nobody's doing but the template's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from llama_compat.exchange import Reply
from routing.layers.policy import AttemptLayer, by_policy
from routing.request import Handler, Request

if TYPE_CHECKING:
    from llama_compat.reasoning.memory import ReasoningMemory
    from routing.access.limits.requests import RequestLimits
    from routing.layers.background import BackgroundResponses
    from routing.layers.cache import CacheLayer, ExactCache
    from routing.layers.mirrors import Mirrors
    from routing.observability.records.ledger import Ledger
    from routing.observability.telemetry.tracer import Tracer
    from routing.storage.responses import ResponseStore


class Owner(NamedTuple):
    """What layers need of the runtime whose chain they are in.

    Attributes:
        begin: begins a request that came from no client.
        route: looks up where one goes.
        hold, release: keep what answers requests running between the two.
    """

    begin: Callable[[Request], None]
    route: Callable[[Request], None]
    hold: Callable[[], None]
    release: Callable[[], None]


class Chain(NamedTuple):
    """A chain of layers.

    Attributes:
        answer: answers a request whose `route` is there.
        mirrors, cache: the layers that have to be stopped; None where they are not there.
    """

    answer: Handler
    mirrors: Mirrors | None = None
    cache: CacheLayer | None = None


def chain_of(
    owner: Owner,
    *,
    limits: RequestLimits | None = None,
    ledger: Ledger | None = None,
    tracer: Tracer | None = None,
    responses: ResponseStore | None = None,
    background: BackgroundResponses | None = None,
    mirrors: bool = False,
    reasoning: ReasoningMemory | None = None,
    caches: Mapping[str, ExactCache | None] | None = None,
) -> Chain:
    """The layers that are asked for, in their order.

    Args:
        owner: the runtime.
        limits: which hold for whom; with them `ledger`, which knows what requests come to.
        ledger: that.
        tracer: tells vendors which trace they are part of.
        responses: where responses are kept.
        background: those that nobody waits for; None where no response is gone on from, be it kept
            or made on the same WebSocket.
        mirrors: whether any model is mirrored.
        reasoning: where is kept what has to come back; None where nothing has to.
        caches: of replies, by model; None where no model has one.
    """
    attempt_layers: list[AttemptLayer] = []
    if tracer is not None:
        attempt_layers.append(tracer.around_attempts)
    if limits is not None and limits.has_providers:
        attempt_layers.append(limits.around_attempts)
    by_targets = by_policy(attempt_layers)
    if reasoning is not None:
        from routing.layers.reasoning import ReasoningLayer

        by_targets = ReasoningLayer(by_targets, reasoning)
    answer = by_targets
    cache: CacheLayer | None = None
    if caches is not None:
        from routing.layers.cache import CacheLayer

        answer = cache = CacheLayer(answer, caches, owner)
    if background is not None:
        from routing.layers.responses import Responses

        answer = Responses(answer, responses, background, owner)
    copies: Mirrors | None = None
    if mirrors:
        from routing.layers.mirrors import Mirrors

        async def answer_copy(copy: Request) -> Reply:
            owner.route(copy)
            return await by_targets(copy)

        answer = copies = Mirrors(answer, answer_copy, owner.begin)
    if limits is not None and ledger is not None:
        from routing.layers.limits import LimitsLayer

        answer = LimitsLayer(answer, limits, ledger)
    return Chain(answer, copies, cache)
