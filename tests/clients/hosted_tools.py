"""A server with a search and MCP tools for clients, before a vendor whose model follows a script.

The vendor speaks DeepSeek's chat completions, and has no tools of its own. The search looks in a
folder; the MCP servers are processes of `@modelcontextprotocol/server-everything` from npm, one
over its standard input and output, one over HTTP.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.clients.scripted_models import Asked, Said, ScriptedModels
from tests.integration.server_process import ServerProcess, free_port, running, write_template

QUERY = "nile length"
URL = "https://rivers.example/nile"
LINK = f"[The Nile]({URL})"
FOUND = "6,650 km"
TOLD = f"It is long: {LINK} says {FOUND}."
"""What the model says of what it has found, as it is told to cite."""

ECHO = "Echo: the Nile"
"""What the MCP server's tool gives."""

ANSWER = f"{TOLD} {ECHO}"
TASK = "Search the web for the length of the Nile, then have it echoed, and tell me both."

FINDER = "ToolSearch"
"""Claude Code's tool that finds tools."""

LABELS = ("process", "http")
"""Of the MCP servers, by how they are reached."""

MODEL = "worker"
START_SECONDS = 60


@dataclass(frozen=True)
class Served:
    """What runs.

    Attributes:
        server: this server.
        vendor: the one behind it.
    """

    server: ServerProcess
    vendor: ScriptedModels


def worker(label: str) -> tuple[ScriptedModels, list[str]]:
    """A vendor whose model has `label`'s server echo, searches, and says what both gave; and what
    its tools were called.

    A client that searches by a request of its own asks for it without the task, and gets what was
    found alone.
    """
    called: list[str] = []

    def say(asked: Asked) -> Said:
        has_task = any(TASK in each for each in asked.texts)
        echo = next((name for name in asked.tools if name.endswith(f"{label}__echo")), None)
        search = next((name for name in ("web_search", "WebSearch") if name in asked.tools), None)
        steps: list[tuple[str, str | None, dict[str, Any]]] = [
            (ECHO, echo, {"message": "the Nile"}),
            (FOUND, search, {"query": QUERY}),
        ]
        if FINDER in asked.tools:
            # Later versions of Claude Code have the model find that tool first.
            wanted = {"query": "select:WebSearch", "max_results": 1}
            steps.insert(1, ("Found the tool WebSearch.", FINDER, wanted))
        done = 0
        for gave, name, arguments in steps if has_task else steps[1:]:
            if any(gave in each for each in asked.outputs):
                done += 1
            elif len(asked.outputs) > done or name is None:
                return Said(f"That went wrong: {asked.outputs}, {sorted(asked.tools)}")
            else:
                called.append(name)
                return Said("", [(name, arguments)])
        return Said(ANSWER if has_task else TOLD)

    return ScriptedModels(say), called


def find_everything() -> str | None:
    """Where the MCP server is; None if it is not installed."""
    return os.environ.get("MCP_EVERYTHING") or shutil.which("mcp-server-everything")


@contextmanager
def everything_over_http(program: str) -> Iterator[str]:
    """The MCP server, listening; its URL."""
    port = free_port()
    process = subprocess.Popen(
        [program, "streamableHttp"],
        env={**os.environ, "PORT": str(port)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + START_SECONDS
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert process.poll() is None, "the MCP server ended by itself"
            assert time.monotonic() < deadline, "the MCP server does not listen"
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        process.wait()


@contextmanager
def served(
    folder: Path, everything: str, vendor: ScriptedModels, vendors_model: str = "deepseek-chat"
) -> Iterator[Served]:
    """The server before `vendor`, with its files in `folder`. What a model takes is known by what
    its vendor calls it: DeepSeek's takes no pictures."""
    (folder / "web").mkdir()
    (folder / "web" / "nile.txt").write_text(f"The Nile\n{URL}\nnile length: {FOUND}\n")
    with vendor, everything_over_http(everything) as url:
        template = write_template(
            folder / "template.yaml",
            server={
                "tools": {
                    "web_search": {"backend": "files", "folder": str(folder / "web")},
                    "mcp": {
                        "servers": [
                            {"label": "process", "command": [everything]},
                            {"label": "http", "url": url},
                        ]
                    },
                }
            },
            providers=[
                {
                    "id": "vendor",
                    "type": "remote::deepseek",
                    "config": {"base_url": vendor.url, "api_key": "none", "wires": ["chat"]},
                }
            ],
            models=[
                {
                    "id": MODEL,
                    "provider": "vendor",
                    "provider_model": vendors_model,
                    "aliases": ["claude-*"],
                }
            ],
        )
        with running(template) as server:
            yield Served(server, vendor)
