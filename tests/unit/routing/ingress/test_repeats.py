"""Hits of the cache that come again byte for byte: which of them nobody reads."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from llama_compat.distribution import Distribution
from providers.local.echo import EchoConfig
from routing.app import Application
from tests.unit.routing.http.serving import Client, serving, until
from tests.unit.routing.ingress.test_apis import ECHO, application
from tests.unit.routing.page.test_overview import held

CACHE: dict[str, Any] = {"cache": {"exact": {"sampled": True}}}


def asked(path: str = "/v1/chat/completions", *lines: str, **members: Any) -> bytes:
    messages = [{"role": "user", "content": "Hello"}]
    body = json.dumps({"model": "echo", "messages": messages, **members}).encode()
    head = [f"POST {path} HTTP/1.1", *lines, f"Content-Length: {len(body)}", "", ""]
    return "\r\n".join(head).encode() + body


class Reading:
    """What an application is given to read.

    Attributes:
        count: how many requests.
    """

    def __init__(self, app: Application) -> None:
        self._app = app
        self.count = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.count += 1
        await self._app(scope, receive, send)


@asynccontextmanager
async def reading(**server: Any) -> AsyncIterator[tuple[Reading, Client]]:
    app = application(**server)
    await app.start()
    read = Reading(app)
    try:
        async with serving(read) as served:
            yield read, await served.connect()
    finally:
        await app.stop()


async def times(client: Client, request: bytes, count: int = 5) -> list[tuple[int, str, bytes]]:
    """The status of each answer, whether it was a hit, and its body."""
    found = []
    for _ in range(count):
        await client.say(request)
        status, headers, body = await client.answer()
        found.append((status, headers.get(b"x-llama-compat-cache", b"").decode(), body))
    return found


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/api/chat"])
async def test_a_hit_is_read_once(path: str) -> None:
    async with reading(**CACHE) as (read, client):
        request = asked(path, max_tokens=9, stream=False)
        answers = await times(client, request)
    assert [each[:2] for each in answers] == [(200, "miss"), *[(200, "hit")] * 4]
    assert len({body for _, _, body in answers}) == 1
    assert read.count == 2


async def test_the_names_of_a_request_are_its_own() -> None:
    async with reading(**CACHE) as (_, client):
        ids = []
        for _ in range(4):
            await client.say(asked("/v1/messages", max_tokens=9))
            _, headers, _ = await client.answer()
            assert headers[b"request-id"] == headers[b"x-request-id"]
            ids.append(headers[b"request-id"])
    assert len(set(ids)) == 4


@pytest.mark.parametrize(
    ("server", "line"),
    [
        ({}, "X-One: 1"),
        (CACHE, "Cache-Control: no-cache"),
        (CACHE, "Cache-Control: max-age=60"),
        ({"cache": {"exact": {}}}, "X-One: 1"),
    ],
    ids=["no cache", "anew", "bounded", "sampled"],
)
async def test_all_else_is_read_each_time(server: dict[str, Any], line: str) -> None:
    async with reading(**server) as (read, client):
        await times(client, asked("/v1/chat/completions", line))
    assert read.count == 5


async def test_a_request_that_ends_counts_no_more() -> None:
    async with reading(**CACHE) as (read, client):
        await times(client, asked())
        assert not read._app.runtime.running


async def test_who_is_not_let_in_any_more_is_told_so() -> None:
    async with reading(**CACHE, api_keys=["sk-one-12345"]) as (read, client):
        request = asked("/v1/chat/completions", "Authorization: Bearer sk-one-12345")
        assert [status for status, _, _ in await times(client, request, 3)] == [200] * 3
        runtime = read._app.runtime
        before, runtime.authenticator = (
            runtime.authenticator,
            application(api_keys=["sk-other-12345"]).runtime.authenticator,
        )
        assert [status for status, _, _ in await times(client, request, 2)] == [401] * 2
        runtime.authenticator = before
        assert [status for status, _, _ in await times(client, request, 2)] == [200] * 2


async def test_what_is_forgotten_is_asked_for_again() -> None:
    async with reading(**CACHE) as (read, client):
        await times(client, asked(), 3)
        caches = read._app.runtime._parts.caches
        assert caches is not None
        cache = next(iter(caches.values()))
        assert cache is not None
        for entry in list(cache.store):  # type: ignore[call-overload]
            cache.store._forget(entry)  # type: ignore[attr-defined]
        answers = await times(client, asked(), 3)
    assert [outcome for _, outcome, _ in answers] == ["miss", "hit", "hit"]


@pytest.mark.parametrize(
    ("sections", "repeats"),
    [
        ({}, True),
        ({"keys": [{"name": "a", "key": "sk-one-12345", "limits": {"concurrent": 1}}]}, False),
        ({"routing": {"mirror": {"model": "echo"}}}, False),
    ],
    ids=["plain", "limits", "mirrors"],
)
def test_what_counts_or_copies_requests_reads_them(sections: dict[str, Any], repeats: bool) -> None:
    distribution = Distribution.model_validate({**ECHO, "server": CACHE, **sections})
    distribution.providers[0].__dict__["config"] = EchoConfig()
    assert Application(distribution).runtime.repeats is repeats


async def test_who_leaves_has_asked_for_the_others() -> None:
    app = application(**CACHE)
    await app.start()
    begun, go = held(app)
    try:
        async with serving(app) as served:
            first, second = await served.connect(), await served.connect()
            await first.say(asked())
            await begun.wait()
            await second.say(asked())
            await until(lambda: len(app.runtime.running) == 2)
            leading, _ = sorted(app.runtime.running, key=lambda each: each.begun)
            first.close()
            await until(lambda: len(served.state.connections) == 1)
            go.set()
            status, headers, _ = await second.answer()
            await until(lambda: not app.runtime.running)
    finally:
        await app.stop()
    assert (status, headers[b"x-llama-compat-cache"]) == (200, b"hit")
    # What was asked for, and is paid for, is its own to the end.
    assert (leading.cancelled, leading.outcome) == (True, "client disconnected")
    assert leading.reply is not None
    assert leading.reply.usage is not None
