"""Work that grows with its input: here and now while it is little, in a thread where it is much.

The threads are few and for nothing else, so that what others do in threads (names of hosts, files)
does not queue up behind it. What runs there still holds the interpreter's lock at times; bodies
whose decoding would hold it for long in one piece are refused before (`wire.json_size`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import ParamSpec, TypeVar

LARGE_BYTES = 256 * 1024
"""What is smaller is parsed in a few milliseconds at worst."""

THREADS = 2

_P = ParamSpec("_P")
_T = TypeVar("_T")


async def off_loop(size: int, work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """What `work` returns for input of `size` bytes; in a thread where that is large."""
    if size <= LARGE_BYTES:
        return work(*args, **kwargs)
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_threads(), lambda: work(*args, **kwargs))


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(THREADS, "large-bodies")
