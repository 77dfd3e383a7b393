"""Large input is worked on in a thread, small input at once."""

from __future__ import annotations

import threading

import pytest

from llama_compat.off_loop import LARGE_BYTES, THREADS, off_loop


async def test_only_what_is_large_goes_to_a_thread() -> None:
    here = threading.current_thread()
    assert await off_loop(LARGE_BYTES, threading.current_thread) is here
    assert await off_loop(LARGE_BYTES + 1, threading.current_thread) is not here


async def test_arguments_results_and_exceptions_pass() -> None:
    for size in (0, LARGE_BYTES + 1):
        assert await off_loop(size, divmod, 7, 2) == (3, 1)
        assert await off_loop(size, int, "11", base=2) == 3
        with pytest.raises(ZeroDivisionError):
            await off_loop(size, divmod, 7, 0)


async def test_the_threads_are_few() -> None:
    names = {(await off_loop(LARGE_BYTES + 1, threading.current_thread)).name for _ in range(20)}
    assert len(names) <= THREADS
    assert all(name.startswith("large-bodies") for name in names)
