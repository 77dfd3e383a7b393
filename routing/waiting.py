"""Waiting for the first of several things: an event, tasks that end, or the time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import Any


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
