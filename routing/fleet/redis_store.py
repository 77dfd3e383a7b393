"""The store of a fleet in Redis."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

from routing.fleet.store import StoreAway
from routing.storage.redis_client import redis_client

if TYPE_CHECKING:
    from redis.asyncio import Redis

PREFIX = "{llama_compat}:fleet:"
"""What all keys begin with, as those of limits do: on one node of a cluster."""

CHANNEL = f"{PREFIX}told"

ANSWER_SECONDS = 2.0
"""How long Redis may take. No request waits for it."""

KEPT_SECONDS = 30 * 86400
"""What is kept of a template, where no gateway runs any more."""

# Times are Redis' own, so that the clocks of gateways do not matter.
_EXCHANGE = """
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1000000
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('ZADD', KEYS[2], now, ARGV[1])
local gone = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now - tonumber(ARGV[3]))
for _, each in ipairs(gone) do
  redis.call('HDEL', KEYS[1], each)
  redis.call('ZREM', KEYS[2], each)
end
return redis.call('HGETALL', KEYS[1])
"""

_CLAIM = """
if redis.call('GET', KEYS[1]) == ARGV[1] then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return 1
end
return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) and 1 or 0
"""

_RELEASE = """
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0
"""


class RedisFleetStore:
    """A Redis that all gateways of the fleet name. See `FleetStore`.

    Args:
        url: `redis://`, `rediss://` or `unix://`; it may hold a password.
        answer_seconds: how long an answer may take.
    """

    def __init__(self, url: str, answer_seconds: float = ANSWER_SECONDS) -> None:
        self._url = url
        self._answer_seconds = answer_seconds
        self._client: Redis | None = None
        self._scripts: dict[str, Any] = {}

    async def start(self) -> None:
        """Make ready to ask.

        Raises:
            ProviderStartError: its package is missing, or the URL is none.
        """
        self._client = redis_client(
            self._url,
            self._answer_seconds,
            purpose="for `server.fleet` in Redis",
            setting="`server.fleet.store` is",
        )
        texts = {"exchange": _EXCHANGE, "claim": _CLAIM, "release": _RELEASE}
        for name, text in texts.items():
            self._scripts[name] = self._client.register_script(text)

    async def stop(self) -> None:
        """Disconnect."""
        if self._client is not None:
            await self._client.aclose()

    async def exchange(self, gateway: str, report: bytes, seconds: float) -> dict[str, bytes]:
        """Leave a report and read the others'."""
        keys = [f"{PREFIX}gateways", f"{PREFIX}seen"]
        found = await self._run("exchange", keys, [gateway, report, seconds])
        # What somebody else has written there is no gateway's, and ends nothing.
        names = [name.decode(errors="replace") for name in found[::2]]
        reports = dict(zip(names, found[1::2], strict=True))
        reports.pop(gateway, None)
        return reports

    async def leave(self, gateway: str) -> None:
        """Take a gateway's report away."""
        with self._explained():
            await self._redis.hdel(f"{PREFIX}gateways", gateway)
            await self._redis.zrem(f"{PREFIX}seen", gateway)

    async def tell(self, message: bytes) -> None:
        """Send a message to all that listen."""
        with self._explained():
            await self._redis.publish(CHANNEL, message)

    @asynccontextmanager
    async def heard(self) -> AsyncGenerator[AsyncIterator[bytes], None]:
        """The messages from now on."""
        with self._explained():
            # A connection of its own, for nothing else can be asked on it.
            subscription = self._redis.pubsub(ignore_subscribe_messages=True)
            try:
                await subscription.subscribe(CHANNEL)
                # The first answer says that it is so.
                await subscription.get_message(timeout=self._answer_seconds)
                yield self._messages(subscription)
            finally:
                await subscription.aclose()  # type: ignore[no-untyped-call]

    async def _messages(self, subscription: Any) -> AsyncIterator[bytes]:
        while True:
            with self._explained():
                found = await subscription.get_message(timeout=self._answer_seconds)
            if found is not None:
                yield found["data"]

    async def claim(self, name: str, gateway: str, seconds: float) -> bool:
        """Be the only one that has `name` for a while."""
        milliseconds = max(1, int(seconds * 1000))
        return bool(await self._run("claim", [PREFIX + name], [gateway, milliseconds]))

    async def release(self, name: str, gateway: str) -> None:
        """Give it up."""
        await self._run("release", [PREFIX + name], [gateway])

    async def read(self, name: str) -> bytes | None:
        """What is kept under `name`."""
        with self._explained():
            found: Any = await self._redis.get(PREFIX + name)
        return found if isinstance(found, bytes) else None

    async def keep(self, name: str, value: bytes) -> None:
        """Keep it under `name`."""
        with self._explained():
            await self._redis.set(PREFIX + name, value, ex=KEPT_SECONDS)

    @property
    def _redis(self) -> Redis:
        assert self._client is not None, "it has not been started"
        return self._client

    async def _run(self, script: str, keys: list[str], arguments: list[Any]) -> Any:
        with self._explained():
            return await self._scripts[script](keys=keys, args=arguments)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        from redis.exceptions import RedisError

        try:
            yield
        except (RedisError, OSError, TimeoutError) as error:
            raise StoreAway(type(error).__name__) from None
