"""The watch over a client that may go away."""

import asyncio
from collections.abc import Callable

import pytest

from routing.ingress.disconnect import ClientGone, ClientWatch


class Channel:
    """An ASGI receive channel that says what it is told to."""

    def __init__(self) -> None:
        self.messages: asyncio.Queue[dict[str, str]] = asyncio.Queue()

    async def receive(self) -> dict[str, str]:
        return await self.messages.get()

    def disconnect(self) -> None:
        self.messages.put_nowait({"type": "http.disconnect"})


async def test_block_that_ends_is_left_alone() -> None:
    channel = Channel()
    with ClientWatch(channel.receive):
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_disconnect_cancels_what_the_block_awaits() -> None:
    channel = Channel()
    cancelled = asyncio.Event()

    async def serve() -> None:
        with ClientWatch(channel.receive):
            channel.disconnect()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.set()
                raise

    with pytest.raises(ClientGone):
        await serve()
    assert cancelled.is_set()
    task = asyncio.current_task()
    assert task is not None
    assert not task.cancelling()


async def test_messages_before_the_disconnect_are_no_disconnect() -> None:
    channel = Channel()
    channel.messages.put_nowait({"type": "http.request"})

    async def serve() -> None:
        with ClientWatch(channel.receive):
            await asyncio.sleep(0)
            channel.disconnect()
            await asyncio.Event().wait()

    with pytest.raises(ClientGone):
        await serve()


async def test_cancellation_from_elsewhere_passes_through() -> None:
    channel = Channel()
    entered = asyncio.Event()

    async def serve() -> None:
        with ClientWatch(channel.receive):
            entered.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(serve())
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_the_blocks_own_exception_passes_through() -> None:
    with pytest.raises(ZeroDivisionError), ClientWatch(Channel().receive):
        raise ZeroDivisionError


class Leaving:
    """A server that tells of a client itself."""

    def __init__(self) -> None:
        self.tell: Callable[[], None] | None = None

    def watch(self, on_leaving: Callable[[], None] | None) -> None:
        self.tell = on_leaving


async def nobody_asks() -> dict[str, str]:
    raise AssertionError("the channel is not needed where the server tells")


async def test_a_server_that_tells_costs_no_task_and_no_timer() -> None:
    server = Leaving()
    with ClientWatch(nobody_asks, server.watch):
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert server.tell is not None
    assert server.tell is None


async def test_a_server_that_tells_cancels_what_the_block_awaits() -> None:
    server = Leaving()

    async def serve() -> None:
        with ClientWatch(nobody_asks, server.watch):
            assert server.tell is not None
            asyncio.get_running_loop().call_soon(server.tell)
            await asyncio.Event().wait()

    with pytest.raises(ClientGone):
        await serve()
    task = asyncio.current_task()
    assert task is not None
    assert not task.cancelling()
    assert server.tell is None


async def test_a_block_that_others_want_goes_on_to_its_end() -> None:
    server, done = Leaving(), asyncio.Event()

    async def serve() -> str:
        with ClientWatch(nobody_asks, server.watch, lambda desert: True):
            assert server.tell is not None
            server.tell()
            await done.wait()
        return "it has to say that nobody is there"

    serving = asyncio.ensure_future(serve())
    await asyncio.sleep(0)
    assert not serving.done()
    done.set()
    with pytest.raises(ClientGone):
        await serving


async def test_a_block_that_nobody_wants_any_more_is_cancelled() -> None:
    server = Leaving()
    deserts: list[Callable[[], None]] = []

    def stays(desert: Callable[[], None]) -> bool:
        deserts.append(desert)
        return True

    async def serve() -> None:
        with ClientWatch(nobody_asks, server.watch, stays):
            assert server.tell is not None
            server.tell()
            asyncio.get_running_loop().call_soon(deserts[0])
            await asyncio.Event().wait()

    with pytest.raises(ClientGone):
        await serve()
