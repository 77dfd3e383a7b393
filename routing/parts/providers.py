"""The providers of a distribution, and what those in this process and on a cluster share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from llama_compat.distribution import Distribution, ModelStay, ProviderSettings
from llama_compat.distribution.adapters import AdapterOf
from providers import registry
from providers.base import Provider, ProviderModel
from providers.shared import Shared

if TYPE_CHECKING:
    from providers.local.residency.residency import Residency
    from routing.parts.parts import Parts
    from routing.replicas.cluster import ReplicaCluster


def replicas_of(distribution: Distribution, earlier: Parts | None) -> Shared[ReplicaCluster] | None:
    """The replicas on a Ray cluster; None where no provider has any."""
    if not distribution.has_replicas:
        return None
    from routing.replicas.cluster import ReplicaCluster

    before = earlier.replicas if earlier else None
    if before is not None and before.value.settings == distribution.scale:
        return before
    replicas = ReplicaCluster(distribution.scale)
    return Shared(replicas, replicas.stop)


def residency_of(distribution: Distribution, earlier: Parts | None) -> Shared[Residency] | None:
    """Who says which models are in memory: one for all runtimes, as there is one memory."""
    if distribution.memory is None:
        return None
    if earlier is not None and earlier.residency is not None:
        return earlier.residency
    from providers.local.residency.residency import Residency

    residency = Residency(distribution.memory, distribution.residency)
    return Shared(residency, residency.stop)


def providers_of(
    distribution: Distribution,
    earlier: Parts | None,
    replicas: Shared[ReplicaCluster] | None,
    residency: Shared[Residency] | None,
) -> dict[str, Shared[Provider]]:
    """By id: those of `earlier` that the distribution has too, and new ones for the others."""
    wanted = wanted_models(distribution)
    running = earlier.providers if earlier else {}
    known = {each.id: each for each in earlier.distribution.providers} if earlier else {}
    providers = {}
    for settings in distribution.providers:
        models, before = wanted.get(settings.id, []), running.get(settings.id)
        was = known.get(settings.id)
        same_type = was is not None and _runs_alike(settings, was)
        if settings.replicas is not None and earlier and earlier.replicas is not replicas:
            same_type = False
        if earlier and earlier.residency is not residency:
            same_type = same_type and not settings.type.startswith("local::")
        if before and same_type and before.value.serves(settings.config, models):
            providers[settings.id] = before
            continue
        if settings.replicas is not None and replicas is not None:
            provider: Provider = _replicated(settings, models, replicas.value)
        else:
            make = registry.provider_type(settings.type).make
            provider = make(settings.id, settings.config, models)
            if residency is not None:
                provider.share_memory(residency.value)
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
