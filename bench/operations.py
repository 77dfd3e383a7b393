"""What records, metrics, traces and limits cost the gateway: with none of them, with each, and with
the first three.

    python -m bench.operations [--rounds 5] [--seconds 4]

Each gateway has one core, the upstream, the receiver of spans and the load share another. All are
measured once a round, in turn, and every figure is divided by that of the gateway without any in
the same round, so that a noisy minute meets both; the medians of these count. Beside requests and
events a second there is the time of the processor that a request and an event take, which others on
the machine disturb less. Writes `bench/results/operations.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import yaml

from bench.load import peers
from bench.load.stage import generate
from bench.machine import start_pinned, write_results

Round = TypeVar("Round")

EVENTS = 200
STREAMS = 64

WANTED = {"requests_per_s": 0.9, "events_per_s": 0.95}
"""Of the gateway without any, with all of it on."""


KEYS: list[dict[str, Any]] = [
    {
        "name": "benchmark",
        "key": "sk-benchmark",
        "limits": {"requests_per_minute": 10**8, "tokens_per_minute": 10**12},
    }
]
"""A key with limits in memory that are never reached."""

HEADERS = {"x-api-key": KEYS[0]["key"]}
"""Sent to every gateway, so that all read the same."""


def settings_of(upstream: str, scratch: Path) -> dict[str, Mapping[str, Any]]:
    """What each gateway's template has under `server`; all but that of limits let in anybody."""
    traces = {"endpoint": upstream}
    records = {"storage": f"sqlite:{scratch / 'records.sqlite'}", "records": {}}
    return {
        "none": {},
        "records": records,
        "metrics": {"metrics": True},
        "traces": {"traces": traces},
        "limits": {},
        "all": {
            "storage": f"sqlite:{scratch / 'all.sqlite'}",
            "records": {},
            "metrics": True,
            "traces": traces,
        },
    }


def gateway(
    name: str, settings: Mapping[str, Any], upstream: str, scratch: Path, port: int
) -> peers.Gateway:
    """One gateway."""
    template = scratch / f"{name}.yaml"
    config = {"base_url": f"{upstream}/v1"}
    document: dict[str, Any] = {
        "version": 1,
        "server": {"port": port, **settings},
        "providers": [{"id": "up", "type": "remote::passthrough", "config": config}],
        "models": [{"id": "model", "provider": "up", "price": {"input": 1, "output": 10}}],
    }
    if name == "limits":
        document["keys"] = KEYS
    template.write_text(yaml.safe_dump(document))
    command = [str(Path(sys.executable).with_name("llama-compat")), "run", str(template)]
    return peers.Gateway(name, port, command, {}, headers=HEADERS)


def processor_seconds(pid: int) -> float:
    """The time of the processor that a process has taken, with all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(started: peers.Started, cores: set[int], seconds: float) -> dict[str, float]:
    """One round of one gateway."""
    before = processor_seconds(started.pid)
    whole = generate(started, cores, "--connections", 32, "--seconds", seconds)
    between = processor_seconds(started.pid)
    streamed = generate(started, cores, "--stream", "--connections", STREAMS, "--rounds", 20)
    after = processor_seconds(started.pid)
    return {
        "requests_per_s": whole["requests_per_s"],
        "events_per_s": streamed["events_per_s"],
        "processor_us_per_request": (between - before) / whole["requests"] * 1e6,
        "processor_us_per_event": (after - between) / streamed["events"] * 1e6,
        "errors": sum(each["errors"] + each["broken"] for each in (whole, streamed)),
    }


@contextmanager
def running_upstream(cores: set[int]) -> Iterator[str]:
    """The upstream of all gateways, while entered: its URL."""
    port = free_port()
    command = [sys.executable, "-m", "bench.load.upstream", str(port), str(EVENTS)]
    process = start_pinned(command, cores, cwd=peers.ROOT)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def in_rounds(count: int, measure_all: Callable[[int], Round]) -> list[Round]:
    """What each round measured; one before them warms up."""
    rounds = []
    for number in range(count + 1):
        print(f"round {number} of {count}", file=sys.stderr)
        rounds.append(measure_all(number))
    return rounds[1:]


def median_ratio(pairs: Iterable[tuple[float, float]]) -> float:
    """The median of one figure divided by the other."""
    return round(statistics.median(one / other for one, other in pairs), 3)


def ratios(rounds: list[dict[str, dict[str, float]]]) -> dict[str, dict[str, float]]:
    """Each gateway's figures, of those of the gateway without any: the median over the rounds."""
    return {
        name: {
            figure: median_ratio((each[name][figure], each["none"][figure]) for each in rounds)
            for figure in rounds[0]["none"]
            if figure != "errors"
        }
        for name in rounds[0]
    }


def medians(rounds: list[dict[str, dict[str, float]]]) -> dict[str, dict[str, float]]:
    """Each gateway's figures."""
    return {
        name: {
            figure: round(statistics.median(each[name][figure] for each in rounds), 2)
            for figure in rounds[0][name]
        }
        for name in rounds[0]
    }


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--no-record", action="store_true", help="print the figures, no more")
    options = parser.parse_args()

    available = sorted(os.sched_getaffinity(0))
    gateway_core, load_core = {available[0]}, {available[-1]}
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        upstream = stack.enter_context(running_upstream(load_core))
        subjects: dict[str, peers.Started] = {}
        for name, settings in settings_of(upstream, scratch).items():
            one = gateway(name, settings, upstream, scratch, free_port())
            started = peers.running(one, gateway_core, scratch / f"{name}.log")
            subjects[name] = stack.enter_context(started)
        rounds = in_rounds(
            options.rounds,
            lambda _: {
                name: measure(started, load_core, options.seconds)
                for name, started in subjects.items()
            },
        )
        dropped = {
            name: (scratch / f"{name}.log").read_text().count("were dropped") for name in subjects
        }

    compared = ratios(rounds)
    report: dict[str, Any] = {
        "what": f"{STREAMS} streams of {EVENTS} events, and 32 connections not streaming",
        "of the gateway without any": compared,
        "wanted with all": WANTED,
        "reached": {name: compared["all"][name] >= least for name, least in WANTED.items()},
        "lines of drops in the log": dropped,
        "medians": medians(rounds),
        "raw": rounds,
    }
    if not options.no_record:
        packages = ("llama-compat", "uvloop", "httptools", "msgspec", "prometheus-client")
        print(f"written to {write_results('operations', report, *packages)}", file=sys.stderr)
    print(json.dumps({key: value for key, value in report.items() if key != "raw"}, indent=2))


if __name__ == "__main__":
    main()
