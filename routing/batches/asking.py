"""One line of a batch is asked: a request as any other, on the chain of its model."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from llama_compat.dialects.base import Asked, Operation
from llama_compat.error_classes import ErrorClass
from llama_compat.errors import APIError, unsupported_whoever_answers
from llama_compat.exchange import ANYBODY, Principal, Reply
from llama_compat.extent import Extent
from llama_compat.off_loop import off_loop
from llama_compat.types import Usage
from llama_compat.wire.json_fields import JSONFields
from llama_compat.wire.retry_after import is_never
from providers.remote.upstream.deferred import NotSent, Unsent
from routing.batches.wires import OPERATIONS, LineOutcome
from routing.ingress.body import parse_body
from routing.ingress.own_requests import lasting, read_through
from routing.layers.deferred import ByRequests, Deferral
from routing.observability.records.ledger import Ledger
from routing.observability.records.prices import Prices
from routing.request import Handler, Request

if TYPE_CHECKING:
    from routing.models import Route
    from routing.policy.targets import LiveTarget
    from routing.runtime import Runtime

_FREE = Usage(1_000_000, 1_000_000)
"""Who asks nothing for that asks nothing for anything."""

NOT_SENT = "upstream_connection_failed"
"""The code of an error of which nothing has reached a vendor."""


class NotNow(Exception):
    """A line was not taken, and nothing has been done for it: it may be asked again.

    Attributes:
        retry_after: in how many seconds; None where nobody said.
    """

    def __init__(self, retry_after: float | None) -> None:
        super().__init__()
        self.retry_after = retry_after


class Seen(Struct, frozen=True):
    """What a vendor would be asked.

    Attributes:
        unsent: the request.
        extent: what it may come to.
        route: the model's.
    """

    unsent: Unsent
    extent: Extent
    route: Route


class Asker:
    """Asks lines by what a runtime serves.

    Args:
        runtime: that. It is kept running while lines are on their way.
        is_open: whether keys do not matter, as who runs a command asks.
    """

    def __init__(self, runtime: Runtime, *, is_open: bool = False) -> None:
        self.runtime = runtime
        self._is_open = is_open
        self._ledger = runtime.ledger or Ledger(Prices(runtime.distribution))
        self._local = {
            each.id for each in runtime.distribution.providers if each.type.startswith("local::")
        }
        self._via = {
            each.id: None if each.batches is None else each.batches.via
            for each in runtime.distribution.models
        }
        self._providers_via = {each.id: each.batches.via for each in runtime.distribution.providers}

    async def start(self) -> None:
        """Look up the prices."""
        await self._ledger.prices.start()

    def principal(self, owner: str) -> Principal | None:
        """Whose key has this id; None where it opens nothing any more."""
        if self._is_open:
            return ANYBODY if owner == ANYBODY.id else None
        return self.runtime.owner(owner)

    async def look_for(self, owner: str) -> Principal | None:
        """The same, and a key that is not known is looked for first."""
        if self._is_open:
            return self.principal(owner)
        return await self.runtime.look_for_owner(owner)

    @property
    def knows_keys(self) -> bool:
        """Whether a key that is not found is not there."""
        return self.runtime.knows_keys

    def is_local(self, model: str) -> bool:
        """Whether all that may answer for a model runs in this process."""
        targets = self._targets(model)
        return targets is not None and all(provider in self._local for provider, _ in targets)

    def is_free(self, model: str) -> bool:
        """Whether what a model says costs nothing, so that it may be asked once more."""
        targets = self._targets(model)
        if targets is None:
            return True  # nobody is asked at all
        return all(
            cost == 0 or (cost is None and provider in self._local) for provider, cost in targets
        )

    def handed_to(self, model: str) -> LiveTarget | None:
        """Where lines of a model are handed to the vendor's own batches; None where they are asked
        by requests. Of several targets the model's settings mean the first that can, those of a
        provider the first of all."""
        route = self._handed_on(model)
        if route is None:
            return None
        via = self._via.get(route.name)
        for each in sorted(route.targets, key=lambda each: each.priority):
            if each.state.cooldown.is_drained:
                continue
            wanted = via or self._providers_via.get(each.provider.id)
            if wanted == "vendor" and each.provider.batches() is not None:
                return each
            if via is None:
                return None
        return None

    def target(self, model: str, provider: str, name: str) -> LiveTarget | None:
        """The target of a model that lines were handed to before; None where there is none any
        more."""
        route = self._handed_on(model)
        if route is None:
            return None
        for each in route.targets:
            if (each.provider.id, each.target.model) == (provider, name):
                return each
        return None

    def _handed_on(self, model: str) -> Route | None:
        """The route of a model; None where there is none, or where no lines are handed on."""
        return None if self.runtime.defer is None else self._route(model)

    def _route(self, model: str) -> Route | None:
        try:
            return self.runtime.models.look_up(model, ANYBODY, ())
        except APIError:
            return None

    def has_fallback(self, model: str) -> bool:
        """Whether a model has other targets than one."""
        targets = self._targets(model)
        return targets is not None and len(targets) > 1

    def batch_cost(self, route: Route, target: LiveTarget, usage: Usage) -> int | None:
        """What a usage costs in a batch of the target's vendor, in billionths of a dollar; None
        where nobody knows."""
        provider, model = target.provider.id, target.target.model
        return self._ledger.prices.cost(route.name, provider, model, usage, batch=True)

    def _targets(self, model: str) -> list[tuple[str, int | None]] | None:
        route = self._route(model)
        if route is None:
            return None
        prices = self._ledger.prices
        return [
            (
                each.provider.id,
                prices.cost(route.name, each.provider.id, each.target.model, _FREE),
            )
            for each in route.targets
        ]

    async def look_through(
        self, endpoint: str, body: bytes, principal: Principal, deferral: Deferral
    ) -> Seen | None:
        """What the vendor of a deferral would be asked for a line; None where it has to be asked by
        a request. Nothing comes of it here, no record either.

        Args:
            endpoint: of the batch.
            body: what is asked.
            principal: whose batch it is.
            deferral: that has it seen.
        """
        runtime = self.runtime
        request = self._request(endpoint, body, principal, deferral)
        assert runtime.defer is not None
        runtime.hold()
        try:
            reply = await self._reply(request, body, runtime.defer)
            await reply.aclose()
        except NotSent as seen:
            assert request.call is not None
            assert request.route is not None
            return Seen(seen.unsent, request.call.extent, request.route)
        except (APIError, ByRequests):
            return None
        finally:
            runtime.release()
        return None

    def _request(
        self, endpoint: str, body: bytes, principal: Principal, deferral: Deferral | None
    ) -> Request:
        operation = OPERATIONS[endpoint]
        request = Request(operation, f"req_{os.urandom(12).hex()}", principal, path=endpoint)
        request.body = body
        request.deferral = deferral
        return request

    async def ask(
        self,
        endpoint: str,
        body: bytes,
        principal: Principal,
        deferral: Deferral | None = None,
    ) -> LineOutcome:
        """What becomes of a line.

        Args:
            endpoint: of the batch.
            body: what is asked.
            principal: whose batch it is.
            deferral: that answers it, where a vendor's own batch has; None to have it sent.

        Raises:
            NotNow: it was not taken, which no answer is.
        """
        runtime = self.runtime
        request = self._request(endpoint, body, principal, deferral)
        operation = request.operation
        handler = runtime.answer if deferral is None else runtime.defer
        assert handler is not None
        runtime.hold()
        try:
            with lasting(request, runtime.begin, "its batch was broken off"):
                content = await read_through(request, await self._reply(request, body, handler))
                await request.settle()
        except APIError as error:
            if deferral is None and (wait := _not_now(error)) is not None:
                raise wait from None
            content = operation.dialect.render_error(error, request.request_id)
        finally:
            runtime.release()
        return LineOutcome(request.status, request.request_id, content, cost=self._cost(request))

    def _cost(self, request: Request) -> int | None:
        """In billionths of a dollar: nothing where nothing was generated, or it was here."""
        cost, last = self._ledger.cost(request), request.attempts.last
        if cost is None and (
            request.reply is None or (last is not None and last.target.provider.id in self._local)
        ):
            return 0
        return cost

    async def _reply(self, request: Request, body: bytes, handler: Handler) -> Reply:
        fields, asked = await off_loop(len(body), _look, request.operation, body)
        request.asks(fields, asked, counts_usage=True)
        assert request.call is not None
        request.call = replace(request.call, can_wait=True)
        self.runtime.route(request)
        return await handler(request)


def _look(operation: Operation, body: bytes) -> tuple[JSONFields, Asked]:
    fields = parse_body(body)
    asked = operation.look(fields, {})
    if asked.stream:
        raise unsupported_whoever_answers("stream", "a line of a batch is answered in one piece")
    if fields.get("background") == b"true":
        raise unsupported_whoever_answers(
            "background", "a line of a batch is in the background anyway"
        )
    asked.extent.prompt.estimate()
    return fields, asked


def _not_now(error: APIError) -> NotNow | None:
    if is_never(error.headers):
        return None
    kind = error.error_class
    if kind in (ErrorClass.rate_limit, ErrorClass.overloaded) or error.code == NOT_SENT:
        return NotNow(error.retry_after)
    return None
