"""Counters for several processes and machines, in a store that they share."""

from __future__ import annotations

import asyncio
import logging
import os
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, TypeVar

from llama_compat.going_on import going_on
from routing.access.limits.heard import Heard
from routing.access.limits.memory import CountersAway, Taken, nothing
from routing.access.limits.names import PREFIX, keys_of, mark_of
from routing.access.limits.rules import Charge, Resource
from routing.access.limits.settlements import Settlement, Unsettled
from routing.storage.outage import Outage
from routing.waiting import first_of

log = logging.getLogger(__name__)

LEASE_SECONDS = 60.0
"""After so long what a process reserved is free again if the process says nothing more of it."""

RENEW_SECONDS = 15.0

ANSWER_SECONDS = 0.05
"""The store is away if it takes longer to answer, unless it is this process that was busy."""

CONNECT_SECONDS = 0.25
"""The same of a new connection, which takes several ways there and back."""

PROBE_SECONDS = 0.1
"""So long one waits before one looks again whether it is back."""

TELL_SECONDS = 2.0
"""So long the storage may take to say what budgets have come to, before the store is asked."""

MAX_QUESTIONS = 32
"""So many are asked at a time; who has more waits, but not for a store that is away."""

PLACE_SECONDS = 1.0
"""So long a request waits to be one of them; a store that lets it wait longer is away."""

SEEDED_TOGETHER = 500

_BUDGET, _CONCURRENT = Resource.budget, Resource.concurrent

ScriptAnswer = TypeVar("ScriptAnswer")


class SharedCounters(ABC):
    """Counters in a store that several processes ask. Each take and each settlement is one script
    there, on the clock of the store.

    What a process reserves is leased: it is renewed while the process lives, and free when it has
    crashed and the lease has run out.

    While the store is away nobody asks it but one task, which has it and this process agree again
    when it is back, and only then are others let through: what ended meanwhile is settled, what
    still runs is there, whoever let it in, and what budgets have come to by what has been kept.

    Args:
        address: of the store; it may hold a password.
        lease_seconds, renew_seconds: how long leases last, and how often they are renewed.
        answer_seconds: how long an answer may take.

    Attributes:
        outages: how many times the store could not be asked any more.
    """

    store = "the store"
    """What it is called in the log."""

    most_questions = MAX_QUESTIONS
    """So many are asked at a time."""

    def __init__(
        self,
        address: str,
        lease_seconds: float = LEASE_SECONDS,
        renew_seconds: float = RENEW_SECONDS,
        answer_seconds: float = ANSWER_SECONDS,
    ) -> None:
        self._address = address
        self._lease_seconds = lease_seconds
        self._renew_seconds = renew_seconds
        self._answer_seconds = answer_seconds
        self._outage = Outage(
            f"limits can't be counted, {self.store} is away",
            f"{self.store} is back, limits are counted again",
        )
        self._is_away = True
        self._agree = asyncio.Event()
        self._stopping = asyncio.Event()
        self._epoch = ""
        self._places = asyncio.Semaphore(self.most_questions)
        self._process = ""
        self._next = 0
        self._answered_at = float("-inf")
        self.outages = 0
        self._tell: Callable[[], Awaitable[None]] | None = None
        self._held: dict[str, int] = {}
        self._heard = Heard()
        self._taking: dict[str, Sequence[Charge]] = {}
        self._live: dict[str, Sequence[Charge]] = {}
        self._has_new_ones = False
        self._recent: dict[str, Charge] = {}
        self._older: dict[str, Charge] = {}
        self._forgot_at = 0.0
        self._unsettled = Unsettled()
        self._settling: set[asyncio.Task[None]] = set()
        self._tending: asyncio.Task[None] | None = None

    @abstractmethod
    def _connect(self) -> None:
        """Make ready to ask."""

    @abstractmethod
    async def _disconnect(self) -> None:
        """Close what is open."""

    @abstractmethod
    async def _execute(self, script: str, keys: Sequence[str], arguments: Sequence[Any]) -> Any:
        """What a script answers. Its keys and arguments are described in the Lua files."""

    @abstractmethod
    def _troubles(self) -> tuple[type[Exception], ...]:
        """What `_execute` raises where the store is away."""

    @abstractmethod
    def _is_no_answer(self, error: Exception) -> bool:
        """Whether the store has said nothing, in time."""

    @property
    def _connect_seconds(self) -> float:
        """How long it may take to open a connection."""
        return max(CONNECT_SECONDS, self._answer_seconds)

    def _opening_seconds(self) -> float:
        """How much longer the next question may take, as a connection is opened for it."""
        return 0.0

    def when_back(self, tell: Callable[[], Awaitable[None]]) -> None:
        """Have `tell` called, to call `set_used`, before the store is asked after an outage."""
        self._tell = tell

    @property
    def is_away(self) -> bool:
        """Whether the store can't be asked at the moment."""
        return self._is_away

    async def start(self) -> None:
        """Connect; where the store is away, later.

        Raises:
            ProviderStartError: its package is missing, or the address is none.
        """
        self._connect()
        self._process = f"{os.urandom(9).hex()}:"
        with suppress(CountersAway):
            await self._come_to_agree()
        what = f"limits in {self.store}"
        tending = going_on(what, self._tend, partial(first_of, self._stopping))
        self._tending = asyncio.create_task(tending)

    async def stop(self) -> None:
        """Settle what is left, if the store is there, and disconnect."""
        await asyncio.gather(*self._settling, return_exceptions=True)
        # Not cancelled: what is being asked takes no longer than it takes to give it up.
        self._stopping.set()
        self._agree.set()
        if self._tending is not None:
            await self._tending
            with suppress(CountersAway):
                await self._settle_what_is_left()
        self._is_away = True
        await self._disconnect()
        self._unsettled.are_counted()

    async def take(self, charges: Sequence[Charge]) -> Taken:
        """Take all of `charges`, if there is room for each.

        Raises:
            CountersAway: nobody knows whether there is, or whether they were taken; the caller
                settles its lease, if it has one.
        """
        if self._is_away:
            raise CountersAway
        lease = self.later()
        arguments: list[Any] = [lease, self._lease_seconds]
        for each in charges:
            rule = each.rule
            arguments += [rule.limit, rule.drains, each.reserve, each.use, each.ends]
        self._remember(charges)
        self._taking[lease] = charges
        try:
            taken, epoch, *amounts = await self._run("take", keys_of(charges, lease), arguments)
        except CountersAway as away:
            # It may have been taken all the same.
            away.lease = lease
            raise
        except asyncio.CancelledError:
            self.settle(lease, charges, [0.0] * len(charges))
            raise
        finally:
            del self._taking[lease]
        if taken:
            self._live[lease] = charges
            self._hold(charges, 1)
        self._note(epoch)
        levels = list(zip(map(float, amounts[::2]), map(float, amounts[1::2]), strict=True))
        for each, (used, reserved) in zip(charges, levels, strict=True):
            self._heard.of(each, used + reserved)
        return Taken(lease if taken else "", levels)

    def take_apart(self, charges: Sequence[Charge], lease: str = "") -> str:
        """Let a request in without asking. What it uses at once is told as soon as the store can
        be, and what it reserves is there from then on.

        Args:
            charges: of the request.
            lease: under which it was asked for, without an answer.

        Returns:
            A lease to be settled like any other.
        """
        if lease or any(each.use for each in charges):
            self.settle(lease or self.later(), charges, [0.0] * len(charges), is_apart=True)
        own = self.later()
        self._live[own] = charges
        self._remember(charges)
        self._hold(charges, 1)
        self._has_new_ones = True
        return own

    def later(self) -> str:
        """A lease for what can't be taken now."""
        lease = f"{self._process}{self._next}"
        self._next += 1
        return lease

    def held(self, counter: str) -> float:
        """How many of this process's requests run that `counter` counts at the same time."""
        return self._held.get(counter, 0)

    def known(self, counter: str) -> float:
        """What was used and reserved when it was last heard here, less what has drained since: in
        answers, or from what has been kept."""
        return self._heard.level(counter)

    def _remember(self, charges: Sequence[Charge]) -> None:
        for each in charges:
            if each.reserve:
                self._recent[each.counter] = each

    def _hold(self, charges: Sequence[Charge], more: int) -> None:
        for each in charges:
            if each.rule.resource is _CONCURRENT:
                held = self._held.get(each.counter, 0) + more
                if held:
                    self._held[each.counter] = held
                else:
                    del self._held[each.counter]

    def settle(
        self,
        lease: str,
        charges: Sequence[Charge],
        used: Sequence[float],
        counted: Callable[[], None] = nothing,
        *,
        is_apart: bool = False,
    ) -> asyncio.Task[None]:
        """Free what a lease reserved, and count what was used; a second time changes nothing."""
        if (held := self._live.pop(lease, None)) is not None:
            self._hold(held, -1)
        settlement = Settlement(lease, charges, used, counted, is_apart)
        settling = asyncio.create_task(self._settle_or_keep(settlement))
        self._settling.add(settling)
        settling.add_done_callback(self._settling.discard)
        return settling

    async def set_used(self, budgets: Mapping[str, tuple[float, float]]) -> None:
        """At least so much is used of budgets."""
        self._heard.kept = budgets
        if self._is_away:
            raise CountersAway
        await self._seed(budgets)

    async def _settle_or_keep(self, settlement: Settlement) -> None:
        if self._is_away:
            self._unsettled.keep(settlement)
            return
        try:
            await self._settle(settlement)
        except CountersAway:
            self._unsettled.keep(settlement)
        except Exception as error:
            self._give_up(settlement, error)

    def _give_up(self, settlement: Settlement, error: BaseException) -> None:
        """Settle no more what no store takes: what it reserved is free when this process and the
        store agree again, and what budgets have come to is in the storage."""
        log.error("an end of a request is not counted in %s", self.store, exc_info=error)
        settlement.is_counted()

    async def _settle(self, settlement: Settlement) -> None:
        lease, charges = settlement.lease, settlement.charges
        arguments: list[Any] = [lease, self._lease_seconds]
        for charge, amount in zip(charges, settlement.used, strict=True):
            arguments += [charge.rule.drains, charge.ends, amount]
        arguments += [charge.use if settlement.is_apart else 0.0 for charge in charges]
        try:
            await self._run("settle", keys_of(charges, lease), arguments)
        except CountersAway as away:
            settlement.is_sent |= away.was_asked
            raise
        settlement.is_counted()

    # The one who sees to it that the store and this process agree ---------------------------------

    async def _tend(self) -> None:
        while not self._stopping.is_set():
            await first_of(self._agree, self._renew_seconds)
            self._agree.clear()
            while not self._stopping.is_set():
                try:
                    await self._come_to_agree()
                    break
                except CountersAway:
                    self._unsettled.write_old_ones()
                    await first_of(self._stopping, PROBE_SECONDS)
            self._forget_counters()

    def _forget_counters(self) -> None:
        """Forget those of which this process has had nothing for as long as a lease lasts."""
        now = asyncio.get_running_loop().time()
        if now - self._forgot_at >= self._lease_seconds:
            self._forgot_at = now
            self._recent, self._older = {}, self._recent
            self._heard.forget_old()

    async def _come_to_agree(self) -> None:
        """Tell the store what it may have missed, and count there from then on.

        Raises:
            CountersAway: it can't be told.
        """
        # Whoever can only be read, as a replica that has not taken over yet, is away too.
        self._epoch = await self._run("sync", keys_of(()), [self._process, 0, 0, 0, self._next])
        was_away = self._is_away
        if was_away and self._tell is not None and self._heard.kept:
            # What budgets have come to meanwhile is in the storage, or on its way there.
            with suppress(TimeoutError):
                async with asyncio.timeout(TELL_SECONDS):
                    await self._tell()
        await self._seed(self._heard.kept)
        await self._settle_what_is_left()
        await self._sync()
        if was_away:
            # So that the next outage begins with what there is of them now.
            await self._seed({**self._charged_budgets(), **self._heard.kept})
        # What was let in or has ended since then; after the last of it nothing is kept any more.
        if self._has_new_ones:
            await self._sync()
        await self._settle_what_is_left()
        self._is_away = False
        self._outage.worked()
        if self._has_new_ones:
            self._agree.set()

    def _charged_budgets(self) -> dict[str, tuple[float, float]]:
        """Of what nothing may have been kept yet."""
        return {
            counter: (0.0, charge.ends)
            for counter, charge in {**self._older, **self._recent}.items()
            if charge.rule.resource is _BUDGET
        }

    async def _sync(self) -> None:
        """Have all that this process reserves be reserved, and nothing else of it."""
        self._has_new_ones = False
        known = {**self._older, **self._recent}
        says: dict[str, list[tuple[str, float | str]]] = {counter: [] for counter in known}
        for leases, is_live in ((self._live, True), (self._taking, False)):
            for lease, charges in leases.items():
                for charge in charges:
                    if charge.reserve:
                        known[charge.counter] = charge
                        reserve = charge.reserve if is_live else ""
                        says.setdefault(charge.counter, []).append((lease, reserve))
        first = self._next
        for counter, said in says.items():
            charge = known[counter]
            keys = [*keys_of((charge,)), *(mark_of(lease) for lease, _ in said)]
            arguments: list[Any] = [self._process, self._lease_seconds]
            arguments += [charge.rule.drains, charge.ends, first]
            for each in said:
                arguments += each
            await self._run("sync", keys, arguments)

    async def _seed(self, budgets: Mapping[str, tuple[float, float]]) -> None:
        """Say that at least so much is used of budgets, and hear how much is."""
        every = list(budgets.items())
        for begin in range(0, len(every), SEEDED_TOGETHER):
            some = every[begin : begin + SEEDED_TOGETHER]
            arguments = [self._lease_seconds]
            for _, (used, ends) in some:
                arguments += [used, ends]
            heard = await self._run("seed", [PREFIX + counter for counter, _ in some], arguments)
            for (counter, (_, ends)), amount in zip(some, heard, strict=True):
                self._heard.of_budget(counter, float(amount), ends)

    async def _settle_what_is_left(self) -> None:
        while self._unsettled:
            some = self._unsettled.next(MAX_QUESTIONS)
            done = await asyncio.gather(*map(self._settle, some), return_exceptions=True)
            ended = list(zip(some, done, strict=True))
            for each, error in ended:
                if error is not None and not isinstance(error, CountersAway):
                    self._give_up(each, error)
            later = [each for each, error in ended if isinstance(error, CountersAway)]
            if later:
                self._unsettled.again(later)
                raise CountersAway
        self._unsettled.tell_dropped(self.store)

    # Questions ------------------------------------------------------------------------------------

    async def _run(self, script: str, keys: Sequence[str], arguments: Sequence[Any]) -> Any:
        question = partial(self._execute, script, keys, arguments)
        # A request waits for this one alone.
        return await self._ask(question, self._answer_seconds if script == "take" else None)

    async def _ask(
        self, question: Callable[[], Awaitable[ScriptAnswer]], patience: float | None
    ) -> ScriptAnswer:
        clock = asyncio.get_running_loop().time
        was_away, troubles = self._is_away, self._troubles()
        async with self._place(patience):
            for is_last in (False, True):
                # It may have turned out meanwhile.
                if self._is_away and not was_away:
                    raise CountersAway(was_asked=is_last)
                asked, opening = clock(), self._opening_seconds()
                try:
                    async with asyncio.timeout(patience and patience + opening):
                        answer = await question()
                except troubles as error:
                    # Who was busy for longer than that has not looked whether there is an answer;
                    # and one that answers others is slow.
                    was_busy = clock() - asked > 1.2 * (self._answer_seconds + opening)
                    is_there = self._answered_at > asked
                    if is_last or not (self._is_no_answer(error) and (was_busy or is_there)):
                        self._lose(error)
                        raise CountersAway(was_asked=True) from None
                else:
                    self._answered_at = clock()
                    return answer
        raise AssertionError

    @asynccontextmanager
    async def _place(self, patience: float | None) -> AsyncIterator[None]:
        """One of those that are asked at a time."""
        try:
            async with asyncio.timeout(None if patience is None else PLACE_SECONDS):
                await self._places.acquire()
        except TimeoutError as error:
            self._lose(error)
            raise CountersAway from None
        try:
            yield
        finally:
            self._places.release()

    def _lose(self, error: Exception) -> None:
        self.outages += not self._is_away
        self._is_away = True
        self._agree.set()
        self._outage.failed(type(error).__name__)

    def _note(self, epoch: str) -> None:
        if epoch != self._epoch:
            # All was lost, though nobody noticed that it was away.
            self._epoch = epoch
            self._agree.set()
