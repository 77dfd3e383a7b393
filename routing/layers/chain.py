"""The chain of one runtime, put together once, of what its template asks for and nothing else.

    limits -> files -> mirrors -> responses -> cache -> server tools -> guardrails -> reasoning
        -> policy -> ( trace headers -> provider limits ) -> provider

    files -> responses -> server tools -> guardrails -> reasoning -> deferral -> provider

The second is of lines that a vendor's own batch answers, of which there may be none: they are held
against limits as a batch, and neither mirrored nor looked for in a cache.

What is in brackets sees to each attempt by itself. A mirror's copy begins behind the responses:
what it costs is nobody's doing but the template's. Guardrails look through what goes to a model and
comes from one: what is kept here is the client's own, and passes them each time that it is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from llama_compat.exchange import Reply
from routing.layers.policy import AttemptLayer, by_policy
from routing.request import Handler, Request

if TYPE_CHECKING:
    from llama_compat.reasoning.memory import ReasoningMemory
    from routing.access.limits.requests import RequestLimits
    from routing.batches.files import FileStore
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


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedLayers:
    """What a template asks for.

    Attributes:
        limits: which hold for whom; with them `ledger`, which knows what requests come to.
        ledger: that.
        tracer: tells vendors which trace they are part of.
        files: those that clients have uploaded; None where none are kept.
        max_files_bytes: what those that one request names may come to.
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

    limits: RequestLimits | None = None
    ledger: Ledger | None = None
    tracer: Tracer | None = None
    files: FileStore | None = None
    max_files_bytes: int = 0
    responses: ResponseStore | None = None
    background: BackgroundResponses | None = None
    mirrors: bool = False
    reasoning: ReasoningMemory | None = None
    caches: Mapping[str, ExactCache | None] | None = None
    tools: ServerTools | None = None
    guardrails: Guardrails | None = None
    hands_over: bool = False


def chain_of(owner: Owner, wanted: WantedLayers) -> Chain:
    """The layers that are asked for, in their order."""
    attempt_layers: list[AttemptLayer] = []
    if wanted.tracer is not None:
        attempt_layers.append(wanted.tracer.around_attempts)
    if wanted.limits is not None and wanted.limits.has_providers:
        attempt_layers.append(wanted.limits.around_attempts)
    by_targets = by_policy(attempt_layers)
    if wanted.guardrails is not None:
        wanted.guardrails.asking.through(by_targets, owner.begin, owner.route)
    by_targets = _looked_through(by_targets, wanted)
    # A mirror's copy has no tools run: what they do would be done twice.
    answer, equip = _with_tools(by_targets, wanted)
    cache: CacheLayer | None = None
    if wanted.caches is not None:
        from routing.layers.cache import CacheLayer

        answer = cache = CacheLayer(answer, wanted.caches, owner, guardrails=wanted.guardrails)
    answer = _kept(answer, owner, wanted, equip)
    copies: Mirrors | None = None
    if wanted.mirrors:
        answer = copies = _mirrored(answer, by_targets, owner, wanted)
    answer = _with_files(answer, wanted)
    if wanted.limits is not None and wanted.ledger is not None:
        from routing.layers.limits import LimitsLayer

        answer = LimitsLayer(answer, wanted.limits, wanted.ledger)
    repeats = cache is not None and not (copies or wanted.limits)
    return Chain(answer, copies, cache, _deferred(owner, wanted), repeats)


def _deferred(owner: Owner, wanted: WantedLayers) -> Handler | None:
    """What answers the lines that a vendor's own batch does; None where there are none."""
    if not wanted.hands_over:
        return None
    from routing.layers.deferred import by_deferral

    handler, equip = _with_tools(_looked_through(by_deferral, wanted), wanted)
    return _with_files(_kept(handler, owner, wanted, equip), wanted)


def _looked_through(handler: Handler, wanted: WantedLayers) -> Handler:
    """What a provider is asked has to pass, and what it says."""
    if wanted.reasoning is not None:
        from routing.layers.reasoning import ReasoningLayer

        handler = ReasoningLayer(handler, wanted.reasoning)
    if wanted.guardrails is not None:
        from routing.layers.guardrails import GuardrailsLayer

        handler = GuardrailsLayer(handler, wanted.guardrails)
    return handler


def _with_tools(handler: Handler, wanted: WantedLayers) -> tuple[Handler, Equip | None]:
    """With the tools that the server runs, and what gives them to a call that is made later."""
    if wanted.tools is None:
        return handler, None
    from routing.layers.server_tools import ServerToolsLayer

    most_cost = None if wanted.ledger is None else wanted.ledger.most
    layer = ServerToolsLayer(handler, wanted.tools, most_cost)
    return layer, layer.equipped


def _kept(handler: Handler, owner: Owner, wanted: WantedLayers, equip: Equip | None) -> Handler:
    """With responses that are kept, and gone on from."""
    if wanted.background is None:
        return handler
    from routing.layers.keeping.responses import Responses

    return Responses(handler, wanted.responses, wanted.background, owner, equip)


def _mirrored(handler: Handler, by_targets: Handler, owner: Owner, wanted: WantedLayers) -> Mirrors:
    """With copies that are sent elsewhere, straight to their targets."""
    from routing.layers.mirrors import Mirrors

    async def answer_copy(copy: Request) -> Reply:
        owner.route(copy)
        return await by_targets(copy)

    own = None if wanted.guardrails is None else wanted.guardrails.own
    return Mirrors(handler, answer_copy, owner.begin, own)


def _with_files(handler: Handler, wanted: WantedLayers) -> Handler:
    """With what is in the files that are named."""
    if wanted.files is None:
        return handler
    from routing.layers.files import FilesLayer

    return FilesLayer(handler, wanted.files, wanted.max_files_bytes)
