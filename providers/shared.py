"""What outlives one of its owners because another has taken it over."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Shared(Generic[T]):
    """Something that several owners have, one after another or at a time; the last one stops it.

    Args:
        value: what it is.
        stop: ends it.
    """

    def __init__(self, value: T, stop: Callable[[], Awaitable[None]]) -> None:
        self.value = value
        self._stop = stop
        self._owners = 0

    def hold(self) -> bool:
        """Become one of its owners.

        Returns:
            Whether nobody was before, so that it has to be started.
        """
        self._owners += 1
        return self._owners == 1

    async def release(self) -> None:
        """Be an owner no more; to be called once for each `hold`."""
        self._owners -= 1
        if not self._owners:
            await self._stop()
