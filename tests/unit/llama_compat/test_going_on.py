"""Tasks that go on for as long as the server does."""

from __future__ import annotations

import asyncio

import pytest

from llama_compat import going_on as module
from llama_compat.going_on import going_on


async def test_what_breaks_off_is_told_and_begins_anew(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "PAUSE_SECONDS", 0.0)
    begun = 0

    async def work() -> None:
        nonlocal begun
        begun += 1
        if begun < 3:
            raise RuntimeError(f"no {begun}")

    await going_on("the work", work)
    assert begun == 3
    assert caplog.text.count("the work: broke off, and begins anew in") == 2
    assert "RuntimeError: no 1" in caplog.text
    assert "RuntimeError: no 2" in caplog.text


async def test_it_ends_when_it_is_cancelled() -> None:
    async def work() -> None:
        await asyncio.sleep(3600)

    task = asyncio.create_task(going_on("the work", work))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
