"""Vector stores that nobody uses expire."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("numpy", reason="needs the extra 'vector-stores'")

from tests.unit.routing.vector_stores.kept import Clock, kept


async def test_stores_expire_when_they_are_not_used(address: str, tmp_path: Path) -> None:
    clock = Clock()
    async with kept(address, tmp_path, clock) as here:
        store = await here.stores.create(
            "key-a", name="", description=None, metadata={}, expires_days=1
        )
        clock.now += 80_000
        await here.stores.used([await here.stores.get("key-a", store.id)])
        clock.now += 80_000
        store = await here.stores.get("key-a", store.id)
        assert not store.has_expired(clock.now)
        clock.now += 86_400
        assert store.has_expired(clock.now)
        await here.stores.expire()
