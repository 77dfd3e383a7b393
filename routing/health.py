"""How the server is, for load balancers and for `llama-compat status`."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from routing.policy.targets import TargetSnapshot
from routing.runtime import Runtime

KEYS_AWAY = "the storage can't be read: stored keys are let in as far as they are known"

_TOLD = [each.name for each in fields(TargetSnapshot)]


def health(runtime: Runtime, headers: Iterable[tuple[bytes, bytes]]) -> dict[str, Any]:
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
    if runtime.settings.stored_keys and runtime.access and runtime.access.is_away:
        told["warnings"] = [KEYS_AWAY]
    return told
