"""Several streams of events at once: the prompts and choices of one request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from llama_compat.types import StreamEvent

Events = AsyncGenerator[StreamEvent, None]


async def interleave(streams: Sequence[Events]) -> AsyncGenerator[tuple[int, StreamEvent], None]:
    """The events of all `streams` as they come, each with its stream's number.

    The streams run at the same time. The first exception ends them all and is raised here; closing
    this generator closes them.
    """
    if len(streams) == 1:
        async with aclosing(streams[0]) as stream:
            async for event in stream:
                yield 0, event
        return

    # One place a stream: a slow reader holds the streams back instead of filling the memory. They
    # wait apart from one another, as to leave a common queue costs time that grows with its length.
    places = [asyncio.Semaphore(1) for _ in streams]
    queue: asyncio.Queue[tuple[int, StreamEvent] | BaseException | None] = asyncio.Queue()

    async def pump(number: int, stream: Events) -> None:
        async with aclosing(stream):
            async for event in stream:
                await places[number].acquire()
                queue.put_nowait((number, event))

    async def run_all() -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for number, stream in enumerate(streams):
                    group.create_task(pump(number, stream))
        except BaseExceptionGroup as failed:
            queue.put_nowait(_first_exception(failed))
        else:
            queue.put_nowait(None)

    runner = asyncio.create_task(run_all())
    try:
        while (item := await queue.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            places[item[0]].release()
            yield item
    finally:
        runner.cancel()
        await asyncio.gather(runner, return_exceptions=True)


def _first_exception(group: BaseExceptionGroup[BaseException]) -> BaseException:
    first = group.exceptions[0]
    return _first_exception(first) if isinstance(first, BaseExceptionGroup) else first
