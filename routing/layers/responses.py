"""Responses that are kept: a conversation goes on from what is in the store, and what is answered
goes there."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, cast

from msgspec import Raw
from msgspec.structs import replace

from llama_compat.dialects.base import Labels
from llama_compat.dialects.openai_responses.input.items import described_items, item_type
from llama_compat.dialects.openai_responses.input.requests import ResponsesCall
from llama_compat.dialects.openai_responses.keeping import Keeping
from llama_compat.dialects.openai_responses.operations import RESPONSES, RESPONSES_API, kept
from llama_compat.errors import APIError, UnsupportedHere, invalid_parameter, nested_too_deeply
from llama_compat.exchange import JSON_HEADERS, Call, Reply
from llama_compat.fitting.fit import Fitted
from llama_compat.off_loop import off_loop
from llama_compat.translation import VocabularyProvider, honoured
from llama_compat.wire.json_depth import MAX_DEPTH, too_deep
from llama_compat.wire.json_fields import (
    JSONFields,
    encode_json,
    from_raw,
    to_raw,
    unicode_from_raw,
)
from routing.layers.background import BackgroundResponses
from routing.layers.chain import Owner
from routing.models import Route
from routing.policy.attempts import Attempts
from routing.request import Handler, Request
from routing.storage.responses import Items, ResponseStore


class Responses:
    """Continues conversations from a store, and keeps the responses in it.

    Args:
        next: answers requests, those of other APIs untouched.
        store: where responses are kept.
        background: those that nobody waits for.
        owner: whose chain it is.
    """

    def __init__(
        self, next: Handler, store: ResponseStore, background: BackgroundResponses, owner: Owner
    ) -> None:
        self._next = next
        self._store = store
        self._background = background
        self._owner = owner

    async def __call__(self, request: Request) -> Reply:
        """Answer a request.

        Raises:
            APIError: 400, what it continues is not kept here; or what the next layer raises.
        """
        call, route = request.call, request.route
        assert call is not None
        assert route is not None
        if call.operation.dialect is not RESPONSES_API:
            return await self._next(request)
        name = await off_loop(call.size, too_deep, call.fields)
        if name is not None:
            raise nested_too_deeply(name, MAX_DEPTH)
        relaying = [call.operation.name in each.provider.relays for each in route.targets]
        turn = None if all(relaying) else await Turn.of(call, self._store)
        if turn is not None:
            if turn.keeping.background:
                return await self._in_background(turn, request, route)
            request.call = turn.call
        if any(relaying):
            relayed = await _expanded(call, self._store)
            request.call = replace(request.call or call, relayed=relayed)
        reply = await self._next(request)
        return reply if turn is None else await turn.kept(reply)

    async def _in_background(self, turn: Turn, request: Request, route: Route) -> Reply:
        call = turn.call
        if call.stream:
            raise APIError(
                400,
                "'background' with 'stream' is not there. Leave 'stream' out, and ask for the"
                " response until it is done.",
                param="background",
                code="unsupported_parameter",
            )
        self._background.check_room()
        translation, fitted = await off_loop(call.size, _translated, call, route)
        queued = translation.queued(Labels(call.model, call.request_id))
        await turn.save(queued)
        request.goes_on = True
        # What is tried when the answer has long been sent is not this answer's. And it is kept
        # here, so a vendor that keeps responses as well has no part in it.
        later = replace(
            request,
            call=replace(call, may_be_relayed=False),
            attempts=Attempts(request.attempts.headers),
        )

        async def work() -> dict[str, Any]:
            try:
                return await self._finished(later)
            except APIError as error:
                later.failed(error)
                raise
            finally:
                await request.went_on(later)

        self._owner.hold()
        running = self._background.run(queued, work)
        running.add_done_callback(lambda _: self._owner.release())
        return Reply(
            encode_json(queued),
            headers=JSON_HEADERS,
            dropped=tuple(fitted.dropped),
            adapted=tuple(fitted.adapted),
        )

    async def _finished(self, request: Request) -> dict[str, Any]:
        reply = await self._next(request)
        await reply.aclose()
        request.was_read(reply)
        keeping = _keeping(reply)
        assert keeping is not None
        assert keeping.response is not None
        return keeping.response


def _keeping(reply: Reply) -> Keeping | None:
    """What is to be kept of `reply`; None for one of a vendor's, or of nothing that is kept."""
    translation = reply.translation
    return translation.keeping if isinstance(translation, ResponsesCall) else None


def _translated(call: Call, route: Route) -> tuple[ResponsesCall, Fitted]:
    """The call as the first target takes it that can, and what became of the rest.

    Raises:
        APIError: 400, it is malformed, or no target takes it.
    """
    refusal: APIError | None = None
    for each in route.targets:
        try:
            provider = cast(VocabularyProvider, each.provider)
            translation, fitted = honoured(provider, provider.parameters, call, each.target)
        except UnsupportedHere as error:
            refusal = refusal or error
        else:
            return cast(ResponsesCall, translation), fitted
    assert refusal is not None
    raise refusal


class Turn:
    """One request whose response may be kept.

    Attributes:
        call: with what the store has of the conversation.
        keeping: the store's side of it; each attempt makes a response of its own of that.
    """

    def __init__(
        self, call: Call, keeping: Keeping, store: ResponseStore, input: Items, previous: str | None
    ) -> None:
        self.call = replace(call, operation=kept(call.operation, keeping))
        self.keeping = keeping
        self._owner = call.principal.id
        self._store = store
        self._input = input
        self._previous = previous

    @classmethod
    async def of(cls, call: Call, store: ResponseStore) -> Turn:
        """The turn that `call` asks for.

        Raises:
            APIError: 400, what it continues or names is not in the store, or it asks for what can't
                be.
        """
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

    async def save(self, response: Mapping[str, Any]) -> None:
        """Keep `response`, even if the client leaves while that is done."""
        await self._store.save(self._owner, response, self._input, self._previous)

    async def kept(self, reply: Reply) -> Reply:
        """`reply`, whose end the client gets when the response has been kept."""
        keeping = _keeping(reply)
        if keeping is None or not keeping.store:
            return reply
        try:
            if keeping.response is not None:
                await self.save(keeping.response)
            elif not isinstance(reply.body, bytes):
                reply.body = self._saving(reply, reply.body, keeping)
                # A generator that has not begun would not close what it reads from.
                reply.first += await anext(reply.body)
        except BaseException:
            await reply.aclose()
            raise
        return reply

    async def _saving(
        self, reply: Reply, body: AsyncGenerator[bytes, None], keeping: Keeping
    ) -> AsyncGenerator[bytes, None]:
        async with aclosing(body):
            yield b""
            try:
                async for chunk in body:
                    if keeping.response is not None:
                        await self.save(keeping.response)
                    yield chunk
            except APIError as error:
                render = reply.render_error
                if render is not None:
                    rendered = render(error)
                    reply.render_error = lambda _: rendered
                    if keeping.response is not None:
                        await self.save(keeping.response)
                raise


async def _expanded(call: Call, store: ResponseStore) -> JSONFields | None:
    """What a vendor gets that keeps responses of its own, where the conversation is kept here: all
    of it; None where it is not."""
    previous = _member(call.fields, "previous_response_id")
    if not previous:
        return None
    try:
        earlier = await store.history(call.principal.id, previous)
    except APIError as error:
        if error.code == "previous_response_not_found":
            return None
        raise
    # Ids of items mean nothing to another server; the relay sees to what is sealed.
    items = [{name: each[name] for name in each if name != "id"} for each in earlier]
    fields = {**call.fields, "input": to_raw([*items, *_input(call.fields)])}
    del fields["previous_response_id"]
    return fields


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
