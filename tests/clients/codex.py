"""Codex CLI does a task through a server: `python -m tests.clients.codex [--codex PATH]`.

The task takes several tool calls, one after another and at the same time. It is done five times:
before a vendor that has only chat completions, so that everything is translated, once as Codex asks
a server of its settings and once as it asks an Ollama (`--oss`); before a vendor that has the
Responses API, so that it is relayed; and before each of the two over a WebSocket. Nothing is turned
off in Codex, its web search included. The model follows a script; Codex, the server and the shell
commands are real. Codex comes from npm (`npm install @openai/codex`).
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.clients.scripted_models import Asked, Said, ScriptedModels
from tests.integration.server_process import running, write_template

TASK = "Write two lines into notes.txt, count them, and tell me how many there are."

STEPS: Sequence[Sequence[str]] = (
    ["printf 'first\\n' > notes.txt"],
    ["printf 'second\\n' >> notes.txt"],
    ["wc -l < notes.txt", "cat notes.txt"],
)
"""The shell commands, those of one step at the same time."""

ANSWER = "notes.txt has 2 lines."

FIRST_OF_WEBSOCKET = "-1"
"""How the id of the first request over one ends."""

TIMEOUT_SECONDS = 180

KINDS = ("chat", "ollama", "responses", "chat-websocket", "responses-websocket")
"""What the vendor has, or `ollama`: what Codex takes the server for; and how Codex asks, if not by
POST."""

AS_OLLAMA = ("--oss", "--local-provider", "ollama", "-m", "worker")
"""How Codex is told so; it asks for the version and the models before it begins."""


def worker(asked: Asked) -> Said:
    """Work through `STEPS`, and answer from what the commands printed."""
    done = len(asked.outputs)
    for step in STEPS:
        if done <= 0:
            return Said(calls=[("exec_command", {"cmd": command}) for command in step])
        done -= len(step)
    counted, shown = asked.outputs[-2:]
    if "\n2" in counted and "first\nsecond" in shown:
        return Said(ANSWER)
    return Said(f"That went wrong: {counted!r}, {shown!r}")


def find_codex() -> str | None:
    """Where Codex is; None if it is not installed."""
    return os.environ.get("CODEX") or shutil.which("codex")


def do_task(codex: str, kind: str, folder: Path) -> str:
    """Have Codex do the task in `folder`; what it says in the end.

    Raises:
        AssertionError: it did not do it, or the vendor was asked in another way.
    """
    vendor_has, _, way = kind.partition("-")
    wires = ["chat", "responses"] if vendor_has == "responses" else ["chat"]
    home, work = folder / "home", folder / "work"
    home.mkdir()
    work.mkdir()
    with ScriptedModels(worker, responses=vendor_has == "responses") as vendor:
        template = write_template(
            folder / "template.yaml",
            providers=[
                {
                    "id": "vendor",
                    "type": "remote::passthrough",
                    "config": {"base_url": vendor.url, "wires": wires},
                }
            ],
            models=[{"id": "worker", "provider": "vendor", "provider_model": "scripted"}],
        )
        with running(template) as server:
            (home / "config.toml").write_text(config(server.base_url, websockets=bool(way)))
            options = AS_OLLAMA if kind == "ollama" else ()
            ended = subprocess.run(
                [codex, "exec", "--skip-git-repo-check", *options, TASK],
                cwd=work,
                env={
                    **os.environ,
                    "CODEX_HOME": str(home),
                    "CODEX_OSS_BASE_URL": f"{server.url}/v1",
                    "GATEWAY_KEY": "none",
                },
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=TIMEOUT_SECONDS,
                check=False,
            )
            log = server.log
    said = ended.stdout.strip()
    assert ended.returncode == 0, f"exit code {ended.returncode}:\n{ended.stderr}\n{log}"
    assert said.endswith(ANSWER), f"{said}\n{ended.stderr}\n{log}"
    assert (work / "notes.txt").read_text() == "first\nsecond\n"
    _check_requests(vendor.received, vendor_has)
    assert (f"{FIRST_OF_WEBSOCKET} POST" in log) == bool(way), log
    return said


def _check_requests(received: Sequence[tuple[str, Any]], kind: str) -> None:
    path = "/v1/responses" if kind == "responses" else "/v1/chat/completions"
    assert [each for each, _ in received] == [path] * (len(STEPS) + 1)
    for _, body in received:
        assert body["model"] == "scripted"
        if kind == "responses":
            assert "namespace" in {tool["type"] for tool in body["tools"]}
        else:
            names = [tool["function"]["name"] for tool in body["tools"]]
            assert any("__" in name for name in names), names


def config(base_url: str, *, websockets: bool) -> str:
    """Codex's settings for a server."""
    return f"""
model = "worker"
model_provider = "gateway"
approval_policy = "never"
sandbox_mode = "danger-full-access"

[model_providers.gateway]
name = "gateway"
base_url = "{base_url}"
wire_api = "responses"
env_key = "GATEWAY_KEY"
supports_websockets = {str(websockets).lower()}
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--codex", default=find_codex(), help="where it is, if not on the PATH")
    codex = parser.parse_args().codex
    if codex is None:
        print("skipped: Codex is not installed; `npm install @openai/codex`, and give its path")
        return 0
    version = subprocess.run([codex, "--version"], capture_output=True, text=True, check=True)
    print(version.stdout.strip())
    for kind in KINDS:
        with tempfile.TemporaryDirectory() as folder:
            print(f"before a vendor with {kind}: {do_task(codex, kind, Path(folder))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
