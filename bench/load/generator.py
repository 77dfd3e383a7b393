"""A load generator for chat completions over keep-alive connections.

    python -m bench.load.generator URL --model M --connections 32 --seconds 5
    python -m bench.load.generator URL --model M --connections 64 --rounds 20 --stream

Prints one JSON object. Latencies are in milliseconds, from the last byte of the request handed to
the socket to the last byte (with `--stream`, the first event) of the answer.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import re
import time
from collections.abc import Callable
from typing import cast
from urllib.parse import urlsplit

import uvloop

CRLF = "\r\n"
NUMBER = "000000000000000"
"""Stands for one of as many digits in what is asked."""

_CONTENT_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


class Client(asyncio.Protocol):
    """One connection that sends one request after the other.

    Args:
        request: makes the next one.
        run: what it is part of.
    """

    def __init__(self, request: Callable[[], bytes], run: Run) -> None:
        self._request = request
        self._run = run
        self.done = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self._run.broken += 1
            self.done.set_result(None)

    def _send(self) -> None:
        if not self._run.wants_more():
            if not self.done.done():
                self.done.set_result(None)
            self._transport.close()
            return
        self._head = b""
        self._in_body = False
        self._length: int | None = None
        self._tail = b""
        self._first = True
        request = self._request()
        self._begun = time.perf_counter()
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        if not self._in_body:
            self._head += data
            head, blank, data = self._head.partition(b"\r\n\r\n")
            if not blank:
                return
            self._in_body = True
            if b" 200 " not in head[:16]:
                self._run.errors += 1
            length = _CONTENT_LENGTH.search(head)
            self._length = int(length[1]) if length else None
        if not data:
            return
        seen = self._tail + data
        events = seen.count(b"\n\n") - self._tail.count(b"\n\n")
        if events:
            if self._first and self._run.stream:
                self._first = False
                self._run.latencies.append(time.perf_counter() - self._begun)
            self._run.events += events
        self._tail = seen[-5:]
        if self._length is not None:
            self._length -= len(data)
            ended = self._length <= 0
        else:
            ended = seen.endswith(b"0\r\n\r\n")
        if ended:
            if not self._run.stream:
                self._run.latencies.append(time.perf_counter() - self._begun)
            self._run.requests += 1
            self._send()


class Run:
    """What one run counts, and when it ends: after `seconds`, or after `rounds` requests."""

    def __init__(self, stream: bool, seconds: float | None, requests: int | None) -> None:
        self.stream = stream
        self.begun = time.perf_counter()
        self._ends = self.begun + seconds if seconds is not None else None
        self._left = requests
        self.requests = self.events = self.errors = self.broken = 0
        self.latencies: list[float] = []

    def wants_more(self) -> bool:
        if self._ends is not None:
            return time.perf_counter() < self._ends
        assert self._left is not None
        self._left -= 1
        return self._left >= 0

    def report(self) -> dict[str, float]:
        took = time.perf_counter() - self.begun
        ordered = sorted(self.latencies)
        return {
            "seconds": round(took, 3),
            "requests": self.requests,
            "requests_per_s": round(self.requests / took, 1),
            "events": self.events,
            "events_per_s": round(self.events / took, 1),
            "errors": self.errors,
            "broken": self.broken,
            "p50_ms": _percentile(ordered, 0.5),
            "p99_ms": _percentile(ordered, 0.99),
        }


def _percentile(ordered: list[float], part: float) -> float:
    return round(ordered[int(part * (len(ordered) - 1))] * 1000, 3) if ordered else 0.0


def _requests(url: str, options: argparse.Namespace) -> Callable[[], bytes]:
    """Makes requests: the same again and again, or each with a question of its own, which no other
    run has either."""
    if not options.unlike:
        same = _request(url, options, "France")
        return lambda: same
    numbers = itertools.count(time.time_ns() // 1000)
    before, after = _request(url, options, NUMBER).split(NUMBER.encode())
    size = len(NUMBER)
    return lambda: b"%b%0*d%b" % (before, size, next(numbers) % 10**size, after)


def _request(url: str, options: argparse.Namespace, country: str) -> bytes:
    parts = urlsplit(url)
    content = [
        {"role": "system", "content": "You are a helpful assistant."},
        {"role": "user", "content": f"What is the capital of {country}?"},
    ]
    body = json.dumps(
        {
            "model": options.model,
            "messages": content,
            "stream": options.stream,
            "user": options.user,
        }
    ).encode()
    headers = [
        f"host: {parts.netloc}",
        "authorization: Bearer sk-benchmark",
        "content-type: application/json",
        *options.header,
        f"content-length: {len(body)}",
    ]
    return f"POST {parts.path} HTTP/1.1\r\n{CRLF.join(headers)}\r\n\r\n".encode() + body


async def main(options: argparse.Namespace) -> None:
    parts = urlsplit(options.url)
    loop = asyncio.get_running_loop()
    request = _requests(options.url, options)
    total = options.rounds * options.connections if options.rounds else None
    run = Run(options.stream, None if total else options.seconds, total)
    clients = []
    for _ in range(options.connections):
        _, client = await loop.create_connection(
            lambda: Client(request, run), parts.hostname, parts.port
        )
        clients.append(client)
    await asyncio.gather(*(client.done for client in clients))
    print(json.dumps(run.report()))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("--model", default="model")
    parser.add_argument("--header", action="append", default=[], help="NAME: VALUE")
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--stream", action="store_true")
    parser.add_argument("--unlike", action="store_true", help="each asks for something else")
    parser.add_argument("--user", default="anybody", help="'paced' for a slow stream")
    uvloop.run(main(parser.parse_args()))
