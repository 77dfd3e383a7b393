"""Waiting for the first of several things: an event, tasks that end, or the time. Ending tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

AGAIN_SECONDS = 1.0
"""A task that has not ended so long after it was cancelled is cancelled once more."""


async def cancelled(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks that ask Redis, and wait until they have ended; whatever comes of them.

    Once may not be enough: `asyncio.wait_for` of Python 3.11, by which Redis' client sends, loses a
    cancellation that comes just as it is done (https://github.com/python/cpython/issues/86296).
    """
    asked = set(tasks)
    running = asked
    while running:
        for each in running:
            each.cancel()
        _, running = await asyncio.wait(running, timeout=AGAIN_SECONDS)
    await asyncio.gather(*asked, return_exceptions=True)


async def first_of(
    event: asyncio.Event, seconds: float | None, tasks: Iterable[asyncio.Task[Any]] = ()
) -> None:
    """Wait until `event` is set, one of `tasks` has ended, or so many seconds are over, if
    any are given."""
    running = list(tasks)
    if not running:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await event.wait()
        return
    waking = asyncio.create_task(event.wait())
    try:
        await asyncio.wait([*running, waking], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waking.cancel()
        await asyncio.gather(waking, return_exceptions=True)
