"""What the server runs on: the providers, the model table and the keys of one distribution."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from fastapi import Request as HTTPRequest

from llama_compat.catalog import Catalog
from llama_compat.distribution import (
    Distribution,
    FilesSettings,
    ModelStay,
    ProviderSettings,
    ServerSettings,
)
from llama_compat.distribution.adapters import AdapterOf
from llama_compat.errors import APIError
from llama_compat.exchange import ANYBODY, Principal
from llama_compat.reasoning.memory import ReasoningMemory
from llama_compat.text.one_line import one_line
from llama_compat.types import ModelInfo
from providers import registry
from providers.base import Provider, ProviderModel, ProviderStartError
from providers.shared import Shared
from routing.access.keys.ring import KeyRing
from routing.asgi import RawHeaders
from routing.auth import AdminGate, Authenticator, Overseers, keys_unavailable, not_an_overseer
from routing.cache.readings import Readings
from routing.ingress.body import Bodies
from routing.layers.chain import Owner, chain_of
from routing.layers.keeping.background import BackgroundResponses
from routing.models import ModelTable
from routing.observability.assembly import observers_of
from routing.observability.sample import HEAD_BYTES
from routing.policy.targets import States
from routing.request import Request
from routing.routes import find_route
from routing.storage.responses import ResponseStore
from routing.storage.storage import StorageError

if TYPE_CHECKING:
    from providers.local.residency.residency import Residency
    from routing.access.access import Access
    from routing.access.limits.requests import RequestLimits
    from routing.batches.files import FileStore
    from routing.batches.worker import BatchWorker
    from routing.cache.exact import ExactCache
    from routing.fleet.fleet import Fleet
    from routing.layers.guardrails import Guardrails
    from routing.observability.audit import Audit
    from routing.observability.observers import Observers
    from routing.observability.records.ledger import Ledger
    from routing.replicas.cluster import ReplicaCluster
    from routing.tools.toolbox import ServerTools
    from routing.vector_stores.service import VectorStores

log = logging.getLogger(__name__)


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
        self._replicas = _replicas(distribution, previous)
        self._residency = _shared_memory(distribution, previous)
        self._providers: Mapping[str, Shared[Provider]] = _providers(
            distribution,
            previous,
            self._replicas.value if self._replicas is not None else None,
            self.residency,
        )
        self.providers = {id: shared.value for id, shared in self._providers.items()}
        self.states: States = States(distribution.providers, previous.states if previous else None)
        catalog = Catalog.of(distribution)
        self.models = ModelTable(
            distribution.models, self.providers, distribution.routing, self.states, catalog
        )
        self._fleet = _fleet(distribution, previous)
        self.fleet = self._fleet.value if self._fleet else None
        self._access = _access(distribution, previous, self.fleet)
        self.access = self._access.value if self._access else None
        stored = self.access.keys if self.access and self.settings.stored_keys else None
        self.keys = KeyRing.of(distribution, stored)
        self.authenticator = Authenticator(self.keys)
        self.admin = AdminGate(self.settings.admin_key)
        self.overseers = Overseers(self.settings, is_open=self.keys.is_open)
        self.bodies = Bodies(distribution.server.max_bodies_bytes)
        self._store = _response_store(distribution.server, previous)
        self.responses = self._store.value if self._store else None
        self._files = _file_store(distribution.server, previous)
        self.files = self._files.value if self._files else None
        self._batches = _batch_worker(distribution.server, self._files, previous)
        self.batches = self._batches.value if self._batches else None
        self._vector_stores = _vector_stores(distribution.server, self._files, previous)
        self.vector_stores = self._vector_stores.value if self._vector_stores else None
        self._audit = _audit(distribution.server, previous)
        self.audit = self._audit.value if self._audit else None
        self.limits = _limits(distribution, self.access)
        self.ledger = _ledger(distribution, self.limits, catalog)
        self.observers = (
            observers_of(distribution, self.providers, self.states, self.ledger)
            if self.ledger is not None
            else None
        )
        self.running: set[Request] = set()
        self._sample_bytes = _sample_bytes(self.observers, self.ledger)
        self.background = BackgroundResponses(self.responses, self.providers)
        self._reasoning = _reasoning_memory(distribution.server, self.providers, previous)
        self._caches = _exact_caches(distribution, previous)
        self._tools = _server_tools(distribution.server, self.vector_stores, previous)
        self.readings = None if self._caches is None else Readings()
        self._guardrails = _guardrails(distribution)
        chain = chain_of(
            Owner(self.begin, self.route, self.hold, self.release),
            limits=self.limits,
            ledger=self.ledger,
            tracer=self.observers.tracer if self.observers is not None else None,
            responses=self.responses,
            background=self.background if _goes_on(distribution.server) else None,
            mirrors=self.models.has_mirrors,
            reasoning=self._reasoning,
            caches=self._caches,
            tools=self._tools.value if self._tools else None,
            guardrails=self._guardrails,
            hands_over=distribution.hands_over,
        )
        self.answer, self._mirrors, self._cache, self.defer, self.repeats = chain
        _check_batches(distribution, self.providers)
        self.is_replaced = False
        self.ready = False
        self._running = AsyncExitStack()
        self._requests = 0
        self._abandoned = False
        self._unused = asyncio.Event()

    async def start(self) -> None:
        """Start all providers side by side, but for those that run already.

        Raises:
            ProviderStartError: one can't; those that did are still running.
        """
        if self._fleet is not None:
            await self._start(self._fleet)
        if self._access is not None:
            await self._start(self._access)
            self._say_teams_gone()
        if self.ledger is not None:
            await self.ledger.prices.start()
        if self.observers is not None:
            if self.observers.meter is not None:
                self.observers.meter.watch(self.running, self.fleet, self.access)
            self._running.push_async_callback(self.observers.stop)
            await self.observers.start()
        if self._audit is not None:
            await self._start(self._audit)
        if self._store is not None:
            await self._start(self._store)
        if self._tools is not None:
            await self._start(self._tools)
        for cache in (self._caches or {}).values():
            if cache is not None:
                await self._start(cache.opened)
        if self._files is not None:
            await self._start(self._files)
        if self._replicas is not None:
            await self._start(self._replicas)
        if self._residency is not None:
            self._running.push_async_callback(self._residency.release)
            self._residency.hold()
        starts = [asyncio.create_task(self._start(each)) for each in self._providers.values()]
        try:
            await asyncio.gather(*starts)
        finally:
            # Where one failed, or the start is cancelled, the others may be half-way.
            for start in starts:
                start.cancel()
            await asyncio.gather(*starts, return_exceptions=True)
        if self._replicas is not None:
            self._running.callback(self.models.follow())
        self._running.callback(self.models.follow_caches())
        if self._vector_stores is not None:
            # After the providers, so that it is stopped before them.
            await self._start(self._vector_stores)
        self._running.push_async_callback(self.background.stop)
        if self._guardrails is not None:
            self._running.push_async_callback(self._guardrails.asking.stop)
            await _load_checks(self.distribution)
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
        if self._batches is not None:
            from routing.batches.asking import Asker

            self._running.push_async_callback(self._batches.release)
            self._batches.hold()
            await self._batches.value.serve(Asker(self))
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
    def replicas(self) -> ReplicaCluster | None:
        """Those of its models; None where no provider has any."""
        return None if self._replicas is None else self._replicas.value

    @property
    def residency(self) -> Residency | None:
        """Who says which models are in memory; None where all of them are."""
        return None if self._residency is None else self._residency.value

    @property
    def counts_usage(self) -> bool:
        """Whether somebody here needs the usage of every request."""
        return self.settings.log_usage or self.ledger is not None

    @property
    def caches_away(self) -> bool:
        """Whether a cache of replies can't be asked at the moment."""
        return any(
            each is not None and each.store.is_away for each in (self._caches or {}).values()
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
        if self.observers is not None:
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


def _replicas(
    distribution: Distribution, previous: Runtime | None
) -> Shared[ReplicaCluster] | None:
    if not distribution.has_replicas:
        return None
    from routing.replicas.cluster import ReplicaCluster

    before = previous._replicas if previous else None
    if before is not None and before.value.settings == distribution.scale:
        return before
    replicas = ReplicaCluster(distribution.scale)
    return Shared(replicas, replicas.stop)


def _providers(
    distribution: Distribution,
    previous: Runtime | None,
    replicas: ReplicaCluster | None,
    residency: Residency | None,
) -> dict[str, Shared[Provider]]:
    """Those of `previous` that the distribution has too, and new ones for the others."""
    wanted = wanted_models(distribution)
    running = previous._providers if previous else {}
    known = {each.id: each for each in previous.distribution.providers} if previous else {}
    providers = {}
    for settings in distribution.providers:
        models, before = wanted.get(settings.id, []), running.get(settings.id)
        was = known.get(settings.id)
        same_type = was is not None and _runs_alike(settings, was)
        if settings.replicas is not None and previous and previous.replicas is not replicas:
            same_type = False
        if previous and previous.residency is not residency:
            same_type = same_type and not settings.type.startswith("local::")
        if before and same_type and before.value.serves(settings.config, models):
            providers[settings.id] = before
            continue
        if settings.replicas is not None and replicas is not None:
            provider: Provider = _replicated(settings, models, replicas)
        else:
            make = registry.provider_type(settings.type).make
            provider = make(settings.id, settings.config, models)
            if residency is not None:
                provider.share_memory(residency)
        if before and was is not None and (settings.replicas is None) == (was.replicas is None):
            provider.adopt(before.value)
        providers[settings.id] = Shared(provider, provider.stop)
    return providers


def _runs_alike(settings: ProviderSettings, before: ProviderSettings) -> bool:
    return (settings.type, settings.replicas) == (before.type, before.replicas)


def _replicated(
    settings: ProviderSettings, models: Sequence[ProviderModel], on_ray: ReplicaCluster
) -> Provider:
    from providers.remote.replicas.provider import ReplicatedProvider
    from routing.replicas.application import applications_of

    replicas = {
        name: on_ray.replicas(each) for name, each in applications_of(settings, models).items()
    }
    return ReplicatedProvider(settings.id, settings.config, models, replicas)


def _shared_memory(
    distribution: Distribution, previous: Runtime | None
) -> Shared[Residency] | None:
    """Who says which models are in memory: one for all runtimes, as there is one memory."""
    if distribution.memory is None:
        return None
    if previous is not None and previous._residency is not None:
        return previous._residency
    from providers.local.residency.residency import Residency

    residency = Residency(distribution.memory, distribution.residency)
    return Shared(residency, residency.stop)


def _fleet(distribution: Distribution, previous: Runtime | None) -> Shared[Fleet] | None:
    if distribution.server.fleet is None:
        return None
    from routing.fleet.fleet import Fleet

    before = previous._fleet if previous else None
    fleet = Fleet.of(distribution.server)
    if before is not None and before.value.is_same(fleet):
        return before
    return Shared(fleet, fleet.stop)


def _access(
    distribution: Distribution, previous: Runtime | None, fleet: Fleet | None
) -> Shared[Access] | None:
    if not (distribution.server.stored_keys or distribution.has_limits or distribution.has_budgets):
        return None
    from routing.access.access import Access, access_settings

    before = previous._access if previous else None
    if before is not None and before.value.settings == access_settings(distribution):
        return before
    # Who knows its keys does not forget them for a storage that is away: a reload is refused then.
    gateways = (lambda: 1) if fleet is None else (lambda: fleet.gateways)
    access = Access(distribution, waits=previous is None, gateways=gateways)
    return Shared(access, access.stop)


def _ledger(
    distribution: Distribution, limits: RequestLimits | None, catalog: Catalog
) -> Ledger | None:
    server = distribution.server
    costs = server.tools is not None and server.tools.max_cost is not None
    if not (server.records or server.traces or server.metrics or limits is not None or costs):
        return None
    from routing.observability.records.ledger import Ledger
    from routing.observability.records.prices import Prices

    return Ledger(Prices(distribution, catalog))


def _sample_bytes(observers: Observers | None, ledger: Ledger | None) -> int:
    if observers is not None:
        return observers.sample_bytes
    return 0 if ledger is None else HEAD_BYTES


def _goes_on(server: ServerSettings) -> bool:
    """Whether a response can be gone on from."""
    has_websockets = server.websockets is not None and "responses" in server.apis
    return server.responses_store is not None or has_websockets


def _limits(distribution: Distribution, access: Access | None) -> RequestLimits | None:
    if access is None:
        return None
    from routing.access.limits.requests import RequestLimits

    return RequestLimits(distribution, access.limiter)


def wanted_models(distribution: Distribution) -> dict[str, list[ProviderModel]]:
    """The models that a template wants from each provider, by its id."""
    wanted: dict[str, dict[str, int | None]] = {}
    stays: dict[tuple[str, str], ModelStay] = {}
    adapters: dict[tuple[str, str], dict[AdapterOf, None]] = {}
    for model in distribution.models:
        for target in distribution.targets_of(model):
            if (adapter := target.adapter) is not None:
                # The model itself is in the template, too.
                adapters.setdefault((target.provider, adapter.base), {})[adapter] = None
                continue
            lengths = wanted.setdefault(target.provider, {})
            others, length = lengths.get(target.model, 0), target.context_length
            # One model may be offered several times: it has to hold as much as any of them wants.
            lengths[target.model] = (
                None if others is None or length is None else max(others, length)
            )
            named = (target.provider, target.model)
            stays[named] = model.stay.joined(stays.get(named, model.stay))
    return {
        provider: [
            ProviderModel(
                name,
                length,
                stays[provider, name],
                tuple(adapters.get((provider, name), ())),
            )
            for name, length in lengths.items()
        ]
        for provider, lengths in wanted.items()
    }


def _reasoning_memory(
    server: ServerSettings, providers: Mapping[str, Provider], previous: Runtime | None
) -> ReasoningMemory | None:
    """Where is kept what has to come back; None where no vendor wants anything back."""
    settings = server.reasoning_memory
    if settings is None or not any(each.wants_reasoning_back for each in providers.values()):
        return None
    before = None if previous is None else previous._reasoning
    if before is not None and previous and previous.settings.reasoning_memory == settings:
        return before
    return ReasoningMemory(settings.max_turns, settings.max_bytes, settings.seconds)


def _exact_caches(
    distribution: Distribution, previous: Runtime | None
) -> dict[str, ExactCache | None] | None:
    """The caches of replies by model, those of `previous` where they are to be the same; None where
    no model has one."""
    wanted = distribution.caches
    if not any(wanted.values()):
        return None
    from routing.cache.exact import ExactCache

    before = (previous._caches if previous else None) or {}
    server, earlier = distribution.server, previous.settings if previous else None
    is_same_place = earlier is not None and (server.storage, server.counting) == (
        earlier.storage,
        earlier.counting,
    )
    caches: dict[str, ExactCache | None] = {}
    for name, settings in wanted.items():
        kept = before.get(name)
        if settings is None:
            caches[name] = None
        elif kept is not None and kept.is_as(settings) and is_same_place:
            caches[name] = kept
        else:
            caches[name] = ExactCache.of(settings, distribution.server, name)
    return caches


def _server_tools(
    server: ServerSettings, stores: VectorStores | None, previous: Runtime | None
) -> Shared[ServerTools] | None:
    """What is run for models, that of `previous` where it is to be the same."""
    settings = server.tools
    if settings is None:
        return None
    if previous is not None and previous.settings.tools == settings:
        before = previous._tools
        if before is not None and before.value.vector_stores is stores:
            return before
    from routing.tools.toolbox import ServerTools

    tools = ServerTools(settings, stores)
    return Shared(tools, tools.stop)


def _guardrails(distribution: Distribution) -> Guardrails | None:
    """What is looked through; None where neither the template nor a key can want that."""
    if not distribution.has_guardrails and not distribution.server.stored_keys:
        return None
    from routing.layers.guardrails import Guardrails

    by_model = {each.id: each.guardrails for each in distribution.models if each.guardrails}
    return Guardrails(distribution.guardrails, by_model)


async def _load_checks(distribution: Distribution) -> None:
    """Load what the template's checks need, but for those that ask somebody else.

    Raises:
        ProviderStartError: it can't be had.
    """
    from llama_compat.guardrails.asked.loading import UnusableCheck, load

    try:
        await asyncio.to_thread(load, list(distribution.checks))
    except UnusableCheck as error:
        raise ProviderStartError(str(error)) from None


def _response_store(
    server: ServerSettings, previous: Runtime | None
) -> Shared[ResponseStore] | None:
    settings = server.responses_store
    if settings is None:
        return None
    if previous is not None:
        before = previous.settings
        if (settings, server.storage) == (before.responses_store, before.storage):
            return previous._store
    store = ResponseStore(settings, server.storage.get_secret_value())
    return Shared(store, store.stop)


def _audit(server: ServerSettings, previous: Runtime | None) -> Shared[Audit] | None:
    if server.admin_key is None:
        return None
    from routing.observability.audit import Audit

    if previous is not None and previous._audit and previous.settings.storage == server.storage:
        return previous._audit
    audit = Audit(server.storage.get_secret_value())
    return Shared(audit, audit.stop)


def _file_store(server: ServerSettings, previous: Runtime | None) -> Shared[FileStore] | None:
    if server.files is None and server.batches is None and server.vector_stores is None:
        return None
    settings = server.files or FilesSettings()
    from routing.batches.files import FileStore

    if previous is not None and previous._files is not None:
        before = previous.settings.storage
        if (settings, server.storage) == (previous._files.value.settings, before):
            return previous._files
    store = FileStore(settings, server.storage.get_secret_value())
    return Shared(store, store.stop)


def _check_batches(distribution: Distribution, providers: Mapping[str, Provider]) -> None:
    """See to it that who is to hand batches to vendors can.

    Raises:
        ProviderStartError: a provider's vendor has no batch API, or none that is known here.
    """
    for each in distribution.providers:
        if each.batches.via == "vendor" and providers[each.id].batches() is None:
            raise ProviderStartError(
                f"Provider '{each.id}': '{each.type}' has no batch API of its vendor's. Leave out"
                " `batches: {via: vendor}`, and its lines are asked by requests."
            )
    for model in distribution.models:
        named = [each.provider for each in distribution.targets_of(model)]
        if (
            model.batches is not None
            and model.batches.via == "vendor"
            and all(providers[each].batches() is None for each in named)
        ):
            raise ProviderStartError(
                f"Model '{model.id}': none of its providers has a batch API of its vendor's. Leave"
                " out `batches: {via: vendor}`, and its lines are asked by requests."
            )


def _batch_worker(
    server: ServerSettings, files: Shared[FileStore] | None, previous: Runtime | None
) -> Shared[BatchWorker] | None:
    settings = server.batches
    if settings is None:
        return None
    from routing.batches.worker import BatchWorker

    assert files is not None
    if previous is not None and previous._batches is not None and previous._files is files:
        before = previous.settings
        if before.batches == settings and (
            before.shutdown_grace_seconds == server.shutdown_grace_seconds
        ):
            return previous._batches
    worker = BatchWorker(files.value, settings, server.shutdown_grace_seconds)
    return Shared(worker, worker.stop)


def _vector_stores(
    server: ServerSettings, files: Shared[FileStore] | None, previous: Runtime | None
) -> Shared[VectorStores] | None:
    settings = server.vector_stores
    if settings is None:
        return None
    try:
        from routing.vector_stores.service import VectorStores
        from routing.vector_stores.stores import StoreTable
    except ImportError as error:
        if error.name != "numpy":
            raise
        raise ProviderStartError(
            "`server.vector_stores`: needs numpy: pip install 'llama-compat[vector-stores]'."
        ) from None
    assert files is not None
    if previous is not None and previous._vector_stores is not None and previous._files is files:
        before = previous.settings
        if (settings, server.storage) == (before.vector_stores, before.storage):
            return previous._vector_stores
    stores = VectorStores(StoreTable(settings, files.value, server.storage.get_secret_value()))
    return Shared(stores, stores.stop)
