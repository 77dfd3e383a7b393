"""What several tasks want and one makes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class Once:
    """A value for all those who hold this, made when the first of them asks.

    What they have in common is this object, and nothing that could be mistaken for another's: it
    lives as long as one of them does.
    """

    def __init__(self) -> None:
        self._made: asyncio.Future[Any] | None = None
        self._waiting = 0

    async def get(self, make: Callable[[], asyncio.Future[T]]) -> T:
        """The value, or what was raised in its place.

        Who leaves does not take it from the others; when all have left, making it is given up.

        Args:
            make: begins to make it; called once, unless it was given up.
        """
        made = self._made
        if made is None or made.cancelled():
            made = self._made = make()
        self._waiting += 1
        try:
            value: T = await asyncio.shield(made)
        finally:
            self._waiting -= 1
            if not self._waiting:
                made.cancel()
        return value
