"""Values that end, and are fetched anew in time, by one for all who wait."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from llama_compat.errors import APIError
from providers.remote.upstream import credentials
from providers.remote.upstream.credentials import (
    EARLY_SECONDS,
    LATEST_SECONDS,
    PAUSE_SECONDS,
    CredentialsError,
    Lease,
    RenewedValue,
)


class Source:
    """Gives out 1, 2, 3, ..., each for so many seconds of a clock that stands still."""

    def __init__(self, seconds: float | None = 3600) -> None:
        self.now = 0.0
        self.seconds = seconds
        self.fetched = 0
        self.fails = False
        self.go_on = threading.Event()
        self.go_on.set()
        self.threads: set[str] = set()

    def fetch(self) -> Lease[int]:
        self.threads.add(threading.current_thread().name)
        assert self.go_on.wait(20)
        if self.fails:
            raise CredentialsError("the cloud is away")
        self.fetched += 1
        value, secrets = self.fetched, (f"secret-{self.fetched}",)
        if self.seconds is None:
            return Lease(value, secrets)
        ends = self.now + self.seconds
        return Lease(value, secrets, lambda seconds: ends - self.now < seconds)

    @asynccontextmanager
    async def value(self) -> AsyncIterator[RenewedValue[int]]:
        value = RenewedValue("cloud", "credentials", self.fetch, lambda: self.now)
        try:
            yield value
        finally:
            self.go_on.set()
            await value.stop()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not holds():  # noqa: ASYNC110 (a thread brings it about)
            await asyncio.sleep(0.001)


async def test_it_is_fetched_once_for_all_who_wait() -> None:
    source = Source()
    async with source.value() as value:
        assert await asyncio.gather(*(value.get() for _ in range(50))) == [1] * 50
        assert await value.get() == 1
    assert source.fetched == 1
    assert all(name.startswith("credentials") for name in source.threads)


async def test_who_leaves_does_not_take_it_from_the_others() -> None:
    source = Source()
    source.go_on.clear()
    async with source.value() as value:
        leaves, stays = asyncio.create_task(value.get()), asyncio.create_task(value.get())
        await until(lambda: bool(source.threads))
        leaves.cancel()
        await asyncio.wait((leaves,))
        source.go_on.set()
        assert await stays == 1


async def test_the_loop_goes_on_meanwhile() -> None:
    source = Source()
    source.go_on.clear()
    async with source.value() as value:
        waiting = asyncio.create_task(value.get())
        for _ in range(100):
            await asyncio.sleep(0)
        assert not waiting.done()
        source.go_on.set()
        assert await waiting == 1


async def test_one_that_ends_soon_is_used_while_another_is_fetched() -> None:
    source = Source()
    async with source.value() as value:
        assert await value.get() == 1
        source.now = 3600 - EARLY_SECONDS + 1
        source.go_on.clear()
        assert [await value.get() for _ in range(3)] == [1, 1, 1]
        source.go_on.set()
        await until(lambda: source.fetched == 2)
        await until(lambda: value.secrets == ("secret-2", "secret-1"))
        assert await value.get() == 2


async def test_one_that_has_ended_is_not_used() -> None:
    source = Source()
    async with source.value() as value:
        assert await value.get() == 1
        source.now = 3600 - LATEST_SECONDS + 1
        assert await value.get() == 2


async def test_one_that_does_not_end_is_fetched_once() -> None:
    source = Source(seconds=None)
    async with source.value() as value:
        assert await value.get() == 1
        source.now = 1e9
        assert await value.get() == 1
    assert source.fetched == 1


async def test_a_renewal_that_fails_is_tried_again_after_a_pause(
    caplog: pytest.LogCaptureFixture,
) -> None:
    source = Source()
    async with source.value() as value:
        assert await value.get() == 1
        source.now = 3600 - EARLY_SECONDS + 1
        source.fails = True
        with caplog.at_level(logging.WARNING):
            for _ in range(5):
                assert await value.get() == 1
                await asyncio.sleep(0.01)
        assert caplog.text.count("the cloud is away") == 1
        source.fails = False
        source.now += PAUSE_SECONDS
        assert await value.get() == 1
        await until(lambda: source.fetched == 2)
        await until(lambda: "secret-2" in value.secrets)
        assert await value.get() == 2


async def test_what_can_t_be_had_is_told_without_details(
    caplog: pytest.LogCaptureFixture,
) -> None:
    source = Source()
    source.fails = True
    async with source.value() as value:
        with pytest.raises(APIError) as failed:
            await value.get()
        assert (failed.value.status, failed.value.code) == (502, "upstream_authentication")
        assert "'cloud'" in failed.value.message
        assert "away" not in failed.value.message
        assert "the cloud is away" in caplog.text
        source.fails = False
        assert await value.get() == 1


async def test_one_that_was_refused_is_still_a_secret() -> None:
    """Replies to requests that were sent with it may be on their way."""
    source = Source()
    async with source.value() as value:
        assert await value.get() == 1
        source.now = PAUSE_SECONDS
        value.refused()
        assert await value.get() == 2
        assert value.secrets == ("secret-2", "secret-1")


async def test_one_that_was_refused_is_fetched_anew_but_not_at_each_request() -> None:
    source = Source()
    async with source.value() as value:
        assert await value.get() == 1
        value.refused()
        assert await value.get() == 1
        source.now += PAUSE_SECONDS
        value.refused()
        assert await value.get() == 2


async def test_one_that_was_refused_is_better_than_none() -> None:
    """What is refused may be the request: the others' credentials are good."""
    source = Source()
    async with source.value() as value:
        assert await value.get() == 1
        source.now += PAUSE_SECONDS
        source.fails = True
        value.refused()
        assert await asyncio.gather(*(value.get() for _ in range(50))) == [1] * 50
        assert value.secrets == ("secret-1",)
        source.fails = False
        assert await value.get() == 1
        source.now += PAUSE_SECONDS
        assert await value.get() == 2
        # What was sent with the one before may come back still.
        assert value.secrets == ("secret-2", "secret-1")


@pytest.mark.parametrize("refused", [False, True])
async def test_nobody_waits_for_ever_for_a_cloud_that_hangs(
    refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credentials, "WAIT_SECONDS", 0.05)
    monkeypatch.setattr(credentials, "DOUBT_SECONDS", 0.05)
    source = Source()
    async with source.value() as value:
        if refused:
            assert await value.get() == 1
            source.now += PAUSE_SECONDS
            value.refused()
        source.go_on.clear()
        async with asyncio.timeout(20):
            got = await asyncio.gather(*(value.get() for _ in range(200)), return_exceptions=True)
        if refused:
            assert got == [1] * 200
        else:
            assert {str(each) for each in got} == {str(got[0])}
            assert isinstance(got[0], APIError)
            assert "not within" in got[0].message
        source.go_on.set()
        await until(lambda: source.fetched == 1 + refused)
        assert await value.get() == 1 + refused


async def test_stopping_does_not_wait_for_a_cloud_that_hangs() -> None:
    source = Source()
    source.go_on.clear()
    value = RenewedValue("cloud", "credentials", source.fetch)
    value.begin()
    await until(lambda: bool(source.threads))
    async with asyncio.timeout(5):
        await value.stop()
    source.go_on.set()
