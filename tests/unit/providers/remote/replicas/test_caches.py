"""What the caches of replicas hold: asked for again and again, told to whoever wants to know."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from llama_compat.errors import APIError
from llama_compat.prefixes.held import CacheNews, HeldPrompts, blocks_in
from providers.remote.replicas import caches as module
from providers.remote.replicas.caches import Place, ReplicaCaches

ONE, OTHER = ("m", "http://one"), ("m", "http://other")
A, B = b"A" * 8, b"B" * 8


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SOONEST_SECONDS", 0.005)
    monkeypatch.setattr(module, "LATEST_SECONDS", 0.02)


class Replicas:
    """Some replicas with a cache each."""

    def __init__(self, *places: Place) -> None:
        self.held = {place: HeldPrompts() for place in places}
        self.asked: list[Place] = []
        self.broken: set[Place] = set()
        self.silent: set[Place] = set()

    async def ask(self, place: Place, log: str, after: int) -> CacheNews:
        self.asked.append(place)
        if place in self.broken:
            raise APIError(502, "It is gone.")
        if place in self.silent:
            raise APIError(404, "It keeps none.")
        return self.held[place].news(log, after)

    def holds(self, place: Place, block: bytes) -> None:
        self.held[place].learn([(block, [block])])
        self.held[place].stored(block)


class Known:
    """What somebody was told."""

    def __init__(self) -> None:
        self.held: dict[Place, set[bytes]] = {}

    def __call__(self, model: str, place: str, news: CacheNews) -> None:
        before = set() if news.is_all else self.held.get((model, place), set())
        stored, removed = set(blocks_in(news.stored)), set(blocks_in(news.removed))
        self.held[model, place] = (before | stored) - removed


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not is_so():  # noqa: ASYNC110  a `ReplicaCaches` tells nobody
            await asyncio.sleep(0.002)


@asynccontextmanager
async def followed(replicas: Replicas) -> AsyncIterator[ReplicaCaches]:
    caches = ReplicaCaches(lambda: list(replicas.held), replicas.ask)
    try:
        yield caches
    finally:
        await caches.stop()


async def test_what_comes_and_goes_is_known() -> None:
    replicas, known = Replicas(ONE, OTHER), Known()
    replicas.holds(ONE, A)
    async with followed(replicas) as caches:
        caches.follow(known)
        await until(lambda: known.held == {ONE: {A}, OTHER: set()})
        replicas.holds(OTHER, B)
        await until(lambda: known.held[OTHER] == {B})
        replicas.held[ONE].removed(A)
        await until(lambda: known.held[ONE] == set())


async def test_a_replica_that_is_started_anew_is_told_anew() -> None:
    replicas, known = Replicas(ONE), Known()
    replicas.holds(ONE, A)
    async with followed(replicas) as caches:
        caches.follow(known)
        await until(lambda: known.held == {ONE: {A}})
        replicas.held[ONE] = HeldPrompts()
        replicas.holds(ONE, B)
        await until(lambda: known.held == {ONE: {B}})


async def test_one_that_comes_later_is_found_and_one_that_is_gone_is_asked_no_more() -> None:
    replicas, known = Replicas(ONE), Known()
    async with followed(replicas) as caches:
        caches.follow(known)
        await until(lambda: ONE in known.held)
        replicas.held = {OTHER: HeldPrompts()}
        await until(lambda: OTHER in known.held)
        del replicas.asked[:]
        await until(lambda: replicas.asked.count(OTHER) > 3)
        assert ONE not in replicas.asked


async def test_one_that_can_not_be_asked_holds_nobody_up() -> None:
    replicas, known = Replicas(ONE, OTHER), Known()
    replicas.broken.add(ONE)
    async with followed(replicas) as caches:
        caches.follow(known)
        replicas.holds(OTHER, B)
        await until(lambda: known.held == {OTHER: {B}})
        replicas.broken.clear()
        await until(lambda: known.held == {ONE: set(), OTHER: {B}})


async def test_all_who_follow_are_told_and_nobody_else() -> None:
    replicas, first, second = Replicas(ONE), Known(), Known()
    async with followed(replicas) as caches:
        assert not replicas.asked
        leave = caches.follow(first)
        replicas.holds(ONE, A)
        await until(lambda: first.held == {ONE: {A}})
        caches.follow(second)
        await until(lambda: second.held == {ONE: {A}})
        leave()
        replicas.holds(ONE, B)
        await until(lambda: second.held == {ONE: {A, B}})
        assert first.held == {ONE: {A}}


async def test_one_without_news_is_asked_less_often_until_it_is_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "LATEST_SECONDS", 1000.0)
    replicas, known = Replicas(ONE), Known()
    async with followed(replicas) as caches:
        caches.follow(known)
        await until(lambda: caches._known[ONE].pause > 0.1 if ONE in caches._known else False)
        replicas.holds(ONE, A)
        caches.used(ONE)
        await until(lambda: known.held == {ONE: {A}})
        assert caches._known[ONE].pause <= 0.1


async def test_many_are_asked_less_often_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_A_SECOND", 1000)
    replicas, known = Replicas(*(("m", f"http://{number}") for number in range(50))), Known()
    async with followed(replicas) as caches:
        caches.follow(known)
        await until(lambda: len(known.held) == 50)
        assert {each.pause for each in caches._known.values()} == {0.05}
        caches.used(("m", "http://7"))
        assert caches._known["m", "http://7"].pause == 0.05


async def test_one_that_has_none_is_left_alone() -> None:
    replicas, known = Replicas(ONE, OTHER), Known()
    replicas.silent.add(ONE)
    async with followed(replicas) as caches:
        caches.follow(known)
        await until(lambda: replicas.asked.count(OTHER) > 4)
        caches.used(ONE)
        await until(lambda: replicas.asked.count(OTHER) > 8)
    assert replicas.asked.count(ONE) == 1
    assert known.held == {OTHER: set()}


async def test_one_whom_news_break_is_told_of_and_keeps_them_from_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    replicas, known = Replicas(ONE), Known()
    broken = ["once"]

    def breaks(model: str, place: str, news: CacheNews) -> None:
        if broken:
            raise RuntimeError(broken.pop())

    async with followed(replicas) as caches:
        replicas.holds(ONE, A)
        caches.follow(breaks)
        caches.follow(known)
        await until(lambda: not broken)
        assert known.held == {ONE: {A}}
    assert "caches of replicas: one of those who are told" in caplog.text
