"""Copies of a share of a model's requests go to another model too, and what it says is thrown away.

How that one does under real traffic shows in its targets' states, in records and in metrics.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from llama_compat.dialects.openai_responses.client_events import WARM_UP
from llama_compat.errors import APIError
from llama_compat.exchange import Call, Principal, Reply
from llama_compat.guardrails.settings import CheckSettings
from routing.ingress.own_requests import lasting, read_through
from routing.models import Route
from routing.request import Handler, Request

log = logging.getLogger(__name__)

MAX_RUNNING = 32
"""So many run at a time in one process; a request more is not mirrored."""

MIRROR = Principal("mirror")
"""Who asks where a request is mirrored: what that costs is nobody's doing but the template's."""


class Mirrors:
    """Sends the copies, until `stop`.

    Args:
        next: answers the requests themselves.
        answer: answers copies, from where their routes are looked up.
        begin: begins a request of who is given here, and of this id.
        checks: what a request has to pass wherever it goes, its copy too; None for nothing.

    Attributes:
        sent, left_out, failed: how many there were, how many more were too many at a time, and how
            many of those that were sent failed.
    """

    def __init__(
        self,
        next: Handler,
        answer: Handler,
        begin: Callable[[Request], None],
        checks: Callable[[Call, Route], Sequence[CheckSettings]] | None = None,
    ) -> None:
        self._next = next
        self._answer = answer
        self._begin = begin
        self._checks = checks
        self._running: set[asyncio.Task[None]] = set()
        self.sent = 0
        self.left_out = 0
        self.failed = 0

    async def __call__(self, request: Request) -> Reply:
        """Answer a request, of which a copy may be sent as well."""
        assert request.call is not None
        assert request.route is not None
        policy = request.route.policy
        if policy is None or request.call.operation is WARM_UP:  # there is nothing to compare
            return await self._next(request)
        if (model := policy.mirrored()) is not None:
            self._send(request, model)
        return await self._next(request)

    def _send(self, request: Request, model: str) -> None:
        """Begin a copy of `request` for `model`; nobody waits for it."""
        if len(self._running) >= MAX_RUNNING:
            self.left_out += 1
            return
        self.sent += 1
        task = asyncio.create_task(self._run(self._copy(request, model)))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    def _copy(self, request: Request, model: str) -> Request:
        call, route = request.call, request.route
        assert call is not None
        assert route is not None
        # What is hidden from one model's vendor is not for another's either.
        checks = () if self._checks is None else tuple(self._checks(call, route))
        who = dataclasses.replace(MIRROR, guardrails=checks)
        request_id = f"{request.request_id}-mirror"
        call = replace(call, request_id=request_id, principal=who)
        return Request(request.operation, request_id, who, model=model, call=call)

    async def stop(self) -> None:
        """Cancel them all."""
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _run(self, copy: Request) -> None:
        try:
            with lasting(copy, self._begin):
                await read_through(copy, await self._answer(copy))
        except APIError as error:
            self.failed += 1
            log.info("%s failed: %s", copy.request_id, error.message[:500])
