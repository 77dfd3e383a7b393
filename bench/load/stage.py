"""What is around a gateway under test: the upstream behind it, and the load in front of it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.load.peers import ROOT, Gateway, Started, free_port, running
from bench.machine import start_pinned

EVENTS = 200
"""Events of a stream."""


@contextmanager
def upstream(cores: set[int], log: Path, events: int = EVENTS) -> Iterator[Started]:
    """The upstream on `cores`, itself something that can be asked; its streams have `events`."""
    port = free_port()
    command = [sys.executable, "-m", "bench.load.upstream", str(port), str(events)]
    with running(Gateway("no gateway", port, command), cores, log) as started:
        yield started


def generate(started: Started, cores: set[int], *options: object) -> dict[str, float]:
    """Run the load generator on `cores` against `started`; its report."""
    gateway = started.gateway
    command = [sys.executable, "-m", "bench.load.generator", started.url, "--model", gateway.model]
    for name, value in gateway.headers.items():
        command += ["--header", f"{name}: {value}"]
    process = start_pinned([*command, *map(str, options)], cores, stdout=subprocess.PIPE, cwd=ROOT)
    output, _ = process.communicate(timeout=600)
    if process.returncode:
        raise RuntimeError(f"the load generator failed against {gateway.name}")
    report: dict[str, float] = json.loads(output)
    return report
