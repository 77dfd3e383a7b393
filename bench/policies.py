"""What routing policies cost: a model with three healthy targets beside one with one target.

    python -m bench.policies [--rounds 15] [--seconds 2]

One gateway serves the same upstream as a model of one provider, and as models of three under each
balance. Each is measured next to the single target, now before it and now after: its processor time
a request (user and system, of the gateway's process) and its requests/s are compared with those,
and the medians of the ratios are what counts. Writes `bench/results/policies.json`.
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
from collections.abc import Iterable
from pathlib import Path

from bench.load import peers
from bench.machine import python, start_pinned, write_results
from tests.integration.server_process import free_port

SINGLE = "single"
BALANCES = ("weighted", "least_busy", "fastest", "sticky", "round_robin")
WANTED = 1.05
"""Times a single target's processor time a request, at most."""


def template(port: int, upstream: str) -> str:
    """The single target, and one model a balance."""
    lines = [f"version: 1\nserver: {{port: {port}}}\nproviders:"]
    for name in "abc":
        config = f"{{base_url: '{upstream}/v1', api_key: sk-benchmark}}"
        lines.append(f"  - {{id: {name}, type: 'remote::openai', config: {config}}}")
    lines.append(f"models:\n  - {{id: {SINGLE}, provider: a, provider_model: upstream-model}}")
    targets = ", ".join(f"{{provider: {name}, model: upstream-model}}" for name in "abc")
    for balance in BALANCES:
        routing = f"routing: {{balance: {balance}}}"
        lines.append(f"  - {{id: {balance}, targets: [{targets}], {routing}}}")
    return "\n".join(lines) + "\n"


def processor_seconds(pid: int) -> float:
    """What the process has used so far, user and system."""
    # Linux's number of a process's clock (clock_getcpuclockid), which counts nanoseconds; what
    # /proc says of it is in hundredths of a second.
    return time.clock_gettime((~pid << 3) | 2)


Measured = dict[str, float]


def measure(url: str, model: str, pid: int, cores: set[int], seconds: float) -> Measured:
    """Requests/s at 32 connections, and the gateway's microseconds of processor time a request."""
    command = [sys.executable, "-m", "bench.load.generator", url, "--model", model]
    command += ["--connections", "32", "--seconds", str(seconds)]
    begun = processor_seconds(pid)
    with start_pinned(command, cores, stdout=subprocess.PIPE, cwd=peers.ROOT) as process:
        output, _ = process.communicate(timeout=600)
    report = json.loads(output)
    if report["errors"] or report["broken"]:
        raise RuntimeError(f"{model}: {report}")
    requests = report["requests_per_s"] * report.get("seconds", seconds)
    used = processor_seconds(pid) - begun
    return {
        "requests_per_s": report["requests_per_s"],
        "processor_us": used / requests * 1e6,
    }


def run(rounds: int, seconds: float) -> dict[str, list[tuple[Measured, Measured]]]:
    """Each balance in turn, so many rounds; the single target beside it, then its own figures."""
    every = sorted(os.sched_getaffinity(0))
    ours, others = {every[0]}, set(every[1:]) or set(every)
    port, upstream_port = free_port(), free_port()
    measured: dict[str, list[tuple[Measured, Measured]]] = {name: [] for name in BALANCES}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "policies.yaml"
        path.write_text(template(port, f"http://127.0.0.1:{upstream_port}"))
        script = peers.ROOT / "bench" / "load" / "upstream.py"
        upstream = start_pinned(python(script, upstream_port, 20), others)
        command = [str(Path(sys.executable).with_name("llama-compat")), "run", str(path)]
        gateway = start_pinned(command, ours, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            _wait_for(f"http://127.0.0.1:{port}/health")
            url = f"http://127.0.0.1:{port}/v1/chat/completions"
            for number in range(-1, rounds):
                for name in BALANCES:
                    pair = (SINGLE, name) if number % 2 else (name, SINGLE)
                    reports = {
                        each: measure(url, each, gateway.pid, others, seconds) for each in pair
                    }
                    if number >= 0:  # the first round warms up
                        measured[name].append((reports[SINGLE], reports[name]))
        finally:
            for process in (gateway, upstream):
                process.terminate()
                process.wait()
    return measured


def _wait_for(url: str) -> None:
    for _ in range(1000):
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except OSError:
            time.sleep(0.02)
    raise RuntimeError(f"{url} does not answer")


def _median(figures: Iterable[float]) -> float:
    return round(statistics.median(figures), 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=2)
    options = parser.parse_args()
    measured = run(options.rounds, options.seconds)
    every = [single for pairs in measured.values() for single, _ in pairs]
    rows = {SINGLE: {key: _median(each[key] for each in every) for key in every[0]}}
    for name, pairs in measured.items():
        rows[name] = {}
        for key in every[0]:
            rows[name][key] = _median(own[key] for _, own in pairs)
            ratios = [own[key] / single[key] for single, own in pairs]
            rows[name][f"{key}, of the single target's"] = round(statistics.median(ratios), 3)
    worst = max(rows[name]["processor_us, of the single target's"] for name in BALANCES)
    result = {"wanted": {"processor_us, of the single target's": WANTED}, "models": rows}
    path = write_results("policies", {**result, "worst": worst}, "uvicorn", "msgspec")
    print(json.dumps(rows, indent=2))
    print(f"wrote {path}; the dearest costs {worst} times a single target, wanted <= {WANTED}")


if __name__ == "__main__":
    main()
