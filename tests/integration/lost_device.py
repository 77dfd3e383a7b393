"""Has a process lose a device, as far as its echo goes, when it finds a file; it takes that away.

What is forked with this as its `first` module, and each of its workers, looks for the file that
`VARIABLE` names. `tests/integration/test_cuda_faults.py` loses a real GPU.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from multiprocessing.context import ForkServerContext

from providers.local.echo import EchoProvider

VARIABLE = "LLAMA_COMPAT_TESTS_LOST_DEVICE"

_path = os.environ[VARIABLE]
_lost: list[str] = []


def _lost_devices(_: EchoProvider) -> Sequence[str]:
    try:
        os.unlink(_path)
    except FileNotFoundError:
        return _lost
    _lost.append("cuda:0")
    return _lost


EchoProvider.lost_devices = _lost_devices  # type: ignore[method-assign]

_set_preload = ForkServerContext.set_forkserver_preload


def _with_this(context: ForkServerContext, names: list[str]) -> None:
    _set_preload(context, [*names, __name__])


ForkServerContext.set_forkserver_preload = _with_this  # type: ignore[method-assign, assignment]
