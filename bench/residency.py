"""Models that share memory: who waits how long, and how often they are loaded, on virtual time.

    python -m bench.residency [--seeds 5]

A hundred clients ask ten times each, one of five models of the same size by chance, with room for
two of them, which take a second to load. Replies take up to 3 s, and clients think for up to 1 s.
Who is in memory is decided by `providers.local.residency`, whose clock is the loop's; so a machine
makes no difference. With what a model stays at least (`stay_seconds`), and without. And two models
with room for one that are asked in turns. Writes `bench/results/residency.json`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
from collections.abc import Sequence
from typing import Any

from bench.machine import write_results
from providers.local.residency.resident import Resident
from tests.unit.providers.local.residency.test_residency import House
from tests.virtual_time import VirtualTimeLoop

CLIENTS, REQUESTS = 100, 10
ROOM = {"cpu": 10}
NEEDS = {"cpu": 5}
STAYS = (0.0, 2.0, 10.0)


async def crowd(seed: int, stay: float) -> dict[str, float]:
    """A hundred clients over five models."""
    chance, house = random.Random(seed), House(ROOM, stay_seconds=stay)
    models = [house.add(name, NEEDS, keep="idle 30s") for name in "abcde"]
    waits: list[float] = []
    clock = asyncio.get_running_loop().time

    async def client() -> None:
        for _ in range(REQUESTS):
            came = clock()
            waits.append(await house.ask(chance.choice(models), chance.uniform(0, 3)) - came)
            await asyncio.sleep(chance.uniform(0, 1))

    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    return {
        "answered": len(waits),
        "seconds": clock(),
        "loads": loads_of(house),
        "longest_wait_s": max(waits),
        "median_wait_s": statistics.median(waits),
        "most_memory": max(shelf.most["cpu"] for shelf in house.shelves.values()),
    }


async def in_turns(stay: float) -> dict[str, float]:
    """Two models with room for one, each asked fifty times by a client of its own."""
    house = House(ROOM, stay_seconds=stay)
    models = [house.add(name, {"cpu": 8}) for name in "ab"]

    async def client(model: Resident) -> None:
        for _ in range(50):
            await house.ask(model, 0.1)
            await asyncio.sleep(0.1)

    await asyncio.gather(*map(client, models))
    return {"loads": loads_of(house), "seconds": asyncio.get_running_loop().time()}


def loads_of(house: House) -> int:
    """How often a model was loaded."""
    return sum(event.startswith("+") for event in house.events)


def run(work: Any) -> Any:
    """What a coroutine gives on a loop whose clock does not wait."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(work)


def main(arguments: Sequence[str] | None = None) -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--no-record", action="store_true", help="print the figures, no more")
    options = parser.parse_args(arguments)
    found: dict[str, Any] = {}
    for stay in STAYS:
        runs = [run(crowd(seed, stay)) for seed in range(options.seeds)]
        worst = {name: round(max(each[name] for each in runs), 2) for name in runs[0]}
        worst["answered"] = min(each["answered"] for each in runs)
        turns = {name: round(value, 1) for name, value in run(in_turns(stay)).items()}
        found[f"stay {stay:g} s"] = {"a hundred clients": worst, "two in turns": turns}
    print(json.dumps(found, indent=2))
    results = {
        "clients": CLIENTS,
        "requests": CLIENTS * REQUESTS,
        "room": ROOM["cpu"] // NEEDS["cpu"],
        "seeds": options.seeds,
        "the worst of all seeds": found,
    }
    if not options.no_record:
        write_results("residency", results)


if __name__ == "__main__":
    main()
