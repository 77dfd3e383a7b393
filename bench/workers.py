"""What several workers bring: requests/s of two beside one, and the memory of each.

    python -m bench.workers [--rounds 3] [--seconds 3]

With fewer than four cores the load shares the two cores of the workers, and takes from them what it
costs: `busy` says how much of the two cores the workers themselves had. `at_their_pace` is what two
workers would do with the processor time that a request costs one of them, if each had a core to
itself: an estimate, not a measurement.

A worker's memory is read after a load, beside that of the server as one process: of a page that n
processes share, `proportional_mib` counts 1/n, and `private_mib` nothing.

Writes `bench/results/workers.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench.load import peers
from bench.load.peers import Started
from bench.load.stage import generate, upstream
from bench.machine import cpu_seconds, family, private_mib, proportional_mib, write_results

WORKERS_IN_MEMORY = 4


def scaling(origin: str, scratch: Path, rounds: int, seconds: float) -> dict[str, Any]:
    """Requests/s of one worker on one core and of two on two, and their ratio."""
    cores = sorted(os.sched_getaffinity(0))
    load_cores = set(cores[2:4]) or {cores[1]}
    measured: dict[int, list[dict[str, float]]] = {1: [], 2: []}
    with ExitStack() as stack:
        started: dict[int, Started] = {}
        for workers in measured:
            gateway = peers.ours(origin, peers.free_port(), scratch, workers)
            running = peers.running(gateway, set(cores[:workers]), scratch / f"{workers}.log")
            started[workers] = stack.enter_context(running)
        for number in range(rounds):
            for workers, each in started.items():
                print(f"round {number + 1}: {workers}", file=sys.stderr)
                load = load_cores if workers == 1 or len(cores) > 3 else set(cores)
                measured[workers].append(measure(each, load, seconds))
    one, two = ({name: _median(runs, name) for name in runs[0]} for runs in measured.values())
    return {
        "two workers, times one's requests_per_s": _ratio(two, one, "requests_per_s"),
        "two workers, times one's processor time a request": _ratio(two, one, "cpu_us"),
        "at_their_pace": round(2 * one["cpu_us"] / two["cpu_us"], 3),
        "1": one,
        "2": two,
    }


def measure(started: Started, cores: set[int], seconds: float) -> dict[str, float]:
    """One run of 64 connections, with the processor time of the workers."""
    before = cpu_seconds(started.pid)
    report = generate(started, cores, "--connections", 64, "--seconds", seconds)
    used = cpu_seconds(started.pid) - before
    return {
        "requests_per_s": report["requests_per_s"],
        "p50_ms": report["p50_ms"],
        "p99_ms": report["p99_ms"],
        "errors": report["errors"] + report["broken"],
        "cpu_us": round(used / report["requests"] * 1e6, 1),
        "busy": round(used / report["seconds"], 3),
    }


def _median(runs: list[dict[str, float]], name: str) -> float:
    return statistics.median(run[name] for run in runs)


def _ratio(ours: dict[str, float], theirs: dict[str, float], name: str) -> float:
    return round(ours[name] / theirs[name], 3)


def memory(origin: str, scratch: Path) -> dict[str, dict[str, float]]:
    """What a process takes that serves alone, and what each of several takes."""
    return {
        "alone": _memory_of(peers.ours(origin, peers.free_port(), scratch), 1, scratch),
        f"one of {WORKERS_IN_MEMORY} workers": _memory_of(
            peers.ours(origin, peers.free_port(), scratch, WORKERS_IN_MEMORY),
            WORKERS_IN_MEMORY,
            scratch,
        ),
    }


def _memory_of(gateway: peers.Gateway, workers: int, scratch: Path) -> dict[str, float]:
    everywhere = os.sched_getaffinity(0)
    with peers.running(gateway, everywhere, scratch / "memory.log") as started:
        generate(started, everywhere, "--connections", 64, "--rounds", 100)
        processes = family(started.pid)
        serving = processes[-workers:]  # what starts and minds them comes before them
        return {
            "proportional_mib": _mean(map(proportional_mib, serving)),
            "private_mib": _mean(map(private_mib, serving)),
            "all_processes_proportional_mib": round(sum(map(proportional_mib, processes)), 1),
        }


def _mean(values: Any) -> float:
    return round(statistics.mean(values), 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3)
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        behind = stack.enter_context(upstream({cores[-1]}, scratch / "upstream.log"))
        origin = behind.url.removesuffix(behind.gateway.path)
        report = {
            "scaling": scaling(origin, scratch, options.rounds, options.seconds),
            "memory": memory(origin, scratch),
        }
    path = write_results("workers", report, "llama-compat", "uvicorn", "uvloop", "httptools")
    print(json.dumps(report, indent=2))
    print(f"written to {path.relative_to(peers.ROOT)}")


if __name__ == "__main__":
    main()
