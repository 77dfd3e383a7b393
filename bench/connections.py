"""What a client's connection costs in memory: idle, streaming, and not read from by the client.

    python -m bench.connections [--idle 5000] [--streaming 2000] [--stalled 200]

One worker. An idle client has been answered once and stays; a streaming one gets an event a second,
so that its connection to the upstream counts too; a stalled one asks for a stream of several MB, as
fast as it comes, and reads nothing of it. The gateway's resident memory is read before and with the
clients there; `kib_each` is the difference for each of them. Needs descriptors: the script takes as
many as the system allows (`ulimit -Hn`). Writes `bench/results/connections.json`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bench.load import peers
from bench.load.peers import Started
from bench.load.stage import upstream
from bench.machine import resident_mib, write_results

STALLED_EVENTS = 40_000
"""Of a stream that a stalled client does not read: some 10 MB."""

OPENING = 100
"""Connections that are opened at a time."""

SETTLE_SECONDS = 3.0


class Clients:
    """Connections to a gateway, all with the same request.

    Args:
        started: the gateway.
        members: of the request, besides what each has.
    """

    def __init__(self, started: Started, **members: Any) -> None:
        address = urlsplit(started.url)
        self._address = (address.hostname, address.port)
        message = {"role": "user", "content": "Hello"}
        body = json.dumps({"model": "model", "messages": [message], **members}).encode()
        self._request = (
            b"POST %b HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            b"content-length: %d\r\n\r\n" % (address.path.encode(), len(body))
        ) + body
        self._writers: list[asyncio.StreamWriter] = []

    async def open(self, count: int, *, read: bool = True) -> None:
        """Open `count` connections, each with its request sent and the first of its answer read."""
        turns = asyncio.Semaphore(OPENING)

        async def open_one() -> None:
            async with turns:
                reader, writer = await asyncio.open_connection(*self._address, limit=1 << 12)
                self._writers.append(writer)
                writer.write(self._request)
                if not read:
                    writer.transport.pause_reading()  # type: ignore[attr-defined]
                elif b" 200 " not in await reader.readline():
                    raise RuntimeError("the gateway answered with an error")

        await asyncio.gather(*(open_one() for _ in range(count)))

    def close(self) -> None:
        """Break all of them off."""
        for writer in self._writers:
            writer.transport.abort()


async def cost(started: Started, count: int, *, read: bool = True, **members: Any) -> float:
    """KiB of the gateway's memory for each of `count` such clients."""
    clients = Clients(started, **members)
    await clients.open(OPENING, read=read)  # what only the first cost
    clients.close()
    await asyncio.sleep(SETTLE_SECONDS)
    before = resident_mib(started.pid)
    clients = Clients(started, **members)
    await clients.open(count, read=read)
    await asyncio.sleep(SETTLE_SECONDS)
    after = resident_mib(started.pid)
    clients.close()
    await asyncio.sleep(SETTLE_SECONDS)
    return round((after - before) * 1024 / count, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--idle", type=int, default=5000)
    parser.add_argument("--streaming", type=int, default=2000)
    parser.add_argument("--stalled", type=int, default=200)
    options = parser.parse_args()

    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    cores = sorted(os.sched_getaffinity(0))
    kinds: dict[str, tuple[int, dict[str, Any]]] = {
        "idle": (options.idle, {}),
        "streaming": (options.streaming, {"stream": True, "user": "slow"}),
        "stalled": (options.stalled, {"stream": True, "read": False}),
    }
    report: dict[str, Any] = {"stalled_stream_mb": round(STALLED_EVENTS * 260 / 1e6, 1)}
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        log = scratch / "upstream.log"
        behind = stack.enter_context(upstream({cores[-1]}, log, events=STALLED_EVENTS))
        origin = behind.url.removesuffix(behind.gateway.path)
        for kind, (count, members) in kinds.items():
            print(f"{count} {kind}", file=sys.stderr)
            # A process each: what one kind leaves behind in the allocator is not the next one's.
            ours = peers.ours(origin, peers.free_port(), scratch, max_connections=count + 1000)
            with peers.running(ours, {cores[0]}, scratch / f"{kind}.log") as started:
                each = asyncio.run(cost(started, count, **members))
                report[kind] = {
                    "clients": count,
                    "kib_each": each,
                    "resident_mib_without": started.resident_mib,
                    "resident_mib_when_gone": round(resident_mib(started.pid), 1),
                }
    path = write_results("connections", report, "llama-compat", "uvloop", "httptools")
    print(json.dumps(report, indent=2))
    print(f"written to {path.relative_to(peers.ROOT)}")


if __name__ == "__main__":
    main()
