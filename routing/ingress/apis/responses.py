"""OpenAI's Responses API, and the routes to what is kept of it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import Query, Request

from llama_compat.dialects.openai_responses.keeping import HOW_TO_KEEP
from llama_compat.dialects.openai_responses.operations import (
    COMPACT,
    INPUT_TOKENS,
    RESPONSES,
    RESPONSES_API,
)
from llama_compat.errors import invalid_parameter
from llama_compat.exchange import Principal
from routing.ingress.apis.client_api import ClientAPI, is_below
from routing.ingress.apis.openai import PREFIXES
from routing.ingress.offered_tools import add_offered_tools_routes
from routing.ingress.paging import list_page
from routing.ingress.websocket.session import open_websocket
from routing.layers.keeping.background import BackgroundResponses
from routing.runtime import runtime_of
from routing.storage.kept import RESPONSES_KEPT, KeptAPI
from routing.storage.kept_rows import Items

if TYPE_CHECKING:
    from fastapi import APIRouter

PATH = "/responses"


Limit = Annotated[int, Query(ge=1, le=100)]


def kept_by(
    request: Request, reply_id: str, api: KeptAPI, how_to_keep: str
) -> tuple[BackgroundResponses, str]:
    """What has the replies of an API that are kept here, and whose the caller's are.

    Args:
        request: asks for one of them.
        reply_id: its id.
        api: whose reply it is.
        how_to_keep: what is said where none are kept.

    Raises:
        APIError: 404, none are.
    """
    runtime = runtime_of(request)
    if runtime.responses is None:
        error = api.not_found(reply_id)
        error.message += f" {how_to_keep}"
        raise error
    principal: Principal = request.scope["principal"]
    return runtime.background, principal.id


_kept_by = partial(kept_by, api=RESPONSES_KEPT, how_to_keep=HOW_TO_KEEP)


def _add_routes(router: APIRouter) -> None:
    async def retrieve_response(
        request: Request, response_id: str, stream: bool = False
    ) -> dict[str, Any]:
        """One response that is kept here. What a vendor keeps is not asked for."""
        kept, owner = _kept_by(request, response_id)
        if stream:
            raise invalid_parameter(
                "stream", "The events of a response are not kept; leave 'stream' out."
            )
        return (await kept.get(owner, response_id, RESPONSES_KEPT)).response

    async def delete_response(request: Request, response_id: str) -> dict[str, Any]:
        """Forget a response; one that runs in the background ends."""
        kept, owner = _kept_by(request, response_id)
        await kept.delete(owner, response_id, RESPONSES_KEPT)
        return {"id": response_id, "object": "response", "deleted": True}

    async def cancel_response(request: Request, response_id: str) -> dict[str, Any]:
        """End a response that runs in the background."""
        kept, owner = _kept_by(request, response_id)
        return await kept.cancel(owner, response_id, RESPONSES_KEPT)

    async def list_input_items(
        request: Request,
        response_id: str,
        after: str | None = None,
        limit: Limit = 20,
        order: Literal["asc", "desc"] = "desc",
    ) -> dict[str, Any]:
        """The items that a response was asked with; those of earlier responses are theirs."""
        kept, owner = _kept_by(request, response_id)
        items = (await kept.get(owner, response_id, RESPONSES_KEPT)).input
        return _page(items if order == "asc" else items[::-1], after, limit)

    for prefix in PREFIXES:
        one = f"{prefix}{PATH}/{{response_id}}"
        router.add_api_route(one, retrieve_response, tags=["responses"])
        router.add_api_route(one, delete_response, methods=["DELETE"], tags=["responses"])
        router.add_api_route(f"{one}/cancel", cancel_response, methods=["POST"], tags=["responses"])
        router.add_api_route(f"{one}/input_items", list_input_items, tags=["responses"])
    # The API that has words for all of them.
    add_offered_tools_routes(router, PREFIXES)


def _page(items: Items, after: str | None, limit: int) -> dict[str, Any]:
    begin = 0
    if after:
        ids = [item["id"] for item in items]
        if after not in ids:
            raise invalid_parameter("after", f"No input item has the id '{after}'.")
        begin = ids.index(after) + 1
    page = items[begin : begin + limit]
    return list_page(page, more=begin + limit < len(items))


RESPONSES_CLIENT_API = ClientAPI(
    name="responses",
    dialect=RESPONSES_API,
    owns=lambda scope: any(is_below(scope["path"], prefix + PATH) for prefix in PREFIXES),
    operations={
        prefix + path: operation
        for prefix in PREFIXES
        for path, operation in {
            PATH: RESPONSES,
            f"{PATH}/compact": COMPACT,
            f"{PATH}/input_tokens": INPUT_TOKENS,
        }.items()
    },
    websockets={prefix + PATH: open_websocket for prefix in PREFIXES},
    add_routes=_add_routes,
)
