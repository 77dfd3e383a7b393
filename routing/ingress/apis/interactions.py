"""Google's Interactions API, and the routes to what is kept of it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from fastapi import Request

from llama_compat.dialects.gemini_interactions.call import HOW_TO_KEEP
from llama_compat.dialects.gemini_interactions.operations import INTERACTIONS, INTERACTIONS_API
from llama_compat.errors import invalid_parameter
from routing.ingress.apis.client_api import ClientAPI, is_below
from routing.ingress.apis.gemini import PREFIXES
from routing.ingress.apis.responses import kept_by
from routing.storage.kept import INTERACTIONS_KEPT

if TYPE_CHECKING:
    from fastapi import APIRouter

PATH = "/interactions"


_kept_by = partial(kept_by, api=INTERACTIONS_KEPT, how_to_keep=HOW_TO_KEEP)


def _add_routes(router: APIRouter) -> None:
    async def retrieve_interaction(
        request: Request, interaction_id: str, stream: bool = False, include_input: bool = False
    ) -> dict[str, Any]:
        """One interaction that is kept here, or that a vendor makes in the background, with the
        steps of its input."""
        kept, owner = _kept_by(request, interaction_id)
        if stream:
            raise invalid_parameter(
                "stream", "The events of an interaction are not kept; leave 'stream' out."
            )
        one = await kept.get(owner, interaction_id, INTERACTIONS_KEPT)
        asked = {"input": one.input} if include_input else {}
        return {**one.response, **asked, "steps": [*one.input, *one.response["steps"]]}

    async def delete_interaction(request: Request, interaction_id: str) -> dict[str, Any]:
        """Forget an interaction; one that runs in the background ends."""
        kept, owner = _kept_by(request, interaction_id)
        await kept.delete(owner, interaction_id, INTERACTIONS_KEPT)
        return {}

    async def cancel_interaction(request: Request, interaction_id: str) -> dict[str, Any]:
        """End an interaction that runs in the background."""
        kept, owner = _kept_by(request, interaction_id)
        return await kept.cancel(owner, interaction_id, INTERACTIONS_KEPT)

    for prefix in PREFIXES:
        one = f"{prefix}{PATH}/{{interaction_id}}"
        router.add_api_route(one, retrieve_interaction, tags=["interactions"])
        router.add_api_route(one, delete_interaction, methods=["DELETE"], tags=["interactions"])
        router.add_api_route(
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
