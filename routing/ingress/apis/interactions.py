"""Google's Interactions API, and the routes to what is kept of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import Request

from llama_compat.dialects.gemini_interactions.call import HOW_TO_KEEP
from llama_compat.dialects.gemini_interactions.operations import INTERACTIONS, INTERACTIONS_API
from llama_compat.errors import invalid_parameter
from llama_compat.exchange import Principal
from routing.ingress.apis.client_api import ClientAPI, is_below
from routing.ingress.apis.gemini import PREFIXES
from routing.runtime import runtime_of
from routing.storage.kept import INTERACTIONS_KEPT
from routing.storage.responses import ResponseStore

if TYPE_CHECKING:
    from routing.app import Application

PATH = "/interactions"


def _add_routes(app: Application) -> None:
    def kept_by(request: Request, interaction_id: str) -> tuple[ResponseStore, Principal]:
        store = runtime_of(request).responses
        if store is None:
            error = INTERACTIONS_KEPT.not_found(interaction_id)
            error.message += f" {HOW_TO_KEEP}"
            raise error
        return store, request.scope["principal"]

    async def retrieve_interaction(
        request: Request, interaction_id: str, stream: bool = False, include_input: bool = False
    ) -> dict[str, Any]:
        """One interaction that is kept here, with the steps of its input. What a vendor keeps is
        not asked for."""
        store, owner = kept_by(request, interaction_id)
        if stream:
            raise invalid_parameter(
                "stream", "The events of an interaction are not kept; leave 'stream' out."
            )
        kept = await store.get(owner.id, interaction_id, INTERACTIONS_KEPT)
        asked = {"input": kept.input} if include_input else {}
        return {**kept.response, **asked, "steps": [*kept.input, *kept.response["steps"]]}

    async def delete_interaction(request: Request, interaction_id: str) -> dict[str, Any]:
        """Forget an interaction; one that runs in the background ends."""
        store, owner = kept_by(request, interaction_id)
        await store.delete(owner.id, interaction_id, INTERACTIONS_KEPT)
        runtime_of(request).background.cancel(interaction_id)
        return {}

    async def cancel_interaction(request: Request, interaction_id: str) -> dict[str, Any]:
        """End an interaction that runs in the background."""
        store, owner = kept_by(request, interaction_id)
        interaction = await store.cancel(owner.id, interaction_id, INTERACTIONS_KEPT)
        runtime_of(request).background.cancel(interaction_id)
        return interaction

    for prefix in PREFIXES:
        one = f"{prefix}{PATH}/{{interaction_id}}"
        app.add_api_route(one, retrieve_interaction, tags=["interactions"])
        app.add_api_route(one, delete_interaction, methods=["DELETE"], tags=["interactions"])
        app.add_api_route(
            f"{one}/cancel", cancel_interaction, methods=["POST"], tags=["interactions"]
        )


INTERACTIONS_CLIENT_API = ClientAPI(
    name="interactions",
    dialect=INTERACTIONS_API,
    owns=lambda scope: any(is_below(scope["path"], prefix + PATH) for prefix in PREFIXES),
    operations={prefix + PATH: INTERACTIONS for prefix in PREFIXES},
    add_routes=_add_routes,
    summaries={prefix + PATH: "Take the next turn of a conversation." for prefix in PREFIXES},
    streams={prefix + PATH: "text/event-stream" for prefix in PREFIXES},
)
