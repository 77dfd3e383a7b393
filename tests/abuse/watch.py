"""A server seen by somebody else while it is abused: how long they wait, what it comes to hold."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.integration.server_process import ServerProcess

ROOT = Path(__file__).parents[2]
MIB = 1024 * 1024


@dataclass
class Seen:
    """What was seen; all of it known when the watch is over.

    Attributes:
        wait: the longest that `/health` took, in seconds.
        idle_wait: the same of a server that nobody abused meanwhile: what the machine is to blame
            for.
        grown: bytes that the process came to hold at most, above what it held before.
    """

    wait: float = 0.0
    idle_wait: float = 0.0
    grown: int = 0


@contextmanager
def watching(server: ServerProcess, idle: ServerProcess) -> Iterator[Seen]:
    """Watch `server` while the block runs, beside `idle`, which is left alone."""
    seen = Seen()
    command = [sys.executable, "-m", "tests.abuse.prober", str(server.port), str(idle.port)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=ROOT) as prober:
        assert prober.stdin is not None
        assert prober.stdout is not None
        try:
            assert prober.stdout.readline() == "ready\n"
            before = _resident(server, "VmRSS")
            _forget_peak(server)
            yield seen
            seen.grown = max(0, _resident(server, "VmHWM") - before)
            longest = json.loads(prober.communicate()[0])
            seen.wait, seen.idle_wait = longest[str(server.port)], longest[str(idle.port)]
        finally:
            prober.kill()


def descriptors(server: ServerProcess) -> int:
    """How many files and sockets the process has open."""
    return len(list(Path(f"/proc/{server.process.pid}/fd").iterdir()))


def cpu_seconds(server: ServerProcess) -> float:
    """The CPU time that the process has taken so far."""
    fields = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def _resident(server: ServerProcess, what: str) -> int:
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith(what))
    return int(line.split()[1]) * 1024


def _forget_peak(server: ServerProcess) -> None:
    # https://docs.kernel.org/filesystems/proc.html: 5 resets the peak of the resident set.
    Path(f"/proc/{server.process.pid}/clear_refs").write_text("5")
