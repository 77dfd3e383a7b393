"""What is left behind for the collector, which looks for it after thousands of objects, however
large each is."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def leaving_none(*types: type) -> Iterator[None]:
    """What happens in here leaves no objects of these types in a cycle."""
    gc.collect()
    gc.disable()
    try:
        yield
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        left = [repr(each)[:200] for each in gc.garbage if isinstance(each, types)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert not left, left
