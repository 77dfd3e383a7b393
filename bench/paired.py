"""This checkout's gateway beside an earlier one's, in one run.

    git worktree add ../before COMMIT   (and make its environment: `make serve` there, once)
    python -m bench.paired --before ../before/.venv/bin/llama-compat [--rounds 9] [--seconds 2]

Both run at the same time on one core, load and upstream on another, and are measured in turn, now
the one first and now the other; the medians of the ratios count. Each is measured with nothing
asked for, with all of records, metrics and traces, and with a key that has limits. Writes
`bench/results/paired.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.load import peers
from bench.machine import write_results
from bench.operations import (
    free_port,
    gateway,
    in_rounds,
    measure,
    median_ratio,
    running_upstream,
    settings_of,
)

KINDS = ("none", "all", "limits")
WANTED = 1.0
"""Of the earlier one's requests/s and events/s, at least."""

Measured = dict[str, float]


def subjects(
    commands: Mapping[str, str], upstream: str, scratch: Path
) -> Iterator[tuple[str, str, peers.Gateway]]:
    """Each kind of gateway, of both checkouts: the kind, which of the two, and it."""
    for which, command in commands.items():
        folder = scratch / which
        folder.mkdir()
        for kind, settings in settings_of(upstream, folder).items():
            if kind in KINDS:
                one = gateway(kind, settings, upstream, folder, free_port())
                yield kind, which, replace(one, command=[command, *one.command[1:]])


def ratios(rounds: list[dict[str, dict[str, Measured]]]) -> dict[str, dict[str, float]]:
    """Of each kind, what this one's figures are of the earlier one's."""
    figures = [name for name in rounds[0][KINDS[0]]["after"] if name != "errors"]
    return {
        kind: {
            figure: median_ratio(
                (each[kind]["after"][figure], each[kind]["before"][figure]) for each in rounds
            )
            for figure in figures
        }
        for kind in KINDS
    }


def own_ratios(rounds: list[dict[str, dict[str, Measured]]], which: str) -> dict[str, float]:
    """Requests/s of each kind, of the same gateway's with nothing asked for."""
    return {
        kind: median_ratio(
            (each[kind][which]["requests_per_s"], each["none"][which]["requests_per_s"])
            for each in rounds
        )
        for kind in KINDS
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", required=True, help="the earlier checkout's llama-compat")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--no-record", action="store_true", help="print the figures, no more")
    options = parser.parse_args()

    available = sorted(os.sched_getaffinity(0))
    gateway_core, load_core = {available[0]}, {available[-1]}
    commands = {
        "before": options.before,
        "after": str(Path(sys.executable).with_name("llama-compat")),
    }
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        upstream = stack.enter_context(running_upstream(load_core))
        running: dict[tuple[str, str], peers.Started] = {}
        for kind, which, one in subjects(commands, upstream, scratch):
            log = scratch / f"{kind}-{which}.log"
            running[kind, which] = stack.enter_context(peers.running(one, gateway_core, log))

        def in_turn(number: int) -> dict[str, dict[str, Measured]]:
            turns = ("before", "after") if number % 2 else ("after", "before")
            return {
                kind: {
                    which: measure(running[kind, which], load_core, options.seconds)
                    for which in turns
                }
                for kind in KINDS
            }

        rounds = in_rounds(options.rounds, in_turn)

    report: dict[str, Any] = {
        "of the earlier one": ratios(rounds),
        "wanted of the earlier one": {"requests_per_s": WANTED, "events_per_s": WANTED},
        "of its own without any": {
            which: own_ratios(rounds, which) for which in ("before", "after")
        },
        "raw": rounds,
    }
    if not options.no_record:
        print(f"written to {write_results('paired', report, 'uvloop', 'msgspec')}", file=sys.stderr)
    print(json.dumps({key: value for key, value in report.items() if key != "raw"}, indent=2))


if __name__ == "__main__":
    main()
