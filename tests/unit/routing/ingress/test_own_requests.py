"""Requests that no client waits for end as others do, whatever becomes of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator

import pytest

from llama_compat.dialects.openai.operations import CHAT
from llama_compat.errors import APIError, upstream_error
from llama_compat.exchange import Reply
from routing.ingress.own_requests import lasting, read_through, within
from routing.request import Request


class Told:
    """What was told of one request."""

    def __init__(self) -> None:
        self.begun: list[Request] = []
        self.ended: list[Request] = []
        self.request = Request(CHAT, "req_1")
        self.request.when_ended(self.ended.append)

    def begin(self, request: Request) -> None:
        self.begun.append(request)

    @property
    def is_whole(self) -> bool:
        return self.begun == self.ended == [self.request]


async def pieces(error: Exception | None = None) -> AsyncGenerator[bytes, None]:
    yield b"two"
    if error is not None:
        raise error


async def test_one_that_is_answered() -> None:
    told = Told()
    reply = Reply(pieces(), b"one ")
    with lasting(told.request, told.begin):
        assert told.begun
        assert not told.ended
        assert await read_through(told.request, reply) == b"one two"
    assert told.is_whole
    assert reply.closed
    assert (told.request.status, told.request.complete) == (200, True)
    assert told.request.error is None


async def test_a_whole_reply_is_its_own_bytes() -> None:
    told = Told()
    reply = Reply(b"{}", status=201)
    assert await read_through(told.request, reply) == b"{}"
    assert reply.closed
    assert told.request.status == 201


async def test_one_that_fails() -> None:
    told, error = Told(), upstream_error("up", "is down")
    with pytest.raises(APIError) as raised, lasting(told.request, told.begin):
        raise error
    assert raised.value is error
    assert told.is_whole
    assert (told.request.error, told.request.status) == (error, 502)
    assert "is down" in told.request.outcome
    assert not told.request.cancelled


async def test_one_whose_reply_breaks_off_keeps_the_status_that_it_began_with() -> None:
    told, error = Told(), upstream_error("up", "hung up")
    reply = Reply(pieces(error), b"one ")
    with pytest.raises(APIError), lasting(told.request, told.begin):
        await read_through(told.request, reply)
    assert told.is_whole
    assert reply.closed
    assert (told.request.error, told.request.status) == (error, 200)
    assert (told.request.complete, told.request.cancelled) == (False, False)


async def test_what_should_not_happen_is_logged_and_not_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    told = Told()
    with (
        caplog.at_level(logging.ERROR),
        pytest.raises(APIError) as raised,
        lasting(told.request, told.begin),
    ):
        raise ValueError("a secret")
    assert raised.value.status == told.request.status == 500
    assert "a secret" not in raised.value.message
    assert "a secret" in caplog.text
    assert "req_1" in caplog.text
    assert told.is_whole


async def test_one_that_is_broken_off() -> None:
    told = Told()
    with pytest.raises(asyncio.CancelledError), lasting(told.request, told.begin, "it was enough"):
        raise asyncio.CancelledError
    assert told.is_whole
    assert told.request.cancelled
    assert told.request.outcome == "it was enough"
    assert told.request.error is None


async def test_one_that_takes_too_long_is_given_up() -> None:
    told, given_up = Told(), asyncio.Event()

    async def never() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            given_up.set()

    with pytest.raises(APIError) as raised, lasting(told.request, told.begin):
        await within(0.01, never())
    assert given_up.is_set()
    assert raised.value.code == "upstream_timeout"
    assert (told.request.status, told.request.cancelled) == (504, False)


async def test_what_comes_in_time() -> None:
    async def soon() -> str:
        return "here"

    assert await within(60, soon()) == "here"
