"""OpenAI's API: completions, chat completions, embeddings, and the list of models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import Request

from llama_compat.dialects.openai.media.operations import IMAGES, MODERATIONS
from llama_compat.dialects.openai.models import render_model
from llama_compat.dialects.openai.operations import CHAT, COMPLETIONS, EMBEDDINGS, OPENAI
from routing.ingress.apis.client_api import ClientAPI
from routing.runtime import find_model, list_models

if TYPE_CHECKING:
    from routing.app import Application

PREFIXES = ("/v1/openai/v1", "/v1")
"""Where the OpenAI routes are; both are the same."""


def _add_routes(app: Application) -> None:
    async def list_all(request: Request) -> dict[str, Any]:
        """Every model that can be asked for, aliases included."""
        models = await list_models(request)
        return {"object": "list", "data": [render_model(model) for model in models]}

    async def retrieve_model(request: Request, model_id: str) -> dict[str, Any]:
        """One model; ids may hold slashes."""
        return render_model(await find_model(request, model_id))

    for prefix in PREFIXES:
        app.add_api_route(f"{prefix}/models", list_all, tags=["models"])
        app.add_api_route(f"{prefix}/models/", list_all, include_in_schema=False)
        app.add_api_route(f"{prefix}/models/{{model_id:path}}", retrieve_model, tags=["models"])


OPENAI_API = ClientAPI(
    name="openai",
    dialect=OPENAI,
    owns=lambda scope: True,
    operations={
        prefix + path: operation
        for prefix in PREFIXES
        for path, operation in {
            "/chat/completions": CHAT,
            "/completions": COMPLETIONS,
            "/embeddings": EMBEDDINGS,
            "/images/generations": IMAGES,
            "/moderations": MODERATIONS,
        }.items()
    },
    add_routes=_add_routes,
)
