"""One order: its lines are written, the vendor is asked to begin, and what it has said is read.

    preparing -> ordered -> running -> read
        ^           |
        '-----------'   the vendor does not have it, and never will

Whatever process goes on with it, the vendor begins once: where nobody knows whether it was told,
its batches are looked through first.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec import structs

from llama_compat.catalog.prices import NANO_DOLLARS
from llama_compat.error_classes import ErrorClass
from llama_compat.errors import APIError
from llama_compat.exchange import Principal
from providers.remote.batches.base import (
    VendorBatch,
    VendorBatches,
    VendorProblem,
    VendorStatus,
    is_gone,
)
from routing.batches.asking import NOT_SENT
from routing.batches.journal.rows import PENDING, TO_HAND
from routing.batches.vendors.input import OrderInput
from routing.batches.vendors.limits import OrderLimits
from routing.batches.vendors.orders import ORDERED, PREPARING, READ, RUNNING, OrderRow
from routing.batches.vendors.results import Results
from routing.batches.vendors.writing import LineWriter
from routing.batches.wires import UNKNOWN_OUTCOME, LineOutcome
from routing.waiting import first_of

if TYPE_CHECKING:
    from routing.access.limits.limiter import Admission
    from routing.batches.asking import Asker
    from routing.batches.vendors.run import VendorRun
    from routing.policy.targets import LiveTarget

log = logging.getLogger(__name__)

FIRST_WAIT_SECONDS = 1.0
GROWTH = 1.5
"""It is waited so long at first, and by so much longer each time, until a vendor is asked again."""

SETTLED_LEASES = 2.0
"""A vendor that was asked to begin by a process that has ended shows it after so many leases, or
never will."""

GIVE_UP_SECONDS = 3600.0
"""What a vendor has not ended so long after it was told to is waited for no more."""

FOR_NOW = frozenset({"token_limit_exceeded", "rate_limit_exceeded", "batch_limit_exceeded"})
"""The codes of batches that a vendor refuses because it has others of ours."""

_FOR_NOW = frozenset({ErrorClass.overloaded, ErrorClass.rate_limit})

_NOT_BEGUN = _FOR_NOW | {
    ErrorClass.authentication,
    ErrorClass.bad_request,
    ErrorClass.context_length,
    ErrorClass.not_found,
    ErrorClass.other,
    ErrorClass.quota,
    ErrorClass.unsupported,
}
"""The classes of errors after which it is known that a vendor has not begun."""

Said = TypeVar("Said")


class _Left(Exception):
    """The worker stops: what is to be done now is done by another, or later."""


class OrderRun:
    """Sees to one order as far as it can.

    Args:
        run: of all orders of the batch.
        order: it, as the journal has it.
    """

    def __init__(self, run: VendorRun, order: OrderRow) -> None:
        self.order = order
        self._run = run
        self._orders = run.orders
        self._woken = asyncio.Event()
        self._held: Admission | None = None
        self._vendors: VendorBatch | None = None

    def wake(self) -> None:
        """See at once what is to be done."""
        self._woken.set()

    async def go_on(self) -> None:
        """Do what is to be done for it, until nothing is, or the worker stops.

        Raises:
            StorageError, APIError, LeaseLost: it can't be done now.
        """
        steps = {
            PREPARING: self._prepare,
            ORDERED: self._look_for,
            RUNNING: self._follow,
            READ: self._finish,
        }
        try:
            while await steps[self.order.state]():
                pass
        except _Left:
            pass
        finally:
            # What is held of a budget when this worker stops is held by the next.
            if self._held is not None:
                self._held.settle(0, 0)

    # What all steps need --------------------------------------------------------------------------

    @property
    def _asker(self) -> Asker:
        assert self._run.worker.asker is not None
        return self._run.worker.asker

    def _vendor(self) -> tuple[LiveTarget, VendorBatches] | None:
        order = self.order
        target = self._asker.target(order.route, order.provider, order.model)
        api = None if target is None else target.provider.batches()
        return None if target is None or api is None else (target, api)

    async def _the_vendor(self) -> tuple[LiveTarget, VendorBatches]:
        """Where the order is; if the template has that no more, once it has it again."""
        tries = 0
        while (found := self._vendor()) is None:
            if not tries:
                log.error(
                    "order %s of batch %s waits: the template has no model '%s' any more of a"
                    " provider '%s' with batches, to which it was handed",
                    self.order.id,
                    self.order.batch,
                    self.order.route,
                    self.order.provider,
                )
            tries += 1
            await self._wait(tries)
        return found

    def _limits(self) -> OrderLimits:
        owner = self._run.job.owner
        principal = self._asker.principal(owner) or Principal(owner)
        return OrderLimits(self._asker.runtime.limits, principal, self.order.route)

    async def _until_told(
        self,
        ask: Callable[[], Awaitable[Said]],
        what: str,
        final: Collection[ErrorClass] = (),
    ) -> Said:
        """What `ask` gives, which costs nothing and is tried until it does.

        Args:
            ask: asks the vendor.
            what: is wrong as long as that fails, for the log.
            final: classes of errors after which it is not tried again.

        Raises:
            APIError: it failed with one of those, or the batch was broken off long ago.
        """
        tries = 0
        while True:
            try:
                return await ask()
            except APIError as error:
                if error.error_class in final or self._is_given_up():
                    raise
                log.warning("order %s: %s: %s", self.order.id, what, error.message)
                tries += 1
                await self._wait(tries, error.retry_after)

    async def _wait(self, tries: int, retry_after: float | None = None) -> None:
        """Wait for as long as is usual after so many tries, or until something else is to be done.

        Raises:
            _Left: the worker stops.
        """
        most = self._run.worker.settings.poll_seconds
        seconds = min(most, FIRST_WAIT_SECONDS * GROWTH ** min(tries - 1, 50))
        await first_of(self._woken, max(seconds, retry_after or 0))
        self._woken.clear()
        if self._run.worker.stopping:
            raise _Left

    async def _note(self, **changes: object) -> None:
        self.order = await self._orders.update(self.order, **changes)

    # Preparing ------------------------------------------------------------------------------------

    async def _prepare(self) -> bool:
        """Write the lines, and have the vendor begin."""
        run, found = self._run, self._vendor()
        if run.worker.stopping:
            return False
        principal = self._asker.principal(run.job.owner)
        if run.is_broken_off or found is None or principal is None:
            return await self._give_back()
        target, api = found
        source = await asyncio.to_thread(OrderInput, run.folder, api.envelope(self.order.order))
        writer = LineWriter(run, self.order, source, target, api, self._limits(), principal)
        try:
            try:
                await writer.write_all()
            finally:
                self._held = await writer.held()
            if run.worker.stopping:
                return False
            if run.is_broken_off or not source.lines:
                return await self._give_back()
            await self._note(
                endpoint=writer.endpoint,
                headers=msgspec.json.encode(writer.headers),
                lines=source.lines,
                reserve=writer.reserve,
            )
            await self._have_begun(api, await asyncio.to_thread(source.finish))
        finally:
            await asyncio.to_thread(source.close)
        return True

    async def _give_back(self) -> bool:
        """None of it is at the vendor: its lines are asked by requests, or not at all."""
        await self._orders.put_back(self.order, PENDING)
        self._run.came_back()
        return await self._forget()

    async def _forget(self) -> bool:
        """Nothing of it is left."""
        await self._orders.forget(self.order)
        return False

    async def _have_begun(self, api: VendorBatches, body: memoryview) -> None:
        """Send the input, and have the vendor begin, as soon as it takes that."""
        tries = 0
        try:
            input_file = await self._sent(api, body)
        except APIError as error:
            if not self._run.is_broken_off:
                await self._is_refused(error)
            return
        await self._note(input_file=input_file)
        while not self._run.is_broken_off:
            await self._note(state=ORDERED, asked=self._run.now())
            try:
                batch = await api.create(self.order.order, body)
            except APIError as error:
                is_sent, kind = error.code != NOT_SENT, error.error_class
                log.warning("order %s: the vendor does not begin: %s", self.order.id, error.message)
                if is_sent and kind not in _NOT_BEGUN:
                    return  # perhaps it does
                await self._note(state=PREPARING)
                if is_sent and kind not in _FOR_NOW:
                    await self._is_refused(error)
                    return
                tries += 1
                await self._wait(tries, error.retry_after)
            else:
                await self._note(state=RUNNING, vendor_batch=batch.id)
                return
        await self._clean(api)

    async def _sent(self, api: VendorBatches, body: memoryview) -> str:
        """What the vendor calls the input, which it has then.

        Raises:
            APIError: it does not take it, or nobody wants it any more.
        """

        async def send() -> str:
            if self._run.is_broken_off:
                raise APIError(409, "The batch was cancelled.")
            return await api.upload(self.order.order, body)

        return await self._until_told(send, "its input can't be sent", _NOT_BEGUN - _FOR_NOW)

    # Nobody knows whether it has begun ------------------------------------------------------------

    async def _look_for(self) -> bool:
        """See whether the vendor has begun."""
        settled = self.order.asked + SETTLED_LEASES * self._run.worker.settings.lease_seconds
        tries = 0
        while True:
            # The template may have changed meanwhile, and the connections with it.
            _, api = await self._the_vendor()
            is_settled = self._run.now() > settled
            try:
                found = await self._until_told(
                    partial(api.find, self.order.order), "the vendor's batches can't be seen"
                )
            except APIError:
                await self._all_are(UNKNOWN_OUTCOME)
                return await self._is_read()
            if found.batch is not None:
                await self._note(state=RUNNING, vendor_batch=found.batch.id)
                return True
            if is_settled and not found.may_be:
                await self._clean(api)
                await self._note(state=PREPARING, input_file="")
                return True
            tries += 1
            await self._wait(tries)

    # It runs --------------------------------------------------------------------------------------

    async def _follow(self) -> bool:
        """See how far it has come, until it has ended, and read what it came to."""
        if self._held is None:
            self._held = await self._limits().hold(self.order.reserve)
        tries = 0
        while True:
            target, api = await self._the_vendor()
            if self._run.is_broken_off and not self.order.is_cancelled:
                await self._cancel(api)
                tries = 0
            try:
                batch = await api.look(self.order.vendor_batch)
            except APIError as error:
                if is_gone(error):
                    log.error("order %s: its vendor has lost it: %s", self.order.id, error.message)
                    await self._all_are(UNKNOWN_OUTCOME)
                    return await self._is_read()
                log.warning("order %s can't be looked at: %s", self.order.id, error.message)
            else:
                if batch.status is not VendorStatus.running:
                    self._vendors = batch
                    return await self._read(target, api, batch)
                if batch.done != self.order.done:
                    await self._note(done=batch.done)
            if self._is_given_up():
                log.error("order %s: its vendor does not end it", self.order.id)
                await self._all_are(UNKNOWN_OUTCOME)
                return await self._is_read()
            tries += 1
            await self._wait(tries)

    async def _cancel(self, api: VendorBatches) -> None:
        try:
            await api.cancel(self.order.vendor_batch)
        except APIError as error:
            # It has ended already, or the next look tells.
            log.warning("order %s can't be cancelled: %s", self.order.id, error.message)
            if error.error_class not in _NOT_BEGUN or error.error_class in _FOR_NOW:
                return
        await self._note(is_cancelled=1)

    def _is_given_up(self) -> bool:
        since = self._run.job.cancelling
        return since is not None and self._run.now() > since + GIVE_UP_SECONDS

    async def _read(self, target: LiveTarget, api: VendorBatches, batch: VendorBatch) -> bool:
        if batch.status is VendorStatus.failed:
            if any(problem.code in FOR_NOW for problem in batch.problems):
                log.warning("order %s has to wait: %s", self.order.id, batch.problems[0].message)
                await self._clean(api)
                await self._orders.put_back(self.order, TO_HAND)
                self._run.pause()
                return await self._forget()
            await self._are_refused(batch.problems)
            return await self._is_read()
        results = Results(self._run, self.order, target, api, batch)
        self.order = await results.read_all(
            lambda fetch: self._until_told(
                fetch, "its results can't be had", (ErrorClass.not_found,)
            )
        )
        return await self._is_read()

    async def _is_read(self) -> bool:
        self._run.came_back()
        await self._note(state=READ)
        held, self._held = self._held, None
        if held is not None:
            held.settle(None, self.order.cost / NANO_DOLLARS)
        return True

    # Its end --------------------------------------------------------------------------------------

    async def _is_refused(self, error: APIError) -> None:
        """The vendor does not take it, which is the target's fault, so that another may answer, or
        that of its lines."""
        falls_back = error.error_class.handling.falls_back
        if falls_back and self._asker.has_fallback(self.order.route):
            log.warning(
                "order %s: its lines are asked by requests, as other targets may answer them: %s",
                self.order.id,
                error.message,
            )
            await self._orders.put_back(self.order, PENDING)
            self._run.came_back()
            await self._note(state=READ)
        else:
            await self._are_refused([_problem(error)])

    async def _are_refused(self, problems: Sequence[VendorProblem]) -> None:
        """The vendor takes none of it. Lines that it names fail; the others are handed over once
        more, or fail with them where it names none."""
        rows = await self._orders.lines(self.order, 0, self.order.lines or 1)
        named = {
            rows[each.line - 1].number: each
            for each in problems
            if each.line is not None and each.line <= len(rows)
        }
        log.warning(
            "order %s of batch %s is refused: %s",
            self.order.id,
            self.order.batch,
            problems[0].message if problems else "no reason given",
        )
        results = Results(self._run, self.order)
        if named:
            outcomes = {number: _refusal(each) for number, each in named.items()}
            self.order = await results.note_as(outcomes)
            await self._orders.put_back(self.order, TO_HAND)
        else:
            await self._all_are(_refusal(problems[0] if problems else VendorProblem("", "")))
        if self.order.state == PREPARING:
            await self._note(state=READ)

    async def _all_are(self, outcome: LineOutcome) -> None:
        """The same became of all of its lines that nobody knows of."""
        self.order = await Results(self._run, self.order).note_rest(outcome)

    async def _clean(self, api: VendorBatches) -> None:
        """Have the vendor keep nothing of it, if it does as it is told."""
        try:
            await api.clean(self.order.order, self._vendors)
        except APIError as error:
            log.warning("order %s: its files stay there: %s", self.order.id, error.message)

    async def _finish(self) -> bool:
        """Leave nothing of it, neither there nor here."""
        found = self._vendor()
        if found is not None:
            _, api = found
            if self._vendors is None and self.order.vendor_batch:
                with suppress(APIError):
                    self._vendors = await api.look(self.order.vendor_batch)
            await self._clean(api)
        return await self._forget()


def _problem(error: APIError) -> VendorProblem:
    return VendorProblem(error.code or "", error.message)


def _refusal(problem: VendorProblem) -> LineOutcome:
    told = problem.message or "no reason given"
    outcome = LineOutcome(
        code="vendor_refused", message=f"The vendor's batch API did not take this line: {told}"
    )
    return structs.replace(outcome, code=problem.code) if problem.code else outcome
