"""A gateway that takes places of a limit and says so, to be killed while it has them."""

from __future__ import annotations

import asyncio
import sys

from routing.access.limits.redis import RedisCounters
from routing.access.limits.rules import Charge, Resource, Rule


async def _hold(url: str, places: int, lease_seconds: float) -> None:
    counters = RedisCounters(url, lease_seconds, lease_seconds / 4, answer_seconds=10.0)
    await counters.start()
    rule = Rule("key:c", Resource.concurrent, 4, "key 'c'")
    budget = Rule("key:b", Resource.budget, 1.0, "key 'b'")
    for _ in range(places):
        taken = await counters.take(
            [Charge(rule, rule.counter, 1.0), Charge(budget, "key:b:budget:ever", 0.25)]
        )
        assert taken.lease
    print("taken", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_hold(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))
