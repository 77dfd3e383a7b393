"""What other threads have made reaches the event loop late, as on a machine that is too busy.

A server of `test_disconnects.py` imports this first.
"""

from __future__ import annotations

from asyncio import Future, futures
from typing import Any

SECONDS = 0.03

_copy: Any = futures._copy_future_state  # type: ignore[attr-defined]


def _copy_late(source: Any, future: Future[Any]) -> None:
    if not future.cancelled():
        future.get_loop().call_later(SECONDS, lambda: future.done() or _copy(source, future))


futures._copy_future_state = _copy_late  # type: ignore[attr-defined]
