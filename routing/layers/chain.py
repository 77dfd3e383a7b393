"""The chain of one runtime, put together once, of what its template asks for and nothing else.

    limits -> mirrors -> responses -> cache -> server tools -> guardrails -> reasoning -> policy
        -> ( trace headers -> provider limits ) -> provider

    responses -> server tools -> guardrails -> reasoning -> deferral -> provider

The second is of lines that a vendor's own batch answers, of which there may be none: they are held
against limits as a batch, and neither mirrored nor looked for in a cache.

What is in brackets sees to each attempt by itself. A mirror's copy begins behind the responses:
what it costs is nobody's doing but the template's. Guardrails look through what goes to a model and
comes from one: what is kept here is the client's own, and passes them each time that it is sent.
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
    from routing.cache.exact import ExactCache
    from routing.layers.cache import CacheLayer
    from routing.layers.guardrails import Guardrails
    from routing.layers.keeping.background import BackgroundResponses
    from routing.layers.keeping.responses import Equip
    from routing.layers.mirrors import Mirrors
    from routing.observability.records.ledger import Ledger
    from routing.observability.telemetry.tracer import Tracer
    from routing.storage.responses import ResponseStore
    from routing.tools.toolbox import ServerTools


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
        defer: answers a line that a vendor's own batch answers; None where there are none.
        repeats: whether nobody before the cache has anything to do with a request that is there.
    """

    answer: Handler
    mirrors: Mirrors | None = None
    cache: CacheLayer | None = None
    defer: Handler | None = None
    repeats: bool = False


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
    tools: ServerTools | None = None,
    guardrails: Guardrails | None = None,
    hands_over: bool = False,
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
        tools: what the server runs for models; None for nothing.
        guardrails: what is looked through; None where nothing is.
        hands_over: whether any lines go to vendors' own batches.
    """

    def looked_through(handler: Handler) -> Handler:
        """What a provider is asked has to pass, and what it says."""
        if reasoning is not None:
            from routing.layers.reasoning import ReasoningLayer

            handler = ReasoningLayer(handler, reasoning)
        if guardrails is not None:
            from routing.layers.guardrails import GuardrailsLayer

            handler = GuardrailsLayer(handler, guardrails)
        return handler

    equipped: Equip | None = None

    def with_tools(handler: Handler) -> Handler:
        if tools is None:
            return handler
        from routing.layers.server_tools import ServerToolsLayer

        nonlocal equipped
        layer = ServerToolsLayer(handler, tools, None if ledger is None else ledger.most)
        equipped = layer.equipped
        return layer

    def kept(handler: Handler) -> Handler:
        if background is None:
            return handler
        from routing.layers.keeping.responses import Responses

        return Responses(handler, responses, background, owner, equipped)

    attempt_layers: list[AttemptLayer] = []
    if tracer is not None:
        attempt_layers.append(tracer.around_attempts)
    if limits is not None and limits.has_providers:
        attempt_layers.append(limits.around_attempts)
    by_targets = by_policy(attempt_layers)
    if guardrails is not None:
        guardrails.asking.through(by_targets, owner.begin, owner.route)
    by_targets = looked_through(by_targets)
    # A mirror's copy has no tools run: what they do would be done twice.
    answer = with_tools(by_targets)
    cache: CacheLayer | None = None
    if caches is not None:
        from routing.layers.cache import CacheLayer

        answer = cache = CacheLayer(answer, caches, owner, guardrails=guardrails)
    answer = kept(answer)
    copies: Mirrors | None = None
    if mirrors:
        from routing.layers.mirrors import Mirrors

        async def answer_copy(copy: Request) -> Reply:
            owner.route(copy)
            return await by_targets(copy)

        answer = copies = Mirrors(
            answer, answer_copy, owner.begin, None if guardrails is None else guardrails.own
        )
    if limits is not None and ledger is not None:
        from routing.layers.limits import LimitsLayer

        answer = LimitsLayer(answer, limits, ledger)
    defer: Handler | None = None
    if hands_over:
        from routing.layers.deferred import by_deferral

        defer = kept(with_tools(looked_through(by_deferral)))
    repeats = cache is not None and not (copies or limits)
    return Chain(answer, copies, cache, defer, repeats)
