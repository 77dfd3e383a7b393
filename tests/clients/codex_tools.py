"""Codex searches the web and calls an MCP tool, on a model that is not OpenAI's:
`python -m tests.clients.codex_tools [--codex PATH] [--everything PATH]`.

Codex offers OpenAI's `web_search` with every request, which this server runs. It has no word for
MCP servers that a server connects to: it connects to those of its own settings itself, by both
transports, and offers their tools in a namespace. The task is done over HTTP and over a WebSocket.
All but the model is real. Codex comes from npm, as the MCP server does
(`npm install @openai/codex @modelcontextprotocol/server-everything`).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.clients.codex import config, find_codex
from tests.clients.hosted_tools import (
    ANSWER,
    LABELS,
    QUERY,
    TASK,
    everything_over_http,
    find_everything,
    served,
    worker,
)

TIMEOUT_SECONDS = 180

WAYS = ("http", "websocket")
"""How Codex asks the server."""


def do_task(codex: str, everything: str, label: str, way: str, folder: Path) -> str:
    """Have Codex do the task in `folder`, with its MCP server `label`; what it says in the end.

    Raises:
        AssertionError: it did not do it.
    """
    home, work = folder / "home", folder / "work"
    home.mkdir()
    work.mkdir()
    vendor, called = worker(label)
    with served(folder, everything, vendor) as serves, everything_over_http(everything) as url:
        how = f'url = "{url}"' if label == "http" else f'command = "{everything}"'
        (home / "config.toml").write_text(
            f'web_search = "live"\n{config(serves.server.base_url, websockets=way == "websocket")}'
            # It would begin without the tools of one that is slow to start.
            f"\n[mcp_servers.{label}]\n{how}\nrequired = true\n"
        )
        ended = subprocess.run(
            [codex, "exec", "--json", "--skip-git-repo-check", TASK],
            cwd=work,
            env={**os.environ, "CODEX_HOME": str(home), "GATEWAY_KEY": "none"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
        log = serves.server.log
    told = f"{ended.stdout}\n{ended.stderr}\n{log}\n{called}"
    assert ended.returncode == 0, f"exit code {ended.returncode}:\n{told}"
    items: list[Any] = [
        event["item"]
        for event in map(json.loads, ended.stdout.splitlines())
        if event["type"] == "item.completed"
    ]
    shown = {item["type"]: item for item in items}
    assert shown["agent_message"]["text"] == ANSWER, told
    assert shown["web_search"]["query"] == QUERY, told
    call = shown["mcp_tool_call"]
    assert (call["server"], call["tool"], call["status"]) == (label, "echo", "completed"), told
    assert [name.rpartition("__")[2] for name in called] == ["echo", "web_search"], told
    return str(shown["agent_message"]["text"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--codex", default=find_codex(), help="where it is, if not on the PATH")
    parser.add_argument("--everything", default=find_everything(), help="where the MCP server is")
    options = parser.parse_args()
    if options.codex is None or options.everything is None:
        print(
            "skipped: not installed;"
            " `npm install @openai/codex @modelcontextprotocol/server-everything`"
        )
        return 0
    version = subprocess.run([options.codex, "--version"], capture_output=True, text=True)
    print(version.stdout.strip())
    for label in LABELS:
        for way in WAYS:
            with tempfile.TemporaryDirectory() as folder:
                said = do_task(options.codex, options.everything, label, way, Path(folder))
                print(f"with an MCP server by {label}, asked over {way}: {said}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
