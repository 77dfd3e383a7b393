"""Chat templates rendered in another process: who asks it, waits for it, and ends it."""

from __future__ import annotations

import pickle
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from providers import environments
from providers.local.prompts.templates.process import (
    CPU_SECONDS,
    HEADER,
    MAX_CHARACTERS,
    MEMORY,
    MessageKind,
)

PATIENCE_SECONDS = 60
"""How long an answer is waited for on a machine that is too busy to compute it."""

IDLE = 2
"""So many processes are kept while nobody needs them; each holds some 15 MB."""


class TemplateComplaint(Exception):
    """It is no template, or has refused what it was given; the message is the template's own."""


class TemplateBrokenOff(Exception):
    """A template had to be ended; the message says of it what it did."""


class RendererClosed(Exception):
    """Its model is being stopped."""


RESERVED = frozenset({"messages", "tools", "add_generation_prompt"})
"""The `variables` that are a request's own members, and what they come to."""


def variables(
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] | None,
    special_tokens: Mapping[str, str],
    own: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """What chat templates are given, up to where the reply begins; `own` is what not every template
    has."""
    return {
        "documents": None,
        **(own or {}),
        **special_tokens,
        "messages": messages,
        "tools": tools,
        "add_generation_prompt": True,
    }


class TemplateRenderer:
    """Renders the chat templates of one model.

    Any thread may call it, and waits meanwhile. What a template does to its process is no harm to
    those of other models.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._busy: set[_Process] = set()
        self._closed = False
        _idle.hold()

    def check(self, source: str) -> None:
        """See whether `source` is a template; raises what `render` does."""
        self._ask(source, None)

    def render(self, source: str, variables: Mapping[str, Any]) -> str:
        """What the template writes.

        Args:
            source: the template.
            variables: what it is given, as JSON has it.

        Raises:
            TemplateComplaint: it is no template, or refuses what it was given.
            TemplateBrokenOff: it took too much time or memory, or died.
            RendererClosed: `close` was called.
        """
        return self._ask(source, variables).decode("utf-8", "surrogatepass")

    def close(self) -> None:
        """Break off what is being rendered, and render nothing more."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            for process in self._busy:
                process.kill()
        _idle.release()

    def _ask(self, source: str, variables: Mapping[str, Any] | None) -> bytes:
        request = pickle.dumps((source, variables), pickle.HIGHEST_PROTOCOL)
        process = self._take()
        try:
            answer, said = process.ask(request)
        except BaseException as error:
            self._leave(process)
            process.end()
            if self._closed:
                raise RendererClosed from error
            raise
        self._leave(process)
        if answer in _BROKEN_OFF:
            process.end()
            raise TemplateBrokenOff(_BROKEN_OFF[answer])
        _idle.give_back(process)
        if answer is MessageKind.complaint:
            raise TemplateComplaint(said.decode("utf-8", "surrogatepass"))
        return said

    def _take(self) -> _Process:
        process = _idle.take()
        with self._lock:
            if not self._closed:
                self._busy.add(process)
                return process
        _idle.give_back(process)
        raise RendererClosed

    def _leave(self, process: _Process) -> None:
        with self._lock:
            self._busy.discard(process)


_BROKEN_OFF = {
    MessageKind.memory: f"it wanted more than {MEMORY >> 30} GiB of memory",
    MessageKind.length: f"it wrote more than {MAX_CHARACTERS:,} characters",
}


class _Process:
    """One of the processes that render. One thread at a time asks it; any may kill it."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "providers.local.prompts.templates.process"],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=environments.of_reader(),
            )
        self._socket = ours
        self._answers = ours.makefile("rb")
        self._ready = False

    @property
    def lives(self) -> bool:
        return self._process.poll() is None

    def ask(self, request: bytes) -> tuple[MessageKind, bytes]:
        """What it answers.

        Raises:
            TemplateBrokenOff: it died, was killed, or took too long.
        """
        self._socket.settimeout(PATIENCE_SECONDS)
        try:
            if not self._ready:
                self._receive()
                self._ready = True
            self._socket.sendall(HEADER.pack(CPU_SECONDS, len(request)))
            self._socket.sendall(request)
            return self._receive()
        except TimeoutError:
            raise TemplateBrokenOff(f"it took more than {PATIENCE_SECONDS} seconds") from None
        except (EOFError, OSError):
            raise TemplateBrokenOff(self._died_of()) from None

    def _receive(self) -> tuple[MessageKind, bytes]:
        answer, size = HEADER.unpack(self._read(HEADER.size))
        return MessageKind(answer), self._read(size)

    def _read(self, size: int) -> bytes:
        read = self._answers.read(size)
        if len(read) < size:
            raise EOFError
        return read

    def _died_of(self) -> str:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(1)
        code = self._process.returncode
        if code == -signal.SIGXCPU:
            return f"it computed for more than {CPU_SECONDS} seconds"
        return f"the process that rendered it died (exit code {code})"

    def kill(self) -> None:
        self._process.kill()

    def end(self) -> None:
        """Kill it if it lives, and close what leads to it."""
        self._process.kill()
        self._answers.close()
        self._socket.close()
        self._process.wait()


class _Idle:
    """The processes that nobody needs at the moment; there are some while there are renderers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._processes: list[_Process] = []
        self._renderers = 0

    def hold(self) -> None:
        """There is one more renderer; it will not have to wait for a process to start."""
        with self._lock:
            self._renderers += 1
            if not self._processes:
                self._processes.append(_Process())

    def release(self) -> None:
        """There is one renderer less."""
        with self._lock:
            self._renderers -= 1
            leaving: list[_Process] = []
            if not self._renderers:
                leaving, self._processes = self._processes, []
        for process in leaving:
            process.end()

    def take(self) -> _Process:
        with self._lock:
            while self._processes:
                process = self._processes.pop()
                if process.lives:
                    return process
                process.end()
        return _Process()

    def give_back(self, process: _Process) -> None:
        with self._lock:
            if self._renderers and len(self._processes) < IDLE:
                self._processes.append(process)
                return
        process.end()


_idle = _Idle()
