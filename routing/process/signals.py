"""The signals that a server minds."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)

RELOAD_SIGNAL: signal.Signals | None = getattr(signal, "SIGHUP", None)
"""Windows has none."""

SIGNALS = STOP_SIGNALS if RELOAD_SIGNAL is None else (*STOP_SIGNALS, RELOAD_SIGNAL)
"""All of them."""


class Terminal:
    """The terminal that this process was started from, if there is one.

    SIGHUP asks for a reload, but it is also how a process hears that its terminal was closed, which
    has to end it. With `nohup` it was started to outlive that.
    """

    def __init__(self) -> None:
        self._matters = (
            RELOAD_SIGNAL is not None
            and signal.getsignal(RELOAD_SIGNAL) is not signal.SIG_IGN
            and _has_terminal()
        )

    def closed(self) -> bool:
        """Whether it has been closed, and this process should end with it."""
        return self._matters and not _has_terminal()


@contextmanager
def reload_waits() -> Iterator[None]:
    """Let what asks for a reload wait until this process minds it, which `unblock_signals` says;
    where it comes to nothing, it waits no longer."""
    if RELOAD_SIGNAL is None or not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [RELOAD_SIGNAL])
    try:
        yield
    except BaseException:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        raise


def unblock_signals(*numbers: signal.Signals) -> None:
    """Let the process hear of them, what came while they were blocked included."""
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True
