"""What a connection knows of its responses, and how little room that takes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from llama_compat.distribution import ResponsesStoreSettings
from llama_compat.errors import APIError
from routing.ingress.body import SMALL_BYTES, Bodies
from routing.layers.keeping.recall import REMEMBERED, ConnectionMemory, Known, Recall, RecalledTurn
from routing.storage.responses import ResponseStore

OWNER = "anybody"


@pytest.fixture
def bodies() -> Bodies:
    return Bodies(1 << 30)


@pytest.fixture
def memory(bodies: Bodies) -> ConnectionMemory:
    return ConnectionMemory(1 << 20, bodies.one())


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[ResponseStore]:
    one = ResponseStore(ResponsesStoreSettings(), f"sqlite:{tmp_path / 'r.sqlite'}")
    await one.start()
    yield one
    await one.stop()


def turn_of(text: str) -> RecalledTurn:
    return RecalledTurn(json.dumps([{"id": "an id", "content": text}]).encode())


def item(text: str) -> dict[str, Any]:
    return {"id": f"id {text}", "content": text}


async def say(
    memory: ConnectionMemory,
    response_id: str,
    previous: str | None = None,
    kept_in: ResponseStore | None = None,
    **members: Any,
) -> list[Any]:
    """One turn that comes to `response_id`; the items that it went on from."""
    recall = Recall(memory, kept_in, previous)
    earlier = (await recall.history(OWNER, previous)).items if previous else []
    recall.asks([item(f"asked {response_id}")])
    response = {"id": response_id, "output": [item(f"said {response_id}")], **members}
    if kept_in is not None and members.get("store"):
        response |= {"created_at": 1, "status": "completed"}
        await recall.save(OWNER, response, [item(f"asked {response_id}")], previous)
    recall.answered(response)
    return [each["content"] for each in earlier]


async def test_a_conversation_goes_on_and_may_fork(memory: ConnectionMemory) -> None:
    assert await say(memory, "1") == []
    assert await say(memory, "2", "1") == ["asked 1", "said 1"]
    assert await say(memory, "3", "2") == ["asked 1", "said 1", "asked 2", "said 2"]
    assert await say(memory, "fork", "1") == ["asked 1", "said 1"]


async def test_what_conversations_share_is_there_once(memory: ConnectionMemory) -> None:
    await say(memory, "1")
    memory.keep("large", Known((turn_of("x" * 1000),)))
    before = memory.size
    for number in range(10):
        await say(memory, f"fork {number}", "large")
    assert memory.size < before + 2000
    memory.clear()
    assert memory.size == 0


async def test_after_a_failure_the_client_begins_anew(memory: ConnectionMemory) -> None:
    await say(memory, "1")
    Recall(memory, None, "1").failed()
    with pytest.raises(APIError) as refused:
        await say(memory, "2", "1")
    assert refused.value.code == "previous_response_not_found"
    assert memory.size == 0


async def test_the_oldest_makes_room(memory: ConnectionMemory) -> None:
    for number in range(REMEMBERED + 5):
        await say(memory, str(number))
        memory.find("0")
    assert memory.find("0") is not None
    assert memory.find("5") is None
    assert memory.find(str(REMEMBERED + 4)) is not None


async def test_a_connection_has_so_many_bytes(bodies: Bodies) -> None:
    memory = ConnectionMemory(300_000, bodies.one())
    for number in range(5):
        memory.keep(str(number), Known((turn_of("x" * 100_000),)))
        assert memory.size <= 300_000
        assert bodies.held <= 300_000
    assert memory.find("2") is None
    assert memory.find("4") is not None
    memory.keep("large", Known((turn_of("x" * 400_000),)))
    assert memory.find("large") is None
    memory.clear()
    assert bodies.held == 0


async def test_all_connections_have_so_many_bytes() -> None:
    bodies = Bodies(300_000)
    first, second = (ConnectionMemory(1 << 20, bodies.one()) for _ in range(2))
    first.keep("1", Known((turn_of("x" * 200_000),)))
    second.keep("2", Known((turn_of("x" * 90_000),)))
    second.keep("3", Known((turn_of("x" * 90_000),)))
    assert bodies.held <= 300_000
    assert first.find("1") is not None
    assert second.find("2") is None
    assert second.find("3") is not None
    second.keep("4", Known((turn_of("x" * 200_000),)))
    assert second.size == 0
    assert bodies.held <= 200_000 + SMALL_BYTES
    first.clear()
    assert bodies.held == 0


async def test_items_are_found_by_their_ids(memory: ConnectionMemory) -> None:
    await say(memory, "1")
    found = await Recall(memory, None, None).items(OWNER, ["id said 1", "id nobody's"])
    assert found == {"id said 1": item("said 1")}


async def test_a_response_of_a_vendor_that_keeps_it_is_the_vendor_s(
    memory: ConnectionMemory,
) -> None:
    recall = Recall(memory, None, None)
    recall.asks([item("asked")])
    recall.relayed()
    recall.answered({"id": "1", "store": True, "output": []})
    assert Recall(memory, None, "1").is_at_vendor("1")
    await say(memory, "2", store=True)
    assert not Recall(memory, None, "2").is_at_vendor("2")


async def test_of_a_conversation_that_only_a_vendor_knows_nothing_is_known(
    memory: ConnectionMemory,
) -> None:
    recall = Recall(memory, None, "the vendor's")
    recall.asks([item("asked")])
    recall.relayed()
    recall.answered({"id": "2", "output": []})
    assert memory.find("2") is None


@pytest.mark.parametrize("response", [{}, {"id": 1, "output": []}, {"id": "1"}])
async def test_what_is_no_response_is_not_known(
    memory: ConnectionMemory, response: dict[str, Any]
) -> None:
    Recall(memory, None, None).answered(response)
    assert memory.size == 0


# With a store -------------------------------------------------------------------------------------


async def test_what_is_stored_is_found_on_another_connection(
    memory: ConnectionMemory, bodies: Bodies, store: ResponseStore
) -> None:
    await say(memory, "1", kept_in=store, store=True)
    other = ConnectionMemory(1 << 20, bodies.one())
    assert await say(other, "2", "1", store) == ["asked 1", "said 1"]
    # From then on it knows by itself.
    assert await say(other, "3", "2") == ["asked 1", "said 1", "asked 2", "said 2"]


async def test_what_is_stored_brings_along_what_was_not(
    memory: ConnectionMemory, bodies: Bodies, store: ResponseStore
) -> None:
    await say(memory, "1", kept_in=store)
    await say(memory, "2", "1", store, store=True)
    await say(memory, "3", "2", store, store=True)
    other = ConnectionMemory(1 << 20, bodies.one())
    expected = [f"{what} {number}" for number in (1, 2, 3) for what in ("asked", "said")]
    assert await say(other, "4", "3", store) == expected
