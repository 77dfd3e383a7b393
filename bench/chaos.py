"""What clients notice when one of three vendors fails: this gateway beside TensorZero and LiteLLM.

    python -m bench.chaos [--faults killed,frozen] [--requests 1000] [--only llama_compat]
    python -m bench.chaos --page

Requests come at a steady rate, whatever becomes of those before, every other one streamed. When a
tenth of them has been sent, the first vendor fails in one way (`tests.integration.chaos` has the
vendors and the ways; `healthy` is none) and stays so; what is sent from then on is counted. For
`all_killed_then_back` all three are killed, and what is counted is sent when they are back. Each
gateway is started afresh for each fault. A slow one (LiteLLM) gets a fifth of the rate and fewer
requests.

- `answered`: the share of the requests that got one vendor's whole answer and nothing else, of
  those that could have: a stream that breaks after content has come can't be answered any more
  (`broken`, where the client is told so).
- `p50_ms`, `p99_ms`: until the first content, or until the end of what was not streamed; `added`
  is that less what the same takes without a gateway; `times_healthy` beside the gateway's own
  healthy run.
- `seen`: requests that reached a vendor, for each that was sent. One that was frozen finds what
  had come for it when it thaws.

Writes `bench/results/chaos.json` and prints a table of it, which `--page` puts into the
documentation from what was recorded.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from bench.load.chaos_peers import GATEWAYS
from bench.load.others import NotInstalled
from bench.load.peers import Gateway, Started, free_port, running
from bench.machine import RESULTS, write_results
from tests.integration.chaos.vendors import FAULTS, VendorProcess, three_vendors

RATE = 50
"""Requests a second."""

SLOW_SHARE = 5
"""A slow gateway gets so many times fewer a second."""

HEALTHY = "healthy"

ALL_BACK = "all_killed_then_back"
"""All vendors are killed, and started again when as many requests have been sent as before."""

PAGE = Path(__file__).parents[1] / "docs" / "concepts" / "chaos.md"

BEGIN, END = "<!-- bench.chaos -->\n", "<!-- /bench.chaos -->\n"
"""What the table stands between there."""

BEFORE = 10
"""One of so many requests is sent before the vendor fails."""

TIMEOUT_SECONDS = 30

MESSAGES = [{"role": "user", "content": "a b c d e"}]

Vendors = Mapping[str, VendorProcess]


@dataclass
class Sent:
    """One request: what came of it."""

    streamed: bool
    text: str = ""
    is_whole: bool = False
    error: str = ""
    content_s: float = 0.0


async def send(session: aiohttp.ClientSession, started: Started, *, streamed: bool) -> Sent:
    """Send one request, and look what comes."""
    sent = Sent(streamed)
    body = {"model": started.gateway.model, "messages": MESSAGES, "stream": streamed}
    begun = time.perf_counter()
    try:
        async with session.post(started.url, json=body) as response:
            if response.status != 200:
                sent.error = f"{response.status}: {(await response.text())[:200]}"
            elif streamed:
                await _read_stream(sent, response, begun)
            else:
                [choice] = (await response.json())["choices"]
                sent.text, sent.is_whole = choice["message"]["content"], True
    except (aiohttp.ClientError, TimeoutError, ValueError, KeyError, TypeError) as error:
        sent.error = f"{type(error).__name__}: {error}"
    sent.content_s = sent.content_s or time.perf_counter() - begun
    return sent


async def _read_stream(sent: Sent, response: aiohttp.ClientResponse, begun: float) -> None:
    finish_reason = None
    async for line in response.content:
        data = line.removeprefix(b"data: ").strip()
        if not line.startswith(b"data: ") or data == b"[DONE]":
            continue
        event = json.loads(data)
        if event.get("error"):
            sent.error = str(event["error"])[:200]
            continue
        for choice in event["choices"]:
            sent.text += choice["delta"].get("content") or ""
            finish_reason = choice.get("finish_reason") or finish_reason
        if sent.text and not sent.content_s:
            sent.content_s = time.perf_counter() - begun
    sent.is_whole = finish_reason == "stop" and not sent.error


async def load(started: Started, vendors: Vendors, fault: str, requests: int) -> list[Sent]:
    """Send `requests` at a steady rate; those that were sent after the first vendor had failed, or
    after all were back."""
    rate = RATE / SLOW_SHARE if started.gateway.slow else RATE
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
    before = uncounted = requests // BEFORE
    failing, how = [next(iter(vendors.values()))], fault
    if fault == ALL_BACK:
        failing, how, uncounted = list(vendors.values()), "killed", 2 * before
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
        begun = time.perf_counter()
        tasks = []
        for number in range(uncounted + requests):
            # Killing waits for the process, and so does starting it again: nothing is sent then.
            paused = time.perf_counter()
            if number == before and fault != HEALTHY:
                await asyncio.gather(*(asyncio.to_thread(each.break_, how) for each in failing))
                begun += time.perf_counter() - paused
            elif number == uncounted and fault == ALL_BACK:
                await asyncio.gather(*(asyncio.to_thread(each.mend) for each in failing))
                begun += time.perf_counter() - paused
            await asyncio.sleep(max(0.0, begun + number / rate - time.perf_counter()))
            streamed = bool(number % 2)
            tasks.append(asyncio.create_task(send(session, started, streamed=streamed)))
        return (await asyncio.gather(*tasks))[uncounted:]


def came(vendors: Vendors) -> int:
    """How many requests the vendors have seen."""
    return sum(event.what == "came" for vendor in vendors.values() for _, event in vendor.log())


def measure(
    gateway: Gateway, vendors: Vendors, fault: str, requests: int, log: Path
) -> dict[str, Any]:
    """One gateway through one fault."""
    with running(gateway, os.sched_getaffinity(0), log) as started:
        seen = came(vendors)
        sent = asyncio.run(load(started, vendors, fault, requests))
        for vendor in vendors.values():
            vendor.mend()
        time.sleep(1)  # one that was frozen notes what had come
        seen = came(vendors) - seen
    return {**report(sent, vendors), "seen": round(seen / (requests + requests // BEFORE), 3)}


def report(sent: list[Sent], vendors: Vendors) -> dict[str, Any]:
    """The figures of one run."""
    whole = {f"{name}: a b c d e" for name in vendors}
    right = [one for one in sent if one.is_whole and one.text in whole]
    wrong = [one for one in sent if one not in right]
    broken = [one for one in wrong if one.streamed and one.text and one.error]
    could = len(sent) - len(broken)
    times = sorted(one.content_s * 1000 for one in right) or [0.0]
    errors = sorted({one.error or f"ended with {one.text!r}" for one in wrong})
    return {
        "requests": len(sent),
        "answered": round(len(right) / could, 4) if could else None,
        "broken": len(broken),
        "p50_ms": round(statistics.median(times), 1),
        "p99_ms": round(times[min(len(times) - 1, int(len(times) * 0.99))], 1),
        "errors": errors[:5],
    }


def compare(runs: dict[str, dict[str, Any]], direct: Mapping[str, Any]) -> None:
    """Add to each run what the gateway adds, and what the fault does."""
    healthy = runs.get(HEALTHY)
    for run in runs.values():
        for name in ("p50", "p99"):
            run[f"{name}_added_ms"] = round(run[f"{name}_ms"] - direct[f"{name}_ms"], 1)
        if healthy is not None:
            run["p99_times_healthy"] = round(run["p99_ms"] / healthy["p99_ms"], 2)


def table(results: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> str:
    """The results as the documentation has them."""
    rows = [["the first of three vendors is", *results], ["---"] * (len(results) + 1)]
    for fault in next(iter(results.values())):
        cells = [fault.replace("_", " ")]
        for runs in results.values():
            run = runs[fault]
            answered = "none" if run["answered"] is None else f"{run['answered']:.1%}"
            broken = f", {run['broken']} broken" if run["broken"] else ""
            times = f"{run['p50_added_ms']:.0f} / {run['p99_added_ms']:.0f} ms"
            cells.append(f"{answered}{broken}; {times}; {run['seen']:.2f}")
        rows.append(cells)
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def into_page(text: str, results: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> str:
    """The `text` of the page with the table of `results` in its place.

    Raises:
        ValueError: it has no place for it.
    """
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise ValueError(f"{PAGE.name} has no {BEGIN.strip()} and {END.strip()} for the table")
    return f"{before}{begin}\n{table(results)}\n\n{end}{after}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])  # type: ignore[union-attr]
    parser.add_argument(
        "--faults", default=",".join((*FAULTS, ALL_BACK)), help="some of %(default)s"
    )
    parser.add_argument("--requests", type=int, default=1000, help="of each run")
    parser.add_argument("--slow-requests", type=int, default=300, help="of a slow gateway's")
    parser.add_argument("--only", default=",".join(GATEWAYS), help="some of %(default)s")
    parser.add_argument("--page", action="store_true", help="measure nothing, write the table")
    options = parser.parse_args()
    if options.page:
        recorded = json.loads((RESULTS / "chaos.json").read_text())["gateways"]
        PAGE.write_text(into_page(PAGE.read_text("utf-8"), recorded), "utf-8")
        return
    faults = [HEALTHY, *options.faults.split(",")]
    results: dict[str, dict[str, dict[str, Any]]] = {}
    missing: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        with three_vendors(scratch) as vendors:
            urls = {name: vendor.url for name, vendor in vendors.items()}
            one = next(iter(vendors.values()))
            direct = Gateway("no gateway", one.port, ["sleep", "3600"])
            baseline = measure(direct, vendors, HEALTHY, options.requests, scratch / "log")
            for name in options.only.split(","):
                runs: dict[str, dict[str, Any]] = {}
                try:
                    for fault in faults:
                        print(f"{name}: {fault}", file=sys.stderr)
                        gateway = GATEWAYS[name](urls, free_port(), scratch)
                        requests = options.slow_requests if gateway.slow else options.requests
                        runs[fault] = measure(gateway, vendors, fault, requests, scratch / "log")
                except NotInstalled as error:
                    missing[name] = str(error)
                    continue
                compare(runs, baseline)
                results[name] = runs
    measured: dict[str, Any] = {
        "what": f"{RATE} requests/s, a fifth of that for LiteLLM; one of three vendors fails",
        "no gateway": baseline,
        "missing": missing,
        "gateways": results,
    }
    path = write_results("chaos", measured, "llama-compat", "aiohttp", "uvicorn", "uvloop")
    print(json.dumps(measured, indent=2), file=sys.stderr)
    print(table(results))
    print(f"written to {path}")


if __name__ == "__main__":
    main()
