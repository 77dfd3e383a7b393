"""Public model ids and aliases, and the provider and own model id behind each."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llama_compat.distribution import ModelSettings
from llama_compat.errors import model_not_found
from providers.base import Provider


@dataclass(frozen=True, slots=True)
class Route:
    """Where requests for one public model id go."""

    provider: Provider
    provider_model: str
    context_length: int | None


class ModelTable:
    """The models that the distribution offers: those it lists, and those that vendors list.

    A vendor's own models are offered as `provider/model`, where the template sets
    `models: discover` for the provider.
    """

    def __init__(self, models: Sequence[ModelSettings], providers: Mapping[str, Provider]) -> None:
        self._providers = providers
        self._created = int(time.time())
        self._routes: dict[str, Route] = {}
        self._listed: list[str] = []
        for model in models:
            route = Route(
                providers[model.provider],
                model.provider_model or model.id,
                model.context_length,
            )
            self._listed.append(model.id)
            for name in (model.id, *model.aliases):
                self._routes[name] = route

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
                        return Route(provider, name, None)
        raise model_not_found(model, self._listed)

    async def list(self) -> list[dict[str, Any]]:
        """Every model, as `GET /models` shows it; aliases are not listed."""
        entries = [self._entry(name, self._routes[name]) for name in self._listed]
        for provider in self._providers.values():
            for name in await provider.discovered_models():
                public_id = _public_id(provider, name)
                if public_id not in self._routes:
                    entries.append(self._entry(public_id, Route(provider, name, None)))
        return entries

    async def get(self, model: str) -> dict[str, Any]:
        """One model, as `GET /models/{id}` shows it.

        Raises:
            APIError: 404 `model_not_found`.
        """
        return self._entry(model, await self.resolve(model))

    def _entry(self, public_id: str, route: Route) -> dict[str, Any]:
        entry: dict[str, Any] = {
            "id": public_id,
            "object": "model",
            "created": self._created,
            "owned_by": route.provider.id,
        }
        context_length = route.context_length or route.provider.context_length(route.provider_model)
        if context_length is not None:
            entry["context_length"] = context_length
        return entry


def _public_id(provider: Provider, name: str) -> str:
    """`provider/model`; a vendor whose own ids begin so already is not prefixed twice."""
    prefix = f"{provider.id}/"
    return name if name.startswith(prefix) else prefix + name
