"""What the vector stores of a key may come to."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("numpy", reason="needs the extra 'vector-stores'")

from routing.vector_stores.entries.key_room import KeyIsFull
from routing.vector_stores.entries.rows import AddedFile
from tests.unit.routing.vector_stores.kept import Clock, kept


async def test_a_key_has_bounds(address: str, tmp_path: Path) -> None:
    async with kept(address, tmp_path, Clock(), max_key_chunks=3) as here:
        await here.put("key-a", "f", ["one", "two"])
        store = await here.stores.create(
            "key-a", name="", description=None, metadata={}, expires_days=None
        )
        await here.entries.add("key-a", store.id, [AddedFile("g", "g.txt", {}, 800, 400)])
        (entry,) = await here.work.claim(1)
        await here.write(entry, ["three"])
        with pytest.raises(KeyIsFull, match="3 pieces"):
            await here.write(entry, ["four"], 1)
        await here.put("key-b", "h", ["others have their own"])
