"""Public model ids and aliases, and the provider and own model id behind each."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from llama_compat.distribution import ModelSettings
from llama_compat.errors import model_not_found
from llama_compat.exchange import Target
from llama_compat.types import ModelInfo
from providers.base import Provider


@dataclass(frozen=True, slots=True)
class Route:
    """Where requests for one public model id go.

    Attributes:
        name: the model id as the template has it; `provider/*` for what a vendor lists.
    """

    provider: Provider
    target: Target
    name: str

    @property
    def context_length(self) -> int | None:
        """The template's limit or the provider's own, whichever is less; None if nobody knows."""
        limits = (self.target.context_length, self.provider.context_length(self.target.model))
        return min((limit for limit in limits if limit is not None), default=None)


class ModelTable:
    """The models that the distribution offers: those it lists, and those that vendors list.

    A vendor's own models are offered as `provider/model`, where the template sets
    `models: discover` for the provider.
    """

    def __init__(self, models: Sequence[ModelSettings], providers: Mapping[str, Provider]) -> None:
        self._providers = providers
        self._created = int(time.time())
        self._routes: dict[str, Route] = {}
        for model in models:
            target = Target(model.provider_model or model.id, model.context_length)
            for name in (model.id, *model.aliases):
                self._routes[name] = Route(providers[model.provider], target, name)

    async def resolve(self, model: str) -> Route:
        """The route of the public id or alias `model`.

        Raises:
            APIError: 404 `model_not_found`, naming some models that there are.
        """
        route = self._routes.get(model)
        return route or await self._resolve_discovered(model)

    async def _resolve_discovered(self, model: str) -> Route:
        for provider in self._providers.values():
            if model.startswith(f"{provider.id}/"):
                names = await provider.discovered_models()
                for name in names:
                    if _public_id(provider, name) == model:
                        return _discovered(provider, name)
        raise model_not_found(model, list(self._routes))

    async def list(self) -> list[ModelInfo]:
        """Every model that can be asked for, aliases included."""
        entries = [self.describe(name, route) for name, route in self._routes.items()]
        for provider in self._providers.values():
            for name in await provider.discovered_models():
                public_id = _public_id(provider, name)
                if public_id not in self._routes:
                    entries.append(self.describe(public_id, _discovered(provider, name)))
        return entries

    async def get(self, model: str) -> ModelInfo:
        """One model.

        Raises:
            APIError: 404 `model_not_found`.
        """
        return self.describe(model, await self.resolve(model))

    def describe(self, public_id: str, route: Route) -> ModelInfo:
        """What a list shows of the model that `route` leads to."""
        return ModelInfo(public_id, self._created, route.provider.id, route.context_length)


def _discovered(provider: Provider, name: str) -> Route:
    return Route(provider, Target(name), f"{provider.id}/*")


def _public_id(provider: Provider, name: str) -> str:
    """`provider/model`; a vendor whose own ids begin so already is not prefixed twice."""
    prefix = f"{provider.id}/"
    return name if name.startswith(prefix) else prefix + name
