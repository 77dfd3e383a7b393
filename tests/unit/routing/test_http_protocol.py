"""The transport that gathers what one turn of the event loop has to say."""

from __future__ import annotations

import asyncio
from typing import Any

from routing.http_protocol import _GatheringTransport


class Inner:
    """A transport that notes what is done to it."""

    def __init__(self) -> None:
        self.done: list[Any] = []
        self.closing = False

    def is_closing(self) -> bool:
        return self.closing

    def get_extra_info(self, name: str) -> str:
        return name

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def write(self, data: bytes) -> None:
        self.done.append(data)

    def close(self) -> None:
        self.done.append("close")

    def abort(self) -> None:
        self.done.append("abort")

    def set_protocol(self, protocol: Any) -> None:
        self.done.append(protocol)


def gathering() -> tuple[Inner, _GatheringTransport]:
    inner = Inner()
    return inner, _GatheringTransport(inner)  # type: ignore[arg-type]


async def test_what_is_written_in_one_turn_leaves_together() -> None:
    inner, transport = gathering()
    transport.write(b"head")
    transport.write(b"")
    transport.write(b"body")
    assert inner.done == []
    await asyncio.sleep(0)
    assert inner.done == [b"headbody"]
    transport.write(b"more")
    await asyncio.sleep(0)
    assert inner.done == [b"headbody", b"more"]


async def test_nothing_is_lost_when_it_closes() -> None:
    inner, transport = gathering()
    transport.write(b"last")
    transport.close()
    assert inner.done == [b"last", "close"]
    await asyncio.sleep(0)
    assert inner.done == [b"last", "close"]


async def test_another_protocol_begins_after_what_was_written() -> None:
    inner, transport = gathering()
    transport.write(b"switching")
    transport.set_protocol("websocket")
    assert inner.done == [b"switching", "websocket"]


async def test_a_connection_that_is_gone_is_not_written_to() -> None:
    inner, transport = gathering()
    transport.write(b"late")
    inner.closing = True
    await asyncio.sleep(0)
    assert inner.done == []
    transport.write(b"later")
    transport.abort()
    await asyncio.sleep(0)
    assert inner.done == ["abort"]
