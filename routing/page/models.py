"""`/admin/models`: what each model is, who may use it, and how its targets are now."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from fastapi import Request as HTTPRequest

from llama_compat.catalog.facts import latest
from llama_compat.catalog.prices import NANO_DOLLARS
from llama_compat.types import Usage
from routing.auth import ADMIN
from routing.health import engines_of, memory_of
from routing.observability.records.ledger import Ledger
from routing.observability.records.overview import traffic
from routing.observability.records.prices import Prices
from routing.page.recorded import storage_of
from routing.runtime import Runtime, runtime_of
from routing.storage.storage import StorageError

if TYPE_CHECKING:
    from fastapi import APIRouter

    from routing.models import Route
    from routing.policy.targets import LiveTarget

TRAFFIC_SECONDS = 300
"""So far back the traffic goes that targets have now."""

MOST_KEYS = 50
"""So many keys are named that open a model."""

FACTS = (
    "name",
    "context",
    "output",
    "input",
    "makes",
    "reasoning",
    "tools",
    "structured_output",
    "released",
    "shutdown",
    "successor",
)
"""What is told of what is known of a target's model."""

_TOKENS = 1000
_INPUT, _OUTPUT = Usage(_TOKENS, 0), Usage(0, _TOKENS)


def add_models_routes(router: APIRouter) -> None:
    """Add them to `router`."""
    router.add_api_route(f"{ADMIN}models", tell_models, methods=["GET"], tags=["admin"])


async def tell_models(request: HTTPRequest) -> dict[str, Any]:
    """Every model of the template: its names, facts, prices (dollars for a million tokens) and
    shut-down date, whose keys open it, and its targets with their weights, health and cooldowns.
    `requests` are those of the last five minutes, at all processes, by the records; everything else
    of a target is as this process knows it, `in_flight_elsewhere` aside. `memory` is what models of
    this process share, and where each is; none where the template shares none."""
    runtime = runtime_of(request)
    now = time.monotonic()
    prices = (runtime.ledger or Ledger(Prices(runtime.distribution))).prices
    asked = await _traffic(runtime)
    types = {each.id: each.type for each in runtime.distribution.providers}
    return {
        "object": "list",
        "data": [_model(route, runtime, prices, asked, types, now) for route in runtime.models],
        "engines": engines_of(runtime),
        "memory": None if runtime.residency is None else memory_of(runtime.residency),
        "traffic_seconds": None if asked is None else TRAFFIC_SECONDS,
        "process": os.getpid(),
        "fleet": None if runtime.fleet is None else runtime.fleet.gateways,
    }


async def _traffic(runtime: Runtime) -> Mapping[tuple[str, str], tuple[int, int]] | None:
    """How many requests each model's targets had, and how many went wrong; None where nobody
    knows."""
    storage = storage_of(runtime)
    if storage is None:
        return None
    try:
        return await traffic(storage, time.time() - TRAFFIC_SECONDS)
    except StorageError:
        return None


def _model(
    route: Route,
    runtime: Runtime,
    prices: Prices,
    asked: Mapping[tuple[str, str], tuple[int, int]] | None,
    types: Mapping[str, str],
    now: float,
) -> dict[str, Any]:
    info = runtime.models.describe(route.name, route)
    targets = [
        {
            **_target(each, route, prices, types, now),
            "requests": None if asked is None else asked.get((route.name, each.id), (0, 0)),
        }
        for each in route.targets
    ]
    for target in targets:
        if target["requests"] is not None:
            target["requests"], target["failed"] = target["requests"]
    ends = latest(each.facts.shutdown for each in route.targets)
    return {
        "id": route.name,
        "aliases": [each for each in route.names if each != route.name],
        "context_length": info.context_length,
        "output": info.max_output_tokens,
        "input": info.input,
        "makes": info.output,
        "shutdown": None if ends is None else ends.isoformat(),
        "successor": next((s for each in route.targets if (s := each.facts.successor)), None),
        "balance": None if route.policy is None else route.policy.settings.balance,
        "open_to": _open_to(route, runtime),
        "targets": targets,
    }


def _target(
    target: LiveTarget, route: Route, prices: Prices, types: Mapping[str, str], now: float
) -> dict[str, Any]:
    facts = {name: getattr(target.facts, name) for name in FACTS}
    return {
        **asdict(target.state.snapshot(now)),
        "type": types.get(target.provider.id, ""),
        "weight": target.weight,
        "priority": target.priority,
        "facts": {name: value for name, value in facts.items() if value is not None},
        "price": _price(target, route, prices),
    }


def _price(target: LiveTarget, route: Route, prices: Prices) -> dict[str, float] | None:
    costs = [
        prices.cost(route.name, target.provider.id, target.target.model, usage)
        for usage in (_INPUT, _OUTPUT)
    ]
    if None in costs:
        return None
    dollars: Sequence[float] = [(cost or 0) * 1_000_000 / _TOKENS / NANO_DOLLARS for cost in costs]
    return dict(zip(("input", "output"), dollars, strict=True))


def _open_to(route: Route, runtime: Runtime) -> dict[str, Any]:
    """Whose keys open the model: how many there are, and the names of some."""
    ring, now = runtime.keys, time.time()
    if ring.is_open:
        return {"everybody": True, "count": 0, "keys": []}
    named = [
        key.principal.name or key.principal.id
        for key in (*ring.given.values(), *ring.stored.values())
        if key.is_good(now) and ring.has_team(key.principal) and route.is_open_to(key.principal)
    ]
    return {"everybody": False, "count": len(named), "keys": sorted(named)[:MOST_KEYS]}
