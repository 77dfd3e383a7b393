"""The library with torch's operations, loaded beside what else is imported."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from providers.local.threads.waiting import bounded_waiting

TURNS = 1000
"""How often torch's threads look for each other before they sleep, 15 to 45 microseconds, as the
CPU goes; see `waiting`. A step has more of such meetings than llama.cpp's, of threads that are less
far apart. Beside busy processes there are fewer threads; see `team_size`."""

_GPUS = ("cuda", "hip", "xpu")
"""Of builds that have a library for one, torch looks for the vendor's libraries first."""


@cache
def library() -> threading.Thread:
    """What loads the library with torch's operations, or has done: an eighth of torch's import, in
    which Python has no part, so that another core can do it while something else is imported."""
    thread = threading.Thread(target=load_library, name="libtorch")
    thread.start()
    return thread


def load_library() -> None:
    """Load what torch would, in the same order; where that fails, torch says why."""
    folder = None if "torch" in sys.modules else cpu_libraries()
    if folder is None:
        return
    with bounded_waiting(TURNS):
        if load(folder / "libtorch_global_deps.so", os.RTLD_GLOBAL):
            load(folder / "libtorch_cpu.so", os.RTLD_LOCAL)


def cpu_libraries() -> Path | None:
    """The folder with torch's libraries, of a build for CPUs alone."""
    found = find_spec("torch")
    if found is None or found.origin is None:
        return None
    folder = Path(found.origin).with_name("lib")
    return None if any(any(folder.glob(f"libtorch_{each}.*")) for each in _GPUS) else folder


def load(file: Path, mode: int) -> bool:
    """Load a library in which Python has no part, and leave Python to others meanwhile.

    `ctypes.CDLL` keeps Python to itself while the system loads one (CPython's `py_dl_open`), and
    gives it up for whatever a library does, which the system's own loader is one of.

    Returns:
        Whether it is there.
    """
    try:
        dlopen = ctypes.CDLL(None).dlopen
    except (AttributeError, OSError, TypeError):  # a system that has none
        return False
    dlopen.restype, dlopen.argtypes = ctypes.c_void_p, (ctypes.c_char_p, ctypes.c_int)
    return dlopen(os.fsencode(file), mode | os.RTLD_NOW) is not None
