"""Replies that vendors make for requests whose process is gone: each is a request of this process
then, which counts and is recorded when it ends."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from llama_compat.dialects.base import Asked
from llama_compat.errors import APIError
from llama_compat.exchange import Principal, Reply
from routing.layers.keeping.kept_calls import KEPT_CALLS
from routing.policy.attempts import Attempt
from routing.policy.targets import ProviderState, TargetState
from routing.request import Request
from routing.storage.kept import AtVendor, api_of

if TYPE_CHECKING:
    from routing.runtime import Runtime
    from routing.storage.kept_rows import LeftReply


class Adopter:
    """Makes requests of what others have left.

    Args:
        runtime: they are its. It is kept running while any goes on.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.hold = runtime.hold
        self.release = runtime.release

    @property
    def is_open(self) -> bool:
        """Whether more may be begun."""
        return not self._runtime.is_replaced

    async def request(self, left: LeftReply, at: AtVendor) -> Request:
        """The request whose reply is made at a vendor, as if it had been answered here with what
        that began."""
        runtime = self._runtime
        # Who has no key any more has been let in all the same, and has to pay.
        principal = await runtime.look_for_owner(left.owner) or Principal(left.owner)
        api = api_of(left.reply["id"])
        operation = next(each.operation for each in KEPT_CALLS.values() if each.api is api)
        request_id = at.request_id or f"req_{os.urandom(12).hex()}"
        request = Request(operation, request_id, principal, status=200, goes_on=True)
        request.begun -= left.age
        request.asks({}, Asked(at.asked or str(left.reply.get("model", ""))))
        with suppress(APIError):  # the template may have lost the model
            runtime.route(request)
        request.attempts.add(_answered(at, request.begun))
        runtime.begin(request)
        if runtime.limits is not None and runtime.ledger is not None:
            from routing.layers.limits import owe

            owe(runtime.limits, runtime.ledger, request)
        return request


def _answered(at: AtVendor, when: float) -> Attempt:
    """The attempt that a vendor has answered, as far as a record needs it."""
    # A state of its own: nothing was sent from here.
    state = TargetState(ProviderState(at.provider), at.model)
    attempt = Attempt(state, clock=lambda: when)
    attempt.has_content()
    attempt.finish(Reply(b""))
    return attempt
