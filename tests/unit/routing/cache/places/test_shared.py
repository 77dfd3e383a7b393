"""Replies in Redis, SQLite and PostgreSQL: bounds, two who share, and what does not answer."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from llama_compat.types import Usage
from routing.cache.places import shared
from routing.cache.places.redis_place import RedisPlace
from routing.cache.places.shared import ReplyPlace, SharedReplies
from routing.cache.places.storage_place import StoragePlace
from routing.cache.replies.store import ENTRY_BYTES, Entry
from tests.postgres import missing
from tests.redis_server import PROGRAM as REDIS
from tests.redis_server import RedisServer, needs_redis

PLACES = [
    "sqlite",
    *(pytest.param(name, marks=pytest.mark.server) for name in ("redis", "postgres")),
]


class Places:
    """Makes places of one kind, each beside what others have."""

    def __init__(self, kind: str, address: str) -> None:
        self.kind = kind
        self._address = address
        self._name = os.urandom(6).hex()

    def place(self, max_bytes: int = 1 << 20, ttl: float = 60) -> ReplyPlace:
        if self.kind == "redis":
            return RedisPlace(self._address, self._name, max_bytes, ttl, 5)
        return StoragePlace(self._address, self._name, max_bytes, ttl, lambda: 1000)

    @asynccontextmanager
    async def replies(self, **more: Any) -> AsyncIterator[SharedReplies]:
        replies = SharedReplies(self.place(**more), 1 << 20, 5, lambda: 1000)
        await replies.start()
        try:
            yield replies
        finally:
            await replies.stop()


@pytest.fixture(params=PLACES)
def places(request: pytest.FixtureRequest, tmp_path: Path) -> Places:
    if request.param == "sqlite":
        return Places("sqlite", f"sqlite:{tmp_path / 'storage.sqlite'}")
    if request.param == "redis":
        if REDIS is None:
            pytest.skip("there is no redis-server here (apt install redis-server)")
        return Places("redis", request.getfixturevalue("redis").url)
    why = missing()
    if why is not None:
        pytest.skip(why)
    return Places("postgres", request.getfixturevalue("postgres_server").address)


def entry(*keys: bytes, body: bytes = b"said", kept_at: float = 990) -> Entry:
    return Entry(
        keys,
        "chat",
        body,
        Usage(3, 2),
        b"recorded",
        headers={"content-type": "application/json"},
        dropped=("seed",),
        kept_at=kept_at,
    )


def told(found: Entry | None) -> bytes | None:
    return None if found is None else found.body


async def test_what_one_keeps_the_other_finds_by_every_key(places: Places) -> None:
    async with places.replies() as one, places.replies() as other:
        kept = entry(b"exact", b"key", b"meaning")
        await one.keep(kept)
        for key in kept.keys:
            found = await other.find((key,))
            assert found is not None
            assert [getattr(found, name) for name in shared._Kept.__struct_fields__] == [
                getattr(kept, name) for name in shared._Kept.__struct_fields__
            ]
        assert told(await other.find((b"nothing", b"key"))) == b"said"
        assert await other.find((b"nothing",)) is None
        assert await other.find((b"exact",), max_age=9) is None
        assert told(await other.find((b"exact",), max_age=11)) == b"said"
    async with places.replies() as later:  # as after a restart
        assert told(await later.find((b"meaning",))) == b"said"


async def test_the_newest_is_found(places: Places) -> None:
    async with places.replies() as replies:
        await replies.keep(entry(b"exact", b"key"))
        await replies.keep(entry(b"exact", b"key", body=b"anew"))
        assert told(await replies.find((b"key",))) == b"anew"
        await replies.keep(entry(b"other", b"key", body=b"in another form"))
        assert told(await replies.find((b"key",))) == b"in another form"
        assert told(await replies.find((b"exact",))) == b"anew"


async def test_the_oldest_make_room(places: Places) -> None:
    size = ENTRY_BYTES + 4200
    async with places.replies(max_bytes=3 * size) as replies:
        for number in range(6):
            key = b"%d" % number
            await replies.keep(entry(key, b"k" + key, body=bytes(3900), kept_at=990 + number))
        there = [await replies.find((b"k%d" % number,)) for number in range(6)]
        assert [each is not None for each in there] == [False, False, False, True, True, True]


async def test_what_is_too_old_is_gone(places: Places) -> None:
    async with places.replies(ttl=0.05) as replies:
        await replies.keep(entry(b"exact", kept_at=900))
        for _ in range(200):
            if await replies.find((b"exact",)) is None:
                break
            await asyncio.sleep(0.01)
        assert await replies.find((b"exact",)) is None


@needs_redis
async def test_a_redis_that_is_frozen_is_an_empty_one(
    redis: RedisServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared, "PROBE_SECONDS", 0.01)
    caplog.set_level(logging.WARNING)
    replies = SharedReplies(RedisPlace(redis.url, "frozen", 1 << 20, 60, 0.2), 1 << 20, 0.2)
    await replies.start()
    try:
        await replies.keep(entry(b"frozen"))
        redis.pause()
        try:
            found = await asyncio.gather(*(replies.find((b"frozen",)) for _ in range(50)))
            assert found == [None] * 50
            assert replies.is_away
            # From here on nobody waits: what asks comes back in the same turn of the loop.
            asking = asyncio.ensure_future(replies.find((b"frozen",)))
            keeping = asyncio.ensure_future(replies.keep(entry(b"other")))
            await asyncio.sleep(0)
            assert asking.done()
            assert keeping.done()
        finally:
            redis.resume()
        assert replies._probing is not None
        await replies._probing
        assert not replies.is_away
        assert told(await replies.find((b"frozen",))) == b"said"
    finally:
        await replies.stop()
    said = [each.message for each in caplog.records if "cache in Redis" in each.message]
    assert len(said) == 2
    assert "is away" in said[0]
    assert "is back" in said[1]


@needs_redis
async def test_a_redis_that_refuses_is_away_until_it_does_not(
    redis: RedisServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not back at each look, and away at each reply."""
    monkeypatch.setattr(shared, "PROBE_SECONDS", 0.01)
    caplog.set_level(logging.WARNING)
    from redis.asyncio import Redis

    replies = SharedReplies(RedisPlace(redis.url, "refused", 1 << 20, 60, 5), 1 << 20, 5)
    operator = Redis(unix_socket_path=redis.path)
    await replies.start()
    try:
        await operator.execute_command("ACL", "SETUSER", "default", "-evalsha", "-eval")
        await replies.keep(entry(b"refused"))
        assert replies.is_away
        assert replies._probing is not None
        await asyncio.sleep(0.2)
        assert not replies._probing.done()
        await operator.execute_command("ACL", "SETUSER", "default", "+@all")
        await replies._probing
        await replies.keep(entry(b"refused"))
        assert told(await replies.find((b"refused",))) == b"said"
    finally:
        await operator.execute_command("ACL", "SETUSER", "default", "+@all")
        await operator.aclose()
        await replies.stop()
    said = [each.message for each in caplog.records if "cache in Redis" in each.message]
    assert len(said) == 2


async def test_one_that_is_not_there_is_an_empty_one(tmp_path: Path) -> None:
    place = RedisPlace(f"unix://{tmp_path / 'nobody'}", "gone", 1 << 20, 60)
    replies = SharedReplies(place, 1 << 20)
    await replies.start()
    assert replies.is_away
    await replies.keep(entry(b"exact"))
    assert await replies.find((b"exact",)) is None
    await replies.stop()
