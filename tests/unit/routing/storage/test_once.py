"""Rows that are kept once, whether or not anybody hears of it."""

from __future__ import annotations

import asyncio

import pytest

from routing.storage import once as module
from routing.storage.once import kept_once
from routing.storage.storage import (
    Migrations,
    RowRefused,
    Storage,
    StorageAway,
    Transaction,
    open_storage,
)
from tests.postgres import LossyWay, PostgresServer, emptied

TABLES = Migrations("once", [["CREATE TABLE one (id TEXT PRIMARY KEY, times BIGINT NOT NULL)"]])


async def keep(storage: Storage, name: str) -> None:
    async def write(transaction: Transaction) -> None:
        await transaction.insert("one", ("id", "times"), [(name, 1)])

    await kept_once(storage, ("SELECT 1 FROM one WHERE id = ?", name), write)


async def test_what_nobody_heard_was_kept_is_kept_once(postgres_server: PostgresServer) -> None:
    await emptied(postgres_server.address)
    async with LossyWay(postgres_server, every=3, after=1).opened() as way:
        storage = open_storage(way.address, [TABLES])
        await storage.start()
        try:
            for number in range(12):
                await keep(storage, f"r{number:02}")
            assert way.lost > 3
        finally:
            await storage.stop()
    storage = open_storage(postgres_server.address, [TABLES])
    try:
        kept = await storage.fetch("SELECT id FROM one ORDER BY id")
        assert kept == [(f"r{number:02}",) for number in range(12)]
    finally:
        await storage.stop()


async def test_it_is_seen_whether_it_was_kept_while_the_database_starts_again(
    postgres_server: PostgresServer,
) -> None:
    await emptied(postgres_server.address)
    storage = open_storage(postgres_server.address, [TABLES])
    await storage.start()
    tried = 0

    async def write(transaction: Transaction) -> None:
        nonlocal tried
        tried += 1
        await transaction.insert("one", ("id", "times"), [("x", tried)])
        if tried == 1:
            # What was written and not committed is gone.
            await asyncio.to_thread(postgres_server.stop)
            starting.append(asyncio.create_task(asyncio.to_thread(postgres_server.start)))

    starting: list[asyncio.Task[None]] = []
    try:
        await kept_once(storage, ("SELECT 1 FROM one WHERE id = ?", "x"), write)
        assert await storage.fetch("SELECT id, times FROM one") == [("x", 2)]
    finally:
        await asyncio.gather(*starting)
        await storage.stop()


async def test_what_is_certainly_not_kept_is_said_at_once(address: str) -> None:
    storage = open_storage(address, [TABLES])
    await storage.start()
    try:
        await keep(storage, "x")
        with pytest.raises(RowRefused):
            await keep(storage, "x")
    finally:
        await storage.stop()


async def test_nobody_is_kept_waiting_for_ever(
    postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "UNSURE_SECONDS", 0.2)
    await emptied(postgres_server.address)
    storage = open_storage(postgres_server.address, [TABLES])
    await storage.start()

    async def write(transaction: Transaction) -> None:
        await transaction.insert("one", ("id", "times"), [("x", 1)])
        await asyncio.to_thread(postgres_server.stop)

    try:
        with pytest.raises(StorageAway):
            await kept_once(storage, ("SELECT 1 FROM one WHERE id = ?", "x"), write)
    finally:
        await asyncio.to_thread(postgres_server.start)
        await storage.stop()


async def test_what_is_there_is_kept_though_no_commit_is_heard_of(
    postgres_server: PostgresServer,
) -> None:
    await emptied(postgres_server.address)
    async with LossyWay(postgres_server, every=1, after=1).opened() as way:
        storage = open_storage(way.address, [TABLES])
        await storage.start()
        try:
            await keep(storage, "x")
            assert way.lost == 1
        finally:
            await storage.stop()
