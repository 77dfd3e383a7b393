"""How many instructions a request takes, which nothing else on the machine changes.

    python -m bench.instructions [--requests 320] [--only NAME,NAME]

With `--only` the others' figures stay as they were recorded last.

Requests/s and processor time differ by a tenth from run to run, the number of instructions that
valgrind's callgrind counts by a hundredth. Counted are the gateways of `bench.operations` (none of
records, metrics, traces and limits, each of them, the first three) and the models of
`bench.policies` (one target, and three under each balance).

Under valgrind a request takes some fifty times as long. What is gathered for a while before it is
looked at, written or sent is gathered for as long as a run takes, so that as many requests come
together as at full speed.

Writes `bench/results/instructions.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench import operations, policies
from bench.load import peers
from bench.load.stage import generate
from bench.machine import RESULTS, write_results

CONNECTIONS = 1
"""Of several it would depend on the moment which requests meet in one turn of the event loop."""

GATHER_SECONDS = 30.0
"""Longer than the requests of a run take."""

LOG_SECONDS = 1.0
"""In which as many lines of the log come together as in a fiftieth of that at full speed."""

WANTED = {"all": 1.11, "limits": 1.11, **dict.fromkeys(policies.BALANCES, policies.WANTED)}
"""Times those of the gateway without any, and of a single target, at most: what 0.9 of the
requests/s come to, and the processor time that policies may take."""

WHAT = "{} chat completions over one connection"

LAUNCHER = f"""\
import sys
from routing.cli import main
from routing.observability import logs, observers
from routing.observability.records import recorder
from routing.observability.telemetry import otlp
observers.GATHER_SECONDS = recorder.GATHER_SECONDS = otlp.GATHER_SECONDS = {GATHER_SECONDS}
logs.GATHER_SECONDS = {LOG_SECONDS}
sys.exit(main())
"""

_TOTAL = re.compile(r"^(?:summary|totals): (\d+)", re.MULTILINE)


def counted(gateway: peers.Gateway, scratch: Path) -> peers.Gateway:
    """`gateway`, under valgrind."""
    launcher = scratch / "launcher.py"
    launcher.write_text(LAUNCHER)
    _, *arguments = gateway.command
    command = [
        *("valgrind", "--tool=callgrind", "--instr-atstart=no", "--quiet"),
        f"--callgrind-out-file={scratch / gateway.name}.callgrind",
        *(sys.executable, str(launcher), *arguments),
    ]
    environment = {"PYTHONHASHSEED": "0", "PYTHONPATH": str(peers.ROOT)}
    return replace(gateway, command=command, environment=environment)


def instructions(
    started: peers.Started,
    cores: set[int],
    requests: int,
    scratch: Path,
    pause: float = 0.0,
    more: Sequence[str] = (),
) -> int:
    """Of one request, on average over so many, with what is written of them in the `pause` after
    the last, but without what the process does anyway in so long a time; `more` are options of the
    load generator."""
    options = (*more, "--connections", CONNECTIONS, "--rounds", requests // CONNECTIONS)

    def load() -> float:
        report = generate(started, cores, *options)
        if report["errors"] or report["broken"]:
            raise RuntimeError(f"{started.gateway.name}: {report}")
        return report["requests"]

    control(started.pid, "--instr=on")
    load()  # what is made once is made now
    time.sleep(pause)
    control(started.pid, "--zero")
    asked = load()
    time.sleep(pause)
    control(started.pid, "--dump")
    time.sleep(pause)
    control(started.pid, "--dump")
    control(started.pid, "--instr=off")
    dumps = sorted(
        scratch.glob(f"{started.gateway.name}.callgrind.*"), key=lambda dump: int(dump.suffix[1:])
    )
    loaded, idle = (int(_TOTAL.findall(dump.read_text())[0]) for dump in dumps[-2:])
    return round((loaded - idle) / asked)


def control(pid: int, *options: str) -> None:
    """Have callgrind do something to the process that it watches."""
    command = ["callgrind_control", *options, str(pid)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def ratios(counts: dict[str, int]) -> dict[str, float]:
    """Of the gateway without any, and of the single target."""
    of = {name: policies.SINGLE if name in policies.BALANCES else "none" for name in counts}
    return {
        name: round(count / counts[of[name]], 3)
        for name, count in counts.items()
        if of[name] in counts
    }


def recorded(requests: int) -> dict[str, int]:
    """What an earlier run has recorded over so many requests: with `--only` the others stay."""
    if not (path := RESULTS / "instructions.json").exists():
        return {}
    report = json.loads(path.read_text())
    counts: dict[str, int] = report["instructions a request"]
    return counts if report["what"] == WHAT.format(requests) else {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=320)
    parser.add_argument("--only", help="these, with commas between them")
    parser.add_argument("--no-record", action="store_true", help="print the figures, no more")
    parser.add_argument("--keep", type=Path, help="a folder for callgrind's files")
    options = parser.parse_args()

    cores = set(os.sched_getaffinity(0))
    only = set(options.only.split(",")) if options.only else None
    counts: dict[str, int] = {}

    def wanted(names: Iterable[str]) -> list[str]:
        return [name for name in names if only is None or name in only]

    with ExitStack() as stack:
        scratch = options.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        upstream = stack.enter_context(operations.running_upstream(cores))
        settings = operations.settings_of(upstream, scratch)
        for name in wanted(settings):
            one = operations.gateway(name, settings[name], upstream, scratch, peers.free_port())
            with peers.running(counted(one, scratch), cores, scratch / f"{name}.log") as started:
                pause = GATHER_SECONDS + 5 if settings[name] else 0.0
                counts[name] = instructions(started, cores, options.requests, scratch, pause)
                print(name, counts[name], file=sys.stderr)
        for name in wanted((policies.SINGLE, *policies.BALANCES)):
            port, path = peers.free_port(), scratch / f"{name}.yaml"
            path.write_text(policies.template(port, upstream))
            one = peers.Gateway(name, port, ["llama-compat", "run", str(path)], model=name)
            with peers.running(counted(one, scratch), cores, scratch / f"{name}.log") as started:
                counts[name] = instructions(started, cores, options.requests, scratch)
                print(name, counts[name], file=sys.stderr)

    if only is not None:
        counts = {**recorded(options.requests), **counts}
    compared = ratios(counts)
    report: dict[str, Any] = {
        "what": WHAT.format(options.requests),
        "instructions a request": counts,
        "of the gateway without any, and of a single target": compared,
        "wanted at most": WANTED,
        "reached": {
            name: compared[name] <= most for name, most in WANTED.items() if name in compared
        },
    }
    if not options.no_record:
        packages = ("llama-compat", "uvloop", "httptools", "msgspec", "prometheus-client")
        print(f"written to {write_results('instructions', report, *packages)}", file=sys.stderr)
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
