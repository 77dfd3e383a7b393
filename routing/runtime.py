"""What the server runs on: the providers, the model table and the keys of one distribution."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack

from fastapi import Request

from llama_compat.distribution import Distribution, ResponsesStoreSettings
from providers import registry
from providers.base import Provider, ProviderModel
from providers.shared import Shared
from routing.auth import Authenticator
from routing.ingress.body import Bodies
from routing.models import ModelTable
from routing.operations.background import BackgroundResponses
from routing.operations.store.responses import ResponseStore
from routing.policy.mirror import Mirrors
from routing.policy.targets import States


class Runtime:
    """The providers of a distribution, started and stopped together.

    A request takes the runtime that the application has when it comes in, and keeps it to its end.

    Args:
        distribution: what to serve.
        previous: the runtime in whose place this one comes, which runs. What both have in common
            is shared, and ends with the last of them: providers whose settings are the same, with
            their connections, models and counts, and the store of responses.

    Attributes:
        distribution: what is served.
        settings: of the server.
        providers: by id.
        states: what is known of each target.
        models: the public ids, and where each leads.
        bodies: what the bodies of all requests come to.
        authenticator: tells who is asking.
        responses: where responses are kept; None where the template wants none kept.
        background: the responses that nobody waits for.
        mirrors: the copies of requests whose answers nobody wants.
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
        self.authenticator = Authenticator(
            key.get_secret_value() for key in distribution.server.api_keys
        )
        self.bodies = Bodies(distribution.server.max_bodies_bytes)
        self._store = _response_store(distribution.server.responses_store, previous)
        self.responses = self._store.value if self._store else None
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

    async def _start(self, part: Shared[Provider] | Shared[ResponseStore]) -> None:
        self._running.push_async_callback(part.release)
        if part.hold():
            await part.value.start()

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
