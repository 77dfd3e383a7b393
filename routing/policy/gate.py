"""A provider's `max_concurrent`: so many requests at a time, a few that wait, and no more."""

from __future__ import annotations

import asyncio
from collections import OrderedDict

from llama_compat.errors import APIError
from llama_compat.wire.retry_after import retry_after

RETRY_AFTER_SECONDS = 1


class ProviderBusy(APIError):
    """429: the provider has all the requests that the template lets it have; nothing was sent."""

    was_sent = False

    def __init__(self, provider: str, running: int, waiting: int) -> None:
        super().__init__(
            429,
            f"Provider '{provider}' has {running} requests running and {waiting} waiting, which is"
            " what the template lets it have. Ask again later, or raise `max_concurrent` or"
            " `max_waiting`.",
            code="rate_limit_exceeded",
            headers=retry_after(RETRY_AFTER_SECONDS),
        )


class Gate:
    """Lets so many requests in at a time; the others wait in the order in which they came, those
    that nobody waits for behind all others.

    Args:
        provider: the provider's id, for messages.
        limit: how many are in at a time.
        max_waiting: how many may wait.

    Attributes:
        running: how many are in.
    """

    def __init__(self, provider: str, limit: int, max_waiting: int) -> None:
        self._provider = provider
        self._limit = limit
        self._max_waiting = max_waiting
        self._waiters: OrderedDict[asyncio.Future[None], None] = OrderedDict()
        self._patient: OrderedDict[asyncio.Future[None], None] = OrderedDict()
        self.running = 0

    @property
    def waiting(self) -> int:
        """How many wait, those aside that nobody waits for."""
        return len(self._waiters)

    @property
    def has_room(self) -> bool:
        """Whether one more would get in without waiting."""
        return self.running < self._limit and not self._waiters

    @property
    def is_full(self) -> bool:
        """Whether one more could not even wait."""
        return not self.has_room and self.waiting >= self._max_waiting

    def refusal(self) -> ProviderBusy:
        """What one is told who does not get in."""
        return ProviderBusy(self._provider, self.running, self.waiting)

    async def enter(self, *, can_wait: bool = False) -> None:
        """Get in, waiting if need be; `leave` has to be called after it.

        Args:
            can_wait: whether all others come first. It is never one too many: whoever asks bounds
                how many such there are.

        Raises:
            ProviderBusy: too many wait already.
        """
        if self.has_room:
            self.running += 1
            return
        if self.is_full and not can_wait:
            raise self.refusal()
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue = self._patient if can_wait else self._waiters
        queue[waiter] = None
        try:
            await waiter
        except BaseException:
            # Whoever leaves may have looked at it already: it was cancelled before, or after.
            queue.pop(waiter, None)
            if waiter.done() and not waiter.cancelled():
                self.leave()  # the place was given to it in the same moment
            raise

    def leave(self) -> None:
        """Get out, and let the next one in."""
        while queue := self._waiters or self._patient:
            waiter, _ = queue.popitem(last=False)
            if not waiter.done():
                waiter.set_result(None)  # the place changes hands
                return
        self.running -= 1
