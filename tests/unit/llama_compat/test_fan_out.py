"""Several streams at once: each has its place, and leaving costs no more than there are of them."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from llama_compat.fan_out import Events, interleave
from llama_compat.types import StreamProgress, TextDelta


class Source:
    """Streams of numbered words.

    Attributes:
        said: how many words each has given.
        closed: which have come to an end, one way or the other.
    """

    def __init__(self, streams: int, words: int, fails: int | None = None) -> None:
        self.said = [0] * streams
        self.closed: set[int] = set()
        self._words = words
        self._fails = fails

    async def _say(self, number: int) -> Events:
        try:
            for word in range(self._words):
                await asyncio.sleep(0)
                if number == self._fails and word == 1:
                    raise ValueError("no more words")
                self.said[number] += 1
                yield StreamProgress(TextDelta(f"{number}.{word}"))
        finally:
            self.closed.add(number)

    def streams(self) -> list[Events]:
        return [self._say(number) for number in range(len(self.said))]


@pytest.mark.parametrize("streams", [1, 2, 5])
async def test_every_stream_comes_whole_and_in_its_order(streams: int) -> None:
    source = Source(streams, 4)
    heard: dict[int, list[str]] = {}
    async for number, event in interleave(source.streams()):
        assert isinstance(event, StreamProgress)
        assert isinstance(event.delta, TextDelta)
        heard.setdefault(number, []).append(event.delta.text)
    assert heard == {number: [f"{number}.{word}" for word in range(4)] for number in range(streams)}
    assert source.closed == set(range(streams))


async def test_a_slow_reader_holds_each_stream_back() -> None:
    source = Source(3, 1000)
    async with aclosing(interleave(source.streams())) as events:
        await anext(events)
        for _ in range(50):
            await asyncio.sleep(0)
        # One that was read, one in its place, and one that waits for the place.
        assert max(source.said) <= 3
        assert min(source.said) >= 2
    assert source.closed == {0, 1, 2}


async def test_one_that_fails_ends_all() -> None:
    source = Source(4, 1000, fails=2)
    with pytest.raises(ValueError, match="no more words"):
        async for _ in interleave(source.streams()):
            pass
    assert source.closed == {0, 1, 2, 3}


async def test_nobody_looks_for_its_place_among_the_others_when_they_are_cancelled() -> None:
    # asyncio's queue searches its list of those that wait for each that leaves.
    compared = 0

    class Counting(asyncio.Future):  # type: ignore[type-arg]
        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return self is other

        __hash__ = asyncio.Future.__hash__

    loop = asyncio.get_running_loop()
    loop.create_future = lambda: Counting(loop=loop)  # type: ignore[method-assign]
    try:
        source = Source(300, 1000)
        async with aclosing(interleave(source.streams())) as events:
            await anext(events)
            for _ in range(20):
                await asyncio.sleep(0)
        assert len(source.closed) == 300
    finally:
        del loop.create_future  # type: ignore[attr-defined]
    assert compared <= 2 * 300
