"""The thread that runs a model which reads texts and generates nothing: what comes to it, what
leaves it, and how it ends."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from llama_compat.errors import APIError, shutting_down
from llama_compat.wire.retry_after import retry_after
from providers.local.engine import Stats
from providers.local.threads import giving_way

Asked = TypeVar("Asked")
Made = TypeVar("Made")


class Gone:
    """Whether nobody waits any more for what a thread does."""

    def __init__(self, stopping: threading.Event) -> None:
        self._stopping = stopping
        self._left = threading.Event()

    def leave(self) -> None:
        """Who asked for it has gone."""
        self._left.set()

    def __bool__(self) -> bool:
        return self._left.is_set() or self._stopping.is_set()


class BatchThread:
    """Answers with one model, one request at a time, in a thread of its own.

    Args:
        name: the provider's name for the model.
        what: the thread is, for its name.
        max_waiting: how many requests may wait.
    """

    def __init__(self, name: str, what: str, max_waiting: int) -> None:
        self._name = name
        self._max_waiting = max_waiting
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"{what} of {name}")
        self._stats = Stats()
        self._stopping = threading.Event()

    @property
    def stats(self) -> Stats:
        """What it is doing and has done."""
        return self._stats

    def stop(self) -> None:
        """Take no more, and wait for the batch that runs."""
        self._stopping.set()
        self._thread.shutdown(cancel_futures=True)

    async def in_thread(self, work: Callable[[Asked, Gone], Made], asked: Asked) -> Made:
        """What `work` makes of a request; who goes away is not served any further.

        Raises:
            APIError: 429, too many wait; 503, the thread is stopped; or whatever `work` raises.
        """
        if self._stats.waiting >= self._max_waiting:
            raise APIError(
                429,
                f"The model '{self._name}' is busy, and {self._stats.waiting} requests wait for it"
                " already. Retry in 1 s.",
                code="engine_overloaded",
                headers=retry_after(1),
            ).about(self._name)
        gone = Gone(self._stopping)
        loop = asyncio.get_running_loop()
        try:
            future = loop.run_in_executor(self._thread, _as_a_step, work, asked, gone)
        except RuntimeError:
            raise shutting_down() from None
        self._stats.waiting += 1
        future.add_done_callback(self._count)
        try:
            return await future
        finally:
            gone.leave()

    def _count(self, future: asyncio.Future[Any]) -> None:
        self._stats.waiting -= 1
        if future.cancelled():
            self._stats.cancelled += 1
        elif future.exception() is not None:
            self._stats.failed += 1
        else:
            self._stats.finished += 1


def _as_a_step(work: Callable[[Asked, Gone], Made], asked: Asked, gone: Gone) -> Made:
    with giving_way.step():
        return work(asked, gone)
