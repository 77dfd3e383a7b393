"""How much a gateway costs: ours beside no gateway, a bare relay and others' gateways, in one run.

    python -m bench.gateway [--rounds 3] [--seconds 3] [--peers] [--only NAME,NAME]

The gateway under test has one core, the upstream and the load generator share another. Streams
come as fast as the upstream can send, and paced at 100 events/s each. Every subject is measured
once a round, in turn, so that a noisy minute meets all of them; medians are compared. Beside what
the load saw stands what the gateway's own process took: the processor's time for a request or an
event, and how busy it kept its core. Where that is far from 1, the load was the limit.

Writes `bench/results/gateway.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench.load import peers
from bench.load.others import OTHERS, NotInstalled
from bench.load.peers import Started
from bench.load.stage import EVENTS, generate, upstream
from bench.machine import cpu_seconds, peak_mib, write_results

STREAMS = 64
OURS, DIRECT, BARE = "llama_compat", "no gateway", "bare relay"
Measured = dict[str, list[dict[str, float]]]
Row = dict[str, float]


def measure(started: Started, cores: set[int], seconds: float) -> dict[str, dict[str, float]]:
    """One round of everything; a slow gateway is given fewer streams to relay."""
    slow = started.gateway.slow
    streaming = ("--stream", "--connections", STREAMS, "--rounds")
    loads: dict[str, tuple[object, ...]] = {
        "many": ("--connections", 32, "--seconds", seconds),
        "one": ("--connections", 1, "--seconds", seconds / 2),
        "stream": (*streaming, 1 if slow else 15),
        "paced": (*streaming, 1 if slow else 2, "--user", "paced"),
    }
    measured = {}
    for kind, options in loads.items():
        before = cpu_seconds(started.pid)
        report = generate(started, cores, *options)
        used = cpu_seconds(started.pid) - before
        done = max(report["events"] if "--stream" in options else report["requests"], 1)
        report["cpu_us"] = round(used / done * 1e6, 2)
        report["busy"] = round(used / report["seconds"], 3)
        measured[kind] = report
    return measured


def summarise(measured: Measured, started: Started) -> Row:
    """The medians that the ratios are made of."""

    def median(kind: str, figure: str) -> float:
        return statistics.median(report[figure] for report in measured[kind])

    return {
        "requests_per_s": median("many", "requests_per_s"),
        "p50_ms_one_connection": median("one", "p50_ms"),
        "events_per_s": median("stream", "events_per_s"),
        "first_event_p50_ms": median("stream", "p50_ms"),
        "first_event_p99_ms": median("stream", "p99_ms"),
        "paced_first_event_p50_ms": median("paced", "p50_ms"),
        "paced_first_event_p99_ms": median("paced", "p99_ms"),
        "cpu_us_a_request": median("many", "cpu_us"),
        "cpu_us_an_event": median("stream", "cpu_us"),
        "busy_with_requests": median("many", "busy"),
        "busy_with_events": median("stream", "busy"),
        "errors": sum(r["errors"] + r["broken"] for runs in measured.values() for r in runs),
        "start_s": started.start_s,
        "resident_mib": started.resident_mib,
        "peak_mib": round(peak_mib(started.pid), 1),
    }


def _of(figure: str) -> Callable[[Row, Row, Row], float | None]:
    """Ours of theirs; there is none where a gateway answers such requests with errors."""
    return lambda us, them, direct: us[figure] / them[figure] if them[figure] else None


def _added_latency(us: Row, them: Row, direct: Row) -> float | None:
    figure = "p50_ms_one_connection"
    return (us[figure] - direct[figure]) / max(them[figure] - direct[figure], 0.001)


COMPARED: dict[str, Callable[[Row, Row, Row], float | None]] = {
    "requests_per_s": _of("requests_per_s"),
    "p50 at 1 connection": _of("p50_ms_one_connection"),
    "added p50 at 1 connection": _added_latency,
    "events_per_s": _of("events_per_s"),
    "first event p50": _of("first_event_p50_ms"),
    "first event p99": _of("first_event_p99_ms"),
    "first event p99 of paced streams": _of("paced_first_event_p99_ms"),
    "cpu a request": _of("cpu_us_a_request"),
    "cpu an event": _of("cpu_us_an_event"),
    "peak memory": _of("peak_mib"),
}


def ratios(rows: dict[str, Row]) -> dict[str, dict[str, float]]:
    """Ours, times that of each of the others."""
    us, direct = rows[OURS], rows[DIRECT]
    compared: dict[str, dict[str, float]] = {}
    for name, them in rows.items():
        if name in (OURS, DIRECT):
            continue
        found = {what: ratio(us, them, direct) for what, ratio in COMPARED.items()}
        compared[name] = {what: round(each, 3) for what, each in found.items() if each is not None}
    return compared


def gateways(
    upstream_url: str, scratch: Path, wanted: list[str]
) -> tuple[list[peers.Gateway], dict[str, str]]:
    """Ours, the bare relay and the `wanted` others; and why some of these are missing."""
    subjects = [
        peers.bare_relay(upstream_url, peers.free_port()),
        peers.ours(upstream_url, peers.free_port(), scratch),
    ]
    missing = {}
    for name in wanted:
        try:
            subjects.append(OTHERS[name](upstream_url, peers.free_port(), scratch))
        except NotInstalled as error:
            missing[name] = str(error)
    return subjects, missing


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--peers", action="store_true", help=f"also {', '.join(OTHERS)}")
    parser.add_argument("--only", help="of those only these, with commas between them")
    parser.add_argument("--record", default="gateway", help="the name of the file of results")
    options = parser.parse_args()

    wanted = options.only.split(",") if options.only else list(OTHERS) if options.peers else []
    available = sorted(os.sched_getaffinity(0))
    gateway_core, load_cores = {available[0]}, {available[1]}
    results: dict[str, Measured] = {}
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        direct = stack.enter_context(upstream(load_cores, scratch / "upstream.log"))
        subjects, missing = gateways(direct.url.removesuffix(direct.gateway.path), scratch, wanted)
        running = [direct]
        for gateway in subjects:
            log = scratch / f"{gateway.name}.log"
            print(f"starting {gateway.name}", file=sys.stderr)
            try:
                running.append(stack.enter_context(peers.running(gateway, gateway_core, log)))
            except RuntimeError as error:
                missing[gateway.name] = str(error)
        time.sleep(1)

        for number in range(options.rounds):
            for started in running:
                name = started.gateway.name
                print(f"round {number + 1}: {name}", file=sys.stderr)
                for kind, report in measure(started, load_cores, options.seconds).items():
                    results.setdefault(name, {}).setdefault(kind, []).append(report)
        rows = {each.gateway.name: summarise(results[each.gateway.name], each) for each in running}

    report: dict[str, Any] = {
        "what": f"{STREAMS} streams of {EVENTS} events, flooding and paced; 32 connections and 1"
        " not streaming",
        "ratios": ratios(rows),
        "medians": rows,
        "missing": missing,
        "raw": results,
    }
    packages = ("llama-compat", "aiohttp", "uvicorn", "uvloop", "httptools", "fastapi", "msgspec")
    path = write_results(options.record, report, *packages)
    print(json.dumps({key: value for key, value in report.items() if key != "raw"}, indent=2))
    print(f"written to {path.relative_to(peers.ROOT)}")


if __name__ == "__main__":
    main()
