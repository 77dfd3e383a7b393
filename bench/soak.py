"""What is left behind after many requests: memory, file descriptors, tasks.

    python -m bench.soak [--requests 100000] [--aborted 2000]

Requests that are answered and streams that are broken off take turns, in forty slices; after each
slice the gateway's resident memory and open descriptors are read, and at the start and at the end
the tasks of its event loop are counted. Writes `bench/results/soak.json`.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit

from bench.load import peers
from bench.load.stage import generate, upstream
from bench.machine import resident_mib, write_results

SLICES = 40


async def abort_streams(port: int, count: int) -> None:
    """Begin `count` streams, eight at a time, and close each once its first bytes are there."""
    body = json.dumps(
        {"model": "model", "stream": True, "messages": [{"role": "user", "content": "Hi"}]}
    ).encode()
    request = (
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n"
        b"content-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
    ) + body
    limit = asyncio.Semaphore(8)

    async def abort_one() -> None:
        async with limit:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request)
            await reader.read(300)
            writer.transport.abort()

    await asyncio.gather(*(abort_one() for _ in range(count)))


def open_descriptors(pid: int) -> int:
    """How many file descriptors the process `pid` has open."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def count_tasks(pid: int, counts: Path) -> int:
    """Ask the counted server how many tasks its loop has."""
    before = len(counts.read_text().splitlines()) if counts.exists() else 0
    os.kill(pid, signal.SIGUSR1)
    while not counts.exists() or len(counts.read_text().splitlines()) == before:
        time.sleep(0.05)
    return int(counts.read_text().splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--aborted", type=int, default=2_000)
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    gateway_core, load_core = {cores[0]}, {cores[1]}
    memory, descriptors = [], []

    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        counts = scratch / "tasks"
        with upstream(load_core, scratch / "upstream.log") as behind:
            origin = behind.url.removesuffix(behind.gateway.path)
            ours = peers.ours(origin, peers.free_port(), scratch)
            template = ours.command[2]
            counted = [sys.executable, "-m", "bench.load.counted_server", template, str(counts)]
            gateway = dataclasses.replace(ours, command=counted)
            with peers.running(gateway, gateway_core, scratch / "log") as started:
                port = urlsplit(started.url).port
                tasks_before = count_tasks(started.pid, counts)
                rounds = options.requests // SLICES // 32
                for number in range(SLICES):
                    generate(started, load_core, "--connections", 32, "--rounds", rounds)
                    asyncio.run(abort_streams(port, options.aborted // SLICES))
                    memory.append(round(resident_mib(started.pid), 2))
                    descriptors.append(open_descriptors(started.pid))
                    print(f"{number + 1}/{SLICES}: {memory[-1]} MiB", file=sys.stderr)
                time.sleep(2)
                tasks_after = count_tasks(started.pid, counts)

    quarter = SLICES // 4
    second, last = (
        statistics.mean(memory[quarter : 2 * quarter]),
        statistics.mean(memory[-quarter:]),
    )
    report = {
        "requests": rounds * 32 * SLICES,
        "aborted_streams": options.aborted // SLICES * SLICES,
        "memory_last_quarter_of_second": round(last / second, 4),
        "tasks": {"before": tasks_before, "after": tasks_after},
        "descriptors": {"first": descriptors[0], "last": descriptors[-1]},
        "memory_mib": memory,
    }
    path = write_results("soak", report, "llama-compat", "aiohttp", "uvicorn", "uvloop")
    print(json.dumps({name: report[name] for name in list(report)[:5]}, indent=2))
    print(f"written to {path.relative_to(peers.ROOT)}")


if __name__ == "__main__":
    main()
