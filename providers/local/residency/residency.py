"""The one who decides which models are in memory.

Requests wait for a model that is not there, in the order in which they came, whichever model it is
that they want. The first that finds no room has it made: by the model that has been idle for
longest, or, where none is idle, by the one that has been there for longest, which then takes no
more requests, and goes when those that it has have ended. So nobody waits for ever, and no request
is broken off. What was loaded stays for a while, or there would be nothing but loading.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import sys
from collections.abc import Collection, Iterable, Sequence
from operator import attrgetter

from llama_compat.distribution.residency import ModelStay, ResidencySettings
from llama_compat.errors import APIError, shutting_down
from llama_compat.wire.retry_after import retry_after
from providers.base import ProviderStartError
from providers.local.residency.ledger import MemoryLedger, Sizes, all_in_words, in_words, sum_of
from providers.local.residency.resident import (
    Loadable,
    ModelLease,
    Resident,
    ResidentSnapshot,
    Waiter,
    Whereabouts,
)

log = logging.getLogger(__name__)


class Residency:
    """Brings models into memory and takes them out again. All of it is for one event loop.

    Args:
        bounds: what models may take of each device.
        settings: how they take turns.

    Attributes:
        ledger: who has what.
    """

    def __init__(self, bounds: Sizes, settings: ResidencySettings | None = None) -> None:
        self.ledger = MemoryLedger(bounds)
        self.settings = settings or ResidencySettings()
        self._residents: list[Resident] = []
        self._numbers = itertools.count()
        self._timer: asyncio.TimerHandle | None = None

    def snapshots(self) -> list[ResidentSnapshot]:
        """How every model is now."""
        return [each.snapshot() for each in self._residents]

    def settle(self, bounds: Sizes, settings: ResidencySettings) -> None:
        """Go on by other settings. Where there is less memory, those that are idle make room."""
        self.ledger.bounds = dict(bounds)
        self.settings = settings
        for each in self._residents:
            if hopeless := self._kept_from(each, each.model.needs):
                log.warning("%s Give models more `memory`.", hopeless)
        self._turn()

    def unbound(self) -> None:
        """No template says any more what models may take: nobody waits for room."""
        self.ledger.bounds = dict.fromkeys(self.ledger.bounds, sys.maxsize)
        self._turn()

    async def stop(self) -> None:
        """Whoever added models has removed them."""
        if self._timer is not None:
            self._timer.cancel()

    # The models -----------------------------------------------------------------------------------

    def add(self, model: Loadable, stay: ModelStay, present: Sizes | None = None) -> Resident:
        """See to one more model.

        Args:
            model: which.
            stay: how long it stays.
            present: what it takes already, where it is loaded.

        Raises:
            ProviderStartError: it could never be loaded, as the memory is too small for it, or for
                it and those that are always kept.
        """
        self._check_park(model, stay)
        for device, size in model.needs.items():
            bound = self.ledger.bounds.get(device)
            if bound is None:
                raise ProviderStartError(
                    f"The model '{model.name}' of '{model.provider}' runs on '{device}', of which"
                    f" `memory` in the template says nothing: add '{device}: SIZE'."
                )
            kept = [each for each in self._residents if each.stay.is_pinned]
            others = sum(each.model.needs.get(device, 0) for each in kept)
            names = ", ".join(f"'{each.model.name}'" for each in kept)
            beside = f" beside {names}, kept always" if others and stay.is_pinned else ""
            if size + (others if beside else 0) > bound:
                raise ProviderStartError(
                    f"The model '{model.name}' of '{model.provider}' takes {in_words(size)} of"
                    f" '{device}'{beside}, and `memory` in the template gives all models there"
                    f" {in_words(bound)}: give them more, set a smaller 'kv_cache' or"
                    " 'context_length', or choose a smaller model."
                )
        resident = Resident(self, model, stay)
        if present is not None:
            self.ledger.put(resident, present)
            self._is_ready(resident)
        self._residents.append(resident)
        return resident

    def stays(self, resident: Resident, stay: ModelStay) -> None:
        """Have a model stay otherwise from now on.

        Raises:
            ProviderStartError: it can't be parked.
        """
        self._check_park(resident.model, stay)
        resident.stay = stay

    def _check_park(self, model: Loadable, stay: ModelStay) -> None:
        if not stay.park:
            return
        if not model.parks:
            raise ProviderStartError(
                f"The model '{model.name}' of '{model.provider}' can't be parked: it is in main"
                " memory already, or its engine has no way to do so. Leave `park` out of the"
                " template."
            )
        for device in model.parks:
            if device not in self.ledger.bounds:
                raise ProviderStartError(
                    f"The model '{model.name}' of '{model.provider}' would be parked in '{device}',"
                    f" of which `memory` in the template says nothing: add '{device}: SIZE'."
                )

    async def preload(self, resident: Resident) -> None:
        """Load what is to be there when the server starts; what is not always kept makes nobody
        leave for it.

        Raises:
            ProviderStartError: it can't be loaded.
        """
        if resident.state is Whereabouts.ready:
            return
        if not resident.stay.is_pinned and self.ledger.missing(resident, resident.model.needs):
            log.warning("%s: not loaded yet, as the others leave it no room", resident.model.name)
            return
        try:
            await resident.load()
        except APIError as error:
            raise ProviderStartError(error.message) from error

    async def remove(self, resident: Resident) -> None:
        """See `Resident.remove`."""
        resident.removed = True
        for waiter in resident.waiting:
            if not waiter.granted.done():
                waiter.granted.set_exception(shutting_down())
        resident.waiting.clear()
        while resident.state is not Whereabouts.out:
            if resident.task is None:
                self._leave(resident, park=False)
            elif resident.state is Whereabouts.loading:
                resident.task.cancel()
            task = resident.task
            assert task is not None
            await asyncio.wait([task])
            if resident.task is task:  # it was cancelled before it had begun
                self._is_out(resident)
        self._residents.remove(resident)
        self._turn()

    def forget(self, resident: Resident) -> None:
        """See `Resident.forget`."""
        self.ledger.put(resident, {})
        self._residents.remove(resident)

    # Requests -------------------------------------------------------------------------------------

    async def lease(self, resident: Resident, keep_alive: float | None = None) -> ModelLease:
        """See `Resident.lease`."""
        if resident.removed:
            raise shutting_down()
        if keep_alive is not None:
            resident.asked_seconds = keep_alive
        if resident.is_open:
            return self._grant(resident, 0.0)
        self._check_waiting(resident)
        granted = asyncio.get_running_loop().create_future()
        resident.waiting.append(waiter := Waiter(next(self._numbers), self._now, granted))
        self._turn()
        try:
            async with asyncio.timeout(self.settings.wait_seconds):
                lease: ModelLease = await granted
                return lease
        except TimeoutError:
            self._withdraw(resident, waiter)
            raise _not_loaded(
                resident,
                f"The model '{resident.model.name}' had no room in memory within"
                f" {self.settings.wait_seconds:g} s, as other models are in use. Ask again later.",
            ) from None
        except BaseException:
            self._withdraw(resident, waiter)
            raise

    def released(self, resident: Resident) -> None:
        """A request has ended."""
        resident.leases -= 1
        if not resident.leases:
            resident.idle_since = self._now
            self._turn()

    def dismiss(self, resident: Resident) -> None:
        """See `Resident.dismiss`."""
        if resident.state is Whereabouts.parked:
            self._leave(resident, park=False)
        elif resident.state in (Whereabouts.ready, Whereabouts.loading):
            resident.dismissed = True
            self._turn()

    def stays_for(self, resident: Resident, seconds: float) -> None:
        """See `Resident.stays_for`."""
        if resident.state in (Whereabouts.ready, Whereabouts.loading):
            resident.asked_seconds = seconds
            self._turn()
        elif not seconds and resident.state is Whereabouts.parked:
            self._leave(resident, park=False)

    def _check_waiting(self, resident: Resident) -> None:
        here, most = len(resident.waiting), resident.model.max_waiting
        everywhere = sum(len(each.waiting) for each in self._residents)
        if everywhere < self.settings.max_waiting and (most is None or here < most):
            return
        seconds = max(1, round(min(60.0, resident.load_seconds or 1.0)))
        raise APIError(
            429,
            f"The model '{resident.model.name}' is not in memory, and {everywhere} requests wait"
            f" for models already, {here} of them for this one. Retry in {seconds} s.",
            code="engine_overloaded",
            headers=retry_after(seconds),
        ).about(resident.model.name)

    def _grant(self, resident: Resident, waited: float) -> ModelLease:
        resident.leases += 1
        return ModelLease(resident, waited)

    def _withdraw(self, resident: Resident, waiter: Waiter) -> None:
        """Somebody does not wait any more, for whom there may be a lease by now."""
        granted = waiter.granted
        if granted.done() and not granted.cancelled() and granted.exception() is None:
            granted.result().release()
        elif waiter in resident.waiting:
            resident.waiting.remove(waiter)
            self._turn()

    # Turns ----------------------------------------------------------------------------------------

    @property
    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _turn(self) -> None:
        """Do all that can be done now; called whenever something has changed."""
        later: list[float] = []
        yielding = self._make_room(later)
        for each in self._residents:
            each.yields = each in yielding
            if each.is_open:
                while each.waiting:
                    waiter = each.waiting.popleft()
                    if not waiter.granted.done():
                        lease = self._grant(each, self._now - waiter.since)
                        waiter.granted.set_result(lease)
            if each.state is Whereabouts.ready and not each.leases:
                expires = each.expires
                if each.dismissed or (expires is not None and expires <= self._now):
                    # Who was told to go has nothing to come back for.
                    self._leave(each, park=not each.dismissed and each.asked_seconds != 0)
                elif expires is not None:
                    later.append(expires)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if later:
            self._timer = asyncio.get_running_loop().call_at(min(later), self._turn)

    def _make_room(self, later: list[float]) -> Collection[Resident]:
        """Load what has room, and have others make room for what has not.

        Args:
            later: gets when there is to be looked again.

        Returns:
            Those that are to take no more requests.
        """
        yielding: set[Resident] = set()
        over = self.ledger.over
        if over:
            self._free(None, over, yielding, later)
        # A device has one who is next. Nobody passes by, however small: the first would never be.
        blocked: set[str] = set(over)
        for resident in self._wanted():
            needs = resident.model.needs
            if blocked.intersection(needs):
                blocked.update(needs)
                continue
            missing = self.ledger.missing(resident, needs)
            if not missing:
                self._load(resident)
                continue
            hopeless = self._kept_from(resident, needs)
            if hopeless:
                self._fail(resident, hopeless)
                continue
            blocked.update(needs)
            self._free(resident, missing, yielding, later)
        return yielding

    def _wanted(self) -> Iterable[Resident]:
        """Those that somebody waits for, and that are not on their way; who came first is first."""
        absent = (Whereabouts.out, Whereabouts.parked)
        wanted = [each for each in self._residents if each.waiting and each.state in absent]
        return sorted(wanted, key=lambda each: each.waiting[0].number)

    def _kept_from(self, resident: Resident, needs: Sizes) -> str:
        """Why there can be no room for it, whoever leaves; empty if there can be. Clients are told,
        so it names no other model: they may not ask for those, and a name may be a file's path."""
        kept = [each for each in self._residents if each.stay.is_pinned and each is not resident]
        for device, size in needs.items():
            taken = sum(self.ledger.taken_by(each).get(device, 0) for each in kept)
            bound = self.ledger.bounds.get(device, 0)
            if taken + size > bound:
                beside = " beside those that are always kept" if taken else ""
                return (
                    f"The model '{resident.model.name}' takes {in_words(size)} of '{device}', and"
                    f" has no room in {in_words(bound)}{beside}."
                )
        return ""

    def _free(
        self,
        resident: Resident | None,
        missing: Sizes,
        yielding: set[Resident],
        later: list[float],
    ) -> None:
        """Have as many leave as have to, for `resident` to have what is `missing`."""
        leaving = [each for each in self._residents if each.state is Whereabouts.leaving]
        missing = self._without(missing, leaving)
        if not missing:
            return
        others = [each for each in self._residents if each is not resident and self._may_go(each)]
        ripe = [each for each in others if self._stays_until(each) <= self._now]
        chosen = self._enough(sorted(ripe, key=attrgetter("how_soon")), missing)
        if chosen is None:
            later.extend(self._stays_until(each) for each in others if each not in ripe)
            return
        for each in chosen:
            if each.leases:
                yielding.add(each)
            else:
                self._leave(each, park=each.state is Whereabouts.ready)

    def _may_go(self, resident: Resident) -> bool:
        if resident.state is Whereabouts.parked:
            return True
        return resident.state is Whereabouts.ready and not resident.stay.is_pinned

    def _stays_until(self, resident: Resident) -> float:
        if resident.state is Whereabouts.parked:
            return resident.idle_since
        least = max(self.settings.stay_seconds, resident.load_seconds or 0.0)
        return resident.ready_since + least

    def _enough(self, candidates: Sequence[Resident], missing: Sizes) -> list[Resident] | None:
        """The first of `candidates` that have what is missing together; None where all have not."""
        chosen: list[Resident] = []
        lacking = missing
        for each in candidates:
            less = self._without(lacking, [each])
            if less != lacking:
                chosen.append(each)
                lacking = less
            if not lacking:
                break
        if lacking:
            return None
        # The later ones may have room enough by themselves.
        for each in list(chosen):
            rest = [other for other in chosen if other is not each]
            if not self._without(missing, rest):
                chosen = rest
        return chosen

    def _without(self, missing: Sizes, gone: Iterable[Resident]) -> dict[str, int]:
        """What is still missing once these have left."""
        lacking = dict(missing)
        for each in gone:
            for device, size in self.ledger.taken_by(each).items():
                if device in lacking:
                    lacking[device] -= size
        return {device: size for device, size in lacking.items() if size > 0}

    # What takes its time --------------------------------------------------------------------------

    def _load(self, resident: Resident) -> None:
        was_parked = resident.state is Whereabouts.parked
        # What is parked is there until it is back.
        self.ledger.put(resident, sum_of(self.ledger.taken_by(resident), resident.model.needs))
        resident.state = Whereabouts.loading
        resident.task = asyncio.create_task(
            self._loading(resident, was_parked), name=f"loading {resident.model.name}"
        )

    async def _loading(self, resident: Resident, was_parked: bool) -> None:
        model, begun = resident.model, self._now
        try:
            taken = await (model.unpark() if was_parked else model.load())
        except BaseException as error:
            self._is_out(resident)
            if isinstance(error, asyncio.CancelledError):
                raise
            is_meant = isinstance(error, ProviderStartError)  # made for people
            log.error("%s: not loaded: %s", model.name, error, exc_info=not is_meant)
            why = f": {error}" if is_meant else "."
            self._fail(resident, f"The model '{model.name}' can't be loaded{why}")
            self._turn()
            return
        resident.task = None
        resident.load_seconds = self._now - begun
        resident.loads += 1
        self.ledger.put(resident, taken)
        self._is_ready(resident)
        log.info("%s: loaded in %.1f s, %s", model.name, resident.load_seconds, all_in_words(taken))
        if over := self.ledger.over:
            log.warning(
                "%s takes more than was thought: %s beyond `memory` of the template",
                model.name,
                all_in_words(over),
            )
        self._turn()

    def _is_out(self, resident: Resident) -> None:
        self.ledger.put(resident, {})
        resident.state, resident.task = Whereabouts.out, None
        resident.dismissed = False

    def _is_ready(self, resident: Resident) -> None:
        resident.state = Whereabouts.ready
        resident.ready_since = resident.idle_since = self._now

    def _leave(self, resident: Resident, *, park: bool) -> None:
        sizes = resident.model.parks if park and resident.stay.park else {}
        if sizes and self.ledger.missing((), sizes):
            log.info("%s: not parked, as the main memory has no room", resident.model.name)
            sizes = {}
        self.ledger.put(resident, sum_of(self.ledger.taken_by(resident), sizes))
        resident.state, resident.dismissed = Whereabouts.leaving, False
        resident.task = asyncio.create_task(
            self._leaving(resident, park=bool(sizes)), name=f"unloading {resident.model.name}"
        )

    async def _leaving(self, resident: Resident, *, park: bool) -> None:
        model = resident.model
        kept: Sizes = {}
        try:
            if park:
                kept = await model.park()
            else:
                await model.unload()
        except Exception:
            log.exception("%s: what it had may not all have been given back", model.name)
        resident.task = None
        resident.state = Whereabouts.parked if kept else Whereabouts.out
        if not kept:
            resident.asked_seconds = None
        self.ledger.put(resident, kept)
        log.info("%s: %s", model.name, "parked" if kept else "unloaded")
        self._turn()

    def _fail(self, resident: Resident, why: str) -> None:
        """Nobody gets what they waited for."""
        while resident.waiting:
            waiter = resident.waiting.popleft()
            if not waiter.granted.done():
                # Each its own: what is raised keeps the frames that it came through.
                waiter.granted.set_exception(_not_loaded(resident, why))


def _not_loaded(resident: Resident, why: str) -> APIError:
    error = APIError(503, why, code="model_not_loaded", headers=retry_after(5))
    return error.about(resident.model.name)
