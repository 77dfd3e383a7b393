"""What keeps a stream's connection open while there is nothing to say."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from llama_compat.dialects.openai.operations import CHAT, OPENAI
from llama_compat.errors import APIError
from llama_compat.exchange import Reply
from routing.ingress.answer import Answer
from routing.ingress.keep_alive import KeepAlive
from routing.request import Request

SECONDS = 0.02


class Sent:
    """An ASGI send channel that keeps what it gets."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.answer = Answer(self.send, Request(CHAT, "req"))

    async def send(self, message: dict[str, Any]) -> None:
        self.messages.append(message)

    @property
    def starts(self) -> list[int]:
        return [each["status"] for each in self.messages if each["type"].endswith("start")]

    @property
    def body(self) -> bytes:
        return b"".join(each.get("body", b"") for each in self.messages)


async def saying(*pieces: bytes, seconds: float) -> AsyncGenerator[bytes, None]:
    for piece in pieces:
        await asyncio.sleep(seconds)
        yield piece


async def fails_after(seconds: float, keeping: KeepAlive) -> None:
    async with keeping:
        await asyncio.sleep(seconds)
        raise APIError(429, "Slow down.")


async def test_it_speaks_before_the_first_token_and_between_two() -> None:
    sent = Sent()
    async with KeepAlive(sent.answer, SECONDS):
        await asyncio.sleep(SECONDS * 3)
        assert sent.starts == [200]
        assert sent.body.startswith(OPENAI.keep_alive)
        await sent.answer.reply(Reply(saying(b"A", b"B", seconds=SECONDS * 3)))
    assert sent.starts == [200]
    first, _, rest = sent.body.removesuffix(b"data: [DONE]\n\n").partition(b"A")
    between, _, after = rest.partition(b"B")
    assert after == b""
    assert set(first.split(OPENAI.keep_alive)) == {b""}
    assert between.count(OPENAI.keep_alive) >= 1


async def test_a_stream_that_speaks_for_itself_is_left_alone() -> None:
    sent = Sent()
    async with KeepAlive(sent.answer, 1):
        await sent.answer.reply(Reply(saying(b"A", b"B", seconds=0.001), first=b"_"))
    assert sent.body == b"_ABdata: [DONE]\n\n"
    await asyncio.sleep(0)
    assert len(asyncio.all_tasks()) == 1


async def test_an_error_after_it_comes_inside_the_stream() -> None:
    sent = Sent()
    with pytest.raises(APIError):
        await fails_after(SECONDS * 2, KeepAlive(sent.answer, SECONDS))
    await sent.answer.error(APIError(429, "Slow down."))
    assert sent.starts == [200]
    assert b"Slow down." in sent.body
    assert sent.body.endswith(b"data: [DONE]\n\n")


async def test_an_error_before_it_keeps_its_status() -> None:
    sent = Sent()
    with pytest.raises(APIError):
        await fails_after(0, KeepAlive(sent.answer, 10))
    await sent.answer.error(APIError(429, "Slow down."))
    assert sent.starts == [429]


async def test_what_comes_next_waits_for_a_keep_alive_that_is_being_sent() -> None:
    sent = Sent()
    room = asyncio.Event()
    plain = sent.send

    async def slow(message: dict[str, Any]) -> None:
        if message.get("body") == OPENAI.keep_alive:
            await room.wait()
        await plain(message)

    sent.answer = Answer(slow, Request(CHAT, "req"))
    async with KeepAlive(sent.answer, SECONDS):
        await asyncio.sleep(SECONDS * 2)
        replying = asyncio.create_task(sent.answer.reply(Reply(saying(b"A", seconds=0))))
        await asyncio.sleep(SECONDS)
        assert b"A" not in sent.body
        room.set()
        await replying
    assert sent.body.index(OPENAI.keep_alive) < sent.body.index(b"A")
