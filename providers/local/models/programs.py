"""Programs that a pull runs: watched while they last, and gone when it is, however it ends."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

POLL_SECONDS = 0.1

_DISK_FULL = (
    *(f"[Errno {number}]" for number in (errno.ENOSPC, errno.EDQUOT)),  # Python
    *(f"(os error {number})" for number in (errno.ENOSPC, errno.EDQUOT)),  # Rust
    *(os.strerror(number) for number in (errno.ENOSPC, errno.EDQUOT)),
    "[WinError 112]",
)
"""What programs say where there is no room for what they write."""


@dataclass(frozen=True)
class Failure:
    """How a program failed.

    Attributes:
        said: what it complained of, a sentence; `str()` is that too.
        killed_by: the name of the signal that ended it, if one did.
    """

    said: str
    killed_by: str | None = None

    def __str__(self) -> str:
        return self.said


def run_python(
    function: str,
    arguments: Mapping[str, Any],
    tick: Callable[[], None],
    environment: Mapping[str, str] | None = None,
) -> Failure | None:
    """Call a Python function in a process of its own, which can be stopped at any moment.

    Args:
        function: `package.module:function`.
        arguments: its keyword arguments, which are JSON.
        tick: called again and again while it lasts.
        environment: variables beside those of this process, which keeps vendors' keys to itself.

    Returns:
        How it failed, if it did.

    Raises:
        OSError: it failed because the disk is full.
    """
    # Who starts a program needs it: the program, which imports this too, starts 0.15 s sooner.
    from providers import environments

    command = [sys.executable, "-P", "-m", "providers.local.models.child", function]
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
        process = subprocess.Popen(
            command,
            env={**environments.without_vendors_keys(), **(environment or {})},
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
    return _failure(said, process.returncode)


def _failure(output: str, status: int) -> Failure:
    """The last word of a program's output on what went wrong, or what it died of, as a sentence."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    killed_by = _signal_name(-status) if status < 0 else None
    if errors or killed_by is None:
        complaint = (errors or lines or ["it did not say why"])[-1]
    else:
        complaint = f"its process died of {killed_by}"
        if killed_by == "SIGKILL":
            complaint += ", which is how the system ends one that memory runs out for"
        if lines:
            complaint += f"; the last that it said is: {lines[-1]}"
    return Failure(complaint if complaint.endswith(".") else complaint + ".", killed_by)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
