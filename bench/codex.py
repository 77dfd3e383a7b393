"""How long Codex takes to its first answer: over a WebSocket, over HTTP, and where one is refused.

    python -m bench.codex --codex PATH [--rounds 9]

From the start of `codex exec` to the first message of its model, which answers at once: a vendor of
our own behind the server follows a script. The ways take turns, so that a busy machine is so for
all of them, and each first answer is compared with that over HTTP of the same round. `refused` is
what Codex loses where it is told of WebSockets and there are none: `server.websockets: null`.
`first_request_ms` is the time until Codex asks for its first answer, which is its own start alone.
Codex comes from npm (`npm install @openai/codex`). Writes `bench/results/codex.json`.
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
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench.machine import write_results
from tests.clients.codex import config, find_codex
from tests.clients.scripted_models import Asked, Said, ScriptedModels
from tests.integration.server_process import COMMAND, ServerProcess, running, write_template

WAYS = {
    "http": (True, False),
    "websocket": (True, True),
    "refused": (False, True),
}
"""Whether the server has WebSockets, and whether Codex is told that it has."""


class Clock:
    """Notes when the model was first asked."""

    def __init__(self) -> None:
        self.asked = 0.0

    def model(self, asked: Asked) -> Said:
        self.asked = self.asked or time.perf_counter()
        return Said("Done.")


def first_answer(codex: str, server: ServerProcess, clock: Clock, *, websockets: bool) -> Any:
    """Milliseconds until the model was asked, and until Codex had its message."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        home = Path(folder)
        (home / "config.toml").write_text(config(server.base_url, websockets=websockets))
        clock.asked = 0.0
        begun = time.perf_counter()
        process = subprocess.Popen(
            [codex, "exec", "--json", "--skip-git-repo-check", "Say that you are done."],
            cwd=folder,
            env={**os.environ, "CODEX_HOME": str(home), "GATEWAY_KEY": "none"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if json.loads(line).get("item", {}).get("type") == "agent_message":
                    answered = time.perf_counter()
                    return (clock.asked - begun) * 1000, (answered - begun) * 1000
        finally:
            process.kill()
            process.wait()
    raise RuntimeError(f"Codex said nothing. The server:\n{server.log}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--codex", default=find_codex(), help="where it is, if not on the PATH")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    if options.codex is None:
        print("Codex is not installed: `npm install @openai/codex`, and give its path.")
        return 2
    version = subprocess.run([options.codex, "--version"], capture_output=True, text=True)
    clock = Clock()
    measured: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        vendor = stack.enter_context(ScriptedModels(clock.model))
        servers: dict[bool, ServerProcess] = {}
        for has_websockets in (True, False):
            template = write_template(
                folder / f"{has_websockets}.yaml",
                server={} if has_websockets else {"websockets": None},
                providers=[
                    {
                        "id": "vendor",
                        "type": "remote::passthrough",
                        "config": {"base_url": vendor.url, "unsupported": "drop"},
                    }
                ],
                models=[{"id": "worker", "provider": "vendor"}],
            )
            servers[has_websockets] = stack.enter_context(running(template, executable=COMMAND))
        for turn in range(options.rounds + 1):
            for way, (has_websockets, told) in WAYS.items():
                took = first_answer(options.codex, servers[has_websockets], clock, websockets=told)
                if turn:  # the first is for what is read from disk once
                    measured[way].append(took)
    report: dict[str, Any] = {"codex": version.stdout.strip(), "rounds": options.rounds, "ways": {}}
    over_http = [answer for _, answer in measured["http"]]
    for way, times in measured.items():
        answers = [answer for _, answer in times]
        ratios = [answer / http for answer, http in zip(answers, over_http, strict=True)]
        report["ways"][way] = {
            "first_request_ms": round(statistics.median(asked for asked, _ in times), 1),
            "first_answer_ms": round(statistics.median(answers), 1),
            "of_http": round(statistics.median(ratios), 3),
            "each_ms": [round(answer, 1) for answer in answers],
        }
    write_results("codex", report, "llama-compat", "websockets", "uvicorn")
    print(json.dumps(report, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
