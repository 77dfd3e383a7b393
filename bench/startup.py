"""How long a start takes: `llama-compat run echo` beside the bare imports, and the starter.

    python -m bench.startup [--rounds 7]

From the start of the process to the first 200 of `/health`, asked every 10 ms. The two commands
take turns; medians are compared. Python may keep the bytecode of what it imports, which it has of
what pip installs. Writes `bench/results/startup.json`.
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
import urllib.request
from pathlib import Path

from bench.machine import resident_mib, write_results

IMPORTS = "import fastapi, uvicorn, httptools, pydantic, yaml"
CONSOLE_SCRIPT = Path(sys.executable).with_name("llama-compat")

ENVIRONMENT = {name: os.environ[name] for name in os.environ if name != "PYTHONDONTWRITEBYTECODE"}


def time_imports() -> float:
    """Seconds to import what the server needs at least."""
    begun = time.perf_counter()
    subprocess.run([sys.executable, "-c", IMPORTS], env=ENVIRONMENT, check=True)
    return time.perf_counter() - begun


def time_start(template: str, port: int) -> tuple[float, float]:
    """Seconds until `template` is healthy, and the resident memory in MiB by then."""
    begun = time.perf_counter()
    with tempfile.TemporaryFile() as log:
        command = [str(CONSOLE_SCRIPT), "run", template, "--port", str(port)]
        process = subprocess.Popen(command, env=ENVIRONMENT, stdout=log, stderr=log)
        try:
            while True:
                try:
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
                    return time.perf_counter() - begun, resident_mib(process.pid)
                except OSError:
                    if process.poll() is not None:
                        log.seek(0)
                        raise RuntimeError(log.read().decode()) from None
                    time.sleep(0.01)
        finally:
            process.terminate()
            process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--starter", action="store_true", help="the starter's second start too")
    options = parser.parse_args()
    imports, starts, memory = [], [], []
    time_imports()
    time_start("echo", 18090)
    for _ in range(options.rounds):
        imports.append(round(time_imports(), 3))
        seconds, resident = time_start("echo", 18090)
        starts.append(round(seconds, 3))
        memory.append(round(resident, 1))
    report = {
        "echo_start_of_imports": round(statistics.median(starts) / statistics.median(imports), 3),
        "echo_resident_mib": statistics.median(memory),
        "imports_s": imports,
        "echo_s": starts,
    }
    if options.starter:
        time_start("starter", 18090)
        report["starter_s"] = [round(time_start("starter", 18090)[0], 2) for _ in range(3)]
    write_results("startup", report, "llama-compat", "fastapi", "uvicorn", "typer", "pydantic")
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
