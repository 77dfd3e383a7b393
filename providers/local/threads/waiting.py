"""How the threads of an engine wait for each other, many times a layer.

They turn in circles for a moment and sleep then. GNU's OpenMP turns for milliseconds unless it is
told otherwise: where anything else runs, be it the event loop of this very process, those that wait
keep the core from the one that they wait for, and a step takes up to ten times as long. To sleep at
once takes up to twice as long where each has a core of its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
"""What in the environment says how threads wait; whoever sets either means it."""


@contextmanager
def bounded_waiting(turns: int) -> Iterator[None]:
    """What is imported within reads how its threads wait, if it brings an OpenMP of its own.

    That is read once, when it is loaded, and what is started later is told nothing.

    Args:
        turns: how often they look before they sleep, some 20 to 50 nanoseconds each.
    """
    told = (
        {}
        if set(WAITING) & os.environ.keys()
        else {
            "OMP_WAIT_POLICY": "passive",
            "GOMP_SPINCOUNT": str(turns),
        }
    )
    os.environ.update(told)
    try:
        yield
    finally:
        for name in told:
            del os.environ[name]
