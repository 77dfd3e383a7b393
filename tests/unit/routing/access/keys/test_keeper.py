"""Keys and spending in a storage, and the servers that keep in step with it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from llama_compat.distribution import KeyGrant
from providers.base import ProviderStartError
from routing.access.keys import keeper as module
from routing.access.keys.keeper import Keeper
from routing.access.keys.secret import digest_of
from routing.access.keys.store import KEYS, KeyChanged, KeyRefused, KeyStore, NoSuchKey
from routing.access.limits.memory import MemoryCounters
from routing.access.limits.rules import Charge, Resource, Rule
from routing.storage.once import FORGOTTEN_SECONDS
from routing.storage.storage import StorageError, open_storage
from tests.postgres import LossyWay, PostgresServer, emptied, read_only


@pytest.fixture
async def store(address: str) -> AsyncIterator[KeyStore]:
    storage = open_storage(address, [KEYS])
    await storage.start()
    yield KeyStore(storage, clock=lambda: 1000.0, teams={"tools", "research"})
    await storage.stop()


GRANT = KeyGrant.model_validate(
    {
        "name": "ci",
        "team": "tools",
        "expires": "2030-01-01",
        "models": ["gpt-*"],
        "limits": {"concurrent": 3},
        "budget": {"amount": 5, "period": "day"},
        "metadata": {"mail": "a@b"},
        "tools": ["web_*"],
        "guardrails": [{"name": "pii", "patterns": ["emails"], "mode": "redact"}],
    }
)


async def test_a_key_is_kept_as_it_was_made(store: KeyStore) -> None:
    made, secret = await store.create(GRANT)
    (kept,) = await store.list()
    assert kept == made
    assert kept.grant == GRANT
    assert kept.digest == digest_of(secret.encode())
    assert secret.startswith(f"{kept.prefix}-")
    assert kept.shown() == {
        "id": made.id,
        "prefix": made.prefix,
        "created": "1970-01-01T00:16:40Z",
        "revoked": None,
        "version": made.revision,
        **GRANT.model_dump(mode="json"),
    }
    assert secret not in str(kept.shown())
    assert kept.digest not in str(kept.shown())


async def test_a_key_is_found_by_id_prefix_or_name(store: KeyStore) -> None:
    made, _ = await store.create(GRANT)
    for name in (made.id, made.prefix, "ci"):
        assert (await store.change(name, {"metadata": {"by": name}})).grant.metadata["by"] == name
    with pytest.raises(NoSuchKey):
        await store.change("c", {})
    other, _ = await store.create(GRANT)
    with pytest.raises(NoSuchKey, match=f"{made.id}, {other.id}"):
        await store.revoke("ci")
    await store.revoke(other.id)
    # Of two of one name, the one that is not revoked.
    assert (await store.revoke("ci")).id == made.id
    with pytest.raises(NoSuchKey):
        await store.revoke("ci")
    assert (await store.revoke(made.id)).revoked == 1000.0
    with pytest.raises(NoSuchKey, match="revoked"):
        await store.rotate(made.id)


async def test_a_change_leaves_the_rest(store: KeyStore) -> None:
    made, _ = await store.create(GRANT)
    changed = await store.change(made.id, {"limits": None, "name": "other"})
    assert changed.grant == GRANT.model_copy(update={"limits": None, "name": "other"})
    assert (changed.digest, changed.created) == (made.digest, made.created)
    with pytest.raises(ValidationError):
        await store.change(made.id, {"budget": {"amount": 0}})
    assert (await store.list())[0].grant == changed.grant


LONG_AGO = {"expires": "1970-01-01T00:16:40Z"}
"""The moment at which the store's clock stands."""


@pytest.mark.parametrize(
    ("wrong", "member", "message"),
    [
        (LONG_AGO, "expires", r"in the past \(1970-01-01 00:16 UTC\)"),
        ({"team": "tool"}, "team", "no team 'tool'.* are: 'research', 'tools'"),
    ],
)
async def test_a_key_that_would_not_open_what_it_says_is_refused(
    store: KeyStore, wrong: dict[str, str], member: str, message: str
) -> None:
    made, _ = await store.create(GRANT)
    with pytest.raises(KeyRefused, match=message) as refused:
        await store.create(KeyGrant.model_validate({"name": "other", **wrong}))
    assert refused.value.member == member
    with pytest.raises(KeyRefused, match=message):
        await store.change(made.id, wrong)
    assert await store.list() == [made]
    with pytest.raises(KeyRefused, match="add --template"):
        await KeyStore(store._storage).create(KeyGrant(name="x", team="tools"))


async def test_what_is_secret_of_a_check_is_not_kept(store: KeyStore) -> None:
    hook = {"url": "https://checks.example", "headers": {"authorization": "secret"}}
    checked = {"guardrails": [{"name": "ours", "http": hook}]}
    with pytest.raises(KeyRefused, match="in clear") as refused:
        await store.create(KeyGrant.model_validate({"name": "other", **checked}))
    assert refused.value.member == "guardrails.0.http.headers"


async def test_an_expired_key_is_changed_and_not_rotated(store: KeyStore) -> None:
    made, _ = await store.create(GRANT)
    later = 1.9e9
    late = KeyStore(store._storage, clock=lambda: later, teams=())
    with pytest.raises(KeyRefused, match=f"'ci' has expired.*/admin/keys/{made.id}"):
        await late.rotate("ci")
    assert await store.list() == [made]
    # What it was is not held against it, its team that is gone neither.
    assert (await late.change("ci", {"models": []})).grant.expires == GRANT.expires
    await late.change("ci", {"expires": "2040-01-01"})
    assert (await late.rotate("ci"))[0].digest != made.digest


async def test_each_change_has_a_revision(store: KeyStore) -> None:
    first, _ = await store.create(GRANT)
    second, _ = await store.create(GRANT)
    assert (first.revision, second.revision) == (1, 2)
    third, _ = await store.rotate(first.id)
    assert third.revision == 3
    assert {each.id for each in await store.list(2)} == {first.id, second.id}
    assert [each.id for each in await store.list(3)] == [first.id]
    assert await store.list(4) == []


async def test_what_somebody_else_has_changed_since_is_not_written_over(store: KeyStore) -> None:
    read, _ = await store.create(GRANT)
    first = await store.change("ci", {"models": ["a"]}, read.revision)
    for late in ({"models": ["b"]}, {"name": "robot"}):
        with pytest.raises(KeyChanged, match="'ci' since it was read"):
            await store.change(read.id, late, read.revision)
    assert await store.list() == [first]
    again = await store.change("ci", {"name": "robot"}, first.revision)
    assert (again.grant.models, again.grant.name) == (["a"], "robot")


async def test_spending_adds_up_and_ends(store: KeyStore) -> None:
    first = store.next_batch()
    for _ in range(2):  # as after an answer that was lost
        await store.spend(first, {"a": (1.0, 2000.0), "b": (0.5, 0.0), "old": (9.0, 999.0)})
        assert await store.spent() == {"a": (1.0, 2000.0), "b": (0.5, 0.0)}
    await store.spend(store.next_batch(), {"a": (0.25, 2000.0)})
    assert await store.spent() == {"a": (1.25, 2000.0), "b": (0.5, 0.0)}


async def test_spending_of_periods_long_over_is_forgotten(store: KeyStore) -> None:
    await store.spend(store.next_batch(), {"a": (1.0, 2000.0), "b": (0.5, 0.0)})
    later = 2000.0 + FORGOTTEN_SECONDS
    for now, left in ((later - 1, {"a", "b", "c"}), (later + 1, {"b", "c"})):
        another = KeyStore(store._storage, clock=lambda now=now: now)  # type: ignore[misc]
        await another.spend(another.next_batch(), {"c": (1.0, 9e9)})
        rows = await store._storage.fetch("SELECT counter FROM spending")
        assert {counter for (counter,) in rows} == left


@asynccontextmanager
async def keeping(
    address: str, counters: MemoryCounters | None = None, look_seconds: float = 1000.0
) -> AsyncIterator[Keeper]:
    keeper = Keeper(address, counters or MemoryCounters(), look_seconds)
    await keeper.start()
    try:
        yield keeper
    finally:
        await keeper.stop()


async def test_a_server_knows_the_keys_that_there_are(address: str, store: KeyStore) -> None:
    before, _ = await store.create(GRANT)
    async with keeping(address) as keeper:
        keys = keeper.keys
        assert set(keys) == {before.digest}
        new, _ = await store.create(GRANT)
        await keeper.refresh()
        assert set(keys) == {before.digest, new.digest}
        rotated, _ = await store.rotate(before.id)
        await store.revoke(new.id)
        await keeper.refresh(at_once=True)
        assert set(keys) == {rotated.digest, new.digest}
        assert not keys[new.digest].is_good(0)
        assert keys[rotated.digest].is_good(0)


async def written_by_a_newer_version(address: str, key: str) -> None:
    await change(address, "UPDATE key_revisions SET newest = newest + 1")
    settings = '{"name": "newer", "nobody_knows": 1}'
    await change(
        address,
        f"UPDATE keys SET settings = '{settings}', revision = (SELECT newest FROM key_revisions)"
        f" WHERE id = '{key}'",
    )


async def test_a_key_of_a_newer_version_opens_nothing_and_is_not_written_over(
    address: str, store: KeyStore
) -> None:
    newer, _ = await store.create(GRANT)
    await store.create(GRANT)
    await written_by_a_newer_version(address, newer.id)
    found = {each.id: each for each in await store.list()}
    assert {each.id for each in found.values() if not each.is_readable} == {newer.id}
    assert not found[newer.id].key().is_good(0)
    assert found[newer.id].shown()["name"] == "newer"
    for attempt in (store.change("newer", {"models": ["a"]}), store.rotate(newer.id)):
        with pytest.raises(KeyRefused, match="newer version"):
            await attempt
    assert (await store.change("ci", {"models": ["a"]})).grant.models == ["a"]
    assert (await store.revoke("newer")).revoked is not None


async def test_what_is_revoked_is_seen_beside_a_key_of_a_newer_version(
    address: str, store: KeyStore, caplog: pytest.LogCaptureFixture
) -> None:
    newer, _ = await store.create(GRANT)
    other, _ = await store.create(GRANT)
    async with keeping(address, look_seconds=0.01) as keeper:
        assert keeper.keys[newer.digest].is_good(0)
        await written_by_a_newer_version(address, newer.id)
        await _until(lambda: not keeper.keys[newer.digest].is_good(0))
        await store.revoke(other.id)
        await _until(lambda: not keeper.keys[other.digest].is_good(0))
    told = [each.message for each in caplog.records if newer.id in each.message]
    assert len(told) == 1
    assert "newer version" in told[0]


async def test_keys_that_nobody_knows_are_not_looked_for_again_and_again(
    address: str, store: KeyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with keeping(address) as keeper:
        loop, begun = asyncio.get_running_loop(), list[float]()
        read = keeper.store.list

        async def noted(since: int = 0) -> list[object]:
            begun.append(loop.time())
            return list(await read(since))

        monkeypatch.setattr(keeper.store, "list", noted)
        await asyncio.gather(*(keeper.refresh() for _ in range(50)))
        await asyncio.gather(*(keeper.refresh() for _ in range(50)))
        first, second = begun
        assert second - first >= module.SOONEST_SECONDS


async def test_a_key_is_known_that_was_made_after_a_look_or_while_it_went_on(
    address: str, store: KeyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with keeping(address) as keeper:
        await keeper.refresh()
        after, _ = await store.create(GRANT)
        await keeper.refresh()
        assert after.digest in keeper.keys
        reads, goes_on = asyncio.Event(), asyncio.Event()
        read = keeper.store.list

        async def slow(since: int = 0) -> list[object]:
            found = list(await read(since))
            reads.set()
            await goes_on.wait()
            return found

        monkeypatch.setattr(keeper.store, "list", slow)
        earlier = asyncio.create_task(keeper.refresh(at_once=True))
        await reads.wait()
        meanwhile, _ = await store.create(GRANT)
        later = asyncio.create_task(keeper.refresh())
        await asyncio.sleep(0)
        goes_on.set()
        await asyncio.gather(earlier, later)
        assert meanwhile.digest in keeper.keys


RULE = Rule("key:a", Resource.budget, 2.0, "key 'a'")
CHARGE = Charge(RULE, "key:a:budget:ever", reserve=0.1)


async def used(counters: MemoryCounters) -> float:
    taken = await counters.take([CHARGE])
    counters.settle(taken.lease, [CHARGE], [0.0])
    return taken.levels[0][0]


async def test_spending_is_shared_and_outlives_a_server(address: str) -> None:
    first, second = MemoryCounters(), MemoryCounters()
    async with keeping(address, first, 0.01) as one, keeping(address, second, 0.01) as other:
        for counters, keeper in ((first, one), (second, other)):
            taken = await counters.take([CHARGE])
            counters.settle(taken.lease, [CHARGE], [0.5])
            keeper.spent(CHARGE, 0.5)
        async with asyncio.timeout(10):
            for counters in (first, second):
                await _until_used(counters, 1.0)
    third = MemoryCounters()
    async with keeping(address, third):
        assert await used(third) == pytest.approx(1.0)


async def _until_used(counters: MemoryCounters, amount: float) -> None:
    found = await used(counters)
    while found != pytest.approx(amount):
        assert found <= amount
        await asyncio.sleep(0.01)
        found = await used(counters)


async def change(address: str, statement: str) -> None:
    storage = open_storage(address, [KEYS])
    await storage.start()
    async with storage.transaction() as transaction:
        await transaction.fetch(statement)
    await storage.stop()


async def test_what_could_not_be_written_is_written_later(
    address: str, caplog: pytest.LogCaptureFixture
) -> None:
    counters = MemoryCounters()
    async with keeping(address, counters) as keeper:
        await change(address, "ALTER TABLE spending RENAME TO elsewhere")
        keeper.spent(CHARGE, 0.5)
        await keeper._write_spent()
        await keeper._write_spent()
        assert [record.levelname for record in caplog.records] == ["ERROR"]
        keeper.spent(CHARGE, 0.25)
        await change(address, "ALTER TABLE elsewhere RENAME TO spending")
    after = MemoryCounters()
    async with keeping(address, after):
        assert await used(after) == pytest.approx(0.75)


async def test_counters_hear_of_what_could_not_be_written_and_of_what_could(address: str) -> None:
    """As if they had lost what they had while the storage was away."""
    counters = MemoryCounters()
    async with keeping(address, counters, 1000.0) as keeper:
        keeper.spent(CHARGE, 0.5)
        await keeper._write_spent()
        assert await used(counters) == 0.5
        read = keeper.store.spent
        keeper.store.spent = unreadable  # type: ignore[method-assign]
        keeper.spent(CHARGE, 0.25)
        for _ in range(2):
            await keeper._write_spent()
            assert await used(counters) == 0.75
        await change(address, "ALTER TABLE spending RENAME TO elsewhere")
        keeper.spent(CHARGE, 0.125)
        for _ in range(2):
            await keeper._write_spent()
            assert await used(counters) == 0.875
        keeper.store.spent = read  # type: ignore[method-assign]
        await change(address, "ALTER TABLE elsewhere RENAME TO spending")
        await keeper._write_spent()
        assert await used(counters) == 0.875


async def unreadable() -> Any:
    raise StorageError("away")


async def test_spending_is_kept_once_though_nobody_heard_that_it_was(
    postgres_server: PostgresServer,
) -> None:
    await emptied(postgres_server.address)
    async with LossyWay(postgres_server, every=2).opened() as way:
        async with keeping(way.address) as keeper:
            for _ in range(20):
                keeper.spent(CHARGE, 0.5)
                await keeper._write_spent()
        assert way.lost > 5
    counters = MemoryCounters()
    async with keeping(postgres_server.address, counters):
        assert await used(counters) == pytest.approx(10.0)


async def test_keys_are_read_while_nothing_can_be_written(
    postgres_server: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    address = postgres_server.address
    await emptied(address)
    storage = open_storage(address, [KEYS])
    await storage.start()
    made, _ = await KeyStore(storage, teams={"tools"}).create(GRANT)
    async with read_only(address), keeping(address) as keeper:
        assert set(keeper.keys) == {made.digest}
        keeper.spent(CHARGE, 0.5)
        await keeper._write_spent()
        await keeper.refresh(at_once=True)
        assert not keeper.is_away
    await storage.stop()
    assert "spending is kept later" in caplog.text


async def test_nobody_waits_long_for_a_storage_that_hangs(
    postgres_server: PostgresServer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    monkeypatch.setattr(module, "ANSWER_SECONDS", 0.2)
    address = postgres_server.address
    await emptied(address)
    async with keeping(address, look_seconds=0.05) as keeper:
        postgres_server.pause()
        try:
            async with asyncio.timeout(20):
                with pytest.raises(StorageError, match=r"takes longer than 0\.2 s|can't be used"):
                    await keeper.refresh()
            assert keeper.is_away
            # Whoever comes next does not wait at all.
            waiting = keeper._refreshing
            for _ in range(100):
                with pytest.raises(StorageError):
                    await keeper.refresh()
            assert keeper._refreshing is waiting
        finally:
            postgres_server.resume()
        await _until(lambda: not keeper.is_away)
        await keeper.refresh()
    said = [each.getMessage() for each in caplog.records]
    assert said[0].startswith("stored keys stay as they are known: postgres://")
    assert any(each.startswith("stored keys are read again, after ") for each in said)


async def test_a_server_starts_without_its_storage_and_knows_the_keys_later(
    postgres_server: PostgresServer,
) -> None:
    address = postgres_server.address
    await emptied(address)
    storage = open_storage(address, [KEYS])
    await storage.start()
    store = KeyStore(storage, teams={"tools"})
    made, _ = await store.create(GRANT)
    await store.spend(store.next_batch(), {CHARGE.counter: (0.5, 0.0)})
    await storage.stop()
    postgres_server.stop()
    counters = MemoryCounters()
    try:
        # Who knows keys already, as before a reload, does not give them up for that.
        stays = Keeper(address, counters)
        with pytest.raises(ProviderStartError, match=r"server\.storage"):
            await stays.start(waits=False)
        await stays.stop()
        keeper = Keeper(address, counters, look_seconds=0.02)
        await keeper.start()
        assert keeper.is_away
        keeper.spent(CHARGE, 0.25)
    finally:
        postgres_server.start()
    await _until(lambda: keeper.keys)
    assert set(keeper.keys) == {made.digest}
    assert not keeper.is_away
    await _until_used(counters, 0.75)
    await keeper.stop()


async def test_what_would_not_be_better_later_ends_the_start(
    postgres_server: PostgresServer,
) -> None:
    for wrong in ("postgres://nobody@/postgres", "postgres://postgres@/nothing"):
        keeper = Keeper(f"{wrong}?host={postgres_server.folder}", MemoryCounters())
        with pytest.raises(ProviderStartError, match="does not exist"):
            await keeper.start()
        await keeper.stop()


async def _until(happened: Callable[[], object]) -> None:
    for _ in range(3000):
        if happened():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not happen in time")


async def test_a_storage_that_can_t_be_used_is_told_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "no.sqlite").write_text("this is no database, whatever its name says")
    keeper = Keeper(f"sqlite:{tmp_path / 'no.sqlite'}", MemoryCounters())
    with pytest.raises(ProviderStartError, match=r"server\.storage"):
        await keeper.start()
    await keeper.stop()
