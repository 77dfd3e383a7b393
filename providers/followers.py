"""Who is told of what changes, for as long as they want to be."""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import count
from typing import Generic, ParamSpec

log = logging.getLogger(__name__)

P = ParamSpec("P")


class Followers(Generic[P]):
    """Those who are told of one thing, each by a call.

    Args:
        what: it is, for the log.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._numbers = count()
        self._tell: dict[int, Callable[P, None]] = {}

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._tell)

    def add(self, tell: Callable[P, None]) -> Callable[[], None]:
        """Have `tell` called from now on, until what is returned is called."""
        number = next(self._numbers)
        self._tell[number] = tell

        def leave() -> None:
            self._tell.pop(number, None)

        return leave

    def tell(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Tell all of them. Who can't take it is in the log, and the others are told."""
        for each in list(self._tell.values()):
            try:
                each(*args, **kwargs)
            except Exception:
                log.exception("%s: one of those who are told of it can't take that", self._what)

    def clear(self) -> None:
        """Tell nobody any more."""
        self._tell.clear()
