"""The edge between HTTP and the chain: read a request, have it answered, send the answer.

It is plain ASGI, beside FastAPI's routing rather than in it: a relayed request spends most of its
time in whatever stands between the socket and the provider.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from llama_compat.dialects.base import Asked, Dialect, Operation
from llama_compat.errors import APIError, internal_error, shutting_down
from llama_compat.exchange import Principal
from llama_compat.off_loop import LARGE_BYTES, off_loop
from llama_compat.wire.json_fields import JSONFields
from routing.asgi import WATCH, Receive, Scope, Send
from routing.cache.readings import Reading
from routing.ingress.answer import Answer, request_id_of
from routing.ingress.body import HeldBody, form_type, parse_body, read_body
from routing.ingress.disconnect import ClientGone, ClientWatch
from routing.ingress.keep_alive import KeepAlive
from routing.ingress.repeats import offer
from routing.layers.keeping.recall import Recall
from routing.observability.logs import log_line
from routing.policy.attempts import Attempts
from routing.request import NO_HEADERS, Request
from routing.runtime import Runtime

if TYPE_CHECKING:
    from llama_compat.wire.forms import Form

log = logging.getLogger(__name__)

NO_PARAMETERS: Mapping[str, str] = {}


async def serve(
    scope: Scope,
    receive: Receive,
    send: Send,
    runtime: Runtime,
    operation: Operation,
    principal: Principal,
    path: Mapping[str, str] = NO_PARAMETERS,
    recall: Recall | None = None,
) -> None:
    """Answer one request; whatever goes wrong is answered too, in the client's language.

    Args:
        scope, receive, send: ASGI's.
        runtime: what to answer it from.
        operation: what is asked, by the path.
        principal: who is asking.
        path: what the path says besides: its parameters.
        recall: what the WebSocket that it came on knows of earlier responses.
    """
    request = _begun(scope, operation, principal, runtime)
    request.recall = recall
    answer = Answer(send, request)
    try:
        try:
            with runtime.bodies.one() as held:
                await _serve(scope, receive, request, answer, runtime, path, held)
        except ClientGone:
            request.left("client disconnected")
        except APIError as error:
            await answer.error(error)
        except asyncio.CancelledError:
            # Not the client's doing: the server stops and the time for running requests is over.
            request.left()
            await answer.error(shutting_down())
        except Exception:
            log.exception("request %s failed", request.request_id)
            await answer.error(internal_error())
    finally:
        _ended(request, runtime)  # also where telling of an error is broken off, or fails itself


async def refuse(
    scope: Scope,
    send: Send,
    runtime: Runtime,
    operation: Operation,
    dialect: Dialect,
    error: APIError,
    principal: Principal | None,
) -> None:
    """Answer a request that is not even looked at.

    Args:
        scope, send: ASGI's.
        runtime: what would answer it.
        operation: what is asked, by the path.
        dialect, error: what is wrong, and in which language to say so.
        principal: who is asking; None where nobody knows.
    """
    request = _begun(scope, operation, principal, runtime)
    await Answer(send, request, dialect).error(error)
    request.end()


def _begun(
    scope: Scope, operation: Operation, principal: Principal | None, runtime: Runtime
) -> Request:
    attempts = Attempts(scope["headers"])
    request = Request(operation, request_id_of(scope), principal, attempts, scope["path"])
    runtime.begin(request)
    return request


def _ended(request: Request, runtime: Runtime) -> None:
    line = request.line(with_usage=runtime.settings.log_usage)
    if line.outcome:
        log.warning(line)
    else:
        log_line(line)
    if not request.goes_on:
        request.end()


async def _serve(
    scope: Scope,
    receive: Receive,
    request: Request,
    answer: Answer,
    runtime: Runtime,
    path: Mapping[str, str],
    held: HeldBody,
) -> None:
    settings = runtime.settings
    body = await read_body(scope, receive, settings.max_body_bytes, held, settings.body_seconds)
    request.body = body
    with ClientWatch(receive, scope.get("extensions", {}).get(WATCH), request.is_wanted):
        form: Form | None = None
        if request.operation.form and (content_type := form_type(scope)):
            # It is held once more, with other names in it, while it is sent.
            held.grow_to(2 * len(body))
            fields, asked, form = await off_loop(
                len(body), _look_at_form, request.operation, body, path, content_type
            )
        elif len(body) <= LARGE_BYTES:  # `off_loop` without its coroutine, as nearly all are small
            readings = runtime.readings
            if readings is None or request.recall is not None:  # a message means something else
                fields, asked = _look(request.operation, body, path)
            else:
                operation = request.operation
                sent = operation.name, scope["path"], scope["query_string"], body
                reading = readings.find(sent)
                if reading is None:
                    reading = Reading(*_look(operation, body, path))
                    readings.keep(sent, reading)
                request.reading = reading
                fields, asked = reading.fields, reading.asked
        else:
            look = _look_and_estimate if runtime.counts_usage else _look
            fields, asked = await off_loop(len(body), look, request.operation, body, path)
        wanted = request.operation.dialect.forwarded_headers
        headers = _forwarded_headers(scope, wanted) if wanted else NO_HEADERS
        request.asks(fields, asked, headers, counts_usage=runtime.counts_usage, form=form)
        runtime.route(request)
        seconds = _keep_alive_seconds(request)
        if seconds:
            async with KeepAlive(answer, seconds):
                await _answer(scope, request, answer, runtime)
        else:
            await _answer(scope, request, answer, runtime)


def _keep_alive_seconds(request: Request) -> float | None:
    """After so long a silence the client is sent something; None for never."""
    call, route = request.call, request.route
    assert call is not None
    assert route is not None
    dialect = call.operation.dialect
    if not (call.stream and dialect.keep_alive):
        return None
    return route.keepalive_seconds or dialect.keep_alive_seconds


def _look(operation: Operation, body: bytes, path: Mapping[str, str]) -> tuple[JSONFields, Asked]:
    fields = parse_body(body)
    return fields, operation.look(fields, path)


def _look_and_estimate(
    operation: Operation, body: bytes, path: Mapping[str, str]
) -> tuple[JSONFields, Asked]:
    """As `_look`, and what would take long when somebody asks for it on the event loop."""
    fields, asked = _look(operation, body, path)
    asked.extent.prompt.estimate()
    return fields, asked


def _look_at_form(
    operation: Operation, body: bytes, path: Mapping[str, str], content_type: str
) -> tuple[JSONFields, Asked, Form]:
    # Its parser is not imported where nobody sends forms.
    from llama_compat.wire.forms import parse_form

    form = parse_form(body, content_type)
    fields = form.fields()
    return fields, operation.look(fields, path), form


async def _answer(scope: Scope, request: Request, answer: Answer, runtime: Runtime) -> None:
    reply = await runtime.answer(request)
    if request.hit is not None:
        offer(scope, request, runtime, _ended)
    try:
        await answer.reply(reply)
    except APIError as error:
        reply.error = error
        raise
    except Exception:
        reply.error = internal_error()
        raise
    finally:
        if not reply.closed:
            await reply.aclose()


def _forwarded_headers(scope: Scope, wanted: Collection[str]) -> Mapping[str, str]:
    headers: dict[str, str] = {}
    for raw_name, raw_value in scope["headers"]:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
        if name in wanted:
            # One that is sent twice is a list (RFC 9110, section 5.3).
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers
