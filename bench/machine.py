"""What every benchmark needs: the machine in words, pinned processes, results as files."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def describe(*packages: str) -> dict[str, Any]:
    """The machine and the versions of `packages` that a result was measured with."""
    return {
        "date": time.strftime("%Y-%m-%d"),
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in packages},
        "commit": _commit(),
    }


def write_results(name: str, measured: dict[str, Any], *packages: str) -> Path:
    """Write `measured`, with the machine described, to `bench/results/NAME.json`."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    document = {"machine": describe(*packages), **measured}
    path.write_text(json.dumps(document, indent=2) + "\n")
    return path


def start_pinned(command: list[str], cores: set[int], **options: Any) -> subprocess.Popen[bytes]:
    """Start `command` on the given cores alone."""
    return subprocess.Popen(
        ["taskset", "-c", ",".join(map(str, sorted(cores))), *command], **options
    )


def end(process: subprocess.Popen[bytes], patience: float = 20) -> None:
    """End a process, by force if it has not ended in so many seconds."""
    process.terminate()
    try:
        process.wait(patience)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def python(script: Path, *arguments: object) -> list[str]:
    """The command that runs one of our scripts in this interpreter."""
    return [sys.executable, str(script), *map(str, arguments)]


def resident_mib(pid: int) -> float:
    """The resident memory of the process `pid` and of those that it started, in MiB."""
    return _mib(_status(each, "VmRSS") for each in family(pid))


def peak_mib(pid: int) -> float:
    """The most that each of them has had resident so far, added up, in MiB."""
    return _mib(_status(each, "VmHWM") for each in family(pid))


def proportional_mib(pid: int) -> float:
    """The memory of the process `pid` alone, in MiB; of a page that n processes share 1/n."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return _mib(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:"))


def private_mib(pid: int) -> float:
    """The memory that the process `pid` has to itself, in MiB."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return _mib(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Private_"))


def cpu_seconds(pid: int) -> float:
    """The processor time of the process `pid` and of those that it started and that live."""
    ticks = 0
    for each in family(pid):
        fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])  # utime and stime, see proc(5)
    return ticks / os.sysconf("SC_CLK_TCK")


def family(pid: int) -> list[int]:
    """The process `pid` and all that it started, and those started, and that live."""
    children = " ".join(
        children.read_text() for children in Path(f"/proc/{pid}/task").glob("*/children")
    )
    return [pid, *(each for child in children.split() for each in family(int(child)))]


def _status(pid: int, name: str) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith(name))


def _mib(kib: Iterable[int]) -> float:
    return sum(kib) / 1024


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "missing"


def _commit() -> str:
    result = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return result.stdout.strip()
