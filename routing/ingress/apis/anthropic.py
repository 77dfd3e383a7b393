"""Anthropic's API: messages, the count of their tokens, batches, and files and models in its
shape."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import TYPE_CHECKING, Any

from fastapi import Request
from fastapi.responses import Response
from fastapi.routing import APIRoute
from starlette.routing import Match

from llama_compat.dialects.anthropic_messages import render_model, render_models
from llama_compat.dialects.anthropic_messages.operations import ANTHROPIC, COUNT_TOKENS, MESSAGES
from routing.asgi import Scope
from routing.ingress.apis.anthropic_schemas import MESSAGE_BODY, TOKEN_COUNT_BODY
from routing.ingress.apis.client_api import ClientAPI, is_below, is_shared
from routing.ingress.apis.files.anthropic import add_anthropic_file_routes
from routing.ingress.apis.json_body import answered
from routing.ingress.apis.message_batches import add_message_batch_routes
from routing.runtime import find_model, list_models

if TYPE_CHECKING:
    from fastapi import APIRouter

_MESSAGES_PATH = "/v1/messages"
_MODELS_PATH = "/v1/models"


def _is_from_anthropics_client(scope: Scope) -> bool:
    return any(name == b"anthropic-version" for name, _ in scope["headers"])


def _owns(scope: Scope) -> bool:
    path = scope["path"]
    if is_below(path, _MESSAGES_PATH):
        return True
    return is_shared(path) and _is_from_anthropics_client(scope)


class _AnthropicsRoute(APIRoute):
    """A route that only Anthropic's clients find; others come to OpenAI's on the same path."""

    def matches(self, scope: MutableMapping[str, Any]) -> tuple[Match, MutableMapping[str, Any]]:
        return super().matches(scope) if _is_from_anthropics_client(scope) else (Match.NONE, {})


def _add_routes(router: APIRouter) -> None:
    async def list_all(request: Request) -> Response:
        """Every model that can be asked for, for who sends `anthropic-version`."""
        models = await list_models(request)
        return answered(request, ANTHROPIC, render_models(models, request.query_params))

    async def retrieve_model(request: Request, model_id: str) -> Response:
        """One model, for who sends `anthropic-version`."""
        model = await find_model(request, model_id)
        return answered(request, ANTHROPIC, render_model(model))

    add_message_batch_routes(router)
    add_anthropic_file_routes(router, _AnthropicsRoute)
    endpoints: dict[str, Callable[..., Any]] = {
        _MODELS_PATH: list_all,
        f"{_MODELS_PATH}/": list_all,
        f"{_MODELS_PATH}/{{model_id:path}}": retrieve_model,
    }
    for path, endpoint in endpoints.items():
        router.add_api_route(
            path, endpoint, route_class_override=_AnthropicsRoute, include_in_schema=False
        )


ANTHROPIC_API = ClientAPI(
    name="messages",
    dialect=ANTHROPIC,
    owns=_owns,
    operations={
        _MESSAGES_PATH: MESSAGES,
        f"{_MESSAGES_PATH}/count_tokens": COUNT_TOKENS,
    },
    add_routes=_add_routes,
    summaries={
        _MESSAGES_PATH: "Say the next message of a conversation.",
        f"{_MESSAGES_PATH}/count_tokens": "Count the tokens of a conversation.",
    },
    streams={_MESSAGES_PATH: "text/event-stream"},
    bodies={
        _MESSAGES_PATH: MESSAGE_BODY,
        f"{_MESSAGES_PATH}/count_tokens": TOKEN_COUNT_BODY,
    },
)
