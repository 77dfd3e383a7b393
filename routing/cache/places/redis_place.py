"""Replies in Redis."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from routing.cache.places.shared import ANSWER_SECONDS, PlaceAway
from routing.cache.replies.store import ENTRY_BYTES
from routing.storage.redis_client import redis_client

if TYPE_CHECKING:
    from redis.asyncio import Redis

PREFIX = b"{llama_compat}:cache:1:"
"""What all keys begin with: the braces keep them on one node of a cluster, the number is that of
the format."""

_PROBE = b"probe:"
"""No reply's key."""

_FOLDER = Path(__file__).parent

_T = TypeVar("_T")


class RedisPlace:
    """One cache in Redis; see `ReplyPlace`. Of what is too much the oldest goes first.

    Args:
        url: `redis://`, `rediss://` or `unix://`; it may hold a password.
        name: tells the cache from others in the same Redis.
        max_bytes: what all replies may come to, of all who have it.
        ttl: seconds after which one is forgotten.
        answer_seconds: how long an answer may take.
    """

    shown = "Redis"

    def __init__(
        self,
        url: str,
        name: str,
        max_bytes: int,
        ttl: float,
        answer_seconds: float = ANSWER_SECONDS,
    ) -> None:
        self._url = url
        self._all = [PREFIX + each + name.encode() for each in (b"ages:", b"sizes:", b"total:")]
        self._max_bytes = max_bytes
        self._ttl = ttl
        self._answer_seconds = answer_seconds
        self._client: Redis | None = None
        self._find: Any = None
        self._keep: Any = None

    async def start(self) -> None:
        """Connect."""
        if self._client is None:
            self._open()
        await self.probe()

    def _open(self) -> None:
        self._client = redis_client(
            self._url,
            self._answer_seconds,
            purpose="for a `cache` in Redis",
            setting="`cache.exact.store` is",
        )
        self._find = self._client.register_script((_FOLDER / "find.lua").read_text("utf-8"))
        self._keep = self._client.register_script((_FOLDER / "keep.lua").read_text("utf-8"))

    async def stop(self) -> None:
        """Disconnect."""
        if self._client is not None:
            await self._client.aclose()

    async def probe(self) -> None:
        """Look for something, and keep something: one that answers may refuse either."""
        if self._client is not None:
            await self.find([_PROBE])
            await self.keep([_PROBE], b"", 0)  # older than all replies, the first to make room

    async def find(self, keys: Sequence[bytes]) -> bytes | None:
        """What is kept by the first of `keys` by which there is something."""
        found: bytes | None = await self._asked(self._find([PREFIX + key for key in keys]))
        return found

    async def find_each(self, keys: Sequence[bytes]) -> Mapping[bytes, bytes]:
        """What is kept by each of `keys`."""
        client = self._client
        assert client is not None
        asking = client.mget([PREFIX + key for key in keys])
        found: Sequence[Any] = await self._asked(asking)
        return {key: value[1:] for key, value in zip(keys, found, strict=True) if value is not None}

    async def keep(self, keys: Sequence[bytes], data: bytes, kept_at: float) -> None:
        """Keep `data`, as one step."""
        names = [*self._all, *(PREFIX + key for key in keys)]
        size = len(data) + ENTRY_BYTES
        await self._asked(self._keep(names, [data, kept_at, size, self._ttl, self._max_bytes]))

    async def _asked(self, question: Awaitable[_T]) -> _T:
        from redis.exceptions import RedisError

        try:
            return await question
        except (RedisError, OSError, TimeoutError) as error:
            raise PlaceAway(type(error).__name__) from None
