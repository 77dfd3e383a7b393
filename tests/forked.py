"""Processes of `llama-compat`, forked from one that has imported all of it already.

A server starts in a second, nearly all of which goes to imports, and the tests start hundreds. Here
that is done once, in a process that does nothing else, as `routing.process.preloaded` does it for
workers; each command is then a fork of that, with a command line, an environment, a folder and a
session of its own. A test about the start itself takes the command instead.
"""

from __future__ import annotations

import atexit
import gc
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
import time
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import ClassVar, NoReturn

TORCH = (
    "torch",
    "transformers.activations",
    "transformers.models.llama.modeling_llama",
    "providers.local.torch_engine.texts.embedder",
    "providers.local.torch_engine.engine",
    "providers.local.torch_engine.loading.loader",
    "providers.local.torch_engine.texts.reranker",
)
"""What a server that has such a model imports besides, which takes it seconds."""

_LATE = (
    "encodings.idna",
    "encodings.utf_8_sig",
    "providers.local.models.store",
    "providers.remote.anthropic.provider",
    "providers.remote.gemini.provider",
    "resource",
    "routing.access.access",
    "routing.batches.worker",
    "routing.cache.exact",
    "routing.layers.deferred",
    "routing.layers.files",
    "routing.layers.guardrails",
    "routing.layers.keeping.responses",
    "routing.layers.limits",
    "routing.layers.reasoning",
    "routing.observability.observers",
    "routing.observability.records.ledger",
    "routing.storage.responses",
    "routing.storage.sqlite",
    "stringprep",
    "uvicorn.lifespan.on",
    "uvicorn.loops.auto",
    "uvicorn.loops.uvloop",
)
"""What servers import only as they start, all or many."""

RUN = "PYTEST_XDIST_TESTRUNUID"
"""The variable that is the same in all processes of one run of tests."""

RUN_SECONDS = 60
"""How long a command may take that is run to its end."""

_WITH_ALL_ROUTES = """
version: 1
server: {admin_key: none-of-a-server}
providers: [{id: vendor, type: "remote::openai", config: {api_key: none-either}}]
models: [{id: echo, provider: vendor}]
"""

_ID = struct.Struct("!i")
"""What a process says of itself by a pipe as it begins: its id."""

_END = struct.Struct("!id")
"""What is said there once it has ended: its exit code, and the seconds of CPU that it took."""

_LONGEST = 1 << 17
"""Bytes of a command line with its environment; Linux takes one packet of as many."""

_READY = b"ready"
"""What a process that forks says to who has come."""


class Forked:
    """A process such as `subprocess.Popen` makes, as far as tests need it.

    Args:
        command: the command line; what it begins with names the command in its messages.
        env: all of its environment.
        output: the file that it writes to.
        errors: that for what is not its output, if it is another.
        input: the file that it reads, if it is not an empty one.
        imported: what it needs besides the router, such as `TORCH`.
        parent: the module whose processes fork it, which gets `imported` as its arguments.
        first: a module that it imports before it does anything.

    Attributes:
        pid: its id, which is that of its session too.
        returncode: its exit code, or the negative number of the signal that ended it; None while it
            is not known to have ended.
        running: the ids of all that are not known to have ended.
        taken: seconds of CPU of all that have.
    """

    running: ClassVar[set[int]] = set()
    taken: ClassVar[float] = 0.0

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        output: int,
        errors: int | None = None,
        input: int | None = None,
        imported: tuple[str, ...] = (),
        parent: str = __name__,
        first: str | None = None,
    ) -> None:
        asked = {
            "command": list(command),
            "env": dict(env),
            "folder": os.getcwd(),
            "first": first,
        }
        self._command = command
        self._told, tells = os.pipe()
        files = [output, output if errors is None else errors, tells]
        files += [] if input is None else [input]
        try:
            socket.send_fds(_parent(parent, imported), [json.dumps(asked).encode()], files)
        finally:
            os.close(tells)
        said = os.read(self._told, _ID.size)
        assert said, f"{' '.join(command)}: not forked, see the output of {__name__}"
        (self.pid,) = _ID.unpack(said)
        self.returncode: int | None = None
        self.running.add(self.pid)

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
            said = os.read(self._told, _END.size)
            os.close(self._told)
            assert said, "the process that forks has ended"
            code, seconds = _END.unpack(said)
            self.returncode = int(code)
            self.running.discard(self.pid)
            Forked.taken += seconds
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send it a signal, if it is still there."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)


def run(
    command: Sequence[str],
    env: Mapping[str, str] | None = None,
    imported: tuple[str, ...] = (),
) -> str:
    """What `llama-compat` prints with these arguments, run to its end.

    Args:
        command: the arguments.
        env: variables beside those of this process.
        imported: what it needs besides the router, as for `Forked`.

    Raises:
        subprocess.CalledProcessError: its exit code is not 0; `stderr` is what it said of that.
    """
    whole = [str(Path(sys.executable).with_name("llama-compat")), *command]
    added = {**os.environ, **(env or {})}
    if sys.platform != "linux":
        return subprocess.run(whole, env=added, capture_output=True, text=True, check=True).stdout
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        files = {"output": output.fileno(), "errors": errors.fileno()}
        code = Forked(whole, env=added, imported=imported, **files).wait(RUN_SECONDS)
        for each in (output, errors):
            each.seek(0)
        if code:
            raise subprocess.CalledProcessError(code, whole, output.read(), errors.read())
        return output.read()


def be_forked(
    command: Sequence[str],
    env: Mapping[str, str],
    *,
    imported: tuple[str, ...] = (),
    parent: str = __name__,
) -> NoReturn:
    """Be a process that lasts as long as a fork of `parent`, which has its files, for whoever has
    to start one; the arguments are those of `Forked`."""
    fork = Forked(command, env=env, output=1, errors=2, input=0, imported=imported, parent=parent)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: fork.send_signal(number))
    os.close(0)
    os.close(1)  # or who reads what the fork says would not see its end
    sys.exit(fork.wait())


def kept_for_others(parent: str = __name__, imported: tuple[str, ...] = ()) -> dict[str, str]:
    """Have the process of `parent` that forks stay for as long as this one; what programs have to
    have in their environments that ask it too, by `be_forked`."""
    _parent(parent, imported)
    return {RUN: run_of_tests()}


def run_of_tests() -> str:
    """What all processes of one run of tests have in common."""
    return os.environ.get(RUN, str(os.getpid()))


@cache
def _parent(module: str, imported: tuple[str, ...]) -> socket.socket:
    """The way to a process that forks, which starts with the first who asks for one.

    All processes that run tests of one run have one and the same: what it imports takes seconds.
    """
    kind = zlib.crc32("\0".join([sys.executable, module, *imported]).encode())
    address = f"\0llama-compat-{run_of_tests()}-{kind}"
    started = False
    while True:
        ours = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with suppress(ConnectionError):
            ours.connect(address)
            if ours.recv(len(_READY)) == _READY:
                return ours
        ours.close()
        # There is none; or it ends, since all who asked it have.
        assert not started, f"the process that forks has ended, see the output of {module}"
        started = _start(address, module, imported)


def _start(address: str, module: str, imported: tuple[str, ...]) -> bool:
    """Start a process that forks, unless another has begun to; whether it was started."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        try:
            listener.bind(address)
        except OSError:
            time.sleep(0.01)
            return False
        listener.listen(64)
        subprocess.run(
            [sys.executable, "-m", module, str(listener.fileno()), *imported],
            pass_fds=[listener.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=2,  # its own may be a pipe, whose reader waits for its end
            cwd=Path(__file__).parents[1],
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            start_new_session=True,
            check=True,
        )
    return True


# --------------------------------------------------------------------------------------------------
# The process that forks
# --------------------------------------------------------------------------------------------------


def main() -> None:
    """Import what a command needs, and become each that is asked for, in a process of its own."""
    if os.fork():
        return  # it is nobody's child: who started it may end before others who ask
    ended_with: list[int] = []
    engines = sys.argv[2:]
    if not engines:
        atexit.register(_leave, ended_with)  # the first to be registered is the last to be called
    import typer.main

    import routing.cli.commands
    import routing.process.preloaded
    from providers.local.threads.waiting import bounded_waiting
    from providers.local.torch_engine.provider import TURNS
    from tests.made_commands import make_commands_once

    with bounded_waiting(TURNS):
        for name in (*_LATE, *engines):
            importlib.import_module(name)
    make_commands_once()
    typer.main.get_command(routing.cli.commands.app)
    _make_an_application()
    gc.collect()
    gc.freeze()  # or the first collection in each fork would copy all of it
    become_what_is_asked_for(int(sys.argv[1]))
    try:
        routing.cli.main()
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            ended_with.append(ended.code or 0)
        raise


def become_what_is_asked_for(listener: int) -> None:
    """Fork for all who ask, and return in each fork, which has the command line, environment,
    folder, session and files that were asked for.

    Args:
        listener: the socket that `_start` has made for this process.

    Raises:
        SystemExit: in the process that forks: nobody asks more.
    """
    _become(*_Forks(socket.socket(fileno=listener)).wait())


def _leave(ended_with: Sequence[int]) -> None:
    """End as Python does after this, but for taking all modules apart: a fork would copy most of
    them for that, which takes as long as a gateway's start. What nobody waited for says so first.

    Engines are left to end in their own way.
    """
    if ended_with:
        gc.collect()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(ended_with[0])


def _make_an_application() -> None:
    """Make what answers, as that imports more, makes the routes that all applications have, and
    reads what is known of vendors' models."""
    from llama_compat.distribution import distribution_of
    from providers.registry import config_model
    from routing.app import Application

    Application(distribution_of("template", _WITH_ALL_ROUTES, config_model))


class _Forks:
    """The processes that were forked, and those who asked for them."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._askers: dict[int, socket.socket] = {}
        self._pipes: dict[int, int] = {}
        self._asked_by: dict[int, int] = {}
        signal.signal(signal.SIGCHLD, self._say_who_ended)

    def wait(self) -> tuple[bytes, list[int]]:
        """What somebody asks for, and the files that it has for that: in the fork which becomes it.

        Raises:
            SystemExit: nobody asks more.
        """
        while True:
            for each in select.select([self._listener, *self._askers], [], [])[0]:
                if each is self._listener:
                    way, _ = self._listener.accept()
                    self._askers[way.fileno()] = way
                    with suppress(BrokenPipeError):
                        way.send(_READY)
                elif asked := self._fork_for(each):
                    return asked
            if not self._askers:
                raise SystemExit

    def _fork_for(self, asker: int) -> tuple[bytes, list[int]] | None:
        asked, files, *_ = socket.recv_fds(self._askers[asker], _LONGEST, 4)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
        try:
            if not asked:
                self._end_those_of(asker)
                return None
            output, errors, tells, *inputs = files
            if pid := os.fork():
                self._asked_by[pid], self._pipes[pid] = asker, tells
                for file in (output, errors, *inputs):
                    os.close(file)
                return None
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for way in (self._listener, *self._askers.values()):
                way.close()
            for pipe in self._pipes.values():
                os.close(pipe)
            return asked, files
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])

    def _end_those_of(self, asker: int) -> None:
        """Who asked has ended, or was killed, and left nobody else to see to those."""
        for pid, other in self._asked_by.items():
            if other == asker:
                os.kill(pid, signal.SIGKILL)
        self._askers.pop(asker).close()

    def _say_who_ended(self, *_: object) -> None:
        with suppress(ChildProcessError):
            while (ended := os.wait4(-1, os.WNOHANG))[0]:
                pid, status, used = ended
                pipe = self._pipes.pop(pid)
                del self._asked_by[pid]
                seconds = used.ru_utime + used.ru_stime
                with suppress(BrokenPipeError):
                    os.write(pipe, _END.pack(os.waitstatus_to_exitcode(status), seconds))
                os.close(pipe)


def _become(asked: bytes, files: list[int]) -> None:
    """Have its command line, environment, folder, session and files."""
    wanted = json.loads(asked)
    os.setsid()
    os.chdir(wanted["folder"])
    os.environ.clear()
    os.environ.update(wanted["env"])
    sys.argv[:] = wanted["command"]
    main_module = sys.modules["__main__"]
    main_module.__package__ = None  # or its messages would name this module
    # What `multiprocessing` starts, as for workers, begins as the command itself does.
    main_module.__spec__, main_module.__file__ = None, sys.argv[0]
    sys.path[0] = str(Path(sys.executable).parent)
    output, errors, tells, *inputs = files
    for number, file in [(1, output), (2, errors), *((0, file) for file in inputs)]:
        os.dup2(file, number)
        os.close(file)
    if os.isatty(0):
        import fcntl
        import termios

        # The session's own, so that Ctrl-C there is a signal.
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.write(tells, _ID.pack(os.getpid()))
    os.close(tells)
    if wanted["first"]:
        importlib.import_module(wanted["first"])


if __name__ == "__main__":
    main()
