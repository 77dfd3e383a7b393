"""What the server runs on: the providers, the model table and the keys of one distribution."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from fastapi import Request as HTTPRequest

from llama_compat.catalog import Catalog
from llama_compat.distribution import Distribution, ServerSettings
from llama_compat.errors import APIError
from llama_compat.reasoning.memory import ReasoningMemory
from llama_compat.text.one_line import one_line
from llama_compat.types import ModelInfo
from providers import registry
from providers.base import Provider, ProviderModel
from providers.shared import Shared
from routing.access.keys.ring import KeyRing
from routing.asgi import RawHeaders
from routing.auth import AdminGate, Authenticator, Overseers, keys_unavailable, not_an_overseer
from routing.ingress.body import Bodies
from routing.layers.background import BackgroundResponses
from routing.layers.chain import Owner, chain_of
from routing.models import ModelTable
from routing.observability.assembly import observers_of
from routing.observability.sample import HEAD_BYTES
from routing.policy.targets import States
from routing.request import Request
from routing.routes import find_route
from routing.storage.responses import ResponseStore
from routing.storage.storage import StorageError

if TYPE_CHECKING:
    from llama_compat.exchange import Principal
    from routing.access.access import Access
    from routing.access.limits.requests import RequestLimits
    from routing.layers.cache import ExactCache
    from routing.observability.observers import Observers
    from routing.observability.records.ledger import Ledger

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
        access: stored keys, and where limits are counted; None where there is neither.
        keys: all that let somebody in.
        bodies: what the bodies of all requests come to.
        authenticator: tells who is asking.
        admin: lets in who may see to the server.
        overseers: who may see how all of it does.
        limits: which limits hold for whom; None where there are none.
        responses: where responses are kept; None where the template wants none kept.
        background: the responses that nobody waits for.
        ledger: makes records of requests; None where nobody needs any.
        observers: who wants to know of requests; None where nobody does.
        running: the requests that have not ended.
        answer: answers a request that has been begun and whose route is known.
        ready: whether every provider has started.
    """

    def __init__(self, distribution: Distribution, previous: Runtime | None = None) -> None:
        self.distribution = distribution
        self.settings = distribution.server
        self._providers: Mapping[str, Shared[Provider]] = _providers(distribution, previous)
        self.providers = {id: shared.value for id, shared in self._providers.items()}
        self.states: States = States(distribution.providers, previous.states if previous else None)
        catalog = Catalog.of(distribution)
        self.models = ModelTable(
            distribution.models, self.providers, distribution.routing, self.states, catalog
        )
        self._access = _access(distribution, previous)
        self.access = self._access.value if self._access else None
        stored = self.access.keys if self.access and self.settings.stored_keys else None
        self.keys = KeyRing.of(distribution, stored)
        self.authenticator = Authenticator(self.keys)
        self.admin = AdminGate(self.settings.admin_key)
        self.overseers = Overseers(self.settings, is_open=self.keys.is_open)
        self.bodies = Bodies(distribution.server.max_bodies_bytes)
        self._store = _response_store(distribution.server, previous)
        self.responses = self._store.value if self._store else None
        self.limits = _limits(distribution, self.access)
        self.ledger = _ledger(distribution, self.limits, catalog)
        self.observers = (
            observers_of(distribution, self.providers, self.states, self.ledger)
            if self.ledger is not None
            else None
        )
        self.running: set[Request] = set()
        self._sample_bytes = _sample_bytes(self.observers, self.ledger)
        self.background = BackgroundResponses(self.responses)
        self._reasoning = _reasoning_memory(distribution.server, self.providers, previous)
        self._caches = _exact_caches(distribution, previous)
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
        )
        self.answer, self._mirrors, self._cache = chain
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
        if self._access is not None:
            await self._start(self._access)
            self._say_teams_gone()
        if self.ledger is not None:
            await self.ledger.prices.start()
        if self.observers is not None:
            if self.observers.meter is not None:
                self.observers.meter.watch(self.running)
            self._running.push_async_callback(self.observers.stop)
            await self.observers.start()
        if self._store is not None:
            await self._start(self._store)
        starts = [asyncio.create_task(self._start(each)) for each in self._providers.values()]
        try:
            await asyncio.gather(*starts)
        finally:
            # Where one failed, or the start is cancelled, the others may be half-way.
            for start in starts:
                start.cancel()
            await asyncio.gather(*starts, return_exceptions=True)
        self._running.push_async_callback(self.background.stop)
        if self._mirrors is not None:
            self._running.push_async_callback(self._mirrors.stop)
        if self._cache is not None:
            self._running.push_async_callback(self._cache.stop)
        self.background.start()
        self.ready = True

    async def _start(self, part: Shared[Provider] | Shared[ResponseStore] | Shared[Access]) -> None:
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


def _providers(distribution: Distribution, previous: Runtime | None) -> dict[str, Shared[Provider]]:
    """Those of `previous` that the distribution has too, and new ones for the others."""
    wanted = _wanted_models(distribution)
    running = previous._providers if previous else {}
    types = {each.id: each.type for each in previous.distribution.providers} if previous else {}
    providers = {}
    for settings in distribution.providers:
        models, before = wanted.get(settings.id, []), running.get(settings.id)
        same_type = settings.type == types.get(settings.id)
        if before and same_type and before.value.serves(settings.config, models):
            providers[settings.id] = before
            continue
        provider = registry.provider_type(settings.type).make(settings.id, settings.config, models)
        if before:
            provider.adopt(before.value)
        providers[settings.id] = Shared(provider, provider.stop)
    return providers


def _access(distribution: Distribution, previous: Runtime | None) -> Shared[Access] | None:
    if not (distribution.server.stored_keys or distribution.has_limits or distribution.has_budgets):
        return None
    from routing.access.access import Access, access_settings

    before = previous._access if previous else None
    if before is not None and before.value.settings == access_settings(distribution):
        return before
    # Who knows its keys does not forget them for a storage that is away: a reload is refused then.
    access = Access(distribution, waits=previous is None)
    return Shared(access, access.stop)


def _ledger(
    distribution: Distribution, limits: RequestLimits | None, catalog: Catalog
) -> Ledger | None:
    server = distribution.server
    if not (server.records or server.traces or server.metrics or limits is not None):
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


def _wanted_models(distribution: Distribution) -> dict[str, list[ProviderModel]]:
    wanted: dict[str, dict[str, int | None]] = {}
    for model in distribution.models:
        for target in distribution.targets_of(model):
            lengths = wanted.setdefault(target.provider, {})
            others, length = lengths.get(target.model, 0), target.context_length
            # One model may be offered several times: it has to hold as much as any of them wants.
            lengths[target.model] = (
                None if others is None or length is None else max(others, length)
            )
    return {
        provider: [ProviderModel(*each) for each in lengths.items()]
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
    wanted = distribution.exact_caches
    if not any(wanted.values()):
        return None
    from routing.layers.cache import ExactCache

    before = (previous._caches if previous else None) or {}
    caches: dict[str, ExactCache | None] = {}
    for name, settings in wanted.items():
        kept = before.get(name)
        if settings is None:
            caches[name] = None
        elif kept is not None and kept.settings == settings:
            caches[name] = kept
        else:
            caches[name] = ExactCache.of(settings)
    return caches


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
