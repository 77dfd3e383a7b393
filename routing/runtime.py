"""What the server runs on: the providers, the model table and the keys of one distribution."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from llama_compat.distribution import Distribution
from providers import registry
from providers.base import Provider, ProviderModel
from routing.auth import Authenticator
from routing.ingress.body import Bodies
from routing.models import ModelTable
from routing.operations.background import BackgroundResponses
from routing.operations.store.responses import ResponseStore


class Runtime:
    """The providers of a distribution, started and stopped together.

    A request takes the runtime that the application has when it comes in, and keeps it to its end.

    Args:
        distribution: what to serve.

    Attributes:
        settings: of the server.
        providers: by id.
        models: the public ids, and where each leads.
        bodies: what the bodies of all requests come to.
        authenticator: tells who is asking.
        responses: where responses are kept; None where the template wants none kept.
        background: the responses that nobody waits for.
        ready: whether every provider has started.
    """

    def __init__(self, distribution: Distribution) -> None:
        self.settings = distribution.server
        self.providers = _create_providers(distribution)
        self.models = ModelTable(distribution.models, self.providers)
        self.authenticator = Authenticator(
            key.get_secret_value() for key in distribution.server.api_keys
        )
        self.bodies = Bodies(distribution.server.max_bodies_bytes)
        kept = distribution.server.responses_store
        self.responses = None if kept is None else ResponseStore(kept)
        self.background = BackgroundResponses(self.responses)
        self.ready = False
        self._running = AsyncExitStack()

    async def start(self) -> None:
        """Start all providers side by side.

        Raises:
            ProviderStartError: one can't; those that did are still running.
        """
        if self.responses is not None:
            self._running.push_async_callback(self.responses.stop)
            await self.responses.start()
        starts = [asyncio.create_task(self._start(each)) for each in self.providers.values()]
        try:
            await asyncio.gather(*starts)
        finally:
            # Where one failed, or the start is cancelled, the others may be half-way.
            for start in starts:
                start.cancel()
            await asyncio.gather(*starts, return_exceptions=True)
        self._running.push_async_callback(self.background.stop)
        self.background.start()
        self.ready = True

    async def _start(self, provider: Provider) -> None:
        self._running.push_async_callback(provider.stop)
        await provider.start()

    async def stop(self) -> None:
        """Stop every provider whose start was begun."""
        self.ready = False
        await self._running.aclose()


def _create_providers(distribution: Distribution) -> dict[str, Provider]:
    wanted: dict[str, dict[str, int | None]] = {}
    for model in distribution.models:
        lengths = wanted.setdefault(model.provider, {})
        name, length = model.provider_model or model.id, model.context_length
        others = lengths.get(name, 0)
        # One model may be offered several times: it has to hold as much as any of them wants.
        lengths[name] = None if others is None or length is None else max(others, length)
    return {
        settings.id: registry.provider_class(settings.type)(
            settings.id,
            settings.config,
            [ProviderModel(*each) for each in wanted.get(settings.id, {}).items()],
        )
        for settings in distribution.providers
    }
