"""Who is in memory, who waits and who makes room: on a clock of its own, to the millisecond."""

from __future__ import annotations

import asyncio
import math
import random
from collections import Counter
from collections.abc import Callable, Sequence

import pytest

from llama_compat.distribution.residency import ModelStay, ResidencySettings
from llama_compat.errors import APIError
from providers.base import ProviderStartError
from providers.local.residency.ledger import Sizes
from providers.local.residency.residency import Residency
from providers.local.residency.resident import Resident, Whereabouts
from tests.virtual_time import in_virtual_time


class Shelf:
    """A model that takes its time to come and to go, and notes what is done with it.

    It owns its memory: `of_all` is what all of them have, which nobody else counts.
    """

    provider = "shelf"

    def __init__(
        self,
        name: str,
        needs: Sizes,
        events: list[str],
        of_all: Counter[str],
        *,
        seconds: float = 1.0,
        parks: Sizes | None = None,
    ) -> None:
        self.name, self.needs, self.parks = name, dict(needs), dict(parks or {})
        self.takes: Sizes = self.needs
        self.seconds = seconds
        self.max_waiting: int | None = None
        self.fails: Exception | None = None
        self.there = False
        self.when_loaded: Callable[[], object] = lambda: None
        self._events, self._of_all = events, of_all
        self.most = Counter[str]()

    def _take(self, sizes: Sizes, times: int = 1) -> None:
        for device, size in sizes.items():
            self._of_all[device] += times * size
            self.most[device] = max(self.most[device], self._of_all[device])

    async def load(self) -> Sizes:
        self._take(self.needs)
        try:
            await asyncio.sleep(self.seconds)
            if self.fails is not None:
                raise self.fails
        except BaseException:
            self._take(self.needs, -1)
            raise
        self._events.append(f"+{self.name}")
        self._take(self.needs, -1)
        self._take(self.takes)
        self.there = True
        asyncio.get_running_loop().call_soon(self.when_loaded)
        return self.takes

    async def unload(self) -> None:
        self._events.append(f"-{self.name}")
        await asyncio.sleep(0.1)
        self._take(self.takes if self.there else self.parks, -1)
        self.there = False

    async def park(self) -> Sizes:
        self._events.append(f"p{self.name}")
        self._take(self.parks)
        await asyncio.sleep(0.1)
        self._take(self.takes, -1)
        self.there = False
        return self.parks

    async def unpark(self) -> Sizes:
        self._take(self.needs)
        await asyncio.sleep(self.seconds / 10)
        self._take(self.parks, -1)
        self._events.append(f"u{self.name}")
        self.there = True
        return self.takes


class House:
    """A residency with models of a size each."""

    def __init__(self, bounds: Sizes, **settings: float) -> None:
        self.residency = Residency(bounds, ResidencySettings.model_validate(settings))
        self.events: list[str] = []
        self.of_all = Counter[str]()
        self.shelves: dict[str, Shelf] = {}

    def add(
        self,
        name: str,
        needs: Sizes,
        *,
        keep: str = "on_demand",
        seconds: float = 1.0,
        parks: Sizes | None = None,
    ) -> Resident:
        shelf = Shelf(name, needs, self.events, self.of_all, seconds=seconds, parks=parks)
        self.shelves[name] = shelf
        return self.residency.add(shelf, ModelStay(keep, park=bool(parks)))

    async def ask(self, resident: Resident, seconds: float = 0.0) -> float:
        """One request that takes so long; when it began."""
        lease = await resident.lease()
        shelf = self.shelves[resident.model.name]
        began = asyncio.get_running_loop().time()
        assert shelf.there
        try:
            await asyncio.sleep(seconds)
            assert shelf.there, f"{shelf.name} went while it was asked"
        finally:
            lease.release()
        return began

    async def settled(self) -> None:
        """All that is to happen without anybody asking has happened."""
        await asyncio.sleep(1000)


def asking(house: House, *asked: tuple[Resident, float]) -> Sequence[asyncio.Task[float]]:
    return [asyncio.create_task(house.ask(*each)) for each in asked]


CPU = {"cpu": 10}


@in_virtual_time
async def test_a_model_is_loaded_when_it_is_asked_for_and_once_for_all_who_ask() -> None:
    house = House(CPU)
    model = house.add("a", {"cpu": 5})
    await asyncio.sleep(1)
    assert house.events == []
    began = await asyncio.gather(*asking(house, (model, 1), (model, 2), (model, 0)))
    assert began == [2.0, 2.0, 2.0]
    assert house.events == ["+a"]
    assert await house.ask(model) == 4.0
    assert house.events == ["+a"]


@in_virtual_time
async def test_the_one_that_was_idle_longest_makes_room() -> None:
    house = House(CPU, stay_seconds=0)
    a, b, c = (house.add(name, {"cpu": 5}) for name in "abc")
    for each in (a, b, a):
        await house.ask(each, 5)
    await house.ask(c)
    assert house.events == ["+a", "+b", "-b", "+c"]


@in_virtual_time
async def test_nobody_makes_room_before_its_requests_have_ended() -> None:
    house = House(CPU, stay_seconds=0)
    a, b = house.add("a", {"cpu": 8}), house.add("b", {"cpu": 8})
    [long] = asking(house, (a, 30))
    await asyncio.sleep(5)
    [waits] = asking(house, (b, 0))
    await asyncio.sleep(5)
    [later] = asking(house, (a, 0))  # it takes no more: b would wait for ever
    assert await long == 1.0
    assert await waits == pytest.approx(31 + 0.1 + 1)
    # b was there for as long as loading it took before it went again.
    assert await later == pytest.approx(32.1 + 1 + 0.1 + 1)
    assert house.events == ["+a", "-a", "+b", "-b", "+a"]


@in_virtual_time
async def test_who_becomes_idle_goes_in_place_of_who_is_busy_and_that_takes_requests_again() -> (
    None
):
    house = House(CPU, stay_seconds=0)
    a, b, c = (house.add(name, {"cpu": 5}) for name in "abc")
    asking(house, (a, 100))
    await asyncio.sleep(2)
    asking(house, (b, 10))
    await asyncio.sleep(5)
    [third] = asking(house, (c, 0))
    await asyncio.sleep(0)
    assert (a.yields, b.yields) == (True, False)
    [again] = asking(house, (a, 0))
    assert await third == pytest.approx(13 + 0.1 + 1)
    assert await again == pytest.approx(13)  # as soon as b was idle, and so the one to go
    assert house.events == ["+a", "+b", "-b", "+c"]


@in_virtual_time
async def test_what_was_loaded_stays_for_a_while() -> None:
    house = House(CPU, stay_seconds=20)
    a, b = house.add("a", {"cpu": 8}), house.add("b", {"cpu": 8})
    assert await house.ask(a) == 1.0
    began = await asyncio.gather(*asking(house, (b, 0), (a, 0), (a, 0)))
    assert began == [pytest.approx(21 + 0.1 + 1), 1.0, 1.0]


@in_virtual_time
async def test_two_that_are_asked_in_turn_are_loaded_no_more_often_than_they_stay() -> None:
    house = House(CPU, stay_seconds=10)
    a, b = house.add("a", {"cpu": 8}), house.add("b", {"cpu": 8})

    async def client(model: Resident) -> None:
        for _ in range(50):
            await house.ask(model, 0.1)

    await asyncio.gather(*(client(each) for each in (a, b) for _ in range(4)))
    # Each stay is of ten seconds, in which a client has all of its 50 requests answered.
    assert len(house.events) <= 5


@in_virtual_time
async def test_a_load_of_a_minute_is_worth_a_stay_of_a_minute() -> None:
    house = House(CPU, stay_seconds=1)
    a, b = house.add("a", {"cpu": 8}, seconds=60), house.add("b", {"cpu": 8})
    await house.ask(a)
    assert await house.ask(b) == pytest.approx(60 + 60 + 0.1 + 1)


@in_virtual_time
async def test_who_came_first_is_first_whatever_fits() -> None:
    house = House(CPU, stay_seconds=0)
    a, large, small = house.add("a", {"cpu": 6}), house.add("l", {"cpu": 10}), house.add("s", CPU)
    house.shelves["s"].needs = {"cpu": 2}
    [first] = asking(house, (a, 20))
    await asyncio.sleep(2)
    waits = asking(house, (large, 5), (small, 0))
    assert await first == 1.0
    began = await asyncio.gather(*waits)
    assert began[0] == pytest.approx(21 + 0.1 + 1)
    assert began[1] > began[0] + 5


@in_virtual_time
async def test_another_device_is_another_queue() -> None:
    house = House({"cpu": 10, "cuda:0": 10}, stay_seconds=0)
    a, b, c = house.add("a", CPU), house.add("b", CPU), house.add("c", {"cuda:0": 10})
    asking(house, (a, 100))
    await asyncio.sleep(2)
    asking(house, (b, 0))
    assert await house.ask(c) == 3.0


@in_virtual_time
async def test_no_more_leave_than_have_to() -> None:
    house = House(CPU, stay_seconds=0)
    a, b, c = house.add("a", {"cpu": 2}), house.add("b", {"cpu": 7}), house.add("c", {"cpu": 8})
    await house.ask(a)
    await house.ask(b)
    await house.ask(c)
    assert house.events == ["+a", "+b", "-b", "+c"]


@in_virtual_time
async def test_who_is_kept_always_never_makes_room() -> None:
    house = House(CPU, stay_seconds=0)
    a = house.add("a", {"cpu": 4}, keep="always")
    b, c = house.add("b", {"cpu": 6}), house.add("c", {"cpu": 5})
    await house.residency.preload(a)
    await house.ask(b)
    await house.ask(c)
    (await a.lease(0)).release()
    await house.settled()
    assert a.state is Whereabouts.ready
    assert house.events == ["+a", "+b", "-b", "+c"]


@in_virtual_time
async def test_an_idle_time_is_counted_from_the_last_request() -> None:
    house = House(CPU)
    a, b = house.add("a", {"cpu": 4}, keep="idle 1m"), house.add("b", {"cpu": 4})
    await asyncio.gather(*asking(house, (a, 30), (b, 0)))
    await house.ask(a, 10)
    assert a.snapshot().expires_seconds == 60
    await asyncio.sleep(59.9)
    assert a.state is Whereabouts.ready
    await asyncio.sleep(0.3)
    assert a.state is Whereabouts.out
    await house.settled()
    assert b.state is Whereabouts.ready
    assert house.events == ["+a", "+b", "-a"]


@pytest.mark.parametrize(
    ("keep", "keep_alive", "goes_after"),
    [
        ("on_demand", 0.0, 0.0),
        ("on_demand", 30.0, 30.0),
        ("idle 10s", 30.0, 30.0),
        ("idle 10s", math.inf, None),
        ("idle 10s", None, 10.0),
        ("always", 0.0, None),
    ],
)
@in_virtual_time
async def test_a_client_says_how_long_a_model_stays(
    keep: str, keep_alive: float | None, goes_after: float | None
) -> None:
    house = House(CPU)
    model = house.add("a", {"cpu": 4}, keep=keep)
    lease = await model.lease(keep_alive)
    await asyncio.sleep(20)
    assert model.state is Whereabouts.ready  # its request has not ended
    lease.release()
    lease.release()
    ended = asyncio.get_running_loop().time()
    if goes_after is None:
        await house.settled()
        assert model.state is Whereabouts.ready
    else:
        await asyncio.sleep(ended + goes_after - 0.01 - asyncio.get_running_loop().time())
        assert model.state is (Whereabouts.ready if goes_after else Whereabouts.leaving)
        await asyncio.sleep(0.02)
        assert model.state is Whereabouts.leaving


@in_virtual_time
async def test_who_is_dismissed_goes_when_idle_and_is_back_for_those_who_wait() -> None:
    house = House(CPU, stay_seconds=60)
    model = house.add("a", {"cpu": 4}, keep="always")
    [runs] = asking(house, (model, 10))
    await asyncio.sleep(2)
    model.dismiss()
    [waits] = asking(house, (model, 0))
    assert await runs == 1.0
    assert await waits == pytest.approx(11 + 0.1 + 1)
    assert house.events == ["+a", "-a", "+a"]


# What does not go well ----------------------------------------------------------------------------


@in_virtual_time
async def test_a_load_that_fails_is_told_to_all_who_wait_and_the_next_tries_again() -> None:
    house = House(CPU)
    a, b = house.add("a", {"cpu": 8}), house.add("b", {"cpu": 8})
    house.shelves["a"].fails = ProviderStartError("There is no file.")
    waits = asking(house, (a, 0), (a, 0), (b, 0))
    told = await asyncio.gather(*waits, return_exceptions=True)
    assert isinstance(told[0], APIError)
    assert isinstance(told[1], APIError)
    assert (told[0].status, told[0].code) == (503, "model_not_loaded")
    assert "There is no file." in told[0].message
    assert told[0] is not told[1]
    assert told[2] == 2.0  # it had room at once
    house.shelves["a"].fails = None
    await house.ask(a)
    assert a.state is Whereabouts.ready


@in_virtual_time
async def test_what_fails_unexpectedly_is_not_told_to_clients() -> None:
    house = House(CPU)
    model = house.add("a", {"cpu": 8})
    house.shelves["a"].fails = ValueError("a secret path")
    with pytest.raises(APIError) as caught:
        await house.ask(model)
    assert "secret" not in caught.value.message


@in_virtual_time
async def test_who_waits_too_long_is_told_so_and_holds_nobody_up() -> None:
    house = House(CPU, stay_seconds=0, wait_seconds=10)
    a, b = house.add("a", {"cpu": 8}), house.add("b", {"cpu": 8})
    asking(house, (a, 100))
    await asyncio.sleep(2)
    with pytest.raises(APIError, match="no room in memory within 10 s") as caught:
        await house.ask(b)
    assert (caught.value.status, caught.value.code) == (503, "model_not_loaded")
    assert await house.ask(a) == 12.0


@in_virtual_time
async def test_who_leaves_while_waiting_takes_nothing_along() -> None:
    house = House(CPU, stay_seconds=0)
    a, b = house.add("a", {"cpu": 8}), house.add("b", {"cpu": 8})
    asking(house, (a, 100))
    await asyncio.sleep(2)
    [waits] = asking(house, (b, 0))
    await asyncio.sleep(1)
    assert a.yields
    waits.cancel()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not a.yields
    assert await house.ask(a) == 3.0


@in_virtual_time
async def test_a_lease_knows_how_long_it_was_waited_for() -> None:
    house = House(CPU)
    a, b = house.add("a", {"cpu": 8}), house.add("b", {"cpu": 8}, seconds=2.0)
    first = await a.lease()
    assert first.waited == 1.0
    beside = await a.lease()
    assert beside.waited == 0.0
    waits = asyncio.create_task(b.lease())
    await asyncio.sleep(5)
    first.release()
    beside.release()
    # Until those before had ended, until they had left, and until it was there.
    assert (await waits).waited == pytest.approx(5 + 0.1 + 2.0)


@in_virtual_time
async def test_who_leaves_as_it_is_served_gives_the_model_back() -> None:
    house = House(CPU)
    model = house.add("a", {"cpu": 8}, keep="idle 5s")
    waits = asyncio.create_task(model.lease())
    await asyncio.sleep(0)
    # Served and cancelled in the same turn of the loop: the lease is there, and nobody takes it.
    house.shelves["a"].when_loaded = waits.cancel
    with pytest.raises(asyncio.CancelledError):
        await waits
    assert model.leases == 0
    await house.settled()
    assert model.state is Whereabouts.out


@in_virtual_time
async def test_only_so_many_may_wait() -> None:
    house = House(CPU, max_waiting=3)
    a, b = house.add("a", {"cpu": 8}), house.add("b", {"cpu": 8})
    house.shelves["a"].max_waiting = 2
    waits = asking(house, (a, 0), (a, 0))
    await asyncio.sleep(0)
    with pytest.raises(APIError) as caught:
        await house.ask(a)
    assert (caught.value.status, caught.value.code) == (429, "engine_overloaded")
    assert caught.value.retry_after is not None
    waits = [*waits, *asking(house, (b, 0))]
    await asyncio.sleep(0)
    with pytest.raises(APIError, match="3 requests wait"):
        await house.ask(b)
    await asyncio.gather(*waits)


def test_what_can_never_fit_is_refused_with_what_it_takes() -> None:
    house = House(CPU)
    with pytest.raises(ProviderStartError, match=r"'a' of 'shelf' takes .* of 'cpu'"):
        house.add("a", {"cpu": 11})
    with pytest.raises(ProviderStartError, match="add 'cuda:0: SIZE'"):
        house.add("a", {"cuda:0": 1})
    house.add("a", {"cpu": 6}, keep="always")
    house.add("b", {"cpu": 6})
    with pytest.raises(ProviderStartError, match="beside 'a', kept always"):
        house.add("c", {"cpu": 6}, keep="always")


def test_what_can_not_be_parked_is_refused() -> None:
    house = House(CPU)
    shelf = Shelf("a", {"cpu": 1}, [], house.of_all)
    with pytest.raises(ProviderStartError, match="'a' of 'shelf' can't be parked"):
        house.residency.add(shelf, ModelStay(park=True))


@in_virtual_time
async def test_what_never_fits_beside_those_that_are_kept_is_told_at_once() -> None:
    house = House(CPU)
    a = house.add("/models/a.gguf", {"cpu": 6}, keep="always")
    b, c = house.add("b", {"cpu": 6}), house.add("c", {"cpu": 4})
    await house.residency.preload(a)
    waits = asking(house, (b, 0), (c, 0))
    told = await asyncio.gather(*waits, return_exceptions=True)
    assert isinstance(told[0], APIError)
    assert "beside those that are always kept" in told[0].message
    assert "a.gguf" not in told[0].message  # nothing that this client knows of
    assert told[1] == 2.0


@in_virtual_time
async def test_nobody_waits_for_room_where_there_are_no_bounds_any_more() -> None:
    house = House(CPU)
    a, b = house.add("a", {"cpu": 8}), house.add("b", {"cpu": 8})
    lease = await a.lease()
    waits = asking(house, (b, 0))
    await asyncio.sleep(1)
    house.residency.unbound()
    await asyncio.gather(*waits)
    assert (a.state, house.events) == (Whereabouts.ready, ["+a", "+b"])
    lease.release()


@in_virtual_time
async def test_what_takes_more_than_was_thought_has_others_make_room() -> None:
    house = House(CPU, stay_seconds=0)
    a, b = house.add("a", {"cpu": 5}), house.add("b", {"cpu": 5})
    await house.ask(a)
    house.shelves["b"].takes = {"cpu": 7}
    await house.ask(b, 5)
    assert house.events == ["+a", "+b", "-a"]
    assert house.residency.ledger.used == {"cpu": 7}


@in_virtual_time
async def test_a_lower_bound_has_those_that_are_idle_make_room() -> None:
    house = House(CPU, stay_seconds=0)
    a, b = house.add("a", {"cpu": 5}), house.add("b", {"cpu": 5})
    await house.ask(a)
    await house.ask(b)
    house.residency.settle({"cpu": 6}, ResidencySettings(stay_seconds=0))
    await house.settled()
    assert house.events == ["+a", "+b", "-a"]


# Preloading, parking, leaving ---------------------------------------------------------------------


@in_virtual_time
async def test_what_is_preloaded_makes_nobody_leave() -> None:
    house = House(CPU)
    a, b = house.add("a", {"cpu": 8}), house.add("b", {"cpu": 8})
    await house.residency.preload(a)
    await house.residency.preload(b)
    assert house.events == ["+a"]


@in_virtual_time
async def test_a_preload_that_fails_fails_the_start() -> None:
    house = House(CPU)
    model = house.add("a", {"cpu": 8})
    house.shelves["a"].fails = ProviderStartError("There is no file.")
    with pytest.raises(ProviderStartError, match="There is no file"):
        await house.residency.preload(model)


@in_virtual_time
async def test_one_that_is_parked_is_back_soon_and_leaves_the_main_memory_to_who_needs_it() -> None:
    house = House({"cpu": 10, "cuda:0": 10}, stay_seconds=0)
    gpu = {"cuda:0": 8}
    a = house.add("a", gpu, parks={"cpu": 6}, seconds=10)
    b = house.add("b", gpu, parks={"cpu": 6}, seconds=10)
    c = house.add("c", {"cpu": 8})
    await house.ask(a)
    await house.ask(b)
    assert house.residency.ledger.used == {"cpu": 6, "cuda:0": 8}
    began = asyncio.get_running_loop().time()
    assert await house.ask(a) >= began + 1  # b has no room to park
    assert house.events == ["+a", "pa", "+b", "-b", "ua"]
    await house.ask(b)
    await house.ask(c)
    assert house.events[5:] == ["pa", "+b", "-a", "+c"]
    assert a.state is Whereabouts.out
    for shelf in house.shelves.values():
        assert shelf.most["cpu"] <= 10
        assert shelf.most["cuda:0"] <= 10


@pytest.mark.parametrize("state", list(Whereabouts))
@in_virtual_time
async def test_who_is_removed_is_out_wherever_it_was(state: Whereabouts) -> None:
    house = House({"cpu": 10, "cuda:0": 10}, stay_seconds=0)
    gpu = {"cuda:0": 8}
    a, b = house.add("a", gpu, parks={"cpu": 6}), house.add("b", gpu)
    if state is not Whereabouts.out:
        asking(house, (a, 0))
        await asyncio.sleep(0.5)
    if state not in (Whereabouts.out, Whereabouts.loading):
        await asyncio.sleep(2)
    if state in (Whereabouts.leaving, Whereabouts.parked):
        asking(house, (b, 0))
        await asyncio.sleep(0.05 if state is Whereabouts.leaving else 0.5)
    assert a.state is state
    await house.residency.remove(a)
    assert a.state is Whereabouts.out
    assert house.of_all["cpu"] == 0
    with pytest.raises(APIError, match="shut"):
        await a.lease()
    assert [each.model for each in house.residency.snapshots()] == ["b"]


@in_virtual_time
async def test_who_waits_for_one_that_is_removed_is_told() -> None:
    house = House(CPU)
    model = house.add("a", {"cpu": 8}, seconds=100)
    [waits] = asking(house, (model, 0))
    await asyncio.sleep(1)
    await house.residency.remove(model)
    with pytest.raises(APIError, match="shut"):
        await waits


@in_virtual_time
async def test_who_is_removed_before_its_load_has_begun_is_out() -> None:
    house = House(CPU)
    model = house.add("a", {"cpu": 8})
    waits = asyncio.create_task(model.lease())
    await asyncio.sleep(0)
    assert model.state is Whereabouts.loading
    await house.residency.remove(model)
    assert model.state is Whereabouts.out
    assert house.residency.ledger.used == {"cpu": 0}
    with pytest.raises(APIError, match="shut"):
        await waits


@pytest.mark.parametrize("seed", range(5))
@in_virtual_time
async def test_a_hundred_clients_over_five_models_with_room_for_two(seed: int) -> None:
    chance = random.Random(seed)
    house = House(CPU, stay_seconds=2)
    models = [house.add(name, {"cpu": 5}, keep="idle 30s") for name in "abcde"]
    answered, longest = Counter[str](), 0.0

    async def client(number: int) -> None:
        nonlocal longest
        for _ in range(10):
            model = chance.choice(models)
            came = asyncio.get_running_loop().time()
            asked = asyncio.create_task(house.ask(model, chance.uniform(0, 3)))
            if chance.random() < 0.1:
                await asyncio.sleep(chance.uniform(0, 5))
                asked.cancel()
                await asyncio.wait([asked])
            else:
                longest = max(longest, await asked - came)
            answered[model.model.name] += 1
            await asyncio.sleep(chance.uniform(0, 1))

    await asyncio.gather(*map(client, range(100)))
    assert sum(answered.values()) == 1000
    assert min(answered.values()) > 0
    assert all(shelf.most["cpu"] <= 10 for shelf in house.shelves.values())
    # A turn of all five is three stays of two at a time, each with its load and its last request.
    assert longest < 5 * (2 + 1 + 3 + 0.2)
    await house.settled()
    assert house.residency.ledger.used == {"cpu": 0}
    assert house.of_all["cpu"] == 0
    assert all(each.leases == 0 and not each.waiting for each in models)
