"""Requests that are made and not sent."""

from __future__ import annotations

import pytest

from llama_compat.errors import APIError
from providers.remote.config import RemoteConfig
from providers.remote.upstream.deferred import DEFERRED, Capture, Deferred, NotSent, Replay
from providers.remote.upstream.exchanges import Upstream


def upstream() -> Upstream:
    return Upstream("v", RemoteConfig(base_url="https://v.example/v1"), {"x-own": "1"})


async def asked(upstream: Upstream, deferred: Deferred) -> bytes:
    token = DEFERRED.set(deferred)
    try:
        async with upstream.post("/chat", b"{}", headers={"x-more": "a: b"}) as response:
            return await response.read()
    finally:
        DEFERRED.reset(token)


async def test_a_request_is_seen() -> None:
    one = upstream()
    with pytest.raises(NotSent) as caught:
        await asked(one, Capture(one))
    unsent = caught.value.unsent
    assert (unsent.path, unsent.body) == ("/chat", b"{}")
    assert (unsent.headers["x-own"], unsent.headers["x-more"]) == ("1", "a: b")


async def test_an_answer_is_read_once() -> None:
    one = upstream()
    replay = Replay(one, 200, b'{"a": 1}')
    assert await asked(one, replay) == b'{"a": 1}'
    with pytest.raises(APIError):
        await asked(one, replay)


async def test_an_error_is_one() -> None:
    one = upstream()
    body = b'{"error": {"message": "too long", "code": "context_length_exceeded"}}'
    with pytest.raises(APIError) as caught:
        await asked(one, Replay(one, 400, body))
    assert (caught.value.status, caught.value.code) == (400, "context_length_exceeded")


async def test_others_are_sent() -> None:
    one, other = upstream(), upstream()
    with pytest.raises(RuntimeError, match="not started"):
        await asked(other, Capture(one))
