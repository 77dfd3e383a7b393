"""Work that is found in a storage: looked for on and on, by the clock of the loop alone."""

from __future__ import annotations

import asyncio
import logging

import pytest

from llama_compat.going_on import PAUSE_SECONDS
from routing.storage.looking import LOOK_SECONDS, Looking
from routing.storage.storage import StorageError
from tests.virtual_time import in_virtual_time


class Looked:
    """Notes when it was looked, and fails as it is told to."""

    def __init__(self, *failures: Exception | None) -> None:
        self.at: list[float] = []
        self._failures = list(failures)

    async def look(self) -> None:
        self.at.append(asyncio.get_running_loop().time())
        if self._failures and (failure := self._failures.pop(0)) is not None:
            raise failure


@in_virtual_time
async def test_it_is_looked_again_and_again_and_no_more_when_stopped() -> None:
    looked = Looked()
    looking = Looking("things", looked.look, 60.0)
    assert not looking.has_begun
    looking.start()
    looking.start()
    await asyncio.sleep(2.2 * LOOK_SECONDS)
    await looking.stop()
    await asyncio.sleep(5.0)
    assert looked.at == [0.0, LOOK_SECONDS, 2 * LOOK_SECONDS]
    assert looking.has_begun


@in_virtual_time
async def test_whoever_wakes_it_has_it_look_at_once() -> None:
    looked = Looked()
    looking = Looking("things", looked.look, 60.0)
    looking.start()
    await asyncio.sleep(0.2)
    looking.wake()
    await asyncio.sleep(LOOK_SECONDS)
    await looking.stop()
    assert looked.at == [0.0, 0.2]


@in_virtual_time
async def test_what_is_woken_while_it_looks_is_looked_for_again() -> None:
    times: list[float] = []

    async def look() -> None:
        times.append(asyncio.get_running_loop().time())
        if len(times) == 1:
            looking.wake()

    looking = Looking("things", look, 60.0)
    looking.start()
    await asyncio.sleep(0.1)
    await looking.stop()
    assert times == [0.0, 0.0]


@in_virtual_time
async def test_a_short_lease_has_it_look_as_often_as_it_has_to_say_that_it_is_alive() -> None:
    looked = Looked()
    looking = Looking("things", looked.look, 0.4)
    looking.start()
    await asyncio.sleep(0.25)
    await looking.stop()
    assert looking.beat_seconds == 0.1
    assert looked.at == pytest.approx([0.0, 0.1, 0.2])


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (StorageError("no disk"), ["things wait: no disk", "things go on"]),
        (ValueError("no sense"), ["things: broke off, and begins anew in 5 s"]),
    ],
    ids=["storage", "other"],
)
def test_what_goes_wrong_is_said_and_ends_nothing(
    failure: Exception, said: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    looked = Looked(failure)
    again = LOOK_SECONDS if isinstance(failure, StorageError) else PAUSE_SECONDS

    @in_virtual_time
    async def run() -> None:
        looking = Looking("things", looked.look, 60.0)
        looking.start()
        await asyncio.sleep(again + 0.1)
        await looking.stop()

    with caplog.at_level(logging.WARNING):
        run()
    assert looked.at == [0.0, again]
    messages = [record.getMessage() for record in caplog.records]
    assert [each.partition(", after")[0] for each in messages] == said
