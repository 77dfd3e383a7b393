"""Programs that a pull runs: watched while they last, and gone when it is, however it ends."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

POLL_SECONDS = 0.1

_DISK_FULL = (
    *(f"[Errno {number}]" for number in (errno.ENOSPC, errno.EDQUOT)),  # Python
    *(f"(os error {number})" for number in (errno.ENOSPC, errno.EDQUOT)),  # Rust
    *(os.strerror(number) for number in (errno.ENOSPC, errno.EDQUOT)),
    "[WinError 112]",
)
"""What programs say where there is no room for what they write."""


def run_python(
    function: str,
    arguments: Mapping[str, Any],
    tick: Callable[[], None],
    environment: Mapping[str, str] | None = None,
) -> str | None:
    """Call a Python function in a process of its own, which can be stopped at any moment.

    Args:
        function: `package.module:function`.
        arguments: its keyword arguments, which are JSON.
        tick: called again and again while it lasts.
        environment: variables beside those of this process.

    Returns:
        What it complained about if it failed.

    Raises:
        OSError: it failed because the disk is full.
    """
    command = [sys.executable, "-P", "-m", "providers.local.models.child", function]
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
        process = subprocess.Popen(
            command,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        assert process.stdin is not None
        try:
            with suppress(BrokenPipeError):
                process.stdin.write(json.dumps(arguments).encode() + b"\n")
                process.stdin.flush()
            while process.poll() is None:
                tick()
                with suppress(subprocess.TimeoutExpired):
                    process.wait(POLL_SECONDS)
        finally:
            process.kill()
            process.wait()
            with suppress(BrokenPipeError):
                process.stdin.close()
        if process.returncode == 0:
            return None
        output.seek(0)
        said = output.read()
    if any(sign in said for sign in _DISK_FULL):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return _complaint(said)


def _complaint(output: str) -> str:
    """The last word of a program's output on what went wrong, as a sentence."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    complaint = (errors or lines or ["it did not say why"])[-1]
    return complaint if complaint.endswith(".") else complaint + "."
