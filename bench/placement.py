"""Where a request goes, and what comes of it: policies over simulated replicas, on virtual time.

    python -m bench.placement [--replicas 2 8 64] [--workloads TEXT ...] [--seed 7]

The policies are those of `routing.policy`, which read the JSON that a client would send. Replicas
are `providers.local.simulation`, whose steps take virtual time; so a machine makes no difference,
and the same seed gives the same figures. What is asked in the first half of the time fills the
caches and is not counted. Writes `bench/results/placement.json`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.machine import write_results
from bench.placing.fleet import Fleet
from bench.placing.workloads import BLOCK_TOKENS, SHARED, WORKLOADS, Conversation
from llama_compat.distribution.routing import Balance, PrefixSettings, RoutingSettings
from providers.local.simulation.config import SimulationConfig

BALANCES: Sequence[Balance] = ("least_busy", "prefix", "round_robin", "sticky")
LEAST_SECONDS = 40.0
SECONDS = {2: 200.0, 8: 80.0, 64: LEAST_SECONDS}
"""Of virtual time in which somebody comes, by how many replicas there are."""

NO_WORSE = 1.03
"""Times the figures of `least_busy`, at most, of any workload."""

BETTER = 2.0
"""Times the TTFT p90 of `prefix`, at least, that `least_busy` has on shared prompts."""

Figures = Mapping[str, float]


def measure(
    balance: Balance,
    conversations: Sequence[Conversation],
    replicas: int,
    config: SimulationConfig,
    seed: int,
) -> Figures:
    """One policy under what is asked."""
    tokens = config.kv_blocks * config.block_tokens
    settings = RoutingSettings(balance=balance, prefix=PrefixSettings(cache_tokens=tokens))
    seconds = SECONDS.get(replicas, LEAST_SECONDS)
    fleet = Fleet(replicas, settings, config, seed)
    fleet.run(conversations)
    return figures_of(fleet, seconds)


def figures_of(fleet: Fleet, seconds: float) -> Figures:
    """What came of what was asked in the second half of so many seconds."""
    counted = [each for each in fleet.served if each.asked >= seconds / 2]
    waited = sorted(each.first - each.asked for each in counted)
    busy = [each.busy for each in fleet.replicas]
    took = max(each.ended for each in counted) - seconds / 2
    prompts = sum(each.prompt_tokens for each in counted)
    replies = sum(each.reply_tokens for each in counted)
    decoding = sum(each.ended - each.first for each in counted)
    return {
        "requests": len(counted),
        "ttft_p50_ms": round(_percentile(waited, 0.5) * 1000, 1),
        "ttft_p90_ms": round(_percentile(waited, 0.9) * 1000, 1),
        "tokens_per_s": round(replies / took, 1),
        "tokens_per_s_of_a_stream": round((replies - len(counted)) / decoding, 1),
        "hit_rate": round(sum(each.cached_tokens for each in counted) / prompts, 4),
        "imbalance": round(max(busy) * len(busy) / sum(busy), 3),
    }


def _percentile(values: Sequence[float], share: float) -> float:
    return values[min(int(share * len(values)), len(values) - 1)]


def compared(figures: Mapping[str, Figures]) -> Figures:
    """`prefix` beside `least_busy`: how many times as long until the first token, and as slow."""
    ours, theirs = figures["prefix"], figures["least_busy"]
    return {
        "ttft_p50": round(ours["ttft_p50_ms"] / theirs["ttft_p50_ms"], 3),
        "ttft_p90": round(ours["ttft_p90_ms"] / theirs["ttft_p90_ms"], 3),
        "slower": round(theirs["tokens_per_s"] / ours["tokens_per_s"], 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicas", type=int, nargs="*", default=list(SECONDS))
    parser.add_argument("--workloads", nargs="*", default=list(WORKLOADS))
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--save", type=Path, help="where to write what a part of it has measured")
    parser.add_argument("--join", type=Path, nargs="*", default=[], help="such files, in its place")
    options = parser.parse_args()
    config = SimulationConfig(block_tokens=BLOCK_TOKENS)
    rows: dict[str, dict[str, Any]] = {name: {} for name in options.workloads}
    for path in options.join:
        for name, measured in json.loads(path.read_text()).items():
            rows[name].update(measured)
    for name in options.workloads if not options.join else ():
        for replicas in options.replicas:
            seconds = SECONDS.get(replicas, LEAST_SECONDS)
            asked = list(WORKLOADS[name](replicas, seconds, options.seed))
            figures = {
                balance: measure(balance, asked, replicas, config, options.seed)
                for balance in BALANCES
            }
            beside = compared(figures)
            rows[name][str(replicas)] = {**figures, "prefix of least_busy": beside}
            print(json.dumps({"workload": name, "replicas": replicas, **beside}), flush=True)
    if options.save:
        options.save.write_text(json.dumps(rows))
    every = [each["prefix of least_busy"] for row in rows.values() for each in row.values()]
    worst = max(ratio for each in every for ratio in each.values())
    result: dict[str, Any] = {
        "wanted": {"no worse than": NO_WORSE, "shared prompts, full caches": BETTER},
        "engine": config.model_dump(),
        "seed": options.seed,
        "workloads": rows,
        "worst": worst,
    }
    if SHARED in rows:
        result["better"] = round(
            min(1 / each["prefix of least_busy"]["ttft_p90"] for each in rows[SHARED].values()), 1
        )
    if set(rows) == set(WORKLOADS) and all(len(row) >= len(SECONDS) for row in rows.values()):
        print(f"wrote {write_results('placement', result)}")
    print(
        f"worst {worst} of least_busy (wanted <= {NO_WORSE}); {result.get('better')} times better"
    )


if __name__ == "__main__":
    main()
