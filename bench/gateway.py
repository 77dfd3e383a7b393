"""How much a gateway costs: ours beside no gateway, a bare relay, LiteLLM and Portkey, in one run.

    python -m bench.gateway [--rounds 3] [--seconds 4] [--peers]

The gateway under test has one core, the upstream and the load generator share another. Streams
come as fast as the upstream can send, and paced at 100 events/s each. Every subject is measured
once a round, in turn, so that a noisy minute meets all of them; medians are compared. Writes
`bench/results/gateway.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench.load import peers
from bench.machine import start_pinned, write_results

UPSTREAM_PORT = 18080
EVENTS = 200
STREAMS = 64
Measured = dict[str, list[dict[str, float]]]


def generate(url: str, cores: set[int], *options: object) -> dict[str, float]:
    """Run the load generator on `cores`; its report."""
    command = [sys.executable, "-m", "bench.load.generator", url, *map(str, options)]
    process = start_pinned(command, cores, stdout=subprocess.PIPE, cwd=peers.ROOT)
    output, _ = process.communicate(timeout=600)
    if process.returncode:
        raise RuntimeError(f"the load generator failed against {url}")
    report: dict[str, float] = json.loads(output)
    return report


def measure(url: str, cores: set[int], seconds: float, slow: bool) -> Measured:
    """One round of everything against `url`; a slow peer is given fewer streams to relay."""
    rounds = 1 if slow else 20
    stream = ("--stream", "--connections", STREAMS, "--rounds", rounds)
    paced = ("--stream", "--connections", STREAMS, "--rounds", min(rounds, 3), "--user", "paced")
    return {
        "many": [generate(url, cores, "--connections", 32, "--seconds", seconds)],
        "one": [generate(url, cores, "--connections", 1, "--seconds", seconds)],
        "stream": [generate(url, cores, *stream)],
        "paced": [generate(url, cores, *paced)],
    }


def median(measured: Measured, kind: str, figure: str) -> float:
    """The median over the rounds."""
    return statistics.median(report[figure] for report in measured[kind])


def summarise(results: dict[str, Measured]) -> dict[str, dict[str, float]]:
    """The medians that the ratios are made of, a row a subject."""
    return {
        name: {
            "requests_per_s": median(measured, "many", "requests_per_s"),
            "p50_ms_one_connection": median(measured, "one", "p50_ms"),
            "events_per_s": median(measured, "stream", "events_per_s"),
            "first_event_p50_ms": median(measured, "stream", "p50_ms"),
            "first_event_p99_ms": median(measured, "stream", "p99_ms"),
            "paced_first_event_p50_ms": median(measured, "paced", "p50_ms"),
            "paced_first_event_p99_ms": median(measured, "paced", "p99_ms"),
            "errors": sum(r["errors"] + r["broken"] for runs in measured.values() for r in runs),
        }
        for name, measured in results.items()
    }


def ratios(rows: dict[str, dict[str, float]]) -> dict[str, float]:
    """Ours against each of the others."""
    us, direct, bare = rows["llama_compat"], rows["no gateway"], rows["bare relay"]

    def added(row: dict[str, float]) -> float:
        return row["p50_ms_one_connection"] - direct["p50_ms_one_connection"]

    compared = {
        "requests_per_s, of the bare relay's": us["requests_per_s"] / bare["requests_per_s"],
        "added p50 at 1 connection, of the bare relay's": added(us) / added(bare),
        "events_per_s, of the bare relay's": us["events_per_s"] / bare["events_per_s"],
        "first event p99, of the bare relay's": (
            us["first_event_p99_ms"] / bare["first_event_p99_ms"]
        ),
        "first event p99 of paced streams, of the bare relay's": (
            us["paced_first_event_p99_ms"] / bare["paced_first_event_p99_ms"]
        ),
    }
    for peer in ("LiteLLM", "Portkey"):
        if peer in rows:
            row = rows[peer]
            compared[f"requests_per_s, times {peer}'s"] = (
                us["requests_per_s"] / row["requests_per_s"]
            )
            if row["events_per_s"]:  # a peer may answer every stream with an error
                compared[f"events_per_s, times {peer}'s"] = us["events_per_s"] / row["events_per_s"]
    return {name: round(value, 3) for name, value in compared.items()}


def scaling(upstream_url: str, scratch: Path, rounds: int, seconds: float) -> dict[str, Any]:
    """Requests/s of one worker on one core and of two on two, and their ratio.

    With fewer than four cores the load shares the two cores of the workers, and takes from them
    what it costs, a tenth or so.
    """
    cores = sorted(os.sched_getaffinity(0))
    one_core, two_cores = {cores[0]}, set(cores[:2])
    load_cores = set(cores[2:]) or set(cores)
    measured: dict[str, list[dict[str, float]]] = {"1 worker": [], "2 workers": []}
    with ExitStack() as stack:
        urls = {}
        for workers, allowed in ((1, one_core), (2, two_cores)):
            gateway = peers.ours(upstream_url, 18085 + workers, scratch, workers)
            name = f"{workers} worker{'s' * (workers > 1)}"
            stack.enter_context(peers.running(gateway, allowed, scratch / f"{name}.log"))
            urls[name] = gateway.url
        for number in range(rounds):
            print(f"round {number + 1}: workers", file=sys.stderr)
            for name, url in urls.items():
                load = {cores[1]} if name == "1 worker" and len(cores) < 4 else load_cores
                measured[name].append(
                    generate(url, load, "--connections", 64, "--seconds", seconds)
                )
    one, two = (
        statistics.median(report["requests_per_s"] for report in reports)
        for reports in measured.values()
    )
    return {"two workers, times one's requests_per_s": round(two / one, 3), "raw": measured}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--peers", action="store_true", help="LiteLLM and Portkey too")
    options = parser.parse_args()

    available = sorted(os.sched_getaffinity(0))
    gateway_core, load_cores = {available[0]}, {available[1]}
    upstream_url = f"http://127.0.0.1:{UPSTREAM_PORT}"
    missing: dict[str, str] = {}
    started: dict[str, dict[str, float]] = {}
    urls = {"no gateway": f"{upstream_url}/v1/chat/completions"}

    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        command = [sys.executable, "-m", "bench.load.upstream", UPSTREAM_PORT, EVENTS]
        upstream = start_pinned([*map(str, command)], load_cores, cwd=peers.ROOT)
        stack.callback(upstream.wait)
        stack.callback(upstream.terminate)
        subjects = [peers.bare_relay(upstream_url, 18081), peers.ours(upstream_url, 18082, scratch)]
        if options.peers:
            subjects += [peers.litellm(upstream_url, 18083, scratch), peers.portkey(18084)]
        for gateway in subjects:
            if gateway.command is None:
                missing[gateway.name] = gateway.why
                continue
            log = scratch / f"{gateway.name}.log"
            running = peers.running(gateway, gateway_core, log)
            started[gateway.name] = stack.enter_context(running)
            urls[gateway.name] = gateway.url
        time.sleep(1)

        workers = scaling(upstream_url, scratch, options.rounds, options.seconds)
        results: dict[str, Measured] = {}
        for number in range(options.rounds):
            for name, url in urls.items():
                slow = name in ("LiteLLM", "Portkey")
                if slow and number:
                    continue
                print(f"round {number + 1}: {name}", file=sys.stderr)
                for kind, reports in measure(url, load_cores, options.seconds, slow).items():
                    results.setdefault(name, {}).setdefault(kind, []).extend(reports)

    rows = summarise(results)
    report: dict[str, Any] = {
        "what": f"{STREAMS} streams of {EVENTS} events, flooding and paced; 32 connections and 1"
        " not streaming",
        "ratios": ratios(rows),
        "medians": rows,
        "started": started,
        "missing": missing,
        "workers": workers,
        "raw": results,
    }
    packages = ("llama-compat", "aiohttp", "uvicorn", "uvloop", "httptools", "fastapi", "msgspec")
    path = write_results("gateway", report, *packages)
    del workers["raw"]
    print(json.dumps({key: value for key, value in report.items() if key != "raw"}, indent=2))
    print(f"written to {path.relative_to(peers.ROOT)}")


if __name__ == "__main__":
    main()
