"""What the cache of replies gives and costs: hits and misses beside the same gateway without it.

    python -m bench.cache [--rounds 5] [--seconds 3]

The upstream answers at once. Each gateway has one core, the upstream and the load share another.
All are measured once a round, in turn; every figure is divided by that of the gateway without a
cache in the same round, and the medians of these count. A miss is one that its client wants asked
anew (`Cache-Control: no-cache`), so that it is kept each time. Writes `bench/results/cache.json`.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import yaml

from bench.load import peers
from bench.load.stage import generate, upstream
from bench.machine import cpu_seconds, write_results
from bench.operations import free_port, in_rounds, median_ratio

WANTED = {
    "hit": {"requests_per_s": 3.0, "p50_ms": 0.5},
    "miss": {"processor_us_per_request": 1.05},
}
"""Of the gateway without: requests a second at least, the others at most."""

HEADERS = {"relay": "max-age=600", "hit": "max-age=600", "miss": "no-cache"}
"""What is sent as `Cache-Control`: all read one."""


def gateway(name: str, url: str, scratch: Path) -> peers.Gateway:
    """One gateway."""
    port = free_port()
    document: dict[str, Any] = {
        "version": 1,
        "server": {"port": port},
        "providers": [
            {"id": "up", "type": "remote::passthrough", "config": {"base_url": f"{url}/v1"}}
        ],
        "models": [{"id": "model", "provider": "up"}],
    }
    if name != "relay":
        document["server"]["cache"] = {"exact": {"sampled": True}}
    template = scratch / f"{name}.yaml"
    template.write_text(yaml.safe_dump(document))
    command = [str(Path(sys.executable).with_name("llama-compat")), "run", str(template)]
    return peers.Gateway(name, port, command, {}, headers={"cache-control": HEADERS[name]})


def measure(started: peers.Started, cores: set[int], seconds: float) -> dict[str, float]:
    """One round of one gateway."""
    many = generate(started, cores, "--connections", 32, "--seconds", seconds)
    before = cpu_seconds(started.pid)
    one = generate(started, cores, "--connections", 1, "--seconds", seconds)
    used = cpu_seconds(started.pid) - before
    return {
        "requests_per_s": many["requests_per_s"],
        "p50_ms": one["p50_ms"],
        "processor_us_per_request": used / max(one["requests"], 1) * 1e6,
        "errors": sum(each["errors"] + each["broken"] for each in (many, one)),
    }


def main() -> None:
    """Measure, print, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3)
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    own, others = {cores[0]}, {cores[-1]}
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        behind = stack.enter_context(upstream(others, scratch / "upstream.log"))
        url = behind.url.partition("/v1")[0]
        started = {
            name: stack.enter_context(
                peers.running(gateway(name, url, scratch), own, scratch / f"{name}.log")
            )
            for name in HEADERS
        }
        rounds = in_rounds(
            options.rounds,
            lambda _: {
                name: measure(each, others, options.seconds) for name, each in started.items()
            },
        )
    ratios = {
        name: {
            figure: median_ratio((each[name][figure], each["relay"][figure]) for each in rounds)
            for figure in rounds[0]["relay"]
            if figure != "errors"
        }
        for name in ("hit", "miss")
    }
    for name, figures in ratios.items():
        print(name, figures, "wanted", WANTED[name])
    errors = sum(each["errors"] for one in rounds for each in one.values())
    write_results("cache", {"ratios": ratios, "wanted": WANTED, "errors": errors, "rounds": rounds})


if __name__ == "__main__":
    main()
