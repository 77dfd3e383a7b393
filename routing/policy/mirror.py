"""Mirrors: a share of a model's requests goes to another model too, and what it says is thrown
away. How it does under real traffic shows in its targets' states, in the log and in metrics."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from llama_compat.errors import APIError
from llama_compat.exchange import Reply

log = logging.getLogger(__name__)

MAX_RUNNING = 32
"""So many run at a time in one process; a request more is not mirrored."""


class Mirrors:
    """The copies of requests that run now, until `stop`.

    Attributes:
        sent, left_out, failed: how many there were, how many more were too many at a time, and how
            many of those that were sent failed.
    """

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()
        self.sent = 0
        self.left_out = 0
        self.failed = 0

    def send(self, request_id: str, ask: Callable[[], Awaitable[Reply]]) -> None:
        """Begin a copy of the request `request_id`; nobody waits for it."""
        if len(self._running) >= MAX_RUNNING:
            self.left_out += 1
            return
        self.sent += 1
        task = asyncio.create_task(self._run(request_id, ask))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def stop(self) -> None:
        """Cancel them all."""
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _run(self, request_id: str, ask: Callable[[], Awaitable[Reply]]) -> None:
        try:
            reply = await ask()
            try:
                if not isinstance(reply.body, bytes):
                    async for _ in reply.body:
                        pass
                    reply.read_to_end = True
            except APIError as error:
                reply.error = error
                raise
            finally:
                await reply.aclose()
        except APIError as error:
            self.failed += 1
            log.info("%s: its mirror failed: %s", request_id, error.message[:500])
        except Exception:
            self.failed += 1
            log.exception("%s: its mirror failed", request_id)
