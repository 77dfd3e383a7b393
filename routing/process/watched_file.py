"""Whether a file has been changed."""

from __future__ import annotations

import os
from pathlib import Path

LOOK_SECONDS = 1.0
"""How often it is worth a look."""


class WatchedFile:
    """Tells when a file has been changed, and whoever changed it is done.

    It is looked at by its path: editors put another file into its place, and a mounted folder's
    links lead elsewhere one day, of which those who watch the file itself hear nothing.

    Args:
        path: of the file; it may come and go.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known = self._last = self._look()

    def changed(self) -> bool:
        """Whether the file is there, is another than when this was true last (or was made), and is
        the same as at the last call."""
        before, self._last = self._last, self._look()
        if self._last in (None, self._known) or self._last != before:
            return False
        self._known = self._last
        return True

    def _look(self) -> tuple[int, int, int] | None:
        try:
            found = os.stat(self._path)
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino
