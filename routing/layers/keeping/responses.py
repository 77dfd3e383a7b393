"""Replies that are kept, responses of the Responses API and Google's interactions: a conversation
goes on from what is in the store, and what is answered goes there."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any, cast

from msgspec import Raw
from msgspec.structs import replace

from llama_compat.dialects.base import SSE_HEADERS, Labels
from llama_compat.dialects.openai_responses.client_events import WARM_UP, warmed_up
from llama_compat.dialects.openai_responses.input.items import item_type
from llama_compat.dialects.openai_responses.keeping import Keeping, kept
from llama_compat.errors import APIError, UnsupportedHere, invalid_parameter, nested_too_deeply
from llama_compat.exchange import JSON_HEADERS, Call, Reply
from llama_compat.fitting.fit import Fitted
from llama_compat.fitting.honoured import VocabularyProvider, honoured
from llama_compat.hosted.parts import ReplyPart
from llama_compat.off_loop import off_loop
from llama_compat.wire.json_depth import MAX_DEPTH, too_deep
from llama_compat.wire.json_fields import (
    JSONFields,
    encode_json,
    from_raw,
    to_raw,
)
from routing.layers.chain import Owner
from routing.layers.keeping.background import BackgroundResponses
from routing.layers.keeping.followed import FollowedReply, decoded, place_of
from routing.layers.keeping.kept_calls import KEPT_CALLS, KeptCall, KeptCalls
from routing.layers.keeping.recall import Recall
from routing.models import Route
from routing.policy.attempts import Attempts
from routing.policy.targets import TargetState
from routing.request import Handler, Request
from routing.storage.kept import AtVendor, KeptAPI
from routing.storage.kept_rows import Items
from routing.storage.responses import History, ResponseStore
from routing.storage.storage import surely

Equip = Callable[[Call, Route, list[ReplyPart]], Awaitable[Call]]
"""Gives a call the tools that the server runs for it, as the layer behind does later."""


class Responses:
    """Continues conversations from a store, and keeps the responses in it.

    Args:
        next: answers requests, those of other APIs untouched.
        store: where responses are kept; with None, those alone are known that were made on the
            WebSocket that a request comes on.
        background: those that nobody waits for.
        owner: whose chain it is.
        equipped: tells what the server runs for a call; None where it runs nothing.
    """

    def __init__(
        self,
        next: Handler,
        store: ResponseStore | None,
        background: BackgroundResponses,
        owner: Owner,
        equipped: Equip | None = None,
    ) -> None:
        self._next = next
        self._store = store
        self._background = background
        self._equipped = equipped
        self._owner = owner

    def __call__(self, request: Request) -> Awaitable[Reply]:
        """Answer a request.

        Raises:
            APIError: 400, what it continues is not kept here; or what the next layer raises.
        """
        kept = request.recall or self._store
        return self._next(request) if kept is None else self._answer(request, kept)

    async def _answer(self, request: Request, kept: ResponseStore | Recall) -> Reply:
        call, route = request.call, request.route
        assert call is not None
        assert route is not None
        calls = KEPT_CALLS.get(call.operation.dialect.name)
        if calls is None:
            return await self._next(request)
        name = await off_loop(call.size, too_deep, call.fields)
        if name is not None:
            raise nested_too_deeply(name, MAX_DEPTH)
        relaying = [
            call.operation.name in each.provider.relays and each.provider.keeps_responses
            for each in route.targets
        ]
        warms_up = call.operation is WARM_UP
        turn = None if all(relaying) and not warms_up else await Turn.of(call, kept)
        if turn is not None:
            if turn.keeping.background:
                return await self._in_background(turn, request, route)
            # What is kept here has to be known here, and not as bytes that pass.
            request.call = turn.call if any(relaying) else replace(turn.call, may_be_relayed=False)
        recall = request.recall
        if recall is not None:
            recall.asks(calls.items(call.fields) if turn is None else turn.input)
        if turn is not None and warms_up:
            return await turn.warmed_up()
        lost = () if turn is None else turn.lost
        if any(relaying):
            relayed, missing = await _expanded(calls, call, kept, route)
            lost = lost or missing
            request.call = replace(request.call or call, relayed=relayed)
        if turn is None and isinstance(kept, ResponseStore) and _in_background(calls, call):
            return await self._at_vendor(calls, request, kept)
        reply = await self._next(request)
        reply.dropped = (*reply.dropped, *lost)
        if recall is not None and reply.translation is None:
            recall.relayed()
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
        asked = call if self._equipped is None else await self._equipped(call, route, [])
        translation, fitted = await off_loop(call.size, _translated, asked, route)
        queued = translation.queued(Labels.of(call))
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
            dropped=(*fitted.dropped, *turn.lost),
            adapted=tuple(fitted.adapted),
        )

    async def _at_vendor(self, calls: KeptCalls, request: Request, store: ResponseStore) -> Reply:
        """Have a vendor begin a response, which is followed from here on, under an id of ours."""
        call = request.call
        assert call is not None
        self._background.check_room()
        reply = await self._next(request)
        attempt = request.attempts.last
        assert attempt is not None
        beginning = asyncio.create_task(self._begun(calls, call, store, reply, attempt.target))
        try:
            try:
                await surely(beginning)
            finally:
                # The vendor goes on with it, whether the client has left meanwhile or not.
                if beginning.exception() is None and (followed := beginning.result()) is not None:
                    request.goes_on = True
                    self._owner.hold()
                    running = self._background.follow(request, followed)
                    running.add_done_callback(lambda _: self._owner.release())
            if (followed := beginning.result()) is not None:
                reply.body = encode_json(followed.kept)
        except BaseException:  # nobody else closes it, and its target would seem to be busy
            await reply.aclose()
            raise
        return reply

    async def _begun(
        self, calls: KeptCalls, call: Call, store: ResponseStore, reply: Reply, target: TargetState
    ) -> FollowedReply | None:
        """What the vendor of `target` has begun with `reply`, once it is in the store; None where
        the vendor is done with it.

        Raises:
            APIError: 503, as `_saved`.
        """
        body = await decoded(reply)
        at = place_of(target, call, body)
        return None if at is None else await self._saved(calls, call, store, body, at)

    async def _saved(
        self,
        calls: KeptCalls,
        call: Call,
        store: ResponseStore,
        body: Mapping[str, Any],
        at: AtVendor,
    ) -> FollowedReply:
        """What the vendor at `at` has begun with `body`, once it is in the store.

        Raises:
            APIError: 503, it is not, and is cancelled at the vendor.
        """
        unique = os.urandom(12).hex()
        queued = {**body, "id": f"{calls.api.prefix}{unique}", calls.api.output: []}
        previous = _member(call.fields, calls.api.previous) if call.relayed is not None else None
        if previous is not None:
            queued[calls.api.previous] = previous
        items = calls.described(calls.items(call.fields), unique)
        followed = self._background.followed(calls.api, queued, at)
        try:
            await store.save(call.principal.id, queued, items, previous, at)
        except APIError:
            await followed.cancel()
            raise
        return followed

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
    return translation.keeping if isinstance(translation, KeptCall) else None


def _translated(call: Call, route: Route) -> tuple[KeptCall, Fitted]:
    """The call as the first target takes it that can, and what became of the rest.

    Raises:
        APIError: 400, it is malformed, or no target takes it.
    """
    refusal: APIError | None = None
    for each in route.targets:
        try:
            provider = cast(VocabularyProvider, each.provider)
            translation, fitted = honoured(provider, call, each.target)
        except UnsupportedHere as error:
            refusal = refusal or error
        else:
            return cast(KeptCall, translation), fitted
    assert refusal is not None
    raise refusal


class Turn:
    """One request whose response may be kept.

    Attributes:
        call: with what the store has of the conversation.
        keeping: the store's side of it; each attempt makes a response of its own of that.
        input: the items that are the request's own.
        lost: what is told of earlier turns that are not kept any longer.
    """

    def __init__(
        self,
        call: Call,
        keeping: Keeping,
        store: ResponseStore | Recall,
        input: Items,
        previous: str | None,
        lost: tuple[str, ...] = (),
    ) -> None:
        self.call = replace(call, operation=kept(call.operation, keeping))
        self.keeping = keeping
        self._owner = call.principal.id
        self._store = store
        self.input = input
        self._previous = previous
        self.lost = lost

    @classmethod
    async def of(cls, call: Call, store: ResponseStore | Recall) -> Turn:
        """The turn that `call` asks for.

        Raises:
            APIError: 400, what it continues or names is not in the store, or it asks for what can't
                be.
        """
        calls = KEPT_CALLS[call.operation.dialect.name]
        owner, previous = call.principal.id, _member(call.fields, calls.api.previous)
        value = calls.items(call.fields)
        named = [item["id"] for item in value if _is_reference(item)]
        references = await store.items(owner, named) if named else {}
        unique = os.urandom(12).hex()
        earlier = await _earlier(calls.api, store, owner, previous)
        keeping = Keeping(
            f"{calls.api.prefix}{unique}",
            # Only what is made by the model is kept: a compacted conversation is the client's.
            store=store.keeps
            and (call.operation is calls.operation or call.operation is WARM_UP)
            and _member(call.fields, "store") is not False,
            background=_member(call.fields, "background") is True,
            earlier=earlier.items,
            references=references,
        )
        if keeping.background and not keeping.store:
            raise invalid_parameter(
                "background",
                f"What runs in the background has to be stored: leave 'store' out, or ask for"
                f" the {calls.api.noun} without 'background'.",
            )
        found = [
            references.get(item["id"], item) if _is_reference(item) else item for item in value
        ]
        items = calls.described(found, unique)
        return cls(call, keeping, store, items, previous, _told(calls.api, earlier))

    async def save(self, response: Mapping[str, Any]) -> None:
        """Keep `response`, even if the client leaves while that is done."""
        await self._store.save(self._owner, response, self.input, self._previous)

    async def warmed_up(self) -> Reply:
        """The reply without output that the client goes on from."""
        labels = Labels.of(self.call)
        body = {name: from_raw(raw) for name, raw in self.call.fields.items()}
        events = await off_loop(self.call.size, warmed_up, body, labels, self.keeping)
        assert self.keeping.response is not None
        if self.keeping.store:
            await self.save(self.keeping.response)
        return Reply(events, headers=SSE_HEADERS)

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


async def _earlier(
    api: KeptAPI, store: ResponseStore | Recall, owner: str, previous: str | None
) -> History:
    """The conversation that a request goes on from."""
    return History() if previous is None else await store.history(owner, previous, api)


def _told(api: KeptAPI, history: History) -> tuple[str, ...]:
    """What a client is told of a conversation of which there is no longer all."""
    return () if history.lost is None else (f"{api.previous}={history.lost}",)


def _in_background(calls: KeptCalls, call: Call) -> bool:
    """Whether a call that is relayed wants a response that nobody waits for, and asks for it."""
    return (
        call.operation is calls.operation
        and not call.stream
        and _member(call.fields, "background") is True
        and _member(call.fields, "store") is not False
    )


async def _expanded(
    calls: KeptCalls, call: Call, store: ResponseStore | Recall, route: Route
) -> tuple[JSONFields | None, tuple[str, ...]]:
    """What a vendor gets that keeps responses of its own, where the conversation is kept here: all
    of it, or the vendor's own id of it; None where it is not. And what the client is told of it."""
    api, previous = calls.api, _member(call.fields, calls.api.previous)
    if not previous or (isinstance(store, Recall) and store.is_at_vendor(previous)):
        return None, ()
    if isinstance(store, ResponseStore):
        at = await store.at_vendor(call.principal.id, previous)
        if at is not None and all(each.provider.id == at.provider for each in route.targets):
            return {**call.fields, api.previous: to_raw(at.id)}, ()
    try:
        earlier = await store.history(call.principal.id, previous, api)
    except APIError as error:
        if error.code == api.previous_code:
            return None, ()
        raise
    items = [*calls.sent(earlier.items), *calls.items(call.fields)]
    fields = {**call.fields, "input": to_raw(items)}
    del fields[api.previous]
    return fields, _told(api, earlier)


def _is_reference(item: Mapping[str, Any]) -> bool:
    return item_type(item) == "item_reference" and isinstance(item.get("id"), str)


def _member(fields: Mapping[str, Raw], name: str) -> Any:
    return from_raw(fields[name]) if name in fields else None
