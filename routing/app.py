"""The ASGI application: FastAPI for what people look at, plain endpoints for what is hot."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from llama_compat import __version__
from llama_compat.distribution import Distribution
from llama_compat.errors import APIError, internal_error
from providers import registry
from providers.base import Provider, ProviderModel, ProviderStartError
from routing.asgi import Receive, Scope, Send
from routing.auth import Authenticator
from routing.docs import add_operations, add_page
from routing.ingress.answer import Answer, new_request_id, sent_request_id
from routing.ingress.openai import OPERATIONS, OpenAIEndpoint
from routing.models import ModelTable

PREFIXES = ("/v1/openai/v1", "/v1")
"""Where the OpenAI routes are; both are the same."""


class Application(FastAPI):
    """FastAPI with the OpenAI operations in front of it.

    Its providers start and stop with the ASGI lifespan; without that it answers nothing.

    Args:
        distribution: what to serve.

    Attributes:
        providers: the distribution's, by id.
        models: the public ids, and where each leads.
        ready: whether every provider has started.
    """

    def __init__(self, distribution: Distribution) -> None:
        super().__init__(
            title="llama_compat",
            version=__version__,
            summary="One OpenAI-compatible endpoint for every model.",
            docs_url=None,
            redoc_url=None,
        )
        self.providers = _create_providers(distribution)
        self.models = ModelTable(distribution.models, self.providers)
        self.ready = False
        self._running = AsyncExitStack()
        self._authenticator = Authenticator(
            key.get_secret_value() for key in distribution.server.api_keys
        )
        limit = distribution.server.max_body_bytes
        self._endpoints = {
            prefix + path: OpenAIEndpoint(operation, self.models, limit)
            for prefix in PREFIXES
            for path, operation in OPERATIONS.items()
        }
        _add_routes(self)
        add_page(self)
        self.add_exception_handler(APIError, _render_api_error)
        self.add_exception_handler(HTTPException, _render_http_exception)
        self.add_exception_handler(Exception, _render_unexpected)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        path = scope["path"]
        endpoint = self._endpoints.get(path)
        try:
            if path != "/health":
                self._authenticator.check(scope["headers"])
            if endpoint is not None and scope["method"] != "POST":
                raise _method_not_allowed(scope)
        except APIError as error:
            await Answer(send, scope).error(error)
            return
        if endpoint is not None:
            await endpoint(scope, receive, send)
            return
        if path == self.openapi_url and self.openapi_schema is None:
            await asyncio.to_thread(self.openapi)
        await super().__call__(scope, receive, _with_request_id(scope, send))  # type: ignore[arg-type]

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
        """Start every provider.

        Raises:
            ProviderStartError: one can't; those before it are still running.
        """
        for provider in self.providers.values():
            self._running.push_async_callback(provider.stop)
            await provider.start()
        self.ready = True

    async def stop(self) -> None:
        """Stop every provider that was started."""
        self.ready = False
        await self._running.aclose()

    def openapi(self) -> dict[str, Any]:
        """The schema behind `/docs`, the plain endpoints included; built when first asked for.

        Takes a second or two that first time.
        """
        if self.openapi_schema is None:
            self.openapi_schema = add_operations(super().openapi(), PREFIXES)
        return self.openapi_schema


def _create_providers(distribution: Distribution) -> dict[str, Provider]:
    wanted: dict[str, list[ProviderModel]] = {}
    for model in distribution.models:
        offered = ProviderModel(model.provider_model or model.id, model.context_length)
        wanted.setdefault(model.provider, []).append(offered)
    return {
        settings.id: registry.provider_class(settings.type)(
            settings.id, settings.config, wanted.get(settings.id, ())
        )
        for settings in distribution.providers
    }


def _method_not_allowed(scope: Scope) -> APIError:
    return APIError(
        405,
        f"Method Not Allowed: {scope['method']} {scope['path']}. Use POST.",
        headers={"allow": "POST"},
    )


def _with_request_id(scope: Scope, send: Send) -> Send:
    async def send_with_request_id(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            request_id = sent_request_id(scope) or new_request_id()
            message["headers"] = [
                *message.get("headers", ()),
                (b"x-request-id", request_id.encode()),
            ]
        await send(message)

    return send_with_request_id


def _add_routes(app: Application) -> None:
    @app.get("/health", tags=["server"])
    async def health() -> Response:
        """200 once every provider has started and all local models are loaded, 503 before.

        `running` and `waiting` count the requests in the engines of this process.
        """
        if app.ready:
            counts = Counter({"running": 0, "waiting": 0})
            for provider in app.providers.values():
                counts.update(provider.stats())
            return JSONResponse({"status": "ok", **counts})
        return JSONResponse({"status": "starting"}, 503)

    @app.get("/version", tags=["server"])
    async def version() -> dict[str, str]:
        """The version of this server."""
        return {"version": __version__}

    async def list_models() -> dict[str, Any]:
        """Every model that can be asked for."""
        return {"object": "list", "data": await app.models.list()}

    async def retrieve_model(model_id: str) -> dict[str, Any]:
        """One model; ids may hold slashes."""
        return await app.models.get(model_id)

    for prefix in PREFIXES:
        app.add_api_route(f"{prefix}/models", list_models, tags=["models"])
        app.add_api_route(f"{prefix}/models/", list_models, include_in_schema=False)
        app.add_api_route(f"{prefix}/models/{{model_id:path}}", retrieve_model, tags=["models"])


def _render_api_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, APIError)
    return JSONResponse(error.body(), error.status, error.headers)


def _render_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = f"{error.detail}: {request.method} {request.url.path}. /docs lists what there is."
    return _render_api_error(request, APIError(error.status_code, message, headers=error.headers))


def _render_unexpected(request: Request, error: Exception) -> Response:
    return _render_api_error(request, internal_error())
