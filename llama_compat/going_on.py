"""Tasks that go on for as long as the server does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

log = logging.getLogger(__name__)

PAUSE_SECONDS = 5.0
"""After so long what broke off begins anew: each time is a traceback in the log."""


async def going_on(
    what: str,
    work: Callable[[], Awaitable[None]],
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Do `work` until it returns or is cancelled. Where it breaks off by what it does not expect,
    the log has that, and it begins anew: a task that nobody waits for would end unseen.

    Args:
        what: it is, for the log.
        work: that; it may begin several times.
        pause: waits for so many seconds before it begins anew, or less where it is to end.
    """
    while True:
        try:
            return await work()
        except Exception:
            log.exception("%s: broke off, and begins anew in %g s", what, PAUSE_SECONDS)
        await pause(PAUSE_SECONDS)
