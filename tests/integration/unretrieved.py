"""Leaves a task that failed, and nobody waited for, to whoever looks for garbage at the end."""

from __future__ import annotations

import asyncio
import gc


async def _fail() -> None:
    raise ValueError("nobody has waited for this")


async def _begin() -> None:
    task = asyncio.ensure_future(_fail())
    task.itself = task  # type: ignore[attr-defined]  # so that it is there until one looks
    await asyncio.sleep(0)


gc.disable()
asyncio.run(_begin())
