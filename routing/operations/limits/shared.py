"""Counters in Redis, for several processes and machines."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from providers.base import ProviderStartError
from routing.operations.limits.memory import CountersAway, Taken
from routing.operations.limits.rules import Charge

if TYPE_CHECKING:
    from redis.asyncio import Redis

log = logging.getLogger(__name__)

PREFIX = "{llama_compat}:"
"""What all keys begin with. The braces keep them on one node of a cluster."""

LEASE_SECONDS = 60.0
"""After so long what a process reserved is free again if the process says nothing more of it."""

RENEW_SECONDS = 15.0

ANSWER_SECONDS = 0.5
"""Redis is away if it takes longer to answer."""

AWAY_SECONDS = 1.0
"""So long it is not asked again then."""

MAX_UNSETTLED = 10_000
"""So many ends of requests are kept for when it is back."""

_FOLDER = Path(__file__).parent

Answer = TypeVar("Answer")


class RedisCounters:
    """Counters in Redis. Each take and each settlement is one script, on the clock of the server.

    What a process reserves is leased: it is renewed while the process lives, and free when it has
    crashed and the lease has run out.

    Args:
        url: `redis://`, `rediss://` or `unix://`; it may hold a password.
        clock: seconds of anything that moves on.
        lease_seconds, renew_seconds: how long leases last, and how often they are renewed.
    """

    def __init__(
        self,
        url: str,
        clock: Callable[[], float] = time.monotonic,
        lease_seconds: float = LEASE_SECONDS,
        renew_seconds: float = RENEW_SECONDS,
    ) -> None:
        self._url = url
        self._clock = clock
        self._lease_seconds = lease_seconds
        self._renew_seconds = renew_seconds
        self._away_until = 0.0
        self._is_away = False
        self._live: dict[str, Sequence[Charge]] = {}
        self._unsettled: deque[tuple[str, Sequence[Charge], Sequence[float]]] = deque()
        self._dropped = 0
        self._settling: set[asyncio.Task[None]] = set()
        self._tending: asyncio.Task[None] | None = None
        self._client: Redis | None = None
        self._scripts: dict[str, Any] = {}

    async def start(self) -> None:
        """Connect; where Redis is away, later.

        Raises:
            ProviderStartError: its package is missing, or the URL is none.
        """
        try:
            from redis.asyncio import Redis
            from redis.asyncio.retry import Retry
            from redis.backoff import NoBackoff
        except ImportError:
            raise ProviderStartError(
                "redis is needed for `server.limits` in Redis: pip install 'llama-compat[redis]'"
            ) from None
        try:
            self._client = Redis.from_url(
                self._url,
                socket_timeout=ANSWER_SECONDS,
                socket_connect_timeout=ANSWER_SECONDS,
                # Once more on a new connection, as an idle one may have been closed.
                retry=Retry(NoBackoff(), 1),
                decode_responses=True,
            )
        except ValueError:
            # The URL is not repeated, as it may hold a password.
            raise ProviderStartError(
                "`server.limits` is no URL of a Redis: write redis://HOST:PORT/DATABASE"
            ) from None
        common = (_FOLDER / "common.lua").read_text("utf-8")
        for name in ("take", "settle", "renew", "seed"):
            text = (_FOLDER / f"{name}.lua").read_text("utf-8")
            self._scripts[name] = self._client.register_script(common + text)
        with suppress(CountersAway):
            await self._ask(self._client.ping)
        self._tending = asyncio.create_task(self._tend())

    async def stop(self) -> None:
        """Settle what is left, if Redis is there, and disconnect."""
        await asyncio.gather(*self._settling, return_exceptions=True)
        if self._tending is not None:
            self._tending.cancel()
            await asyncio.gather(self._tending, return_exceptions=True)
        if self._client is not None:
            with suppress(CountersAway):
                await self._settle_what_is_left()
            await self._client.aclose()

    async def take(self, charges: Sequence[Charge]) -> Taken:
        """Take all of `charges`, if there is room for each."""
        lease = os.urandom(12).hex()
        arguments: list[Any] = [lease, self._lease_seconds]
        for each in charges:
            rule = each.rule
            arguments += [rule.limit, rule.drains, each.reserve, each.use, each.ends]
        try:
            taken, *amounts = await self._run("take", _keys(charges), arguments)
        except (CountersAway, asyncio.CancelledError):
            # It may have been taken all the same.
            self.settle(lease, charges, [0.0] * len(charges))
            raise
        if taken:
            self._live[lease] = charges
        levels = zip(map(float, amounts[::2]), map(float, amounts[1::2]), strict=True)
        return Taken(lease if taken else "", list(levels))

    def settle(
        self, lease: str, charges: Sequence[Charge], used: Sequence[float]
    ) -> asyncio.Task[None]:
        """Free what a lease reserved, and count what was used; a second time changes nothing."""
        self._live.pop(lease, None)
        settling = asyncio.create_task(self._settle_or_keep(lease, charges, used))
        self._settling.add(settling)
        settling.add_done_callback(self._settling.discard)
        return settling

    async def set_used(self, budgets: Mapping[str, tuple[float, float]]) -> None:
        """What is used of budgets that Redis knows nothing of, as after a loss of its data."""
        if budgets:
            keys = [PREFIX + counter for counter in budgets]
            arguments = [self._lease_seconds]
            for used, ends in budgets.values():
                arguments += [used, ends]
            await self._run("seed", keys, arguments)

    async def _settle_or_keep(
        self, lease: str, charges: Sequence[Charge], used: Sequence[float]
    ) -> None:
        try:
            await self._settle(lease, charges, used)
        except CountersAway:
            if len(self._unsettled) == MAX_UNSETTLED:
                self._unsettled.popleft()
                self._dropped += 1
            self._unsettled.append((lease, charges, used))

    async def _settle(self, lease: str, charges: Sequence[Charge], used: Sequence[float]) -> None:
        arguments: list[Any] = [lease, self._lease_seconds]
        for charge, amount in zip(charges, used, strict=True):
            arguments += [charge.rule.drains, charge.ends, amount]
        await self._run("settle", _keys(charges, lease), arguments)

    async def _renew(self, lease: str, charges: Sequence[Charge]) -> None:
        arguments: list[Any] = [lease, self._lease_seconds]
        for charge in charges:
            arguments += [charge.rule.drains, charge.ends, charge.reserve]
        await self._run("renew", _keys(charges, lease), arguments)

    async def _tend(self) -> None:
        """Renew what is leased, and settle what could not be."""
        while True:
            await asyncio.sleep(self._renew_seconds)
            with suppress(CountersAway):
                await self._settle_what_is_left()
                for lease, charges in list(self._live.items()):
                    if lease in self._live:
                        await self._renew(lease, charges)

    async def _settle_what_is_left(self) -> None:
        while self._unsettled:
            await self._settle(*self._unsettled[0])
            self._unsettled.popleft()
        if self._dropped:
            log.error("%s ends of requests were never counted in Redis", self._dropped)
            self._dropped = 0

    async def _run(self, script: str, keys: Sequence[str], arguments: Sequence[Any]) -> Any:
        return await self._ask(lambda: self._scripts[script](keys=keys, args=arguments))

    async def _ask(self, question: Callable[[], Awaitable[Answer]]) -> Answer:
        from redis.exceptions import RedisError

        if self._clock() < self._away_until:
            raise CountersAway
        try:
            answer = await question()
        except (RedisError, OSError, TimeoutError) as error:
            self._away_until = self._clock() + AWAY_SECONDS
            if not self._is_away:
                log.error("limits can't be counted, Redis is away: %s", type(error).__name__)
            self._is_away = True
            raise CountersAway from None
        if self._is_away:
            log.info("Redis is back; limits are counted again")
            self._is_away = False
        return answer


def _keys(charges: Sequence[Charge], lease: str = "") -> list[str]:
    keys = [f"{PREFIX}clock"]
    if lease:
        keys.append(f"{PREFIX}settled:{lease}")
    for charge in charges:
        keys += [f"{PREFIX}{charge.counter}", f"{PREFIX}{charge.counter}:leases"]
    return keys
