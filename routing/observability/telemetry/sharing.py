"""The folder in which several workers keep what they count, so that any of them can tell it all.

prometheus-client reads its variable when it is imported: it has to be there before a worker starts.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

FOLDER = "PROMETHEUS_MULTIPROC_DIR"


@contextmanager
def shared_metrics() -> Iterator[None]:
    """While entered, the processes that are started count together."""
    memory = Path("/dev/shm")
    folder = tempfile.mkdtemp(prefix="llama-compat-", dir=memory if memory.is_dir() else None)
    os.environ[FOLDER] = folder
    try:
        yield
    finally:
        del os.environ[FOLDER]
        shutil.rmtree(folder, ignore_errors=True)


def forget_process(pid: int) -> None:
    """A worker has ended: what it had running runs no more; what it counted stays."""
    if FOLDER in os.environ:
        with suppress(ImportError):  # then the worker could not start, and says so
            from prometheus_client.multiprocess import mark_process_dead

            mark_process_dead(pid)  # type: ignore[no-untyped-call]
