"""A provider whose models are in this process: which are there, and how they come and go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from llama_compat.distribution.residency import ModelStay
from llama_compat.errors import APIError
from providers.base import (
    WAKING_KEEPALIVE_SECONDS,
    Provider,
    ProviderConfig,
    ProviderModel,
    ProviderStartError,
)
from providers.local.engine import Embedder, Engine, Reranker, Stats
from providers.local.residency.host import AnyEngine, EngineHost, Footprint, OpenedModel, Wish
from providers.local.residency.ledger import Sizes
from providers.local.residency.resident import Whereabouts
from providers.requirements import require
from providers.shared import Shared

if TYPE_CHECKING:
    from providers.local.residency.residency import Residency
    from providers.local.residency.resident import Resident

Config = TypeVar("Config", bound=ProviderConfig)

_TAKEN = ("max_waiting", "max_sequences")
"""The settings that say how many requests an engine takes."""


class HostingProvider(Provider):
    """Has models run in this process, one engine a model.

    A subclass says how an engine is opened (`_open_engine`) and, for models that share memory, what
    it takes (`footprint`, `taken_by`).
    """

    loads_models = True

    modules: ClassVar[Sequence[str]] = ()
    """The packages that the engine needs."""

    extra: ClassVar[str] = ""
    """The extra of this project that brings them."""

    def __init__(
        self, provider_id: str, config: ProviderConfig, models: Sequence[ProviderModel]
    ) -> None:
        super().__init__(provider_id, config, models)
        self._hosts: dict[str, Shared[EngineHost]] = {}
        self._adopted: dict[str, Shared[EngineHost]] = {}
        self._residency: Residency | None = None
        self._kv_caches: dict[str, int] = {}
        self._adapted = {each.id: each for model in models for each in model.adapters}

    # Start and stop -------------------------------------------------------------------------------

    def share_memory(self, residency: Residency) -> None:
        """Load models when they are asked for, as far as `residency` has room for them."""
        self._residency = residency
        self.keepalive_seconds = WAKING_KEEPALIVE_SECONDS

    def adopt(self, previous: Provider) -> None:
        """Take over the models that would be loaded as they were: they run on."""
        if isinstance(previous, HostingProvider) and _load_settings(previous) == _load_settings(
            self
        ):
            before = {each.loaded_as for each in previous.models}
            self._adopted = {
                model.name: previous._hosts[model.name]
                for model in self.models
                if model.loaded_as in before and model.name in previous._hosts
            }

    async def start(self) -> None:
        """Load the models, in a thread, and start an engine for each. Where the memory is shared,
        see what each will take, and load those that are to be there from the start.

        Raises:
            ProviderStartError: a package or a model is missing, or a model can't be loaded.
        """
        require(self.modules, f"by the provider '{self.id}'", self.extra)
        stays = {model.name: model.stay for model in self.models}
        for name, stay in stays.items():
            shared = self._adopted.get(name)
            if shared is None or not self._may_have(shared.value):
                host = EngineHost(self, name)
                shared = Shared(host, host.end)
            shared.hold()
            self._hosts[name] = shared
            if shared.value.opened is None:
                shared.value.adapters = self._sources(name)
            await self._find_room(shared.value, name, stay)
        # What can't be as the template says is told before the minutes that others take to load.
        for name, stay in stays.items():
            await self._bring(self._hosts[name].value, stay)
            await self._hosts[name].value.adapt_to(self._sources(name))
        self._adopted = {}

    def _may_have(self, host: EngineHost) -> bool:
        resident = host.resident
        if resident is None:
            return True
        if self._residency is None:
            # What is not there has to be loaded, for which those may leave no room that share it.
            return resident.is_open or resident.state is Whereabouts.loading
        return resident.belongs_to(self._residency)

    async def _find_room(self, host: EngineHost, name: str, stay: ModelStay) -> None:
        """Where the memory is shared, see what a model will take of it."""
        if self._residency is None:
            host.wanted(self, Wish(None, self._sources(name)))
            await host.keep(self)
            return
        await host.survey()
        await host.share(self._residency, stay)
        host.wanted(self, Wish(stay, self._sources(name)))

    async def _bring(self, host: EngineHost, stay: ModelStay) -> None:
        """Load a model that is to be there from the start."""
        if self._residency is None:
            if host.opened is None:
                await host.load()
        elif stay.preload:
            assert host.resident is not None
            await self._residency.preload(host.resident)

    async def stop(self) -> None:
        """Break off what is running and let the models go that no other provider has taken over."""
        hosts, self._hosts = self._hosts, {}
        for each in hosts.values():
            each.value.left(self)
            await each.release()

    def resident(self, model: str) -> Resident | None:
        """What is leased of `model`, where the memory is shared."""
        if self._residency is None:
            return None
        host = self._host(model)
        return None if host is None else host.resident

    # Adapters -------------------------------------------------------------------------------------

    def is_adapted(self, model: str) -> bool:
        """Whether `model` is another one with an adapter."""
        return model in self._adapted

    def has_adapter(self, model: str) -> bool:
        """Whether the adapter of `model` is in memory now."""
        host = self._host(model)
        return host is not None and host.has_adapter(self._adapted[model].source)

    async def load_adapter(self, model: str) -> None:
        """Have the adapter of `model` in memory, and the model that it adapts."""
        resident = self.resident(model)
        lease = None if resident is None else await resident.lease()
        try:
            await self._adapter(model)
        finally:
            if lease is not None:
                lease.release()

    async def unload_adapter(self, model: str) -> None:
        """Let go of the adapter of `model`; its next request loads it again."""
        host = self._host(model)
        if host is not None:
            await host.release_adapter(self._adapted[model].source)

    async def _adapter(self, model: str) -> str | None:
        """The source of the adapter of `model`, which is loaded then; None where it has none.

        Raises:
            APIError: 503, it can't be loaded.
        """
        adapted = self._adapted.get(model)
        host = self._host(model)
        if adapted is None or host is None:
            return None
        try:
            await host.adapt(adapted.source)
        except ProviderStartError as error:
            failure = APIError(503, str(error), code="model_not_loaded")
            raise failure.about(self._base_of(model)) from error
        return adapted.source

    def _sources(self, model: str) -> tuple[str, ...]:
        """Of the adapters of a model."""
        found = (each.source for each in self._adapted.values() if each.base == model)
        return tuple(dict.fromkeys(found))

    def _base_of(self, model: str) -> str:
        """The model that `model` is, with an adapter or without."""
        adapted = self._adapted.get(model)
        return model if adapted is None else adapted.base

    def _host(self, model: str) -> EngineHost | None:
        shared = self._hosts.get(self._base_of(model))
        return None if shared is None else shared.value

    # Its engines ----------------------------------------------------------------------------------

    def open_engine(self, name: str, kv_cache: int | None) -> AnyEngine:
        """See `EngineMaker.open_engine`."""
        if kv_cache is not None:
            self._kv_caches[name] = kv_cache
        else:
            self._kv_caches.pop(name, None)
        return self._open_engine(name, self._wanted_context_length(name))

    def _with_its_cache(self, config: Config, name: str) -> Config:
        """Settings with as much for the KV cache (`kv_cache`) as the model may have."""
        cache = self._kv_caches.get(name)
        return config.model_copy(update={"kv_cache": float(cache)}) if cache else config

    def footprint(self, name: str) -> Footprint:
        """See `EngineMaker.footprint`."""
        raise ProviderStartError(
            f"The models of '{self.id}' can't share memory, as nobody can say before they are"
            " loaded what they take: leave `memory` out of the template."
        )

    def taken_by(self, footprint: Footprint, engine: AnyEngine) -> Sizes:
        """See `EngineMaker.taken_by`."""
        return footprint.needs

    def freed(self) -> None:
        """See `EngineMaker.freed`."""

    def max_waiting(self) -> int | None:
        """As many as the engine of a model takes at once, and as may wait there."""
        waiting, running = (getattr(self.config, each, None) for each in _TAKEN)
        return None if waiting is None else waiting + (running or 1)

    def _open_engine(self, name: str, context_length: int | None) -> AnyEngine:
        """An engine, an embedder or a reranker that runs; called in a thread.

        Args:
            name: of the model.
            context_length: how long the template lets its context be.

        Raises:
            ProviderStartError: a person has to mend something.
        """
        raise NotImplementedError

    def _opened(self, name: str) -> OpenedModel | None:
        host = self._host(name)
        return None if host is None else host.opened

    def _all_opened(self) -> Mapping[str, OpenedModel]:
        found = {name: shared.value.opened for name, shared in self._hosts.items()}
        return {name: each for name, each in found.items() if each is not None}

    @property
    def engines(self) -> dict[str, Engine]:
        """The engines of the models that are loaded and generate, by the model's name."""
        return {
            name: each.engine
            for name, each in self._all_opened().items()
            if not isinstance(each.engine, Embedder | Reranker)
        }

    @property
    def embedders(self) -> dict[str, Embedder]:
        """Those of the models that embed."""
        return {
            name: each.engine
            for name, each in self._all_opened().items()
            if isinstance(each.engine, Embedder)
        }

    @property
    def rerankers(self) -> dict[str, Reranker]:
        """Those of the models that rank documents."""
        return {
            name: each.engine
            for name, each in self._all_opened().items()
            if isinstance(each.engine, Reranker)
        }

    def _wanted_context_length(self, name: str) -> int | None:
        base = self._base_of(name)
        return next((each.context_length for each in self.models if each.name == base), None)

    def context_length(self, model: str) -> int | None:
        """How many tokens `model` holds: the model's own limit, or the template's lower one."""
        host = self._host(model)
        known = None if host is None else host.context_length
        return self._wanted_context_length(model) if known is None else known

    def inputs(self, model: str) -> tuple[str, ...] | None:
        """What `model` reads, once it was loaded."""
        host = self._host(model)
        return None if host is None else host.inputs

    def outputs(self, model: str) -> tuple[str, ...] | None:
        """What `model` gives, once it was loaded."""
        host = self._host(model)
        return None if host is None else host.outputs

    def stats(self) -> dict[str, int]:
        """How many generations run and wait, and how many models take one at a time only."""
        stats = list(self.engine_stats().values())
        counts = {
            "running": sum(each.running for each in stats),
            "waiting": sum(each.waiting for each in stats),
        }
        unbatched = sum(not each.batched for each in stats)
        return {**counts, "unbatched_models": unbatched} if unbatched else counts

    def engine_stats(self) -> dict[str, Stats]:
        """What each model does and has done that was ever loaded."""
        found = {name: shared.value.stats for name, shared in self._hosts.items()}
        return {name: each for name, each in found.items() if each is not None}


def _load_settings(provider: HostingProvider) -> tuple[type[HostingProvider], dict[str, Any]]:
    """All that a model is loaded by, besides what the provider's `models` say of it."""
    return type(provider), provider.config.model_dump(exclude={"unsupported"})
