"""How the server is, for load balancers and for `llama-compat status`."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from llama_compat.errors import APIError
from routing.policy.targets import TargetSnapshot
from routing.runtime import Runtime

_TOLD = [each.name for each in fields(TargetSnapshot)]


def health(runtime: Runtime, headers: Iterable[tuple[bytes, bytes]]) -> dict[str, Any]:
    """What `GET /health` answers from `runtime` to a request with these `headers`.

    Whoever may not ask the models is told no more than how many requests there are: what a target
    is called says who the vendors are.
    """
    if not runtime.ready:
        return {"status": "starting"}
    counts = Counter({"running": 0, "waiting": 0})
    for provider in runtime.providers.values():
        counts.update(provider.stats())
    told: dict[str, Any] = {"status": "ok", **counts}
    try:
        runtime.authenticator.principal(headers)
    except APIError:
        return told
    snapshots = runtime.states.snapshots(time.monotonic())
    told["targets"] = [{name: getattr(each, name) for name in _TOLD} for each in snapshots]
    return told
