"""Public model ids, aliases and patterns, and the provider and own model id behind each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

from llama_compat.catalog import Catalog, Facts
from llama_compat.catalog.facts import INPUTS, OUTPUTS, latest, over
from llama_compat.distribution import FlatTarget, ModelSettings, RoutingSettings
from llama_compat.distribution.adapters import AdapterOf
from llama_compat.distribution.aliases import letters, matches
from llama_compat.distribution.routing import flat_targets, routing_of
from llama_compat.errors import APIError, model_not_allowed, model_not_found
from llama_compat.exchange import ANYBODY, Principal, Target
from llama_compat.fitting.fit import fit_of
from llama_compat.prefixes.held import CacheNews
from llama_compat.types import ModelInfo
from providers.base import Provider
from routing.policy.group import Targets
from routing.policy.plan import Policy
from routing.policy.prefix.sent import SentPrefixes
from routing.policy.targets import LiveTarget, States

NOWHERE = ""
"""The place of what is no replica, or of one that is yet to start."""

REPLICAS_ROUTING = RoutingSettings(balance="least_busy")
"""For a model whose template has no policies, where it has replicas to choose from."""


class Route:
    """Where requests for one public model id go.

    Args:
        targets: the model's, at least one.
        policy: which of them gets a request; None for the only one of a model without policies.
        name: the model's id in the template; `provider/*` for what a vendor lists.
        names: all that it is called in lists: its id and aliases, but no patterns.
        adapter: what it is another model with, if it is that.

    Attributes:
        limit: how many tokens the template lets any of the targets hold; None for no limit.
        keepalive_seconds: after so long a silence a stream's client is sent something, where a
            provider's settings say so.
    """

    __slots__ = ("adapter", "keepalive_seconds", "limit", "name", "names", "policy", "targets")

    def __init__(
        self,
        targets: Sequence[LiveTarget],
        policy: Policy | None = None,
        name: str = "",
        names: Sequence[str] = (),
        adapter: AdapterOf | None = None,
    ) -> None:
        self.name = name
        self.names = names
        self.adapter = adapter
        self.targets = Targets(targets)
        self.policy = policy
        self.limit = _most(each.target.context_length for each in self.targets)
        patient = (each.provider.keepalive_seconds for each in self.targets)
        self.keepalive_seconds = next((seconds for seconds in patient if seconds), None)

    def leads_to(self, targets: Sequence[LiveTarget]) -> None:
        """Have later requests go to `targets`: replicas came, or are gone."""
        self.targets = Targets(targets)

    def is_open_to(self, principal: Principal) -> bool:
        """Whether `principal` may ask for the model: a key opens it by any of its own names, but
        not by what a client calls it that asks by a pattern."""
        return any(map(principal.may_use, self.names))

    def check_open_to(self, principal: Principal, model: str) -> None:
        """Make sure that `principal` may go there.

        Raises:
            APIError: 403 `model_not_allowed`, naming the `model` as the client has it.
        """
        if principal.models and not self.is_open_to(principal):
            raise model_not_allowed(model)

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


def _any_of(facts: Sequence[Facts], kinds: str) -> tuple[str, ...] | None:
    """What any of these models reads, or makes; None where nobody knows of all of them."""
    found = [getattr(each, kinds) for each in facts]
    if None in found:
        return None
    return tuple(kind for kind in INPUTS if any(kind in each for each in found))


class ModelTable:
    """The models that the distribution offers: those it lists, and those that vendors list.

    A vendor's own models are offered as `provider/model`, where the template sets
    `models: discover` for the provider.

    Args:
        models: those that the template lists.
        providers: by id.
        routing: the policies that count for every model, unless it says otherwise.
        states: what is known of the targets.
        catalog: what is known of vendors' models.

    Attributes:
        has_mirrors: whether requests for any of them are mirrored.
    """

    def __init__(
        self,
        models: Sequence[ModelSettings],
        providers: Mapping[str, Provider],
        routing: RoutingSettings | None = None,
        states: States | None = None,
        catalog: Catalog | None = None,
    ) -> None:
        self._providers = providers
        self._catalog = Catalog() if catalog is None else catalog
        self._made: dict[FlatTarget, LiveTarget] = {}
        self._states = States() if states is None else states
        self._created = int(time.time())
        self._routes: dict[str, Route] = {}
        self._patterns: list[tuple[str, Route]] = []
        by_name = {name: model for model in models for name in model.names}
        self._moving: list[tuple[Route, Sequence[FlatTarget]]] = []
        for model in models:
            flats = flat_targets(model, by_name)
            moves = any(self._places(each) is not None for each in flats)
            settings = routing_of(model, routing) or (REPLICAS_ROUTING if moves else None)
            policy = None if settings is None else Policy(settings)
            route = Route(self._targets(flats), policy, model.id, model.names, model.adapter)
            if moves:
                self._moving.append((route, flats))
            self._routes.update(dict.fromkeys(model.names, route))
            self._patterns += [(pattern, route) for pattern in model.patterns]
        self._patterns.sort(key=lambda each: letters(each[0]), reverse=True)
        policies = [each.policy for each in self._routes.values() if each.policy is not None]
        self.has_mirrors = any(each.mirrors for each in policies)

    def __iter__(self) -> Iterator[Route]:
        """Each model that the template lists, in its order."""
        return iter(dict.fromkeys([*self._routes.values(), *(each for _, each in self._patterns)]))

    def follow(self) -> Callable[[], None]:
        """Send requests to replicas as they come and go, until what is returned is called."""
        ends = [each.when_moved(self._moved) for each in self._providers.values()]
        self._moved()

        def leave() -> None:
            for end in ends:
                end()

        return leave

    def follow_caches(self) -> Callable[[], None]:
        """Know what the targets' caches hold where requests go by it, until what is returned is
        called."""
        targets = [
            t for each in self._routes.values() if _goes_by_prefix(each) for t in each.targets
        ]
        providers = {target.state.provider.id: target.provider for target in targets}
        ends = [each.follow_caches(partial(self._cache_told, id)) for id, each in providers.items()]

        def leave() -> None:
            for end in ends:
                end()

        return leave

    def _cache_told(self, provider: str, model: str, place: str, news: CacheNews) -> None:
        state = self._states.provider(provider).targets.get((model, place))
        if state is not None:
            if state.prefixes is None:
                state.prefixes = SentPrefixes()
            state.prefixes.tells(news, time.monotonic())

    def _moved(self) -> None:
        for route, flats in self._moving:
            route.leads_to(self._targets(flats))
            for flat in flats:
                if (places := self._places(flat)) is not None:
                    state = self._states.provider(flat.provider)
                    state.forget_others(flat.model, places or (NOWHERE,))

    def _places(self, flat: FlatTarget) -> Sequence[str] | None:
        return self._providers[flat.provider].places(flat.model)

    def _targets(self, flats: Sequence[FlatTarget]) -> list[LiveTarget]:
        """Each target, in the place of one with replicas those that there are; one that stands for
        them where they are yet to start."""
        return [
            self._live(flat, place) for flat in flats for place in self._places(flat) or (NOWHERE,)
        ]

    def _live(self, flat: FlatTarget, place: str = NOWHERE) -> LiveTarget:
        provider = self._providers[flat.provider]
        facts = over(
            self._catalog.target_facts(flat.provider, flat.model, flat.facts), provider.model_facts
        )
        fit = fit_of(facts, adapts_relayed=provider.config.unsupported == "adapt")
        return LiveTarget(
            provider,
            Target(flat.model, flat.context_length, fit, flat.prompt_cache, place),
            self._states.provider(flat.provider).target(flat.model, place),
            flat.weight / len(self._places(flat) or (NOWHERE,)),
            flat.priority,
            facts,
        )

    def _discovered_target(self, provider: str, model: str) -> LiveTarget:
        """A target that the template does not list, made when it is first asked for."""
        flat = FlatTarget(provider, model)
        live = self._made.get(flat)
        if live is None:
            live = self._made[flat] = self._live(flat)
        return live

    def look_up(
        self, model: str, principal: Principal = ANYBODY, others: Sequence[str] = ()
    ) -> Route:
        """The route of what a client calls `model`: an id, an alias, or what a pattern stands for,
        whether `principal` may go there or not. A name counts for more than a pattern, and of
        patterns the one with the most letters.

        Args:
            model: as the client has it.
            principal: who is asking.
            others: what else the client's API calls the same model.

        Raises:
            APIError: 404 `model_not_found`, naming some models that `principal` may ask for.
        """
        route = self._routes.get(model) or self._find((model, *others))
        if route is None:
            raise self._not_found(model, principal)
        return route

    async def seen(
        self, model: str, principal: Principal = ANYBODY, others: Sequence[str] = ()
    ) -> Route:
        """As `look_up`, but who may not ask for the model is told that there is none.

        Raises:
            APIError: 404 `model_not_found`.
        """
        route = self.look_up(model, principal, others)
        if not route.is_open_to(principal):
            raise self._not_found(model, principal)
        return route

    def _find(self, names: Sequence[str]) -> Route | None:
        ways = self._routes.get, self._discovered, self._meant
        return next((route for way in ways for name in names if (route := way(name))), None)

    def _discovered(self, model: str) -> Route | None:
        for provider in self._providers.values():
            if model.startswith(f"{provider.id}/"):
                for name in provider.discovered_models():
                    if _public_id(provider, name) == model:
                        live = self._discovered_target(provider.id, name)
                        return Route([live], name=f"{provider.id}/*", names=(model,))
        return None

    def _meant(self, model: str) -> Route | None:
        return next((route for pattern, route in self._patterns if matches(pattern, model)), None)

    def _not_found(self, model: str, principal: Principal) -> APIError:
        known = (name for name, route in self._routes.items() if route.is_open_to(principal))
        return model_not_found(model, list(known))

    async def list(self, principal: Principal = ANYBODY) -> list[ModelInfo]:
        """Every model that `principal` may ask for, aliases included; patterns are no names."""
        entries = [
            self.describe(name, route)
            for name, route in self._routes.items()
            if route.is_open_to(principal)
        ]
        for provider in self._providers.values():
            for name in provider.discovered_models():
                public_id = _public_id(provider, name)
                if public_id not in self._routes and principal.may_use(public_id):
                    live = self._discovered_target(provider.id, name)
                    entries.append(self._info(public_id, [live], live.known_room))
        return entries

    async def get(self, model: str, principal: Principal = ANYBODY) -> ModelInfo:
        """One model.

        Raises:
            APIError: 404 `model_not_found`; so too if `principal` may not ask for it.
        """
        return self.describe(model, await self.seen(model, principal))

    def describe(self, public_id: str, route: Route) -> ModelInfo:
        """What a list shows of the model that `route` leads to."""
        rooms = [each.known_room for each in route.targets]
        return self._info(public_id, route.targets, _most(rooms), route.adapter)

    def _info(
        self,
        public_id: str,
        targets: Sequence[LiveTarget],
        room: int | None,
        adapter: AdapterOf | None = None,
    ) -> ModelInfo:
        """What is told of a model: what one of its targets does, the model does."""
        facts = [each.facts for each in targets]
        ends = latest(each.shutdown for each in facts)
        reads, makes = _any_of(facts, "input"), _any_of(facts, "makes")
        if reads is None:
            reads = _told_by(INPUTS, (each.provider.inputs(each.target.model) for each in targets))
            gives = (each.provider.outputs(each.target.model) for each in targets)
            makes = makes or _told_by(OUTPUTS, gives)
        return ModelInfo(
            public_id,
            self._created,
            targets[0].provider.id,
            room,
            _most(each.output for each in facts),
            reads,
            makes,
            None if ends is None else ends.isoformat(),
            None if adapter is None else adapter.base,
            # Where it lies on this machine is nobody's business.
            None if adapter is None else adapter.name,
        )


def _told_by(
    kinds: Sequence[str], of_targets: Iterable[Sequence[str] | None]
) -> tuple[str, ...] | None:
    """The kinds that any target reads, or gives, by itself, where no catalogue knows of it."""
    found = [each or () for each in of_targets]
    return tuple(kind for kind in kinds if any(kind in each for each in found)) or None


def _goes_by_prefix(route: Route) -> bool:
    return route.policy is not None and route.policy.settings.balance == "prefix"


def _public_id(provider: Provider, name: str) -> str:
    """`provider/model`; a vendor whose own ids begin so already is not prefixed twice."""
    prefix = f"{provider.id}/"
    return name if name.startswith(prefix) else prefix + name
