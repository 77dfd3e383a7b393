"""How the server is, for load balancers and for `llama-compat status`."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

import msgspec

from llama_compat.errors import APIError
from routing.asgi import RawHeaders
from routing.policy.targets import TargetSnapshot, host_of
from routing.runtime import Runtime

if TYPE_CHECKING:
    from providers.local.residency.residency import Residency

KEYS_AWAY = "the storage can't be read: stored keys are let in as far as they are known"

FLEET_AWAY = "the fleet's store can't be asked: this gateway hears nothing of the others"

RAY_AWAY = "Ray can't be asked where replicas are: those that were known last are asked"

COUNTERS_AWAY = {
    "allow": "{} can't be asked: requests are let in without their limits",
    "local_share": "{} can't be asked: requests are held against this gateway's share of limits",
    "refuse": "{} can't be asked: requests that have limits are refused",
}

CACHE_AWAY = "a cache of replies can't be asked: what was said before is asked again"

_TOLD = [each.name for each in fields(TargetSnapshot)]


def health(runtime: Runtime, headers: RawHeaders) -> dict[str, Any]:
    """What `GET /health` answers from `runtime` to a request with these `headers`.

    Only who may see how all of it does is told more than whether it is up: what a target is called
    says who the vendors are, and what runs there what others do.
    """
    if not runtime.ready:
        return {"status": "starting"}
    lost = lost_devices(runtime)
    status = "device_lost" if lost else "ok"
    if not runtime.overseers.see(headers):
        return {"status": status}
    counts = Counter({"running": 0, "waiting": 0})
    for provider in runtime.providers.values():
        counts.update(provider.stats())
    snapshots = runtime.states.snapshots(time.monotonic())
    targets = [{name: getattr(each, name) for name in _TOLD} for each in snapshots]
    told: dict[str, Any] = {"status": status, **counts, "targets": targets}
    if lost:
        told["lost_devices"] = lost
    if runtime.fleet is not None:
        told["fleet"] = runtime.fleet.told()
    if engines := engines_of(runtime):
        told["engines"] = engines
    if runtime.residency is not None:
        told["memory"] = memory_of(runtime.residency)
    if warnings := _warnings(runtime):
        told["warnings"] = warnings
    return told


def lost_devices(runtime: Runtime) -> list[str]:
    """What nothing can be computed on any more until this process is started again."""
    return sorted({device for each in runtime.providers.values() for device in each.lost_devices()})


def engines_of(runtime: Runtime) -> list[dict[str, Any]]:
    """What each engine does and has done: those in this process, and those of replicas, which have
    a `place`."""
    told = []
    for provider in runtime.providers.values():
        found = {(model, ""): each for model, each in provider.engine_stats().items()}
        for (model, place), stats in {**found, **provider.replica_stats()}.items():
            figures = {"provider": provider.id, "model": model, "place": host_of(place)}
            told.append({**figures, **asdict(stats)})
    return told


def memory_of(residency: Residency) -> dict[str, Any]:
    """What there is of each device's memory, what models take of it, and where each model is."""
    ledger = residency.ledger
    used = ledger.used
    devices = {
        device: {"bound": bound, "used": used.get(device, 0)}
        for device, bound in ledger.bounds.items()
    }
    return {"devices": devices, "models": [asdict(each) for each in residency.snapshots()]}


def cache_news(runtime: Runtime, model: str, log: str, after: int) -> bytes:
    """What `GET /kv_blocks` answers: a `CacheNews` as JSON.

    Raises:
        APIError: 404, no engine here has the model, or it keeps no cache of prompts.
    """
    for provider in runtime.providers.values():
        held = provider.held_prompts(model)
        if held is not None:
            return msgspec.json.encode(held.news(log, after))
    raise APIError(
        404,
        f"No engine here keeps what it has computed of prompts for a model '{model[:200]}'.",
        code="no_prompt_cache",
    )


def _warnings(runtime: Runtime) -> list[str]:
    access = runtime.access
    warnings = [CACHE_AWAY] if runtime.caches_away else []
    if runtime.replicas is not None and runtime.replicas.is_away:
        warnings.append(RAY_AWAY)
    if runtime.fleet is not None and runtime.fleet.is_away:
        warnings.append(FLEET_AWAY)
    if access is None:
        return warnings
    if runtime.settings.stored_keys and access.is_away:
        warnings.append(KEYS_AWAY)
    if access.counters.is_away:
        said = COUNTERS_AWAY[access.limiter.on_outage]
        warnings.append(said.format(access.counters.store))
    return warnings
