"""Counters for several processes and machines in Redis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from routing.access.limits.shared import SharedCounters
from routing.storage.redis_client import redis_client

if TYPE_CHECKING:
    from redis.asyncio import Redis

_FOLDER = Path(__file__).parent


class RedisCounters(SharedCounters):
    """Counters in Redis, by scripts in Lua.

    Args:
        address: `redis://`, `rediss://` or `unix://`; it may hold a password.
        lease_seconds, renew_seconds, answer_seconds: as in `SharedCounters`.
    """

    store = "Redis"

    _client: Redis | None = None
    _scripts: Mapping[str, Any] = {}

    def _connect(self) -> None:
        self._client = redis_client(
            self._address,
            self._answer_seconds,
            purpose="to count limits in Redis",
            setting="`server.fleet` (or `server.limits`) has",
            connect_seconds=self._connect_seconds,
            decode_responses=True,
        )
        common = (_FOLDER / "common.lua").read_text("utf-8")
        scripts = {}
        for name in ("take", "settle", "sync", "seed"):
            text = (_FOLDER / f"{name}.lua").read_text("utf-8")
            scripts[name] = self._client.register_script(common + text)
        self._scripts = scripts

    async def _disconnect(self) -> None:
        if self._client is not None:
            await self._client.aclose()

    async def _execute(self, script: str, keys: Sequence[str], arguments: Sequence[Any]) -> Any:
        return await self._scripts[script](keys=keys, args=arguments)

    def _troubles(self) -> tuple[type[Exception], ...]:
        from redis.exceptions import RedisError

        return RedisError, OSError, TimeoutError

    def _is_no_answer(self, error: Exception) -> bool:
        from redis.exceptions import TimeoutError as NoAnswer

        return isinstance(error, NoAnswer | TimeoutError)
