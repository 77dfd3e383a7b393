"""Long work beside the steps of engines, in pieces that leave the machine to these in between.

Where more threads run than there are cores, those of a step wait for the one that just lost its
core, many times a layer, and a step takes twice as long. So where an engine computes, one thread
alone does such work, a piece at a time, and rests as long as each piece took of a core. Where
none does, all threads do it as fast as they can.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

_LATELY = 0.1
"""Seconds for which the machine is an engine's after a step: longer than it is between two."""


class _Steps:
    """Those that engines of this process compute now, and when the last one ended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now = 0
        self._ended = float("-inf")

    def begin(self) -> None:
        with self._lock:
            self._now += 1

    def end(self) -> None:
        with self._lock:
            self._now -= 1
            self._ended = time.monotonic()

    def lately(self) -> bool:
        return self._now > 0 or time.monotonic() - self._ended < _LATELY


_steps = _Steps()
_turn = threading.Lock()


@contextmanager
def step() -> Iterator[None]:
    """A step of an engine is computed within."""
    _steps.begin()
    try:
        yield
    finally:
        _steps.end()


def computed_lately() -> bool:
    """Whether an engine of this process computes, or did a moment ago."""
    return _steps.lately()


@contextmanager
def piece() -> Iterator[None]:
    """A piece of long work, of some milliseconds, is done within, in any thread but an engine's."""
    if not computed_lately():
        yield
        return
    with _turn:
        begun = time.thread_time()
        yield
        time.sleep(time.thread_time() - begun)
