"""OpenAI's API: completions, chat completions, embeddings, models, files, batches and vector
stores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fastapi import Request

from llama_compat.dialects.openai.media.operations import (
    IMAGE_EDITS,
    IMAGES,
    MODERATIONS,
    SPEECH,
    TRANSCRIPTIONS,
    TRANSLATIONS,
)
from llama_compat.dialects.openai.models import render_model
from llama_compat.dialects.openai.operations import CHAT, COMPLETIONS, EMBEDDINGS, OPENAI
from llama_compat.dialects.rerank.operations import RERANK, RERANK_V2
from routing.ingress.apis.batches import add_batch_routes
from routing.ingress.apis.client_api import ClientAPI
from routing.ingress.apis.files.openai import add_file_routes
from routing.ingress.apis.vector_stores import add_vector_store_routes
from routing.runtime import find_model, list_models

if TYPE_CHECKING:
    from fastapi import APIRouter

PREFIXES = ("/v1/openai/v1", "/v1")
"""Where the OpenAI routes are; both are the same."""

V2_RERANK = "/v2/rerank"
"""Where Cohere's newer clients ask; its older ones ask where Jina's, Voyage's and vLLM's do."""


_RERANK_PATHS = (*(f"{prefix}/rerank" for prefix in PREFIXES), V2_RERANK)

_RERANK_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "required": ["model", "query", "documents"],
    "properties": {
        "model": {"type": "string"},
        "query": {"type": "string"},
        "documents": {
            "type": "array",
            "items": {"anyOf": [{"type": "string"}, {"type": "object"}]},
            "minItems": 1,
        },
        "top_n": {"type": "integer", "minimum": 1},
        "return_documents": {"type": "boolean"},
        "rank_fields": {"type": "array", "items": {"type": "string"}},
        "max_tokens_per_doc": {"type": "integer", "minimum": 1},
    },
}


def _add_routes(router: APIRouter) -> None:
    async def list_all(request: Request) -> dict[str, Any]:
        """Every model that can be asked for, aliases included."""
        models = await list_models(request)
        return {"object": "list", "data": [render_model(model) for model in models]}

    async def retrieve_model(request: Request, model_id: str) -> dict[str, Any]:
        """One model; ids may hold slashes."""
        return render_model(await find_model(request, model_id))

    for prefix in PREFIXES:
        router.add_api_route(f"{prefix}/models", list_all, tags=["models"])
        router.add_api_route(f"{prefix}/models/", list_all, include_in_schema=False)
        router.add_api_route(f"{prefix}/models/{{model_id:path}}", retrieve_model, tags=["models"])
    add_file_routes(router, PREFIXES)
    add_batch_routes(router, PREFIXES)
    add_vector_store_routes(router, PREFIXES)


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
            "/audio/speech": SPEECH,
            "/audio/transcriptions": TRANSCRIPTIONS,
            "/audio/translations": TRANSLATIONS,
            "/images/edits": IMAGE_EDITS,
            "/images/generations": IMAGES,
            "/moderations": MODERATIONS,
            "/rerank": RERANK,
        }.items()
    }
    | {V2_RERANK: RERANK_V2},
    add_routes=_add_routes,
    summaries=dict.fromkeys(
        _RERANK_PATHS, "Say how much each document has to do with a query, the best first."
    ),
    bodies=dict.fromkeys(_RERANK_PATHS, _RERANK_SCHEMA),
)
