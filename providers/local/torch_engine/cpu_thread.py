"""The one thread in which this process computes on the CPU with torch.

libgomp keeps a team of threads for every thread that computed something in parallel, and once they
are more than the cores, none of them waits for the next operation awake: each of the two hundred
of a decode step has to wake them first, and the step takes up to twice as long. So all models take
turns in one thread, which is no loss, since a single operation already keeps all cores busy.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, Protocol, TypeVar

import torch

from providers.local.torch_engine.devices import current

P = ParamSpec("P")
R = TypeVar("R")

# The thread comes with the first call, so a process may be forked before that.
_thread = ThreadPoolExecutor(1, thread_name_prefix="torch")
_whole: int | None = None
"""How many threads its operations have, while `use_threads` gave them another number."""


def on_cpu_thread(function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Call `function` in the thread, after what came before, and wait for what it returns.

    Not from within the thread itself, which would wait forever.
    """

    def call() -> R:
        global _whole
        try:
            return function(*args, **kwargs)
        finally:
            if _whole is not None:
                torch.set_num_threads(_whole)
                _whole = None

    return _thread.submit(call).result()


class RunsIn(Protocol):
    """Calls a function in some thread, and waits for what it returns."""

    def __call__(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """What `function` returns, or raises."""


def aside(function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Call `function` in a thread of its own, beside what computes, and wait for what it returns.

    For what takes long and is done once, such as loading a model while others answer: the threads
    that its operations start end with it.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="loading") as thread:
        return thread.submit(function, *args, **kwargs).result()


def use_threads(threads: int) -> None:
    """Compute with so many threads until what `on_cpu_thread` called, and this is in, returns."""
    global _whole
    now = torch.get_num_threads()
    if threads != now:
        _whole = now if _whole is None else _whole
        torch.set_num_threads(threads)


def on_device(
    device: torch.device, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs
) -> R:
    """Call `function`, which computes on `device`.

    For the CPU in the thread for that, for a GPU in this one, whose current device it is meanwhile.

    Raises:
        APIError: as `devices.current`.
    """
    if device.type == "cpu":
        return on_cpu_thread(function, *args, **kwargs)
    with current(device):
        return function(*args, **kwargs)
