"""The signals that a server minds."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

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
def signals_wait(*numbers: signal.Signals, until_minded: bool = False) -> Iterator[None]:
    """Let signals wait meanwhile. A process that is started meanwhile begins so, and says itself
    when it minds them.

    Args:
        numbers: which; all of `SIGNALS` if none.
        until_minded: whether they wait on, until `unblock_signals` says that this process minds
            them; where it comes to nothing, they wait no longer.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers or SIGNALS)
    try:
        yield
    except BaseException:
        until_minded = False
        raise
    finally:
        if not until_minded:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def reload_waits() -> AbstractContextManager[None]:
    """Let what asks for a reload wait until this process minds it."""
    if RELOAD_SIGNAL is None:
        return nullcontext()
    return signals_wait(RELOAD_SIGNAL, until_minded=True)


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
