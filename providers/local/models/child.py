"""The other end of `run_python`: `python -m providers.local.models.child package.module:function`.

The arguments come as one line of JSON. Behind it nothing is ever sent: where the input ends, the
process that has the other end of it is gone, and this one goes too.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import sys
import threading


def main() -> None:
    """Call the function that the command line names."""
    arguments = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_input, daemon=True).start()
    module, _, function = sys.argv[1].partition(":")
    getattr(importlib.import_module(module), function)(**arguments)


def _end_with_input() -> None:
    # By its number: a thread inside of `sys.stdin` would be in the way of the interpreter's end.
    while os.read(0, 1):
        pass
    os._exit(1)


def run_pip(arguments: list[str]) -> None:
    """`python -m pip` with these arguments."""
    sys.argv = ["pip", *arguments]
    runpy.run_module("pip", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
