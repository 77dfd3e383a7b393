"""Has a server with workers get a signal in the very moment of a worker's start.

What is forked with this as its `first` module does so as the variable `VARIABLE` says: `before` or
`after` it, which worker, counted from 1, and which signal, with blanks between them.
"""

from __future__ import annotations

import os
import signal
from multiprocessing.process import BaseProcess

VARIABLE = "LLAMA_COMPAT_TESTS_SIGNALLED"

_when, _which, _signal = os.environ[VARIABLE].split()
_start = BaseProcess.start
_started: list[BaseProcess] = []


def _start_and_be_told(process: BaseProcess) -> None:
    _started.append(process)
    told = len(_started) == int(_which)
    if told and _when == "before":
        os.kill(os.getpid(), signal.Signals[_signal])
    _start(process)
    if told and _when == "after":
        os.kill(os.getpid(), signal.Signals[_signal])


BaseProcess.start = _start_and_be_told  # type: ignore[method-assign]
