"""Imports as the collector of garbage sees them: all of it stays."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def importing() -> Iterator[None]:
    """Have the collector leave what is imported within alone, now and later.

    It looks at all that there is whenever that has grown by a quarter, which of a start with torch
    is a seventh, and finds nothing. What other threads have by then it leaves alone as well.
    """
    was_on, known = gc.isenabled(), len(sys.modules)
    gc.disable()
    try:
        yield
    finally:
        if len(sys.modules) > known:
            gc.freeze()
        if was_on:
            gc.enable()
