"""OpenAI's Responses API, and what is kept of it."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from copy import copy
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from fastapi import Query, Request
from msgspec import Raw
from msgspec.structs import replace

from llama_compat.dialects.base import Labels
from llama_compat.dialects.openai_responses.items_in import described_items, item_type
from llama_compat.dialects.openai_responses.keeping import HOW_TO_KEEP, Keeping
from llama_compat.dialects.openai_responses.operations import (
    COMPACT,
    INPUT_TOKENS,
    RESPONSES,
    RESPONSES_API,
    kept,
)
from llama_compat.dialects.openai_responses.requests import ResponsesCall
from llama_compat.errors import (
    APIError,
    UnsupportedHere,
    invalid_parameter,
    nested_too_deeply,
)
from llama_compat.exchange import JSON_HEADERS, Call, Principal, Reply, Target
from llama_compat.off_loop import off_loop
from llama_compat.translation import VocabularyProvider, honoured
from llama_compat.wire.json_depth import MAX_DEPTH, too_deep
from llama_compat.wire.json_fields import encode_json, from_raw, to_raw, unicode_from_raw
from providers.answer import answer as answer_call
from providers.base import Provider
from routing.ingress.api import ClientAPI
from routing.ingress.endpoint import Asking, Endpoint
from routing.ingress.openai import PREFIXES
from routing.models import Route
from routing.operations.store.responses import Items, ResponseStore, response_not_found
from routing.policy.attempts import Attempts
from routing.runtime import Runtime, runtime_of

if TYPE_CHECKING:
    from routing.app import Application

PATH = "/responses"


class ResponsesEndpoint(Endpoint):
    """A call of the Responses API, with what the store has of the conversation."""

    async def dispatch(self, asking: Asking, runtime: Runtime) -> Reply:
        """Have one of the model's targets answer the call, and keep the response if that is
        wanted."""
        store, call = runtime.responses, asking.call
        if store is None:
            return await super().dispatch(asking, runtime)
        name = await off_loop(call.size, too_deep, call.fields)
        if name is not None:
            raise nested_too_deeply(name, MAX_DEPTH)
        relaying = [call.operation.name in each.provider.relays for each in asking.route.targets]
        turn = None if all(relaying) else await _Turn.of(call, store)
        if turn is not None and turn.keeping.background:
            return await self._in_background(turn, asking, runtime)
        expanded = await _expanded(call, store) if any(relaying) else call
        turns: dict[int, _Turn] = {}

        async def ask(provider: Provider, target: Target) -> Reply:
            if call.operation.name in provider.relays:
                return await self.ask(expanded, provider, target)
            assert turn is not None
            attempt = turn.again()
            reply = await self.ask(attempt.call, provider, target)
            turns[id(reply)] = attempt
            return reply

        reply = await asking.answered_by(ask)
        answered = turns.get(id(reply))
        if answered is None or not answered.keeping.store:
            return reply
        return await answered.kept(reply)

    async def _in_background(self, turn: _Turn, asking: Asking, runtime: Runtime) -> Reply:
        if turn.call.stream:
            raise APIError(
                400,
                "'background' with 'stream' is not there. Leave 'stream' out, and ask for the"
                " response until it is done.",
                param="background",
                code="unsupported_parameter",
            )
        runtime.background.check_room()
        translation, dropped = await off_loop(turn.call.size, _translated, turn.call, asking.route)
        labels = Labels(turn.call.model, turn.call.request_id)
        queued = translation.queued(labels)
        await turn.save(queued)
        # What is tried when the answer has long been sent is not this answer's.
        later = asking._replace(attempts=Attempts(asking.attempts.headers))
        observed = asking.observed
        if observed is not None:
            later.attempts.on_attempt = asking.attempts.on_attempt
            observed.postpone()

        async def work() -> dict[str, Any]:
            reply: Reply | None = None
            failure: APIError | None = None
            try:
                reply, response = await generate()
            except APIError as error:
                failure = error
                raise
            finally:
                if observed is not None:
                    observed.end_later(later.attempts, reply, failure)
            return response

        async def generate() -> tuple[Reply, dict[str, Any]]:
            turns: dict[int, _Turn] = {}

            async def ask(provider: Provider, target: Target) -> Reply:
                attempt = turn.again()
                # Kept here, so the vendor has no part in it.
                reply = await answer_call(provider, attempt.call, target, relays=False)
                turns[id(reply)] = attempt
                return reply

            reply = await later.answered_by(ask)
            await reply.aclose()
            response = turns[id(reply)].keeping.response
            assert response is not None
            return reply, response

        runtime.hold()
        running = runtime.background.run(queued, work)
        running.add_done_callback(lambda _: runtime.release())
        return Reply(encode_json(queued), headers=JSON_HEADERS, dropped=dropped)


def _translated(call: Call, route: Route) -> tuple[ResponsesCall, tuple[str, ...]]:
    """The call as the first target takes it that can, and what that one drops.

    Raises:
        APIError: 400, it is malformed, or no target takes it.
    """
    refusal: APIError | None = None
    for each in route.targets:
        try:
            provider = cast(VocabularyProvider, each.provider)
            translation, dropped = honoured(provider, provider.parameters, call, each.target)
        except UnsupportedHere as error:
            refusal = refusal or error
        else:
            return cast(ResponsesCall, translation), dropped
    assert refusal is not None
    raise refusal


class _Turn:
    """One request whose response may be kept.

    Attributes:
        call: with what the store has of the conversation.
        keeping: the store's side of it.
    """

    def __init__(
        self, call: Call, keeping: Keeping, store: ResponseStore, input: Items, previous: str | None
    ) -> None:
        self._asked = call
        self.call = replace(call, operation=kept(call.operation, keeping))
        self.keeping = keeping
        self._owner = call.principal.id
        self._store = store
        self._input = input
        self._previous = previous

    @classmethod
    async def of(cls, call: Call, store: ResponseStore) -> _Turn:
        owner, previous = call.principal.id, _member(call.fields, "previous_response_id")
        value = _input(call.fields)
        named = [item["id"] for item in value if _is_reference(item)]
        references = await store.items(owner, named) if named else {}
        unique = os.urandom(12).hex()
        keeping = Keeping(
            f"resp_{unique}",
            # Only what is made by the model is kept: a compacted conversation is the client's.
            store=call.operation is RESPONSES and _member(call.fields, "store") is not False,
            background=_member(call.fields, "background") is True,
            earlier=await store.history(owner, previous) if previous else (),
            references=references,
        )
        if keeping.background and not keeping.store:
            raise invalid_parameter(
                "background", "A response in the background has to be stored: leave 'store' out."
            )
        found = [
            references.get(item["id"], item) if _is_reference(item) else item for item in value
        ]
        # Another last word than those of the output's ids.
        return cls(call, keeping, store, described_items(found, f"{unique}f"), previous)

    def again(self) -> _Turn:
        """The same turn for another attempt, which makes a response of its own."""
        keeping = copy(self.keeping)
        return _Turn(self._asked, keeping, self._store, self._input, self._previous)

    async def save(self, response: Mapping[str, Any]) -> None:
        """Keep `response`, even if the client leaves while that is done."""
        await self._store.save(self._owner, response, self._input, self._previous)

    async def kept(self, reply: Reply) -> Reply:
        """`reply`, whose end the client gets when the response has been kept."""
        try:
            return await self._kept(reply)
        except BaseException:
            await reply.aclose()
            raise

    async def _kept(self, reply: Reply) -> Reply:
        if self.keeping.response is not None:
            await self.save(self.keeping.response)
        elif not isinstance(reply.body, bytes):
            reply.body = self._saving(reply, reply.body)
            # A generator that has not begun would not close what it reads from.
            reply.first += await anext(reply.body)
        return reply

    async def _saving(
        self, reply: Reply, body: AsyncGenerator[bytes, None]
    ) -> AsyncGenerator[bytes, None]:
        async with aclosing(body):
            yield b""
            try:
                async for chunk in body:
                    if self.keeping.response is not None:
                        await self.save(self.keeping.response)
                    yield chunk
            except APIError as error:
                render = reply.render_error
                if render is not None:
                    rendered = render(error)
                    reply.render_error = lambda _: rendered
                    if self.keeping.response is not None:
                        await self.save(self.keeping.response)
                raise


async def _expanded(call: Call, store: ResponseStore) -> Call:
    """`call` for a vendor that keeps responses of its own; one that is kept here it gets whole."""
    previous = _member(call.fields, "previous_response_id")
    if not previous:
        return call
    try:
        earlier = await store.history(call.principal.id, previous)
    except APIError as error:
        if error.code == "previous_response_not_found":
            return call
        raise
    # Ids of items mean nothing to another server; the relay sees to what is sealed.
    items = [{name: each[name] for name in each if name != "id"} for each in earlier]
    fields = {**call.fields, "input": to_raw([*items, *_input(call.fields)])}
    del fields["previous_response_id"]
    return replace(call, fields=fields)


def _is_reference(item: Mapping[str, Any]) -> bool:
    return item_type(item) == "item_reference" and isinstance(item.get("id"), str)


def _member(fields: Mapping[str, Raw], name: str) -> Any:
    return from_raw(fields[name]) if name in fields else None


def _input(fields: Mapping[str, Raw]) -> Items:
    """The items of a request that are objects; the rest is for the parser to refuse."""
    value = unicode_from_raw(fields["input"]) if "input" in fields else None
    if isinstance(value, str):
        return [{"role": "user", "content": value}]
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


# --------------------------------------------------------------------------------------------------
# What is kept
# --------------------------------------------------------------------------------------------------

Limit = Annotated[int, Query(ge=1, le=100)]


def _add_routes(app: Application) -> None:
    def kept_by(request: Request, response_id: str) -> tuple[ResponseStore, Principal]:
        store = runtime_of(request).responses
        if store is None:
            error = response_not_found(response_id)
            error.message += f" {HOW_TO_KEEP}"
            raise error
        return store, request.scope["principal"]

    async def retrieve_response(
        request: Request, response_id: str, stream: bool = False
    ) -> dict[str, Any]:
        """One response that is kept here. What a vendor keeps is not asked for."""
        store, owner = kept_by(request, response_id)
        if stream:
            raise invalid_parameter(
                "stream", "The events of a response are not kept; leave 'stream' out."
            )
        return (await store.get(owner.id, response_id)).response

    async def delete_response(request: Request, response_id: str) -> dict[str, Any]:
        """Forget a response; one that runs in the background ends."""
        store, owner = kept_by(request, response_id)
        await store.delete(owner.id, response_id)
        runtime_of(request).background.cancel(response_id)
        return {"id": response_id, "object": "response", "deleted": True}

    async def cancel_response(request: Request, response_id: str) -> dict[str, Any]:
        """End a response that runs in the background."""
        store, owner = kept_by(request, response_id)
        response = await store.cancel(owner.id, response_id)
        runtime_of(request).background.cancel(response_id)
        return response

    async def list_input_items(
        request: Request,
        response_id: str,
        after: str | None = None,
        limit: Limit = 20,
        order: Literal["asc", "desc"] = "desc",
    ) -> dict[str, Any]:
        """The items that a response was asked with; those of earlier responses are theirs."""
        store, owner = kept_by(request, response_id)
        items = (await store.get(owner.id, response_id)).input
        return _page(items if order == "asc" else items[::-1], after, limit)

    for prefix in PREFIXES:
        one = f"{prefix}{PATH}/{{response_id}}"
        app.add_api_route(one, retrieve_response, tags=["responses"])
        app.add_api_route(one, delete_response, methods=["DELETE"], tags=["responses"])
        app.add_api_route(f"{one}/cancel", cancel_response, methods=["POST"], tags=["responses"])
        app.add_api_route(f"{one}/input_items", list_input_items, tags=["responses"])


def _page(items: Items, after: str | None, limit: int) -> dict[str, Any]:
    begin = 0
    if after is not None:
        ids = [item["id"] for item in items]
        if after not in ids:
            raise invalid_parameter("after", f"No input item has the id '{after}'.")
        begin = ids.index(after) + 1
    page = items[begin : begin + limit]
    return {
        "object": "list",
        "data": page,
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
        "has_more": begin + limit < len(items),
    }


RESPONSES_CLIENT_API = ClientAPI(
    name="responses",
    dialect=RESPONSES_API,
    owns=lambda scope: any(scope["path"].startswith(prefix + PATH) for prefix in PREFIXES),
    endpoints={
        prefix + path: ResponsesEndpoint(operation)
        for prefix in PREFIXES
        for path, operation in {
            PATH: RESPONSES,
            f"{PATH}/compact": COMPACT,
            f"{PATH}/input_tokens": INPUT_TOKENS,
        }.items()
    },
    add_routes=_add_routes,
)
