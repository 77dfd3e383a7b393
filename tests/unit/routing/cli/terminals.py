"""Commands in a terminal of their own."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import subprocess
import sys
import termios
from codecs import getincrementaldecoder
from functools import partial
from pathlib import Path

import pytest
from rich.cells import cell_len

from tests.forked import Forked

COMMAND = str(Path(sys.executable).with_name("llama-compat"))


WAIT_SECONDS = 60.0
"""What prints nothing for so long prints nothing any more."""


def terminal_of(columns: int) -> dict[str, str]:
    """The environment of a command that takes what it prints to for a terminal, without colours."""
    return {"COLUMNS": str(columns), "FORCE_COLOR": "1", "NO_COLOR": "1", "TERM": "xterm"}


def plain(text: str) -> str:
    """Without what a terminal takes for colours."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def widest(text: str) -> int:
    """How many columns the longest of its lines takes, some letters two."""
    return max(map(cell_len, plain(text).splitlines()), default=0)


HOSTILE = (
    "\x1b[31mred\x1b]0;title\x07",
    "\u202eevil\u2066",
    "\x9b2Jgone\x85",
    "two\nlines\ttab\r",
    "日本語" * 20,
    "x" * 500,
    "[bold]m[/bold]",
    ":100:",
    "👩\u200d💻",
)
"""Names that would do something to a terminal, or break a table."""


def does_nothing(shown: str) -> bool:
    """Whether a terminal that gets it does nothing but show letters and colours."""
    return not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]", plain(shown))


class Terminal:
    """A `llama-compat` process with a terminal of its own.

    On Linux it is a fork of one that has imported what it needs, as a server of the tests is.
    """

    def __init__(
        self,
        *arguments: str,
        term: str = "dumb",
        imported: tuple[str, ...] = (),
        **environment: str,
    ) -> None:
        command = [COMMAND, *arguments]
        environment = {**os.environ, "TERM": term, "OPENAI_API_KEY": "none", **environment}
        self._terminal, theirs = pty.openpty()
        self._process: Forked | subprocess.Popen[bytes]
        try:
            if sys.platform == "linux":
                files = {"input": theirs, "output": theirs}
                self._process = Forked(command, env=environment, imported=imported, **files)
            else:
                self._process = subprocess.Popen(
                    command,
                    env=environment,
                    stdin=theirs,
                    stdout=theirs,
                    stderr=theirs,
                    start_new_session=True,
                    preexec_fn=partial(fcntl.ioctl, theirs, termios.TIOCSCTTY, 0),
                )
        finally:
            os.close(theirs)
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
        code = self._process.wait()
        os.close(self._terminal)
        return code

    def end(self) -> None:
        """End it, if it has not ended."""
        if self._process.returncode is None:
            self._process.kill()
            self.wait()
