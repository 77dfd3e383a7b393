"""One operation of a client API over ASGI: read, look, dispatch, answer.

These are plain ASGI, beside FastAPI's routing rather than in it: a relayed request spends most of
its time in whatever stands between the socket and the provider.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Coroutine, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from llama_compat.dialects.base import Asked, Operation
from llama_compat.errors import (
    APIError,
    context_length_exceeded,
    internal_error,
    model_not_allowed,
    shutting_down,
    too_many_choices,
)
from llama_compat.exchange import Call, Principal, Reply, Target
from llama_compat.off_loop import off_loop
from llama_compat.wire.json_fields import JSONFields
from providers.answer import answer as answer_call
from providers.base import Provider
from routing.asgi import WATCH, Receive, Scope, Send
from routing.ingress.answer import Answer
from routing.ingress.body import HeldBody, parse_body, read_body
from routing.ingress.disconnect import ClientGone, ClientWatch
from routing.ingress.keep_alive import KeepAlive
from routing.models import Route
from routing.policy.attempts import Attempts
from routing.policy.dispatch import Ask, dispatch
from routing.runtime import Runtime

if TYPE_CHECKING:
    from routing.operations.limits.requests import RequestLimits
    from routing.operations.observer import Observed

log = logging.getLogger(__name__)


class Asking(NamedTuple):
    """A call, and where it may go.

    Attributes:
        call: what the client asks.
        route: of the call's model.
        attempts: what was tried so far.
        limits: those of providers among them; None where there are none.
        observed: what is to be known of the request afterwards; None where nobody wants to know.
    """

    call: Call
    route: Route
    attempts: Attempts
    limits: RequestLimits | None = None
    observed: Observed | None = None

    def answered_by(self, ask: Ask) -> Coroutine[Any, Any, Reply]:
        """The reply of the first target that answers; `ask` makes one attempt.

        Raises:
            APIError: none does.
        """
        route, call = self.route, self.call
        if self.limits is not None:
            ask = self.limits.around(call, ask)
        return dispatch(route.targets, route.policy, call, ask, self.attempts)


NO_PATH: Mapping[str, str] = {}

MIRROR = Principal("mirror")
"""Who asks where a request is mirrored: what that costs is nobody's doing but the template's."""


class Endpoint:
    """The ASGI endpoint of one operation.

    Args:
        operation: which one.
    """

    def __init__(self, operation: Operation) -> None:
        self.operation = operation

    async def __call__(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        runtime: Runtime,
        principal: Principal,
        path: Mapping[str, str] = NO_PATH,
    ) -> None:
        """Answer one request; whatever goes wrong is answered too, in the client's language.

        Args:
            scope, receive, send: ASGI's.
            runtime: what to answer it from.
            principal: who is asking.
            path: what the path says besides where it leads: its parameters.
        """
        answer = Answer(send, scope, self.operation.dialect)
        observed = self._observed(answer, runtime, principal)
        try:
            with runtime.bodies.one() as held:
                await self._serve(scope, receive, answer, runtime, principal, path, held)
        except ClientGone:
            answer.cancel("client disconnected")
        except APIError as error:
            await answer.error(error)
        except asyncio.CancelledError:
            # Not the client's doing: the server stops and the time for running requests is over.
            answer.cancel()
            await answer.error(shutting_down())
        except Exception:
            log.exception("request %s failed", answer.request_id)
            await answer.error(internal_error())
        answer.log(with_usage=runtime.settings.log_usage)
        if observed is not None:
            observed.end(answer.model)

    async def refuse(self, answer: Answer, scope: Scope, runtime: Runtime, error: APIError) -> None:
        """Answer a request with `error` that is not even looked at: nobody knows who asks."""
        observed = self._observed(answer, runtime, None)
        await answer.error(error)
        if observed is not None:
            observed.end(answer.model)

    def _observed(
        self, answer: Answer, runtime: Runtime, principal: Principal | None
    ) -> Observed | None:
        if runtime.observers is None:
            return None
        answer.observed = runtime.observers.begin(
            self.operation, answer.request_id, principal, answer.attempts
        )
        return answer.observed

    async def _admit(self, call: Call, route: Route, answer: Answer, runtime: Runtime) -> None:
        """Let `call` in as far as the limits go; it is settled by whoever observes its end.

        Raises:
            APIError: 429, a limit is reached.
        """
        limits, observers, observed = runtime.limits, runtime.observers, answer.observed
        if limits is not None and observers is not None and observed is not None:
            cost = partial(observers.most, route)
            observed.admission = await limits.admit(call, route.name, cost, answer.limits)

    async def _serve(
        self,
        scope: Scope,
        receive: Receive,
        answer: Answer,
        runtime: Runtime,
        principal: Principal,
        path: Mapping[str, str],
        held: HeldBody,
    ) -> None:
        settings = runtime.settings
        body = await read_body(scope, receive, settings.max_body_bytes, held, settings.body_seconds)
        observed = answer.observed
        if observed is not None:
            observed.body = body
        with ClientWatch(receive, scope.get("extensions", {}).get(WATCH)):
            fields, asked = await off_loop(len(body), self._parse, body, path)
            answer.model = asked.model
            if asked.choices > settings.max_choices:
                raise too_many_choices(asked.choices, settings.max_choices)
            route = await self.route(asked.model, runtime)
            _check_allowed(principal, asked.model, route)
            _check_context(asked, route.limit)
            call = Call(
                operation=self.operation,
                fields=fields,
                model=asked.model,
                stream=asked.stream,
                request_id=answer.request_id,
                headers=self._forwarded_headers(scope),
                principal=principal,
                counts_usage=runtime.counts_usage,
                max_tokens=asked.max_tokens,
            )
            await self._admit(call, route, answer, runtime)
            if observed is not None:
                observed.call, observed.route = call, route
            await self._answer(call, route, answer, runtime)

    def _parse(self, body: bytes, path: Mapping[str, str]) -> tuple[JSONFields, Asked]:
        fields = parse_body(body)
        return fields, self.operation.look(fields, path)

    async def _answer(self, call: Call, route: Route, answer: Answer, runtime: Runtime) -> None:
        seconds = route.keepalive_seconds or call.operation.dialect.keep_alive_seconds
        keeps_alive = call.stream and seconds is not None and call.operation.dialect.keep_alive
        if keeps_alive and seconds:
            async with KeepAlive(answer, seconds):
                await self._reply(call, route, answer, runtime)
        else:
            await self._reply(call, route, answer, runtime)

    async def _reply(self, call: Call, route: Route, answer: Answer, runtime: Runtime) -> None:
        asking = Asking(call, route, answer.attempts, runtime.limits, answer.observed)
        if route.policy is not None and (model := route.policy.mirrored()) is not None:
            runtime.mirrors.send(call.request_id, partial(self._mirrored, asking, model, runtime))
        reply = await self.dispatch(asking, runtime)
        try:
            await answer.reply(reply)
        except APIError as error:
            reply.error = error
            raise
        except Exception:
            reply.error = internal_error()
            raise
        finally:
            await reply.aclose()

    async def _mirrored(self, asking: Asking, model: str, runtime: Runtime) -> Reply:
        """What the model `model` says to the same request; nothing of it is kept but its record."""
        call = replace(asking.call, request_id=f"{asking.call.request_id}-mirror", principal=MIRROR)
        attempts = Attempts()
        observed = None
        if runtime.observers is not None:
            observed = runtime.observers.begin(self.operation, call.request_id, MIRROR, attempts)
        try:
            route = await runtime.models.resolve(model)
            if observed is not None:
                observed.call, observed.route = call, route
            copy = Asking(call, route, attempts, runtime.limits)
            reply = await copy.answered_by(partial(self.ask, call))
        except BaseException as error:
            if observed is not None:
                _mirror_failed(observed, error)
            raise
        if observed is not None:
            reply.when_closed(partial(_mirror_ended, observed))
        return reply

    async def route(self, model: str, runtime: Runtime) -> Route:
        """Where requests for `model` go.

        Raises:
            APIError: 404, nowhere.
        """
        return await runtime.models.resolve(model)

    def dispatch(self, asking: Asking, runtime: Runtime) -> Coroutine[Any, Any, Reply]:
        """Have one of the model's targets answer the call."""
        return asking.answered_by(partial(self.ask, asking.call))

    def ask(self, call: Call, provider: Provider, target: Target) -> Awaitable[Reply]:
        """Have `provider` answer `call` from its model `target`: one attempt."""
        return answer_call(provider, call, target)

    def _forwarded_headers(self, scope: Scope) -> Mapping[str, str]:
        wanted = self.operation.dialect.forwarded_headers
        if not wanted:
            return {}
        headers: dict[str, str] = {}
        for raw_name, raw_value in scope["headers"]:
            name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
            if name in wanted:
                # One that is sent twice is a list (RFC 9110, section 5.3).
                headers[name] = f"{headers[name]}, {value}" if name in headers else value
        return headers


def _mirror_failed(observed: Observed, error: BaseException) -> None:
    if isinstance(error, asyncio.CancelledError):
        observed.cancelled = True
    else:
        observed.error = error if isinstance(error, APIError) else internal_error()
        observed.status = observed.error.status
    observed.end("-" if observed.call is None else observed.call.model)


def _mirror_ended(observed: Observed, reply: Reply) -> None:
    observed.reply, observed.status, observed.error = reply, reply.status, reply.error
    observed.complete = reply.is_complete
    observed.cancelled = not reply.is_complete and reply.error is None
    observed.end("-" if observed.call is None else observed.call.model)


def _check_allowed(principal: Principal, model: str, route: Route) -> None:
    if not (principal.may_use(model) or (route.is_listed and principal.may_use(route.name))):
        raise model_not_allowed(model)


def _check_context(asked: Asked, context_length: int | None) -> None:
    # Only the provider can count the prompt; but what is wanted alone may be too much already.
    if context_length is not None and (asked.max_tokens or 0) > context_length:
        raise context_length_exceeded(context_length, 0, asked.max_tokens or 0)
