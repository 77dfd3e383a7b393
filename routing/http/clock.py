"""Ends what clients take too long for."""

from __future__ import annotations

import asyncio
import logging
import time

from routing.http.state import ServerState

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0


async def watch_the_clock(server: ServerState) -> None:
    """Look at every connection once a second; runs until it is cancelled.

    One timer for all of them costs a request nothing, where one each would cost it two.
    """
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        now = time.monotonic()
        for connection in list(server.connections):
            try:
                connection.look_at_clock(now)
            except Exception:
                # The others would have no time limits any more.
                log.exception("what a client may take can't be seen: connection closed")
                connection.abort()
