"""What the server runs on: the providers, the model table and the keys of one distribution."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from fastapi import Request as HTTPRequest

from llama_compat.catalog import Catalog
from llama_compat.distribution import Distribution
from llama_compat.errors import APIError
from llama_compat.exchange import ANYBODY, Principal
from llama_compat.text.one_line import one_line
from llama_compat.types import ModelInfo
from providers.shared import Shared
from routing.access.keys.ring import KeyRing
from routing.asgi import RawHeaders
from routing.auth import AdminGate, Authenticator, Overseers, keys_unavailable, not_an_overseer
from routing.cache.readings import Readings
from routing.ingress.body import Bodies
from routing.layers.chain import Owner, WantedLayers, chain_of
from routing.layers.keeping.adopting import Adopter
from routing.layers.keeping.background import BackgroundResponses
from routing.models import ModelTable
from routing.observability.assembly import observers_of
from routing.parts.layered import goes_on, guardrails_of, load_checks
from routing.parts.parts import Parts
from routing.parts.storing import check_batches
from routing.parts.watching import ledger_of, limits_of, sample_bytes_of
from routing.policy.targets import States
from routing.request import Request
from routing.routes import find_route
from routing.storage.storage import StorageError

if TYPE_CHECKING:
    from routing.observability.records.ledger import Ledger

log = logging.getLogger(__name__)

Part = TypeVar("Part")


class Runtime:
    """The providers of a distribution, started and stopped together.

    A request takes the runtime that the application has when it comes in, and keeps it to its end.

    Args:
        distribution: what to serve.
        previous: the runtime in whose place this one comes, which runs. What both have in common
            is shared, and ends with the last of them: providers whose settings are the same, with
            their connections, models and counts, the store of responses, and what limits count.

    Attributes:
        distribution: what is served.
        settings: of the server.
        providers: by id.
        states: what is known of each target.
        models: the public ids, and where each leads.
        fleet: the other gateways that serve the same; None where the template names no store.
        replicas: models on a Ray cluster; None where no provider has any there.
        residency: who says which models are in memory; None where all of them are.
        access: stored keys, and where limits are counted; None where there is neither.
        keys: all that let somebody in.
        bodies: what the bodies of all requests come to.
        readings: what was read of requests; None where nobody would save anything by it.
        authenticator: tells who is asking.
        admin: lets in who may see to the server.
        overseers: who may see how all of it does.
        audit: what whoever runs the server does to it; None where nobody can.
        limits: which limits hold for whom; None where there are none.
        responses: where responses are kept; None where the template wants none kept.
        files: where files are kept; None where it wants none.
        batches: works on them; None where there are none.
        vector_stores: what is made of files; None where there are none.
        tools: what the server runs for models; None for nothing.
        background: the responses that nobody waits for.
        ledger: makes records of requests; None where nobody needs any.
        observers: who wants to know of requests; None where nobody does.
        running: the requests that have not ended.
        answer: answers a request that has been begun and whose route is known.
        defer: the same of a line that a vendor's own batch answers; None where there are none.
        repeats: whether a request that was answered from the cache may be answered so again without
            being read.
        is_replaced: whether new requests go to another runtime.
        ready: whether every provider has started.
    """

    def __init__(self, distribution: Distribution, previous: Runtime | None = None) -> None:
        self.distribution = distribution
        self.settings = distribution.server
        parts = Parts(distribution, previous._parts if previous else None)
        self._parts: Parts = parts
        self.providers = {id: shared.value for id, shared in parts.providers.items()}
        self.states: States = States(distribution.providers, previous.states if previous else None)
        catalog = Catalog.of(distribution)
        self.models = ModelTable(
            distribution.models, self.providers, distribution.routing, self.states, catalog
        )
        self.fleet = _value(parts.fleet)
        self.access = _value(parts.access)
        stored = self.access.keys if self.access and self.settings.stored_keys else None
        self.keys = KeyRing.of(distribution, stored)
        self.authenticator = Authenticator(self.keys)
        self.admin = AdminGate(self.settings.admin_key)
        self.overseers = Overseers(self.settings, is_open=self.keys.is_open)
        self.bodies = Bodies(distribution.server.max_bodies_bytes)
        self.replicas = _value(parts.replicas)
        self.residency = _value(parts.residency)
        self.responses = _value(parts.responses)
        self.files = _value(parts.files)
        self.batches = _value(parts.batches)
        self.vector_stores = _value(parts.vector_stores)
        self.audit = _value(parts.audit)
        self.tools = _value(parts.tools)
        self.limits = limits_of(distribution, self.access)
        self.ledger: Ledger | None = ledger_of(distribution, self.limits, catalog)
        self.observers = (
            observers_of(distribution, self.providers, self.states, self.ledger)
            if self.ledger is not None
            else None
        )
        self.running: set[Request] = set()
        self._sample_bytes = sample_bytes_of(self.observers, self.ledger)
        self.background = BackgroundResponses(self.responses, self.providers, Adopter(self))
        self.readings = None if parts.caches is None else Readings()
        self._guardrails = guardrails_of(distribution)
        owner = Owner(self.begin, self.route, self.hold, self.release)
        chain = chain_of(owner, self._wanted(parts))
        self.answer, self._mirrors, self._cache, self.defer, self.repeats = chain
        check_batches(distribution, self.providers)
        self.is_replaced = False
        self.ready = False
        self._running = AsyncExitStack()
        self._requests = 0
        self._abandoned = False
        self._unused = asyncio.Event()

    def _wanted(self, parts: Parts) -> WantedLayers:
        """The layers of its chain."""
        return WantedLayers(
            limits=self.limits,
            ledger=self.ledger,
            tracer=self.observers.tracer if self.observers is not None else None,
            files=self.files,
            max_files_bytes=self.settings.max_body_bytes,
            responses=self.responses,
            background=self.background if goes_on(self.settings) else None,
            mirrors=self.models.has_mirrors,
            reasoning=parts.reasoning,
            caches=parts.caches,
            tools=self.tools,
            guardrails=self._guardrails,
            hands_over=self.distribution.hands_over,
        )

    async def start(self) -> None:
        """Start all providers side by side, but for those that run already.

        Raises:
            ProviderStartError: one can't; those that did are still running.
        """
        await self._start_what_is_kept()
        await self._start_providers()
        await self._start_work()

    async def _start_what_is_kept(self) -> None:
        """Start what there has to be before the providers: storage, and who counts."""
        if self._parts.fleet is not None:
            await self._start(self._parts.fleet)
        if self._parts.access is not None:
            await self._start(self._parts.access)
            self._say_teams_gone()
        if self.ledger is not None:
            await self.ledger.prices.start()
        if self.observers is not None:
            if self.observers.meter is not None:
                self.observers.meter.watch(self.running, self.fleet, self.access)
            self._running.push_async_callback(self.observers.stop)
            await self.observers.start()
        if self._parts.audit is not None:
            await self._start(self._parts.audit)
        if self._parts.responses is not None:
            await self._start(self._parts.responses)
        if self._parts.tools is not None:
            await self._start(self._parts.tools)
        for cache in (self._parts.caches or {}).values():
            if cache is not None:
                await self._start(cache.opened)
        if self._parts.files is not None:
            await self._start(self._parts.files)
        if self._parts.replicas is not None:
            await self._start(self._parts.replicas)
        if self._parts.residency is not None:
            self._running.push_async_callback(self._parts.residency.release)
            self._parts.residency.hold()

    async def _start_providers(self) -> None:
        """Start all providers side by side."""
        starts = [asyncio.create_task(self._start(each)) for each in self._parts.providers.values()]
        try:
            await asyncio.gather(*starts)
        finally:
            # Where one failed, or the start is cancelled, the others may be half-way.
            for start in starts:
                start.cancel()
            await asyncio.gather(*starts, return_exceptions=True)

    async def _start_work(self) -> None:
        """Start what asks the providers; then it is ready."""
        if self._parts.replicas is not None:
            self._running.callback(self.models.follow())
        self._running.callback(self.models.follow_caches())
        if self._parts.vector_stores is not None:
            # After the providers, so that it is stopped before them.
            await self._start(self._parts.vector_stores)
        self._running.push_async_callback(self.background.stop)
        if self._guardrails is not None:
            self._running.push_async_callback(self._guardrails.asking.stop)
            await load_checks(self.distribution)
        if self._mirrors is not None:
            self._running.push_async_callback(self._mirrors.stop)
        if self._cache is not None:
            self._running.push_async_callback(self._cache.stop)
        self.background.start()
        if self.fleet is not None:
            self.fleet.watch(self.states)
        self.ready = True
        if self.residency is not None:
            assert self.distribution.memory is not None
            self.residency.settle(self.distribution.memory, self.distribution.residency)
        if self._parts.batches is not None:
            from routing.batches.asking import Asker

            self._running.push_async_callback(self._parts.batches.release)
            self._parts.batches.hold()
            await self._parts.batches.value.serve(Asker(self))
        if self.vector_stores is not None:
            from routing.vector_stores.embedding import TextEmbedder

            assert self.settings.vector_stores is not None
            dimensions = self.settings.vector_stores.dimensions
            self.vector_stores.serve(TextEmbedder(self, dimensions))

    async def _start(self, part: Shared[Any]) -> None:
        self._running.push_async_callback(part.release)
        if part.hold():
            await part.value.start()

    def _say_teams_gone(self) -> None:
        """Name the stored keys that open nothing, as the template has not (any more) their team."""
        for key in self.keys.of_no_team(time.time()):
            who = key.principal
            log.warning(
                "key %s (%s) opens nothing: the template has no team '%s'. Add it to `teams`, or"
                " change the key's.",
                who.id,
                one_line(who.name),
                one_line(who.team or ""),
            )

    async def principal(self, headers: RawHeaders) -> Principal:
        """Whose key there is among a request's headers; one that is new is looked for.

        Raises:
            APIError: 401; 503, nobody can look for it now.
        """
        try:
            return self.authenticator.principal(headers)
        except APIError:
            keeper = self.access.keeper if self.access and self.settings.stored_keys else None
            if keeper is None or not self.authenticator.is_new(headers):
                raise
        try:
            await keeper.refresh()
        except StorageError:
            raise keys_unavailable() from None
        return self.authenticator.principal(headers)

    def owner(self, key: str) -> Principal | None:
        """Whose key has this id, for what is worked on while nobody asks; None where it opens
        nothing any more."""
        if self.keys.is_open:
            return ANYBODY if key == ANYBODY.id else None
        return self.keys.principal(key, time.time())

    async def look_for_owner(self, key: str) -> Principal | None:
        """The same, and a key that is not known is looked for first: it may have been made a moment
        ago, by another process."""
        keeper = self.access.keeper if self.access and self.settings.stored_keys else None
        if keeper is not None and not self.keys.is_open and not self.keys.has(key):
            # Where the storage is away, `knows_keys` says so.
            with suppress(StorageError):
                await keeper.refresh(at_once=True)
        return self.owner(key)

    @property
    def knows_keys(self) -> bool:
        """Whether a key that is not found is not there."""
        return self.access is None or not self.access.is_away

    async def check_overseer(self, headers: RawHeaders) -> None:
        """Make sure that who asks may see how all of the server does.

        Raises:
            APIError: 401, nobody knows who asks; 403, it is somebody else.
        """
        if not self.overseers.see(headers):
            await self.principal(headers)
            raise not_an_overseer()

    @property
    def counts_usage(self) -> bool:
        """Whether somebody here needs the usage of every request."""
        return self.settings.log_usage or self.ledger is not None

    @property
    def caches_away(self) -> bool:
        """Whether a cache of replies can't be asked at the moment."""
        return any(
            each is not None and each.store.is_away for each in (self._parts.caches or {}).values()
        )

    async def stop(self) -> None:
        """Stop every provider whose start was begun, but for those that another runtime has."""
        self.ready = False
        await self._running.aclose()

    # Its requests ---------------------------------------------------------------------------------

    def begin(self, request: Request) -> None:
        """A request has come in; whoever answers it calls `request.end`."""
        self.running.add(request)
        request.sample_bytes = self._sample_bytes
        request.when_ended(self._ended)

    def _ended(self, request: Request) -> None:
        self.running.discard(request)
        if self.observers is not None and not request.is_handed_on:
            self.observers.ended(request)

    def route(self, request: Request) -> None:
        """Look up where a request goes whose call is there.

        Raises:
            APIError: as `find_route`.
        """
        find_route(request, self.models, self.settings.max_choices)

    def hold(self) -> None:
        """Keep what it has running until `release`: a request begins."""
        self._requests += 1

    def release(self) -> None:
        """The end of what `hold` began."""
        self._requests -= 1
        if not self._requests:
            self._unused.set()

    def replaced_by(self, other: Runtime) -> None:
        """New requests go to `other`; what is not worked on there is worked on no more."""
        self.is_replaced = True
        if self.residency is not None and other.residency is None:
            self.residency.unbound()
        if self.vector_stores is not None and other.vector_stores is not self.vector_stores:
            self.vector_stores.begin_none()
        if self.batches is not None and other.batches is not self.batches:
            self.batches.ask_no_more()

    def abandon(self) -> None:
        """Let nobody wait for its requests any more."""
        self._abandoned = True
        self._unused.set()

    async def unused(self) -> None:
        """Wait until no request has it, or it is abandoned."""
        while self._requests and not self._abandoned:
            self._unused.clear()
            await self._unused.wait()


def _value(part: Shared[Part] | None) -> Part | None:
    return None if part is None else part.value


def runtime_of(request: HTTPRequest) -> Runtime:
    """The runtime that `request` keeps to its end."""
    runtime: Runtime = request.scope["runtime"]
    return runtime


async def list_models(request: HTTPRequest) -> list[ModelInfo]:
    """Every model that the request's key opens, aliases included."""
    principal: Principal = request.scope["principal"]
    return await runtime_of(request).models.list(principal)


async def find_model(request: HTTPRequest, model: str) -> ModelInfo:
    """One model.

    Raises:
        APIError: 404, there is none, or the request's key does not open it.
    """
    principal: Principal = request.scope["principal"]
    return await runtime_of(request).models.get(model, principal)
