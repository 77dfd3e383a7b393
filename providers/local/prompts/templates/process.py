"""The process in which chat templates are rendered: `python -m` with the name of this module.

A template may never end, or want more memory than there is, inside of a single call into C, so only
a process of its own can be ended whatever it does. It serves one request after the other, and keeps
the templates that it compiled.

Standard input is a socket to the process that asks. Where it is closed that process is gone, and
this one goes too.
"""

from __future__ import annotations

import pickle
import signal
import socket
import struct
import time
from contextlib import suppress
from enum import IntEnum
from pathlib import Path

CPU_SECONDS = 5
"""How long a template may compute; the longest conversations take a tenth of a second."""

MEMORY = 1 << 30
"""Bytes of this process's address space."""

MAX_CHARACTERS = 1 << 26
"""The longest text that is given back; no context holds so much."""

MAX_COMPLAINT = 2000
"""Characters of what a template complains about."""

HEADER = struct.Struct("!BQ")
"""What stands before each message: a `MessageKind`, and its length in bytes.

In requests it is no `MessageKind` but the seconds that the template may compute.
"""


class MessageKind(IntEnum):
    """What a message to the process that asks is."""

    ready = 0
    text = 1
    """The template has written this."""
    complaint = 2
    """It is no template, or has refused what it was given, which is why."""
    memory = 3
    """It wanted more memory than there is."""
    length = 4
    """What it wrote is longer than anybody takes."""


def main() -> None:
    """Serve until nobody is there to ask."""

    _limit()
    with socket.socket(fileno=0) as connection, connection.makefile("rb") as requests:
        _send(connection, MessageKind.ready, b"")
        while header := requests.read(HEADER.size):
            seconds, size = HEADER.unpack(header)
            _more_time(seconds)
            _send(connection, *_answer(requests.read(size)))


def _answer(request: bytes) -> tuple[MessageKind, bytes]:
    from providers.local.prompts.templates.environment import compiled

    try:
        source, variables = pickle.loads(request)
        template = compiled(source)
        text = "" if variables is None else template.render(variables)
        if len(text) > MAX_CHARACTERS:
            return MessageKind.length, b""
        return MessageKind.text, text.encode("utf-8", "surrogatepass")
    except MemoryError:
        return MessageKind.memory, b""
    except Exception as error:  # a template is a program, and may fail in any way
        said = str(error) or type(error).__name__
        return MessageKind.complaint, said[:MAX_COMPLAINT].encode("utf-8", "surrogatepass")


def _send(connection: socket.socket, answer: MessageKind, said: bytes) -> None:
    connection.sendall(HEADER.pack(answer, len(said)))
    connection.sendall(said)


def _limit() -> None:
    # What ends the server may reach all its processes; this one is needed until it has ended.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    with suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def _more_time(seconds: int) -> None:
    """Have the system end this process `seconds` from now, even if nobody is there to do it."""
    with suppress(ImportError, ValueError, OSError):
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_CPU)
        until = int(time.process_time()) + seconds + 1
        resource.setrlimit(resource.RLIMIT_CPU, (until, most))


if __name__ == "__main__":
    main()
