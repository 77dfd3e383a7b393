"""What the server runs on: the providers, the model table and the keys of one distribution."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from fastapi import Request

from llama_compat.distribution import Distribution, ResponsesStoreSettings
from llama_compat.errors import APIError, model_not_found
from llama_compat.types import ModelInfo
from providers import registry
from providers.base import Provider, ProviderModel
from providers.shared import Shared
from routing.auth import AdminGate, Authenticator
from routing.ingress.body import Bodies
from routing.models import ModelTable
from routing.operations.assembly import observers_of
from routing.operations.background import BackgroundResponses
from routing.operations.keys.ring import KeyRing
from routing.operations.store.responses import ResponseStore
from routing.policy.mirror import Mirrors
from routing.policy.targets import States

if TYPE_CHECKING:
    from collections.abc import Iterable

    from llama_compat.exchange import Principal
    from routing.operations.access import Access
    from routing.operations.limits.requests import RequestLimits


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
        limits: which limits hold for whom; None where there are none.
        responses: where responses are kept; None where the template wants none kept.
        background: the responses that nobody waits for.
        mirrors: the copies of requests whose answers nobody wants.
        observers: who wants to know of requests; None where nobody does.
        ready: whether every provider has started.
    """

    def __init__(self, distribution: Distribution, previous: Runtime | None = None) -> None:
        self.distribution = distribution
        self.settings = distribution.server
        self._providers: Mapping[str, Shared[Provider]] = _providers(
            distribution, previous._providers if previous else {}
        )
        self.providers = {id: shared.value for id, shared in self._providers.items()}
        self.states: States = States(distribution.providers, previous.states if previous else None)
        self.models = ModelTable(
            distribution.models, self.providers, distribution.routing, self.states
        )
        self._access = _access(distribution, previous)
        self.access = self._access.value if self._access else None
        stored = self.access.keys if self.access and self.settings.stored_keys else None
        self.keys = KeyRing.of(distribution, stored)
        self.authenticator = Authenticator(self.keys)
        self.admin = AdminGate(self.settings.admin_key)
        self.bodies = Bodies(distribution.server.max_bodies_bytes)
        self._store = _response_store(distribution.server.responses_store, previous)
        self.responses = self._store.value if self._store else None
        self.limits = _limits(distribution, self.access)
        self.observers = observers_of(distribution, self.providers, self.states, self.limits)
        self.mirrors = Mirrors()
        self.background = BackgroundResponses(self.responses)
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
        if self.observers is not None:
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
        self._running.push_async_callback(self.mirrors.stop)
        self.background.start()
        self.ready = True

    async def _start(self, part: Shared[Provider] | Shared[ResponseStore] | Shared[Access]) -> None:
        self._running.push_async_callback(part.release)
        if part.hold():
            await part.value.start()

    async def principal(self, headers: Iterable[tuple[bytes, bytes]]) -> Principal:
        """Whose key there is among a request's headers; one that is new is looked for.

        Raises:
            APIError: 401.
        """
        try:
            return self.authenticator.principal(headers)
        except APIError:
            if self.access is None or self.access.keeper is None:
                raise
            await self.access.keeper.refresh()
            return self.authenticator.principal(headers)

    @property
    def counts_usage(self) -> bool:
        """Whether somebody here needs the usage of every request."""
        observers = self.observers
        return self.settings.log_usage or (observers is not None and observers.count_usage)

    async def stop(self) -> None:
        """Stop every provider whose start was begun, but for those that another runtime has."""
        self.ready = False
        await self._running.aclose()

    # Its requests ---------------------------------------------------------------------------------

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


def runtime_of(request: Request) -> Runtime:
    """The runtime that `request` keeps to its end."""
    runtime: Runtime = request.scope["runtime"]
    return runtime


async def list_models(request: Request) -> list[ModelInfo]:
    """Every model that the request's key opens, aliases included."""
    principal: Principal = request.scope["principal"]
    models = await runtime_of(request).models.list()
    return [model for model in models if principal.may_use(model.id)]


async def find_model(request: Request, model: str) -> ModelInfo:
    """One model.

    Raises:
        APIError: 404, there is none, or the request's key does not open it.
    """
    principal: Principal = request.scope["principal"]
    found = await runtime_of(request).models.get(model)
    if not principal.may_use(model):
        raise model_not_found(model)
    return found


def _providers(
    distribution: Distribution, running: Mapping[str, Shared[Provider]]
) -> dict[str, Shared[Provider]]:
    """Those of `running` that the distribution has too, and new ones for the others."""
    wanted = _wanted_models(distribution)
    providers = {}
    for settings in distribution.providers:
        models, before = wanted.get(settings.id, []), running.get(settings.id)
        kind = registry.provider_class(settings.type)
        if before and type(before.value) is kind and before.value.serves(settings.config, models):
            providers[settings.id] = before
            continue
        provider = kind(settings.id, settings.config, models)
        if before:
            provider.adopt(before.value)
        providers[settings.id] = Shared(provider, provider.stop)
    return providers


def _access(distribution: Distribution, previous: Runtime | None) -> Shared[Access] | None:
    if not (distribution.server.stored_keys or distribution.has_limits or distribution.has_budgets):
        return None
    from routing.operations.access import Access, access_settings

    before = previous._access if previous else None
    if before is not None and before.value.settings == access_settings(distribution):
        return before
    access = Access(distribution)
    return Shared(access, access.stop)


def _limits(distribution: Distribution, access: Access | None) -> RequestLimits | None:
    if access is None:
        return None
    from routing.operations.limits.requests import RequestLimits

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


def _response_store(
    settings: ResponsesStoreSettings | None, previous: Runtime | None
) -> Shared[ResponseStore] | None:
    if settings is None:
        return None
    if previous is not None and settings == previous.settings.responses_store:
        return previous._store
    store = ResponseStore(settings)
    return Shared(store, store.stop)
