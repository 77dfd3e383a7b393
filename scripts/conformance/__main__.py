"""Ask the servers, and write down what was found: `make conformance-page`.

`--only NAME`, which may be there several times, asks that one alone and keeps what was found of the
others, each with its date. `--openresponses FOLDER` is a checkout of that suite; without it what it
found before is kept.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.machine import describe
from scripts.conformance.servers import SERVERS, Address, Server
from tests.clients import openresponses
from tests.clients.scripted_models import ScriptedModels

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "tests/integration/results/conformance.json"

NOT_THERE = (404, 405, 501)
"""What a server answers where it does not have a route."""


def main() -> int:
    """Returns the exit code: 1 if a server could not be asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--only", action="append", choices=SERVERS, metavar="NAME", help="ask this one"
    )
    parser.add_argument("--openresponses", type=Path, help="a checkout of Open Responses")
    options = parser.parse_args()
    suite: Path | None = options.openresponses
    if suite is not None and openresponses.find_bun(suite) is None:
        parser.error(f"in {suite} `npm install bun zod@3` has not been run")
    results = json.loads(RESULTS.read_text("utf-8")) if RESULTS.is_file() else {}
    failed = 0
    for name in options.only or SERVERS:
        before = results.get(name, {})
        try:
            results[name] = ask(SERVERS[name], suite, before)
        except Exception as error:  # one that can't be had here says nothing of the others
            print(f"{name} could not be asked: {error}", file=sys.stderr)
            failed = 1
        ordered = {each: results[each] for each in SERVERS if each in results}
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(ordered, indent=2) + "\n", "utf-8")
    return failed


def ask(server: Server, suite: Path | None, before: dict[str, Any]) -> dict[str, Any]:
    """What one server can do.

    Args:
        server: which.
        suite: a checkout of Open Responses, or None.
        before: what was found of it last time.
    """
    with tempfile.TemporaryDirectory() as scratch:
        begun = time.monotonic()
        with server.start(Path(scratch)) as address:
            capabilities = ask_by_tests(address, Path(scratch))
            seconds = round(time.monotonic() - begun)
            responses = before.get("open_responses")
            if suite is not None and server.before is None:
                responses = ask_by_suite(address, suite)
    if suite is not None and server.before is not None:
        with scripted(server) as address:
            responses = ask_by_suite(address, suite)
    return {
        "version": server.version,
        "machine": describe(),
        "seconds": seconds,
        "capabilities": capabilities,
        "open_responses": responses,
    }


def ask_by_tests(address: Address, scratch: Path) -> dict[str, Any]:
    """What `pytest tests/integration --base-url` finds.

    Raises:
        RuntimeError: the tests did not run.
    """
    written = scratch / "capabilities.json"
    where = ["--base-url", address.base_url, "--text-model", address.model]
    command = [sys.executable, "-m", "pytest", "tests/integration", "-q", "-p", "no:cacheprovider"]
    ended = subprocess.run(
        [*command, *where, "--capabilities", str(written)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    print(ended.stdout, file=sys.stderr)
    if not written.is_file():
        raise RuntimeError(f"the tests did not run:\n{ended.stdout}\n{ended.stderr}")
    found: dict[str, Any] = json.loads(written.read_text("utf-8"))
    return found


@contextmanager
def scripted(server: Server) -> Iterator[Address]:
    """A gateway before a vendor whose model does what the suite asks, which small ones do not."""
    assert server.before is not None
    with (
        tempfile.TemporaryDirectory() as scratch,
        ScriptedModels(openresponses.model) as vendor,
        server.before(vendor.url, Path(scratch)) as address,
    ):
        yield address


def ask_by_suite(address: Address, suite: Path) -> dict[str, Any]:
    """What Open Responses finds; no tests where the server has no such API."""
    found: Sequence[dict[str, Any]] = ()
    if has_responses(address):
        bun = openresponses.find_bun(suite)
        assert bun is not None
        found = openresponses.results_of(address.base_url, address.model, suite, bun)
        found = sorted(found, key=lambda each: str(each["id"]))
    return {
        "machine": describe(),
        "suite_commit": openresponses.suite_commit(suite),
        "http": {each["id"]: each["status"] for each in found if openresponses.is_http(each)},
        "websocket": {
            each["id"]: each["status"] for each in found if not openresponses.is_http(each)
        },
    }


def has_responses(address: Address) -> bool:
    """Whether the server knows `POST /v1/responses` at all."""
    asked = json.dumps({"model": address.model, "input": "Hello", "max_output_tokens": 16})
    request = urllib.request.Request(
        f"{address.base_url}/responses",
        asked.encode(),
        {"content-type": "application/json", "authorization": "Bearer none"},
    )
    try:
        urllib.request.urlopen(request, timeout=openresponses.TIMEOUT_SECONDS).close()
    except urllib.error.HTTPError as error:
        return error.code not in NOT_THERE
    return True


if __name__ == "__main__":
    sys.exit(main())
