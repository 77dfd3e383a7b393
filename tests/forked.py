"""Processes of `llama-compat`, forked from one that has imported all of it already.

A server starts in a second, nearly all of which goes to imports, and the tests start hundreds. Here
that is done once, in a process that does nothing else, as `routing.process.preloaded` does it for
workers; each command is then a fork of that, with a command line, an environment, a folder and a
session of its own. A test about the start itself takes the command instead.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

TORCH = (
    "torch",
    "transformers.activations",
    "transformers.models.llama.modeling_llama",
    "providers.local.torch_engine.embedder",
    "providers.local.torch_engine.engine",
    "providers.local.torch_engine.loading.loader",
    "providers.local.torch_engine.reranker",
)
"""What a server that has such a model imports besides, which takes it seconds."""

RUN_SECONDS = 60
"""How long a command may take that is run to its end."""

_NUMBER = struct.Struct("!i")
"""What a process says of itself by a pipe: its id, and then its exit code."""

_LONGEST = 1 << 17
"""Bytes of a command line with its environment; Linux takes one packet of as many."""


class Forked:
    """A process such as `subprocess.Popen` makes, as far as tests need it.

    Args:
        command: the command line; what it begins with names the command in its messages.
        env: all of its environment.
        output: the file that it writes to.
        errors: that for what is not its output, if it is another.
        imported: what it needs besides the router, such as `TORCH`.

    Attributes:
        pid: its id, which is that of its session too.
        returncode: its exit code, or the negative number of the signal that ended it; None while it
            is not known to have ended.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        output: int,
        errors: int | None = None,
        imported: tuple[str, ...] = (),
    ) -> None:
        asked = {"command": list(command), "env": dict(env), "folder": os.getcwd()}
        self._command = command
        self._told, tells = os.pipe()
        files = [output, output if errors is None else errors, tells]
        try:
            socket.send_fds(_parent(imported), [json.dumps(asked).encode()], files)
        finally:
            os.close(tells)
        pid = self._number()
        assert pid is not None, f"{' '.join(command)}: not forked, see the output of {__name__}"
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Its exit code, if it has ended."""
        with suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, once it has ended.

        Raises:
            subprocess.TimeoutExpired: it has not within `timeout` seconds.
        """
        if self.returncode is None:
            if not select.select([self._told], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self._command, timeout or 0)
            self.returncode = self._number()
            os.close(self._told)
            assert self.returncode is not None, "the process that forks has ended"
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send it a signal, if it is still there."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)

    def _number(self) -> int | None:
        said = os.read(self._told, _NUMBER.size)
        return _NUMBER.unpack(said)[0] if said else None


def run(command: Sequence[str], env: Mapping[str, str] | None = None) -> str:
    """What `llama-compat` prints with these arguments, run to its end.

    Args:
        command: the arguments.
        env: variables beside those of this process.

    Raises:
        subprocess.CalledProcessError: its exit code is not 0; `stderr` is what it said of that.
    """
    whole = [str(Path(sys.executable).with_name("llama-compat")), *command]
    added = {**os.environ, **(env or {})}
    if sys.platform != "linux":
        return subprocess.run(whole, env=added, capture_output=True, text=True, check=True).stdout
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        files = {"output": output.fileno(), "errors": errors.fileno()}
        code = Forked(whole, env=added, **files).wait(RUN_SECONDS)
        for each in (output, errors):
            each.seek(0)
        if code:
            raise subprocess.CalledProcessError(code, whole, output.read(), errors.read())
        return output.read()


@cache
def _parent(imported: tuple[str, ...]) -> socket.socket:
    """The way to a process that forks, which starts with the first who asks for one."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with its:
        process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(its.fileno()), *imported],
            pass_fds=[its.fileno()],
            stdin=subprocess.DEVNULL,
            cwd=Path(__file__).parents[1],
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            start_new_session=True,
        )

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


# --------------------------------------------------------------------------------------------------
# The process that forks
# --------------------------------------------------------------------------------------------------


def main() -> None:
    """Import what a command needs, and become each that is asked for, in a process of its own."""
    import routing.cli
    import routing.process.preloaded
    from providers.local.torch_engine.provider import TURNS
    from providers.local.waiting import bounded_waiting

    with bounded_waiting(TURNS):
        for name in sys.argv[2:]:
            importlib.import_module(name)
    _become_what_is_asked(socket.socket(fileno=int(sys.argv[1])))
    routing.cli.main()


def _become_what_is_asked(asks: socket.socket) -> None:
    """Fork for each who asks; this returns in the forks alone, and ends where nobody asks more."""
    pipes: dict[int, int] = {}

    def say_who_ended(*_: object) -> None:
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                pid, status = ended
                pipe = pipes.pop(pid)
                with suppress(BrokenPipeError):
                    os.write(pipe, _NUMBER.pack(os.waitstatus_to_exitcode(status)))
                os.close(pipe)

    signal.signal(signal.SIGCHLD, say_who_ended)
    while True:
        asked, files, *_ = socket.recv_fds(asks, _LONGEST, 3)
        if not asked:
            # Who asked has ended, or was killed, and left nobody else to see to those.
            for pid in list(pipes):
                os.kill(pid, signal.SIGKILL)
            raise SystemExit
        *outputs, tells = files
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
        pid = os.fork()
        if not pid:
            break
        pipes[pid] = tells
        for file in outputs:
            os.close(file)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
    asks.close()
    for pipe in pipes.values():
        os.close(pipe)
    wanted = json.loads(asked)
    os.setsid()
    os.chdir(wanted["folder"])
    os.environ.clear()
    os.environ.update(wanted["env"])
    sys.argv[:] = wanted["command"]
    sys.modules["__main__"].__package__ = None  # or its messages would name this module
    sys.path[0] = str(Path(sys.executable).parent)
    for number, file in enumerate(outputs, 1):
        os.dup2(file, number)
        os.close(file)
    os.write(tells, _NUMBER.pack(os.getpid()))
    os.close(tells)


if __name__ == "__main__":
    main()
