"""How large files are that are being fetched. It imports little, as it is in each process that a
pull starts."""

from __future__ import annotations

import stat
from pathlib import Path


def file_size(file: Path, *, allocated: bool = False) -> int | None:
    """The size of a file, or how much of it is on disk; None if it isn't there (any more)."""
    try:
        status = file.lstat()
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    blocks = getattr(status, "st_blocks", None)  # not on Windows
    # Downloads may reserve the whole file first and fill it in later.
    return min(status.st_size, blocks * 512) if allocated and blocks is not None else status.st_size
