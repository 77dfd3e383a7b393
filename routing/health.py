"""How the server is, for load balancers and for `llama-compat status`."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import fields
from typing import Any

from routing.asgi import RawHeaders
from routing.policy.targets import TargetSnapshot
from routing.runtime import Runtime

KEYS_AWAY = "the storage can't be read: stored keys are let in as far as they are known"

COUNTERS_AWAY = {
    "open": "Redis can't be asked: requests are let in without their limits",
    "closed": "Redis can't be asked: requests that have limits are refused",
}

_TOLD = [each.name for each in fields(TargetSnapshot)]


def health(runtime: Runtime, headers: RawHeaders) -> dict[str, Any]:
    """What `GET /health` answers from `runtime` to a request with these `headers`.

    Only who may see how all of it does is told more than whether it is up: what a target is called
    says who the vendors are, and what runs there what others do.
    """
    if not runtime.ready:
        return {"status": "starting"}
    if not runtime.overseers.see(headers):
        return {"status": "ok"}
    counts = Counter({"running": 0, "waiting": 0})
    for provider in runtime.providers.values():
        counts.update(provider.stats())
    snapshots = runtime.states.snapshots(time.monotonic())
    targets = [{name: getattr(each, name) for name in _TOLD} for each in snapshots]
    told: dict[str, Any] = {"status": "ok", **counts, "targets": targets}
    if warnings := _warnings(runtime):
        told["warnings"] = warnings
    return told


def _warnings(runtime: Runtime) -> list[str]:
    access = runtime.access
    if access is None:
        return []
    warnings = []
    if runtime.settings.stored_keys and access.is_away:
        warnings.append(KEYS_AWAY)
    if access.counters.is_away:
        when_away = runtime.settings.limits.when_away
        warnings.append(COUNTERS_AWAY[when_away])
    return warnings
