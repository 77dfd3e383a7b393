"""Programs that this process runs for a while: each is started in a group of its own, knows no more
of this process than it is told, and is ended with all that it has started itself."""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping, Sequence
from contextlib import suppress

_LAST_SECONDS = 2.0
"""How long it may take until it is seen that a process was killed."""


async def start_program(command: Sequence[str], env: Mapping[str, str]) -> Process:
    """A process whose input and output are here; what it says beside that goes nowhere.

    Args:
        command: the program and its arguments.
        env: its environment, all of it.

    Raises:
        OSError: it can't be started.
    """
    starting = asyncio.create_task(
        asyncio.create_subprocess_exec(
            *command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env=env, start_new_session=True
        )
    )
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        # Cancelled itself it would end the process alone, and wait for all that has its output.
        with suppress(OSError):
            await end_program(await starting)
        raise


async def end_program(process: Process, grace: float = 0.0) -> None:
    """End a process, however that is waited for.

    Args:
        process: that; it is told by the end of its input.
        grace: seconds that it may take then, and again when it is told to end.
    """
    try:
        assert process.stdin is not None
        process.stdin.close()
        if grace and not await _has_ended(process, grace):
            _signal(process, signal.SIGTERM)
            await _has_ended(process, grace)
    finally:
        kill_program(process)
        await _has_ended(process, _LAST_SECONDS)
        # One that has left the group may have its output open for ever.
        process._transport.close()  # type: ignore[attr-defined]


def kill_program(process: Process) -> None:
    """End it at once, and what it has started; that may have outlived it."""
    _signal(process, getattr(signal, "SIGKILL", signal.SIGTERM))


def _signal(process: Process, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, number)
        else:  # Windows
            process.send_signal(number)


async def _has_ended(process: Process, seconds: float) -> bool:
    """Whether it ends within so many seconds. `process.wait` would wait for whoever has its output,
    too."""
    loop = asyncio.get_running_loop()
    late = loop.time() + seconds
    while process.returncode is None:
        if loop.time() >= late:
            return False
        await asyncio.sleep(0.01)
    return True
