"""The store of responses: whose they are, how long and how many, and what a crash leaves."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from llama_compat.distribution import ResponsesStoreSettings
from llama_compat.errors import APIError
from providers.base import ProviderStartError
from routing.layers.keeping import background as background_module
from routing.layers.keeping.background import MAX_RUNNING, BackgroundResponses
from routing.storage import responses as module
from routing.storage.kept import INTERACTIONS_KEPT, RESPONSES_KEPT
from routing.storage.kept_rows import ALIVE_SECONDS
from routing.storage.responses import ResponseStore
from routing.storage.storage import StorageError
from tests.postgres import LossyWay, PostgresServer, emptied

OWNER = "key-1"


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def store(address: str, clock: Clock) -> AsyncIterator[ResponseStore]:
    one = ResponseStore(ResponsesStoreSettings(ttl=100, max_bytes=4000), address, clock)
    await one.start()
    yield one
    await one.stop()


async def rows(store: ResponseStore, statement: str) -> list[Any]:
    return await store._storage.fetch(statement)


def response(response_id: str, text: str = "yes", **members: Any) -> dict[str, Any]:
    item = {"id": f"msg_{response_id}", "type": "message", "role": "assistant", "content": text}
    return {
        "id": response_id,
        "status": "completed",
        "background": False,
        "output": [item],
        **members,
    }


def asked(response_id: str, text: str = "what?") -> list[dict[str, Any]]:
    return [{"id": f"in_{response_id}", "type": "message", "role": "user", "content": text}]


async def save(store: ResponseStore, response_id: str, **options: Any) -> None:
    owner = options.pop("owner", OWNER)
    previous = options.pop("previous", None)
    await store.save(owner, response(response_id, **options), asked(response_id), previous)


async def code_of(awaitable: Any) -> tuple[int, str | None]:
    with pytest.raises(APIError) as caught:
        await awaitable
    return caught.value.status, caught.value.code


async def until_kept(store: ResponseStore, expected: list[str]) -> None:
    for _ in range(1000):
        found = [each for (each,) in await rows(store, "SELECT id FROM stored_responses")]
        if found == expected:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"{found} are kept")


async def test_a_response_that_nobody_heard_was_kept_is_kept(
    postgres_server: PostgresServer, clock: Clock
) -> None:
    """Its client was told 503 for what its vendor had been paid for, and asked again."""
    await emptied(postgres_server.address)
    settings = ResponsesStoreSettings(ttl=100, max_bytes=4000)
    first = ResponseStore(settings, postgres_server.address, clock)
    await first.start()
    async with LossyWay(postgres_server, every=3, after=1).opened() as way:
        store = ResponseStore(settings, way.address, clock)
        await store.start()
        for number in range(5):
            await save(store, f"resp_{number}")
        await store.stop()
        assert way.lost
    for number in range(5):
        assert (await first.get(OWNER, f"resp_{number}")).response["status"] == "completed"
    ((total,),) = await rows(first, "SELECT bytes FROM stored_total")
    assert [(total,)] == await rows(first, "SELECT sum(size) FROM stored_responses")
    await first.stop()


async def test_what_is_old_goes_soon_after_the_start(address: str, clock: Clock) -> None:
    settings = ResponsesStoreSettings(ttl=100)
    for expected in (["resp_a"], []):
        store = ResponseStore(settings, address, clock)
        await store.start()
        if expected:
            await save(store, "resp_a")
        await until_kept(store, expected)
        await store.stop()
        clock.now += 101


async def test_a_sweep_that_fails_is_not_the_last(
    address: str, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SWEEP_SECONDS", 0.01)
    store = ResponseStore(ResponsesStoreSettings(ttl=100), address, clock)
    await store.start()
    await save(store, "resp_a")
    async with store._storage.transaction() as transaction:
        await transaction.fetch("ALTER TABLE stored_responses RENAME TO away")
    clock.now += 101
    await asyncio.sleep(0.1)
    async with store._storage.transaction() as transaction:
        await transaction.fetch("ALTER TABLE away RENAME TO stored_responses")
    await until_kept(store, [])
    await store.stop()


async def is_kept(store: ResponseStore, response_id: str) -> bool:
    try:
        await store.get(OWNER, response_id)
    except APIError:
        return False
    return True


async def test_what_is_kept_is_found_again(store: ResponseStore) -> None:
    await save(store, "r1")
    kept = await store.get(OWNER, "r1")
    assert (kept.response, kept.input) == (response("r1"), asked("r1"))


async def test_a_response_is_its_owners_alone(store: ResponseStore) -> None:
    await save(store, "r1", background=True, status="queued")
    for awaitable in (
        store.get("key-2", "r1"),
        store.delete("key-2", "r1"),
        store.cancel("key-2", "r1"),
    ):
        assert await code_of(awaitable) == (404, "response_not_found")
    assert await code_of(store.history("key-2", "r1")) == (400, "previous_response_not_found")
    assert await store.items("key-2", ["msg_r1"]) == {}
    assert await is_kept(store, "r1")


async def test_a_deleted_response_is_gone(store: ResponseStore) -> None:
    await save(store, "r1")
    await store.delete(OWNER, "r1")
    assert await code_of(store.get(OWNER, "r1")) == (404, "response_not_found")
    assert await code_of(store.delete(OWNER, "r1")) == (404, "response_not_found")
    assert await store.items(OWNER, ["msg_r1"]) == {}


async def test_a_conversation_is_all_of_its_turns(store: ResponseStore) -> None:
    await save(store, "r1")
    await save(store, "r2", previous="r1", text="again")
    history = await store.history(OWNER, "r2")
    assert [item["id"] for item in history.items] == ["in_r1", "msg_r1", "in_r2", "msg_r2"]
    assert history.lost is None


@pytest.mark.parametrize("lost", ["r1", "r2"])
async def test_a_conversation_that_lost_its_beginning_is_what_came_after(
    store: ResponseStore, lost: str
) -> None:
    names = ["r1", "r2", "r3"]
    for name, previous in zip(names, [None, *names], strict=False):
        await save(store, name, previous=previous)
    await store.delete(OWNER, lost)
    history = await store.history(OWNER, "r3")
    left = names[names.index(lost) + 1 :]
    assert [item["id"] for item in history.items] == [
        item for name in left for item in (f"in_{name}", f"msg_{name}")
    ]
    assert history.lost == lost
    await store.delete(OWNER, "r3")
    assert await code_of(store.history(OWNER, "r3")) == (400, "previous_response_not_found")


async def test_a_conversation_may_not_be_endless(
    store: ResponseStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for index in range(4):
        await save(store, f"r{index}", previous=f"r{index - 1}" if index else None)
    monkeypatch.setattr(module, "MAX_CHAIN", 4)
    assert len((await store.history(OWNER, "r3")).items) == 8
    monkeypatch.setattr(module, "MAX_CHAIN", 3)
    assert await code_of(store.history(OWNER, "r3")) == (400, "conversation_too_long")
    monkeypatch.setattr(module, "MAX_CHAIN", 4)
    monkeypatch.setattr(module, "MAX_HISTORY_BYTES", 500)
    assert await code_of(store.history(OWNER, "r3")) == (400, "conversation_too_long")


async def test_items_are_found_by_their_ids(store: ResponseStore) -> None:
    await save(store, "r1")
    found = await store.items(OWNER, ["msg_r1", "in_r1", "nope"])
    assert found == {"msg_r1": response("r1")["output"][0], "in_r1": asked("r1")[0]}


async def test_items_have_any_ids_that_clients_send(store: ResponseStore) -> None:
    item = {"id": "in_\x00", "type": "message", "role": "user", "content": "what?"}
    await store.save(OWNER, response("resp_1"), [item])
    assert (await store.get(OWNER, "resp_1")).input == [item]
    assert await code_of(store.get(OWNER, "resp_\x00")) == (404, "response_not_found")


async def test_what_is_too_old_is_gone_at_once_and_its_bytes_with_the_next(
    store: ResponseStore, clock: Clock
) -> None:
    await save(store, "r1")
    clock.now += 100
    assert await is_kept(store, "r1")
    clock.now += 1
    assert not await is_kept(store, "r1")
    assert await code_of(store.delete(OWNER, "r1")) == (404, "response_not_found")
    await save(store, "r2")
    assert await rows(store, "SELECT id FROM stored_responses") == [("r2",)]
    assert await rows(store, "SELECT response FROM stored_items") == [("r2",)] * 2


async def test_the_oldest_make_room(store: ResponseStore, clock: Clock) -> None:
    for index in range(5):
        clock.now += 1
        await save(store, f"r{index}", text="x" * 1000)
    kept = [await is_kept(store, f"r{index}") for index in range(5)]
    assert kept == [False, False, True, True, True]
    ((counted,),) = await rows(store, "SELECT bytes FROM stored_total")
    ((real,),) = await rows(
        store, "SELECT sum(length(input) + length(response)) FROM stored_responses"
    )
    assert counted == real <= 4000


async def test_what_is_larger_than_all_of_the_store_takes_nobodys_place(
    store: ResponseStore, caplog: pytest.LogCaptureFixture
) -> None:
    await save(store, "r1")
    await save(store, "r2", text="x" * 5000)
    assert "more than max_bytes" in caplog.text
    assert await is_kept(store, "r1")
    assert not await is_kept(store, "r2")


async def test_what_is_yet_to_be_made_and_larger_than_all_of_the_store_is_refused(
    store: ResponseStore,
) -> None:
    await save(store, "resp_1")
    with pytest.raises(APIError, match=r"`max_bytes`. Ask without 'background'") as refused:
        await save(store, "resp_2", text="x" * 5000, status="queued", background=True)
    assert (refused.value.status, refused.value.param) == (413, "background")
    assert await is_kept(store, "resp_1")
    assert not await is_kept(store, "resp_2")


async def test_what_runs_and_becomes_larger_than_all_of_the_store_takes_nobodys_place_either(
    store: ResponseStore, clock: Clock
) -> None:
    await save(store, "resp_1")
    await save(store, "resp_2", status="in_progress", background=True)
    clock.now += 1
    await save(store, "resp_3")
    await store.complete(response("resp_2", "x" * 5000, background=True))
    for kept in ("resp_1", "resp_3"):
        assert (await store.get(OWNER, kept)).response["status"] == "completed"
    failed = (await store.get(OWNER, "resp_2")).response
    assert (failed["status"], failed["output"]) == ("failed", [])
    assert "max_bytes" in failed["error"]["message"]


async def test_a_caller_that_leaves_does_not_stop_the_keeping(store: ResponseStore) -> None:
    saving = asyncio.create_task(save(store, "r1"))
    await asyncio.sleep(0)
    saving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await saving
    await asyncio.gather(*store._saving)
    assert await is_kept(store, "r1")


async def test_a_store_that_fails_is_503_and_what_it_began_is_undone(
    store: ResponseStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def full(*_: object) -> None:
        raise StorageError("database or disk is full")

    monkeypatch.setattr(module, "_index", full)
    assert await code_of(store.save(OWNER, response("r1"), [])) == (503, "store_unavailable")
    assert "disk is full" in caplog.text
    assert not await is_kept(store, "r1")


# --------------------------------------------------------------------------------------------------
# In the background
# --------------------------------------------------------------------------------------------------


async def test_only_what_runs_in_the_background_can_be_cancelled(store: ResponseStore) -> None:
    await save(store, "r1")
    assert await code_of(store.cancel(OWNER, "r1")) == (400, "invalid_value")
    await save(store, "r2", background=True, status="queued")
    assert (await store.cancel(OWNER, "r2"))["status"] == "cancelled"
    assert (await store.cancel(OWNER, "r2"))["status"] == "cancelled"
    await store.complete(response("r2", background=True))
    assert (await store.get(OWNER, "r2")).response["status"] == "cancelled"
    await save(store, "r3", background=True)
    assert (await store.cancel(OWNER, "r3"))["status"] == "completed"


async def test_a_running_response_can_not_be_gone_on_from(store: ResponseStore) -> None:
    await save(store, "r1", background=True, status="queued", output=[])
    assert await code_of(store.history(OWNER, "r1")) == (400, "invalid_value")
    await store.complete(response("r1", background=True))
    history = await store.history(OWNER, "r1")
    assert [item["id"] for item in history.items] == ["in_r1", "msg_r1"]
    assert list(await store.items(OWNER, ["msg_r1"])) == ["msg_r1"]


async def test_a_response_whose_process_is_gone_has_failed(
    store: ResponseStore, clock: Clock
) -> None:
    await save(store, "r1", background=True, status="queued")
    clock.now += ALIVE_SECONDS - 1
    assert await store.running.keep_alive(["r1"], "worker") == set()
    assert (await store.get(OWNER, "r1")).response["status"] == "in_progress"
    clock.now += ALIVE_SECONDS + 1
    failed = (await store.get(OWNER, "r1")).response
    assert (failed["status"], failed["error"]["code"]) == ("failed", "server_error")
    assert await store.running.keep_alive(["r1"], "worker") == {"r1"}


async def test_work_in_the_background_ends_in_the_store(store: ResponseStore) -> None:
    background = BackgroundResponses(store)
    background.start()

    async def well() -> dict[str, Any]:
        return response("r1", background=True)

    async def badly() -> dict[str, Any]:
        raise APIError(429, "Slowly.")

    async def forever() -> dict[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError

    works = {"r1": well, "r2": badly, "r3": forever, "r4": forever}
    tasks = []
    for response_id, work in works.items():
        await save(store, response_id, background=True, status="queued")
        queued = response(response_id, background=True, status="queued")
        tasks.append(background.run(queued, work))
    assert (await background.cancel(OWNER, "r3", RESPONSES_KEPT))["status"] == "cancelled"
    await asyncio.gather(*tasks[:3], return_exceptions=True)
    await background.stop()
    ended = [(await store.get(OWNER, each)).response for each in works]
    assert [each["status"] for each in ended] == ["completed", "failed", "cancelled", "failed"]
    assert ended[1]["error"]["code"] == "rate_limit_exceeded"


async def test_what_was_made_while_the_store_was_away_is_kept_later(
    store: ResponseStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background_module, "LOOK_SECONDS", 0.01)
    complete, times = store.complete, []

    async def away_at_first(made: Any, worker: str | None) -> bool:
        times.append(1)
        if len(times) < 3:
            raise APIError(503, "It is away.", code="store_unavailable")
        return await complete(made, worker)

    monkeypatch.setattr(store, "complete", away_at_first)
    await save(store, "r1", background=True, status="queued")

    async def work() -> dict[str, Any]:
        return response("r1", background=True)

    queued = response("r1", background=True, status="queued")
    await BackgroundResponses(store).run(queued, work)
    assert (await store.get(OWNER, "r1")).response["status"] == "completed"


async def test_there_is_an_end_to_how_many_run(store: ResponseStore) -> None:
    background = BackgroundResponses(store)
    forever = asyncio.Event()

    async def work() -> dict[str, Any]:
        await forever.wait()
        return {}

    for index in range(MAX_RUNNING):
        background.check_room()
        background.run(response(f"r{index}"), work)
    with pytest.raises(APIError) as caught:
        background.check_room()
    assert caught.value.status == 429
    await background.stop()


# --------------------------------------------------------------------------------------------------
# Several processes, and none that ends well
# --------------------------------------------------------------------------------------------------

_OTHER = textwrap.dedent(
    """
    import asyncio, sys
    from llama_compat.distribution import ResponsesStoreSettings
    from routing.storage.responses import ResponseStore

    async def main(path, name, count):
        store = ResponseStore(ResponsesStoreSettings(), path)
        await store.start()
        for index in range(count):
            response = {"id": f"{name}{index}", "status": "completed", "output": []}
            await store.save("key-1", response, [])
            print(index, flush=True)
        await asyncio.Event().wait()

    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
    """
)


def other_process(address: str, name: str, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _OTHER, address, name, str(count)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


@pytest.mark.program
async def test_processes_share_a_storage_and_a_killed_one_loses_nothing(address: str) -> None:
    others = [other_process(address, name, 40) for name in ("a", "b")]
    try:
        for each in others:
            assert each.stdout is not None
            for _ in range(40):
                assert each.stdout.readline()
    finally:
        for each in others:
            each.send_signal(signal.SIGKILL)
            each.communicate()
    store = ResponseStore(ResponsesStoreSettings(), address)
    await store.start()
    kept = [await is_kept(store, f"{name}{index}") for name in "ab" for index in range(40)]
    await store.stop()
    assert all(kept)


async def test_a_file_that_is_none_of_ours_is_refused_with_its_name(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("Not a database, but long enough that it could be taken for one. " * 20)
    store = ResponseStore(ResponsesStoreSettings(), f"sqlite:{path}")
    with pytest.raises(ProviderStartError, match=r"notes\.txt"):
        await store.start()
    assert path.read_text().startswith("Not a database")
    await store.stop()


async def test_the_file_is_nobody_elses_to_read(tmp_path: Path) -> None:
    store = ResponseStore(ResponsesStoreSettings(), f"sqlite:{tmp_path / 'r.sqlite'}")
    await store.start()
    assert (tmp_path / "r.sqlite").stat().st_mode & 0o077 == 0
    await store.stop()


_OLD_SCHEMA = """
CREATE TABLE responses (id TEXT PRIMARY KEY, owner TEXT NOT NULL, previous TEXT,
    created REAL NOT NULL, status TEXT NOT NULL, alive_until REAL, input BLOB NOT NULL,
    response BLOB NOT NULL, size INTEGER NOT NULL);
CREATE TABLE items (id TEXT NOT NULL, response TEXT NOT NULL
    REFERENCES responses (id) ON DELETE CASCADE, PRIMARY KEY (id, response)) WITHOUT ROWID;
CREATE TABLE total (only INTEGER PRIMARY KEY CHECK (only = 1), bytes INTEGER);
CREATE TRIGGER response_removed AFTER DELETE ON responses BEGIN
    UPDATE total SET bytes = bytes - old.size; END;
"""


async def test_a_file_of_the_old_way_is_understood_and_says_so(
    tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "old.sqlite"
    with sqlite3.connect(path) as connection:
        connection.executescript(_OLD_SCHEMA)
        kept, input = json.dumps(response("r1")).encode(), json.dumps(asked("r1")).encode()
        size = len(kept) + len(input)
        row = ("r1", OWNER, None, clock.now, "completed", None, input, kept, size)
        connection.execute("INSERT INTO responses VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        connection.execute("INSERT INTO items VALUES ('msg_r1', 'r1')")
        connection.execute("INSERT INTO total VALUES (1, ?)", (size,))
    connection.close()
    for _ in range(2):
        caplog.clear()
        store = ResponseStore(ResponsesStoreSettings(path=str(path)), "sqlite:/none", clock)
        await store.start()
        assert caplog.text.count("the old way") == 1
        assert (await store.get(OWNER, "r1")).response == response("r1")
        assert list(await store.items(OWNER, ["msg_r1"])) == ["msg_r1"]
        assert await rows(store, "SELECT bytes FROM stored_total") == [(size,)]
        await store.stop()


# Interactions, which are kept beside responses ----------------------------------------------------


def interaction(interaction_id: str, status: str = "completed") -> dict[str, Any]:
    call = {"type": "function_call", "id": "call_1", "name": "f", "arguments": {}}
    return {"id": interaction_id, "status": status, "steps": [call]}


STEPS = [{"type": "user_input", "content": [{"type": "text", "text": "Hi"}]}]


async def test_an_interaction_goes_on_from_its_steps(store: ResponseStore) -> None:
    await store.save(OWNER, interaction("int_1"), STEPS)
    await store.save(OWNER, interaction("int_2"), STEPS, "int_1")
    told = [*STEPS, *interaction("int_1")["steps"]]
    history = await store.history(OWNER, "int_2", INTERACTIONS_KEPT)
    assert history.items == told * 2
    assert await store.items(OWNER, ["call_1"]) == {}
    await store.delete(OWNER, "int_1", INTERACTIONS_KEPT)
    lost = store.history(OWNER, "int_2", INTERACTIONS_KEPT)
    assert await code_of(lost) == (400, "previous_interaction_not_found")


async def test_no_api_is_told_of_the_others_replies(store: ResponseStore) -> None:
    await store.save(OWNER, interaction("int_1"), STEPS)
    await save(store, "resp_1")
    for stray in (store.get(OWNER, "int_1"), store.cancel(OWNER, "int_1")):
        assert await code_of(stray) == (404, "response_not_found")
    assert await code_of(store.delete(OWNER, "int_1")) == (404, "response_not_found")
    assert await code_of(store.history(OWNER, "int_1")) == (400, "previous_response_not_found")
    for stray in (
        store.get(OWNER, "resp_1", INTERACTIONS_KEPT),
        store.cancel(OWNER, "resp_1", INTERACTIONS_KEPT),
    ):
        assert await code_of(stray) == (404, "interaction_not_found")
    gone = store.delete(OWNER, "resp_1", INTERACTIONS_KEPT)
    assert await code_of(gone) == (404, "interaction_not_found")
    history = store.history(OWNER, "resp_1", INTERACTIONS_KEPT)
    assert await code_of(history) == (400, "previous_interaction_not_found")


async def test_an_interaction_that_nobody_works_on_has_failed(
    store: ResponseStore, clock: Clock
) -> None:
    await store.save(OWNER, interaction("int_1", "in_progress"), STEPS)
    running = store.history(OWNER, "int_1", INTERACTIONS_KEPT)
    assert (await code_of(running))[0] == 400
    clock.now += ALIVE_SECONDS + 1
    kept = (await store.get(OWNER, "int_1", INTERACTIONS_KEPT)).response
    assert kept["status"] == "failed"
    assert [error["code"] for error in kept["errors"]] == ["server_error"]


async def test_an_interaction_is_cancelled_while_it_runs(store: ResponseStore) -> None:
    await store.save(OWNER, interaction("int_1", "in_progress"), STEPS)
    for _ in range(2):
        cancelled = await store.cancel(OWNER, "int_1", INTERACTIONS_KEPT)
        assert cancelled["status"] == "cancelled"
    await store.save(OWNER, interaction("int_2"), STEPS)
    assert (await store.cancel(OWNER, "int_2", INTERACTIONS_KEPT))["status"] == "completed"


async def test_an_interaction_that_fails_in_the_background_says_so(store: ResponseStore) -> None:
    background = BackgroundResponses(store)
    queued = interaction("int_1", "in_progress")
    await store.save(OWNER, queued, STEPS)

    async def work() -> dict[str, Any]:
        raise APIError(503, "Busy.")

    await background.run(queued, work)
    kept = (await store.get(OWNER, "int_1", INTERACTIONS_KEPT)).response
    assert kept["errors"] == [{"code": "service_unavailable", "message": "Busy."}]
