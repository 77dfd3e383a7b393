"""Claude Code searches the web and calls an MCP tool through a server, on a model that is not
Anthropic's: `python -m tests.clients.claude_code [--claude PATH] [--everything PATH]`.

Its `WebSearch` asks a small model for Anthropic's `web_search_20250305`, in a request of its own.
It does the task twice: the server's own MCP servers are asked for by `CLAUDE_CODE_EXTRA_BODY`, once
one that is a process, and once one over HTTP. Claude Code, the server, the search and the MCP
servers are real, and the model follows a script. Claude Code comes from npm
(`npm install @anthropic-ai/claude-code @modelcontextprotocol/server-everything`).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.clients.hosted_tools import (
    ANSWER,
    ECHO,
    FINDER,
    LABELS,
    MODEL,
    TASK,
    TOLD,
    URL,
    find_everything,
    served,
    worker,
)

TIMEOUT_SECONDS = 180


def find_claude() -> str | None:
    """Where Claude Code is; None if it is not installed."""
    return os.environ.get("CLAUDE_CODE") or shutil.which("claude")


def do_task(claude: str, everything: str, label: str, folder: Path) -> str:
    """Have Claude Code do the task in `folder`, with the MCP server `label`; what it says in the
    end.

    Raises:
        AssertionError: it did not do it.
    """
    home, work = folder / "home", folder / "work"
    home.mkdir()
    work.mkdir()
    vendor, called = worker(label)
    with served(folder, everything, vendor) as serves:
        ended = subprocess.run(
            [
                claude,
                "-p",
                TASK,
                TOLD,
                "--model",
                MODEL,
                "--output-format",
                "stream-json",
                "--verbose",
                "--allowedTools",
                "WebSearch",
            ],
            cwd=work,
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(home),
                "ANTHROPIC_BASE_URL": serves.server.url,
                "ANTHROPIC_API_KEY": "none",
                "ANTHROPIC_BETAS": "mcp-client-2025-11-20",
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
                "CLAUDE_CODE_EXTRA_BODY": json.dumps(
                    {"mcp_servers": [{"type": "url", "name": label, "url": ""}]}
                ),
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
        log = serves.server.log
    told = f"{ended.stdout}\n{ended.stderr}\n{log}"
    assert ended.returncode == 0, f"exit code {ended.returncode}:\n{told}"
    *_, result = (json.loads(line) for line in ended.stdout.splitlines())
    assert (result["type"], result["is_error"]) == ("result", False), told
    assert result["result"] == ANSWER, told
    calls = [each for each in called if each != FINDER]
    assert calls == [f"{label}__echo", "WebSearch", "web_search"], told
    (used,) = result["modelUsage"].values()
    assert used["webSearchRequests"] == 1, told
    _check_what_was_shown(ended.stdout, label)
    return str(result["result"])


def _check_what_was_shown(lines: str, label: str) -> None:
    messages = [json.loads(line).get("message") for line in lines.splitlines()]
    blocks: list[Any] = [
        block for each in messages if each is not None for block in each["content"]
    ]
    shown = {block["type"]: block for block in blocks}
    called, gave = shown["mcp_tool_use"], shown["mcp_tool_result"]
    assert (called["server_name"], called["name"]) == (label, "echo"), lines
    assert called["input"] == {"message": "the Nile"}, lines
    assert gave["content"] == [{"type": "text", "text": ECHO}], lines
    found = shown["tool_result"]["content"]
    assert f'[{{"title":"The Nile","url":"{URL}"}}]' in found, lines
    assert TOLD in found, lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--claude", default=find_claude(), help="where it is, if not on the PATH")
    parser.add_argument("--everything", default=find_everything(), help="where the MCP server is")
    options = parser.parse_args()
    if options.claude is None or options.everything is None:
        print(
            "skipped: not installed;"
            " `npm install @anthropic-ai/claude-code @modelcontextprotocol/server-everything`"
        )
        return 0
    version = subprocess.run(
        [options.claude, "--version"], capture_output=True, text=True, check=True
    )
    print(version.stdout.strip())
    for label in LABELS:
        with tempfile.TemporaryDirectory() as folder:
            said = do_task(options.claude, options.everything, label, Path(folder))
            print(f"with an MCP server by {label}: {said}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
