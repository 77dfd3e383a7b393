"""Public model ids and aliases, and the provider and own model id behind each."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence

from llama_compat.distribution import FlatTarget, ModelSettings, RoutingSettings
from llama_compat.distribution.routing import flat_targets, routing_of
from llama_compat.errors import model_not_found
from llama_compat.exchange import Target
from llama_compat.types import ModelInfo
from providers.base import Provider
from routing.policy.group import Targets
from routing.policy.plan import Policy
from routing.policy.targets import LiveTarget, States


class Route:
    """Where requests for one public model id go.

    Args:
        targets: the model's, at least one.
        policy: which of them gets a request; None for the only one of a model without policies.
        name: the model's id in the template; `provider/*` for what a vendor lists.

    Attributes:
        limit: how many tokens the template lets any of the targets hold; None for no limit.
        keepalive_seconds: after so long a silence a stream's client is sent something, where a
            provider's settings say so.
    """

    __slots__ = ("keepalive_seconds", "limit", "name", "policy", "targets")

    def __init__(
        self, targets: Sequence[LiveTarget], policy: Policy | None = None, name: str = ""
    ) -> None:
        self.name = name
        self.targets = Targets(targets)
        self.policy = policy
        self.limit = _most(each.target.context_length for each in self.targets)
        patient = (each.provider.keepalive_seconds for each in self.targets)
        self.keepalive_seconds = next((seconds for seconds in patient if seconds), None)

    @property
    def is_listed(self) -> bool:
        """Whether the template lists the model."""
        return not self.name.endswith("/*")

    @property
    def provider(self) -> Provider:
        """The first target's."""
        return self.targets[0].provider

    @property
    def target(self) -> Target:
        """The first one."""
        return self.targets[0].target

    @property
    def context_length(self) -> int | None:
        """What the target holds that holds most, by the template's limit or the provider's own;
        None if nobody knows."""
        return _most(each.room for each in self.targets)


def _most(lengths: Iterable[int | None]) -> int | None:
    known = list(lengths)
    return None if None in known else max(length for length in known if length is not None)


class ModelTable:
    """The models that the distribution offers: those it lists, and those that vendors list.

    A vendor's own models are offered as `provider/model`, where the template sets
    `models: discover` for the provider.

    Args:
        models: those that the template lists.
        providers: by id.
        routing: the policies that count for every model, unless it says otherwise.
        states: what is known of the targets.
    """

    def __init__(
        self,
        models: Sequence[ModelSettings],
        providers: Mapping[str, Provider],
        routing: RoutingSettings | None = None,
        states: States | None = None,
    ) -> None:
        self._providers = providers
        self._states = States() if states is None else states
        self._created = int(time.time())
        self._routes: dict[str, Route] = {}
        by_name = {name: model for model in models for name in (model.id, *model.aliases)}
        for model in models:
            targets = [self._live(each) for each in flat_targets(model, by_name)]
            settings = routing_of(model, routing)
            policy = None if settings is None else Policy(settings)
            route = Route(targets, policy, model.id)
            for name in (model.id, *model.aliases):
                self._routes[name] = route

    def _live(self, flat: FlatTarget) -> LiveTarget:
        return LiveTarget(
            self._providers[flat.provider],
            Target(flat.model, flat.context_length),
            self._states.provider(flat.provider).target(flat.model),
            flat.weight,
            flat.priority,
        )

    def _discovered(self, provider: Provider, name: str) -> Route:
        return Route([self._live(FlatTarget(provider.id, name))], name=f"{provider.id}/*")

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
                names = provider.discovered_models()
                for name in names:
                    if _public_id(provider, name) == model:
                        return self._discovered(provider, name)
        raise model_not_found(model, list(self._routes))

    async def list(self) -> list[ModelInfo]:
        """Every model that can be asked for, aliases included."""
        entries = [self.describe(name, route) for name, route in self._routes.items()]
        for provider in self._providers.values():
            for name in provider.discovered_models():
                public_id = _public_id(provider, name)
                if public_id not in self._routes:
                    entries.append(
                        ModelInfo(
                            public_id, self._created, provider.id, provider.context_length(name)
                        )
                    )
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


def _public_id(provider: Provider, name: str) -> str:
    """`provider/model`; a vendor whose own ids begin so already is not prefixed twice."""
    prefix = f"{provider.id}/"
    return name if name.startswith(prefix) else prefix + name
