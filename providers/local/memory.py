"""How much memory there is."""

from __future__ import annotations

import os
import re
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")


def available_memory() -> int | None:
    """Bytes that can be had without swapping, a container's limit included; None if unknown."""
    found = [each for each in (_of_the_system(), _of_the_container()) if each is not None]
    return min(found, default=None)


def _of_the_system() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text()
    except OSError:
        try:
            return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        except (AttributeError, ValueError, OSError):  # not on this system
            return None
    match = re.search(r"^MemAvailable:\s*(\d+) kB$", lines, re.MULTILINE)
    return int(match[1]) * 1024 if match else None


def _of_the_container() -> int | None:
    try:
        limit = (_CGROUP / "memory.max").read_text().strip()
        used = int((_CGROUP / "memory.current").read_text())
        lines = (_CGROUP / "memory.stat").read_text()
    except (OSError, ValueError):
        return None
    if limit == "max":
        return None
    # Files that were read are counted as used, and make room when it is needed.
    match = re.search(r"^inactive_file (\d+)$", lines, re.MULTILINE)
    return max(0, int(limit) - used + (int(match[1]) if match else 0))
