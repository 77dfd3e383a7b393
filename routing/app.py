"""The ASGI application: FastAPI for what people look at, plain endpoints for what is hot."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import parse_qsl

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp

from llama_compat import __version__
from llama_compat.dialects.base import Operation
from llama_compat.distribution import CorsSettings, Distribution, ServerSettings
from llama_compat.errors import APIError, internal_error, invalid_parameter
from llama_compat.exchange import ANYBODY, Principal
from llama_compat.text.one_line import one_line
from providers.base import ProviderStartError
from routing.asgi import ASGIApplication, Receive, Scope, Send
from routing.auth import ADMIN
from routing.docs import DOCS_PATHS, add_docs, add_errors, add_operations, add_summaries
from routing.health import cache_news, health
from routing.ingress.answer import request_id_of
from routing.ingress.apis import CLIENT_APIS
from routing.ingress.apis.client_api import ClientAPI
from routing.ingress.apis.openai import OPENAI_API, PREFIXES
from routing.ingress.disconnect import CLIENT_LEFT, ClientGone
from routing.ingress.edge import NO_PARAMETERS, refuse, serve
from routing.ingress.websocket.offer import (
    no_websocket,
    offers_websocket,
    refuse_websocket,
    wants_websocket,
)
from routing.observability.logs import BoundedLog
from routing.page import files
from routing.runtime import Runtime, runtime_of

if TYPE_CHECKING:
    from routing.process.reload import Reloader

log = logging.getLogger(__name__)
refusals = BoundedLog(log)

OPEN_PATHS = frozenset({"/health", *files.PATHS, *DOCS_PATHS})
"""What is answered without a key."""

METRICS_PATH = "/metrics"
CACHE_PATH = "/kv_blocks"

OVERSEERS_PATHS = frozenset({METRICS_PATH, CACHE_PATH})
"""Opened by the keys of who watches the server, which need open no model."""

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""Prometheus' text format."""


class Application(FastAPI):
    """FastAPI with the calls of the client APIs in front of it.

    Its providers start and stop with the ASGI lifespan; without that it answers nothing.

    Args:
        distribution: what to serve.

    Attributes:
        runtime: what new requests are answered from.
        reloader: reloads the template that is served; None where none comes from a file.
    """

    reloader: Reloader | None = None

    def __init__(self, distribution: Distribution) -> None:
        super().__init__(
            title="llama_compat",
            version=__version__,
            summary="One OpenAI-compatible endpoint for every model.",
            docs_url=None,
            redoc_url=None,
        )
        self.runtime = Runtime(distribution)
        self._retiring: dict[asyncio.Task[None], Runtime] = {}
        self.apis = tuple(api for api in CLIENT_APIS if api.name in distribution.server.apis)
        self._operations = {
            path: operation for api in self.apis for path, operation in api.operations.items()
        }
        self._websockets = {
            path: opens for api in self.apis for path, opens in api.websockets.items()
        }
        self._patterns = [pattern for api in self.apis for pattern in api.patterns]
        self._api_of = {
            operation.name: api
            for api in self.apis
            for operation in (
                *api.operations.values(),
                *(pattern.operation for pattern in api.patterns),
            )
        }
        _add_routes(self)
        add_docs(self)
        files.add_page(self)
        self._has_admin_routes = False
        self._cors: ASGIApplication | None = None
        self._open(distribution.server)
        for api in self.apis:
            self.router.routes.extend(_routes_by(api.add_routes))
        self.add_exception_handler(APIError, self._render_api_error)
        self.add_exception_handler(ClientGone, _answer_nobody)
        self.add_exception_handler(HTTPException, self._render_http_exception)
        self.add_exception_handler(RequestValidationError, self._render_invalid_query)
        self.add_exception_handler(Exception, self._render_unexpected)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or start and stop (ASGI)."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        if scope["type"] == "websocket":
            await receive()
            await refuse_websocket(scope, send)
            return
        await (self._cors or self._serve)(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        runtime = self.runtime
        runtime.hold()
        try:
            websocket = await self._answer(scope, receive, send, runtime)
        finally:
            runtime.release()
        if websocket is not None:
            await websocket

    async def _answer(
        self, scope: Scope, receive: Receive, send: Send, runtime: Runtime
    ) -> Awaitable[None] | None:
        """Answer one request; what serves the WebSocket that it has become, if it has."""
        path = scope["path"]
        principal: Principal | None = None
        operation, parameters = self._operation(scope)
        try:
            if path.startswith(ADMIN):
                runtime.admin.check(scope["headers"])
                principal = ANYBODY
            elif path in OVERSEERS_PATHS:
                await runtime.check_overseer(scope["headers"])
                principal = ANYBODY
            elif path not in OPEN_PATHS:
                principal = await runtime.principal(scope["headers"])
            else:
                principal = ANYBODY
            if operation is not None and scope["method"] != "POST":
                if offers_websocket(scope, runtime.settings) and path in self._websockets:
                    return self._websockets[path](scope, lambda: self.runtime)
                raise _method_not_allowed(scope)
        except APIError as error:
            if operation is None:
                told = self._rendered(scope, error)
                await told(scope, receive, _with_request_id(scope, send))  # type: ignore[arg-type]
            else:
                _say_refused(scope, request_id_of(scope), error.status)
                dialect = self.api_of(scope).dialect
                await refuse(scope, send, runtime, operation, dialect, error, principal)
            return None
        if operation is not None:
            await serve(scope, receive, send, runtime, operation, principal, parameters)
            return None
        scope = {
            **scope,
            "principal": principal,
            "request_id": request_id_of(scope),
            "runtime": runtime,
            "method": self._method(scope),
        }
        if path == self.openapi_url and self.openapi_schema is None:
            await asyncio.to_thread(self.openapi)
        await super().__call__(scope, receive, _with_request_id(scope, send))  # type: ignore[arg-type]
        return None

    def _method(self, scope: Scope) -> str:
        # HEAD asks for what GET would give, without the body, which is the server's to leave out.
        method = str(scope["method"])
        if method != "HEAD" or any(
            route.matches(dict(scope))[0] is Match.FULL for route in self.routes
        ):
            return method
        return "GET"

    def _operation(self, scope: Scope) -> tuple[Operation | None, Mapping[str, str]]:
        """Which call of a client API a request is for, and the parameters in its path."""
        path = scope["path"]
        operation = self._operations.get(path)
        if operation is not None:
            return operation, NO_PARAMETERS
        for pattern, with_parameters, query in self._patterns:
            if (match := pattern.fullmatch(path)) and (query is None or query in _query(scope)):
                return with_parameters, match.groupdict()
        return None, NO_PARAMETERS

    def api_of(self, scope: Scope) -> ClientAPI:
        """The client API that a request is for: whose call it is, or whose it would be by its path
        or headers; OpenAI's if nobody's."""
        operation, _ = self._operation(scope)
        if operation is not None:
            return self._api_of[operation.name]
        return next((api for api in self.apis if api.owns(scope)), OPENAI_API)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        # Written out rather than given to Starlette, which would answer a provider that can't start
        # with a traceback.
        await receive()
        try:
            await self.start()
        except ProviderStartError as error:
            await self.stop()
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        try:
            await receive()
        except asyncio.CancelledError:
            # A second Ctrl-C: the server waits for nothing any more.
            await self.stop()
            return
        await self.stop()
        await send({"type": "lifespan.shutdown.complete"})

    async def start(self) -> None:
        """Start the runtime.

        Raises:
            ProviderStartError: a provider can't start; those that did are still running.
        """
        await self.runtime.start()

    async def stop(self) -> None:
        """Stop the runtime, and those before it that still have requests."""
        for runtime in self._retiring.values():
            runtime.abandon()
        await asyncio.gather(*self._retiring, return_exceptions=True)
        await self.runtime.stop()

    def runtimes(self) -> Sequence[Runtime]:
        """What requests are answered from now: those that a reload replaced until their last."""
        return (self.runtime, *self._retiring.values())

    async def reload(self, distribution: Distribution) -> None:
        """Answer new requests from `distribution`; those that run keep what they have to their end.

        Raises:
            ProviderStartError: a provider can't start; all goes on as it was.
        """
        runtime, before = Runtime(distribution, self.runtime), self.runtime
        try:
            await runtime.start()
        except BaseException:
            await runtime.stop()
            raise
        self.runtime = runtime
        before.replaced_by(runtime)
        self._open(distribution.server)
        task = asyncio.create_task(_retire(before), name="runtime without requests")
        self._retiring[task] = before
        task.add_done_callback(self._retired)

    def _open(self, settings: ServerSettings) -> None:
        """Open what only some templates want: to whoever runs the server, to web pages."""
        if settings.admin_key is not None and not self._has_admin_routes:
            from routing.page.template import add_template_routes

            self.router.routes.extend(_routes_by(_add_operators_routes))
            add_template_routes(self.router)  # it minds what others of this application do
            self._has_admin_routes, self.openapi_schema = True, None
        self._cors = _cors(self._serve, settings.cors)

    def _retired(self, task: asyncio.Task[None]) -> None:
        self._retiring.pop(task, None)
        if not task.cancelled() and task.exception() is not None:
            log.error("what a reload replaced did not stop", exc_info=task.exception())

    def openapi(self) -> dict[str, Any]:
        """The schema behind `/docs`, the plain endpoints included; built when first asked for.

        Takes seconds the first time in a process.
        """
        if self.openapi_schema is None:
            schema = add_operations(super().openapi(), PREFIXES)
            for api in self.apis:
                add_summaries(schema, api.name, api.summaries, api.bodies, api.streams)
            add_errors(schema)
            self.openapi_schema = schema
        return self.openapi_schema

    def _render_api_error(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, APIError)
        return self._rendered(request.scope, error)

    def _rendered(self, scope: Scope, error: APIError) -> Response:
        dialect = self.api_of(scope).dialect
        request_id = request_id_of(scope)
        return Response(
            dialect.render_error(error, request_id),
            dialect.status(error),
            {**dialect.headers_of(request_id), **error.headers},
            "application/json",
        )

    def _render_http_exception(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        path = request.url.path
        meant = self._meant(path) if error.status_code == 404 else None
        hint = f"Did you mean {meant}?" if meant is not None else "/docs lists what there is."
        message = f"{error.detail}: {request.method} {path}. {hint}"
        described = APIError(error.status_code, message, headers=error.headers)
        return self._render_api_error(request, described)

    def _meant(self, path: str) -> str | None:
        """The path of an operation that a client with a base URL not quite right asks for."""
        known = "/" + path.strip("/").removeprefix("v1/")
        return next((each for each in (f"/v1{known}", known) if self._has(each)), None)

    def _has(self, path: str) -> bool:
        return path in self._operations or any(each[0].fullmatch(path) for each in self._patterns)

    def _render_invalid_query(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0]
        name, message = str(first["loc"][-1]), f"'{first['loc'][-1]}': {first['msg']}."
        if first["loc"] == ("body",) or first["type"] == "json_invalid":
            name, message = "body", _SEND_JSON
        return self._render_api_error(request, invalid_parameter(name, message))

    def _render_unexpected(self, request: Request, error: Exception) -> Response:
        return self._render_api_error(request, internal_error())


_SEND_JSON = "The body has to be a JSON object, with the header 'content-type: application/json'."


def _cors(app: ASGIApplication, settings: CorsSettings | None) -> ASGIApplication | None:
    """`app` for web pages of other origins too; None where there are to be none."""
    if settings is None:
        return None
    from starlette.middleware.cors import CORSMiddleware

    with_cors = CORSMiddleware(
        cast(ASGIApp, app),
        allow_origins=settings.origins,
        allow_methods=["GET", "POST", "PATCH", "DELETE"],
        # A page's scripts send keys as headers; cookies mean nothing here.
        allow_headers=["*"],
        expose_headers=["*", "x-request-id", "retry-after"],
        max_age=settings.max_age_seconds,
    )
    return cast(ASGIApplication, with_cors)


def _query(scope: Scope) -> Sequence[tuple[str, str]]:
    return parse_qsl(scope["query_string"].decode("latin-1"))


def _answer_nobody(request: Request, gone: Exception) -> Response:
    """What nobody gets: the client has left before it had sent everything."""
    return Response(status_code=CLIENT_LEFT)


async def _retire(runtime: Runtime) -> None:
    await runtime.unused()
    await runtime.stop()


def _say_refused(scope: Scope, request_id: str, status: int) -> None:
    # Calls of a model have a line of their own, whatever becomes of them. Each status is a kind by
    # itself: a flood of wrong keys is not to hide that something else is amiss.
    refusals.warning(
        f"%s %s %s status={status}", request_id, scope["method"], one_line(scope["path"])
    )


def _method_not_allowed(scope: Scope) -> APIError:
    if wants_websocket(scope):
        return no_websocket(scope)
    return APIError(
        405,
        f"Method Not Allowed: {scope['method']} {scope['path']}. Use POST.",
        headers={"allow": "POST"},
    )


def _with_request_id(scope: Scope, send: Send) -> Send:
    async def send_with_request_id(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            if message["status"] >= 400:
                _say_refused(scope, request_id_of(scope), message["status"])
            message["headers"] = [
                *message.get("headers", ()),
                (b"x-request-id", request_id_of(scope).encode()),
            ]
        await send(message)

    return send_with_request_id


@cache
def _routes_by(add: Callable[[APIRouter], None]) -> Sequence[BaseRoute]:
    """The routes that `add` adds.

    They are the same for every application, and FastAPI takes half a millisecond to find out what
    one of them wants to know of a request: it does so once for a process.
    """
    router = APIRouter()
    add(router)
    return router.routes


def _add_operators_routes(router: APIRouter) -> None:
    """Add what is for whoever runs the server."""
    from routing.ingress.admin import add_admin_routes
    from routing.ingress.residency import add_residency_routes
    from routing.page.access import add_access_routes
    from routing.page.audited import add_audit_routes
    from routing.page.batches import add_batches_routes
    from routing.page.models import add_models_routes
    from routing.page.overview import add_overview_routes
    from routing.page.requests import add_requests_routes
    from routing.page.targets import add_targets_routes

    add_admin_routes(router)
    add_residency_routes(router)
    add_access_routes(router)
    add_overview_routes(router)
    add_requests_routes(router)
    add_batches_routes(router)
    add_models_routes(router)
    add_targets_routes(router)
    add_audit_routes(router)


def _add_routes(app: Application) -> None:
    @app.get(
        "/health",
        tags=["server"],
        responses={
            503: {"description": "It is not well.", "content": {"application/json": {"schema": {}}}}
        },
    )
    async def tell_health(request: Request) -> Response:
        """200 once every provider has started and all local models are loaded, 503 before.

        And 503 from then on that a GPU has failed in a way that only a new process mends: `status`
        is `device_lost`, and models that are not on it answer as before.

        Where there are keys, more is told to who brings the metrics key, the admin key or one of
        the server's own: `running` and `waiting` count the requests in the engines of this process.
        `targets` says of each provider's models how many requests are in flight there, how many
        there were, how many failed and of what class the last failure was, for how many seconds it
        is left alone, and how long it takes to the first content. Where models share memory,
        `memory` says what they take of each device, and where each of them is.
        """
        told = health(runtime_of(request), request.scope["headers"])
        return JSONResponse(told, 200 if told["status"] == "ok" else 503)

    @app.get(
        METRICS_PATH,
        tags=["server"],
        response_class=Response,
        responses={200: {"content": {"text/plain": {}}}},
    )
    async def metrics() -> Response:
        """What Prometheus is told, where the template has `metrics: true`."""
        observers = app.runtime.observers
        if observers is None or observers.meter is None:
            raise APIError(
                404, "There are no metrics here: `metrics: true` under `server:` in the template."
            )
        observers.flush()
        return Response(await observers.meter.text(), media_type=METRICS_TYPE)

    @app.get(CACHE_PATH, tags=["server"])
    async def kv_blocks(request: Request, model: str, log: str = "", after: int = 0) -> Response:
        """Which prompts the KV cache of a model here holds, for gateways that choose by it.

        `model` is the provider's name for it. `log` and `after` are `log` and `number` of the last
        answer: told is what is new since then, or all that is held (`is_all`). `stored` and
        `removed` are base64: 8 bytes for each block of 512 bytes of a prompt, as the client sent
        it. Where there are keys it is told to who may see `/metrics`. What came before the first
        question is not known.
        """
        news = cache_news(runtime_of(request), model, log, after)
        return Response(news, media_type="application/json")

    @app.get("/version", tags=["server"])
    async def version() -> dict[str, str]:
        """The version of this server."""
        return {"version": __version__}
