"""What the cache of replies gives and costs: hits and misses beside the same gateway without it.

    python -m bench.cache [--rounds 5] [--seconds 3] [--instructions 320]

`bench.load.side_by_side` says how. Where misses are measured each request asks for something else.
After that the instructions of a request are counted under valgrind, which what else runs on the
machine hardly changes: of so many requests, none of them with `--instructions 0`; with `--rounds 0`
nothing else is measured, and nothing is written. Writes `bench/results/cache.json`.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench.instructions import counted, instructions
from bench.load import peers
from bench.load.side_by_side import gateway, options_of, running_upstream, side_by_side
from bench.load.stage import generate
from bench.machine import cpu_seconds, write_results

WANTED = {
    "hit": {"requests_per_s": 3.0, "p50_ms": 0.5},
    "miss": {"processor_us_per_request": 1.05, "instructions": 1.05},
}
"""Of the gateway without: requests a second at least, the others at most."""

CACHED: dict[str, Any] = {"server": {"cache": {"exact": {"sampled": True}}}}

GATEWAYS: dict[str, dict[str, Any]] = {"relay": {}, "hit": CACHED, "miss": CACHED}

ASKED: dict[str, tuple[str, ...]] = {"relay": (), "hit": (), "miss": ("--unlike",)}
"""What is asked of each: the same again and again, or each time something else."""


def measure(started: peers.Started, cores: set[int], seconds: float) -> dict[str, float]:
    """One round of one gateway."""
    load = (*ASKED[started.gateway.name], "--seconds", seconds)
    many = generate(started, cores, "--connections", 32, *load)
    before = cpu_seconds(started.pid)
    one = generate(started, cores, "--connections", 1, *load)
    used = cpu_seconds(started.pid) - before
    return {
        "requests_per_s": many["requests_per_s"],
        "p50_ms": one["p50_ms"],
        "processor_us_per_request": used / max(one["requests"], 1) * 1e6,
        "errors": sum(each["errors"] + each["broken"] for each in (many, one)),
    }


def counts(requests: int, keep: Path | None = None) -> dict[str, int]:
    """The instructions of a request of each.

    Args:
        requests: so many are counted.
        keep: a folder for callgrind's files.
    """
    cores = set(os.sched_getaffinity(0))
    found = {}
    with ExitStack() as stack:
        scratch = keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        url = stack.enter_context(running_upstream(cores, scratch))
        for name, sections in GATEWAYS.items():
            one = counted(gateway(name, sections, url, scratch), scratch)
            with peers.running(one, cores, scratch / f"{name}.log") as started:
                found[name] = instructions(started, cores, requests, scratch, more=ASKED[name])
            print(name, found[name], "instructions a request")
    return found


def main() -> None:
    """Measure, print, and write the results."""
    parser = options_of(__doc__ or "")
    parser.add_argument("--instructions", type=int, default=320, help="of so many requests")
    parser.add_argument("--keep", type=Path, help="a folder for callgrind's files")
    parser.add_argument("--no-record", action="store_true", help="print the figures, no more")
    options = parser.parse_args()
    measured: dict[str, Any] = {"wanted": WANTED, "ratios": {"hit": {}, "miss": {}}}
    if options.rounds:
        measured |= side_by_side(GATEWAYS, measure, options.rounds, options.seconds)
    if options.instructions:
        found = counts(options.instructions, options.keep)
        measured["instructions a request"] = found
        for name in WANTED:
            measured["ratios"][name]["instructions"] = round(found[name] / found["relay"], 3)
    for name, wanted in WANTED.items():
        print(name, measured["ratios"][name], "wanted", wanted)
    if options.rounds and not options.no_record:
        write_results("cache", measured, "uvloop", "httptools", "msgspec")


if __name__ == "__main__":
    main()
