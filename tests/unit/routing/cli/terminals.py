"""Commands in a terminal of their own."""

from __future__ import annotations

import os
import pty
import select
import signal
import sys
from codecs import getincrementaldecoder
from pathlib import Path

import pytest

COMMAND = str(Path(sys.executable).with_name("llama-compat"))


WAIT_SECONDS = 60.0
"""What prints nothing for so long prints nothing any more."""


class Terminal:
    """A `llama-compat` process with a terminal of its own."""

    def __init__(self, *arguments: str, term: str = "dumb", **environment: str) -> None:
        self._pid, self._terminal = pty.fork()
        if self._pid == 0:
            environment = {**os.environ, "TERM": term, "OPENAI_API_KEY": "none", **environment}
            os.execve(COMMAND, [COMMAND, *arguments], environment)
        self._unread = ""
        self._decoder = getincrementaldecoder("utf-8")()

    def type(self, keys: str) -> None:
        os.write(self._terminal, keys.encode())

    def read_until(self, text: str) -> str:
        """Read until `text` has been printed, and what came before; fails if the process ends
        first."""
        while text not in self._unread:
            ready, _, _ = select.select([self._terminal], [], [], WAIT_SECONDS)
            if not ready:
                pytest.fail(f"{text!r} was not printed; what was: {self._unread!r}")
            try:
                self._unread += self._decoder.decode(os.read(self._terminal, 4096))
            except OSError:
                pytest.fail(f"{text!r} was never printed; what was: {self._unread!r}")
        before, self._unread = self._unread.split(text, 1)
        return before

    def wait(self) -> int:
        """Its exit code, once it has ended."""
        _, status = os.waitpid(self._pid, 0)
        self._pid = 0
        os.close(self._terminal)
        return os.waitstatus_to_exitcode(status)

    def end(self) -> None:
        """End it, if it has not ended."""
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            self.wait()
