"""MCP servers of the official SDK over standard input and output, as programs: `PROGRAM`.

A gateway starts such a program for each reply that it has tools for, and to import the SDK takes
more than a second of CPU. So the program asks for a fork of a process that has imported it, as in
`tests.forked`, lasts as long as the fork does, and takes that along when it is killed.
"""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

from tests.forked import be_forked, become_what_is_asked_for, kept_for_others

MODULE = "tests.integration.mcp_program"

PROGRAM = [sys.executable, "-m", MODULE]
"""The command line; with `odd` behind it the server is another."""

STARTED = "LLAMA_COMPAT_STARTED_PROGRAM"
"""The variable with the id of the process that was started, of which the server is a part."""


def environment() -> dict[str, str]:
    """What programs need to know; from then on they start at once."""
    return {"PYTHONPATH": str(Path(__file__).parents[2]), **kept_for_others(MODULE)}


def ask() -> None:
    """Be the program for as long as the fork lasts."""
    be_forked(sys.argv, {**os.environ, STARTED: str(os.getpid())}, parent=MODULE)


def main() -> None:
    """Import the SDK, and become each program that is asked for."""
    if os.fork():
        return  # as in `tests.forked`
    from tests.integration import mcp_server

    gc.collect()
    gc.freeze()  # as in `tests.forked`
    become_what_is_asked_for(int(sys.argv[1]))
    print("a-secret-of-the-server", file=sys.stderr, flush=True)
    server = mcp_server.odd if "odd" in sys.argv else mcp_server.server
    server.run("stdio")
    os._exit(0)  # without taking all modules apart, which are the other process's


if __name__ == "__main__":
    if sys.argv[1:] in ([], ["odd"]):
        ask()
    else:
        main()
