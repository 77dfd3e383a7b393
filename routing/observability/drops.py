"""What could not be kept is counted, and said once a minute."""

from __future__ import annotations

import logging
import time

log = logging.getLogger(__name__)

LOG_SECONDS = 60.0
"""Drops are logged once in so long."""


class Drops:
    """Counts what was dropped.

    Args:
        what: the name of it, for the log.

    Attributes:
        count: how many.
    """

    def __init__(self, what: str) -> None:
        self.count = 0
        self._what = what
        self._told = 0
        self._last = -LOG_SECONDS
        self._why = ""

    def add(self, count: int, why: str = "") -> None:
        """So many more were dropped."""
        self.count += count
        if count:
            self.log(why)

    def log(self, why: str = "", *, now: bool = False) -> None:
        """Say what is the matter (`why`), and how many were dropped since that was said last."""
        self._why = why or self._why
        new = self.count - self._told
        if not (new or why) or not (now or time.monotonic() - self._last >= LOG_SECONDS):
            return
        self._last = time.monotonic()
        self._told = self.count
        reason = f": {self._why}" if self._why else ": more came than could be written"
        if new:
            log.error("%s %s were dropped%s", new, self._what, reason)
        else:
            log.error("%s wait to be written%s", self._what, reason)
