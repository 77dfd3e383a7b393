"""Event loops whose clock does not wait: what is due next is due at once.

For what minds the clock of its event loop alone, and waits for nobody outside of it. A test says to
the millisecond how long something takes there, and takes no time itself, on any machine.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec

P = ParamSpec("P")


class _Skipping(selectors.DefaultSelector):
    """Skips the time that it is asked to wait, if nothing has happened."""

    skipped = 0.0

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            return super().select()
        happened = super().select(0)
        if not happened:
            self.skipped += max(0.0, timeout)
        return happened


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop whose time begins at 0, and moves on when all that is due has been done."""

    def __init__(self) -> None:
        self._time = _Skipping()
        super().__init__(self._time)

    def time(self) -> float:
        """Seconds."""
        return self._time.skipped


def in_virtual_time(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """A test of which no clock but that of its event loop is looked at."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            runner.run(test(*args, **kwargs))

    return run
