"""What it does that replicas tell what their caches hold: `prefix` by that, and by what was sent.

    python -m bench.told [--replicas 8] [--gateways 1 4] [--workloads TEXT ...] [--seed 7]

The same as `bench.placement`, on virtual time, behind one gateway and behind several that share the
requests and tell each other nothing. A gateway is told of changes after a quarter of a second, as
it is of real replicas. `cache_tokens` is what the caches really hold, or twice that: who goes by
what was sent has to be told it right. Writes `bench/results/told.json`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from typing import Any

from bench.machine import write_results
from bench.placement import LEAST_SECONDS, SECONDS, Figures, figures_of
from bench.placing.fleet import Fleet
from bench.placing.workloads import BLOCK_TOKENS, SHARED, WORKLOADS, Conversation
from llama_compat.distribution.routing import Balance, PrefixSettings, RoutingSettings
from providers.local.simulation.config import SimulationConfig

ASKED = (SHARED, "shared prompts, long replies", "long chats")

WAYS: Mapping[str, tuple[Balance, int, bool]] = {
    "least_busy": ("least_busy", 1, False),
    "prefix, by what was sent": ("prefix", 1, False),
    "the same, cache_tokens twice too large": ("prefix", 2, False),
    "prefix, by what is held": ("prefix", 1, True),
    "the same, cache_tokens twice too large, held": ("prefix", 2, True),
}
"""The balance, how many times too large the cache is taken to be, and whether replicas tell."""


def measure(
    way: str,
    conversations: Sequence[Conversation],
    replicas: int,
    gateways: int,
    config: SimulationConfig,
    seed: int,
) -> Figures:
    """One way of choosing under what is asked."""
    balance, times, are_told = WAYS[way]
    tokens = times * config.kv_blocks * config.block_tokens
    settings = RoutingSettings(balance=balance, prefix=PrefixSettings(cache_tokens=tokens))
    fleet = Fleet(replicas, settings, config, seed, gateways=gateways, are_told=are_told)
    fleet.run(conversations)
    return figures_of(fleet, SECONDS.get(replicas, LEAST_SECONDS))


def main() -> None:
    """Measure, print, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicas", type=int, default=8)
    parser.add_argument("--gateways", type=int, nargs="*", default=[1, 4])
    parser.add_argument("--workloads", nargs="*", default=list(ASKED))
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    config = SimulationConfig(block_tokens=BLOCK_TOKENS)
    seconds = SECONDS.get(options.replicas, LEAST_SECONDS)
    rows: dict[str, dict[str, Any]] = {}
    for name in options.workloads:
        asked = list(WORKLOADS[name](options.replicas, seconds, options.seed))
        for gateways in options.gateways:
            told = {
                way: measure(way, asked, options.replicas, gateways, config, options.seed)
                for way in WAYS
            }
            rows.setdefault(name, {})[str(gateways)] = told
            print(json.dumps({"workload": name, "gateways": gateways, **told}), flush=True)
    about = {"engine": config.model_dump(), "replicas": options.replicas, "seed": options.seed}
    print(f"wrote {write_results('told', {**about, 'workloads by gateways': rows})}")


if __name__ == "__main__":
    main()
