"""What the choices of one prompt share: one value, which no leaver takes from the others."""

from __future__ import annotations

import asyncio

import pytest

from llama_compat.once import Once


class Making:
    """Futures that the test fulfils itself."""

    def __init__(self) -> None:
        self.begun: list[asyncio.Future[str]] = []

    def __call__(self) -> asyncio.Future[str]:
        self.begun.append(asyncio.get_running_loop().create_future())
        return self.begun[-1]


async def asking(once: Once, making: Making, count: int) -> list[asyncio.Task[str]]:
    tasks = [asyncio.create_task(once.get(making)) for _ in range(count)]
    await asyncio.sleep(0)
    return tasks


async def test_all_get_what_was_made_once() -> None:
    once, making = Once(), Making()
    tasks = await asking(once, making, 3)
    making.begun[0].set_result("made")
    assert await asyncio.gather(*tasks) == ["made"] * 3
    assert await once.get(making) == "made"
    assert len(making.begun) == 1


async def test_all_are_told_what_failed() -> None:
    once, making = Once(), Making()
    tasks = await asking(once, making, 2)
    making.begun[0].set_exception(ValueError("too long"))
    for task in tasks:
        with pytest.raises(ValueError, match="too long"):
            await task


async def test_who_leaves_takes_nothing_from_the_others() -> None:
    once, making = Once(), Making()
    leaving, staying = await asking(once, making, 2)
    leaving.cancel()
    await asyncio.wait([leaving])
    making.begun[0].set_result("made")
    assert await staying == "made"


async def test_when_all_have_left_it_is_given_up() -> None:
    once, making = Once(), Making()
    tasks = await asking(once, making, 2)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert making.begun[0].cancelled()
    [later] = await asking(once, making, 1)
    making.begun[1].set_result("made")
    assert await later == "made"
