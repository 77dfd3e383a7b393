"""A reply whose response is kept: when, and what happens if it never comes to its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from llama_compat.dialects.base import Labels
from llama_compat.dialects.openai_responses.input.requests import ResponsesCall
from llama_compat.dialects.openai_responses.operations import RESPONSES
from llama_compat.distribution import ResponsesStoreSettings
from llama_compat.errors import APIError, upstream_error
from llama_compat.exchange import ANYBODY, Reply, Target
from llama_compat.wire.json_fields import from_raw
from providers.base import Provider, ProviderConfig
from routing.ingress.body import Bodies
from routing.layers.chain import Owner
from routing.layers.keeping.background import BackgroundResponses
from routing.layers.keeping.kept_calls import KEPT_CALLS
from routing.layers.keeping.recall import ConnectionMemory, Known, Recall, RecalledTurn
from routing.layers.keeping.responses import Responses, Turn, _expanded
from routing.models import Route
from routing.policy.attempts import Attempt
from routing.policy.targets import LiveTarget, ProviderState
from routing.request import Request
from routing.storage.responses import ResponseStore
from tests.unit.calls import call_of

PROVIDER = Provider("up", ProviderConfig(), [])
ROUTE = Route([LiveTarget(PROVIDER, Target("gpt"), ProviderState("up").target("gpt"))], None, "m")


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[ResponseStore]:
    one = ResponseStore(ResponsesStoreSettings(), f"sqlite:{tmp_path / 'r.sqlite'}")
    await one.start()
    yield one
    await one.stop()


async def turn_of(kept_in: ResponseStore, **members: Any) -> Turn:
    body = {"input": "Hi", "stream": True, **members}
    return await Turn.of(call_of(body, RESPONSES), kept_in)


async def is_kept(store: ResponseStore, turn: Turn) -> str | None:
    try:
        kept = await store.get(ANYBODY.id, turn.keeping.response_id)
    except APIError:
        return None
    return str(kept.response["status"])


class Body:
    """What a provider streams: two events, the second of which is the end."""

    def __init__(self, turn: Turn, *, fails: bool = False) -> None:
        self._turn = turn
        self._fails = fails
        self.closed = False
        parsed = turn.call.operation.parse({"model": "m", "input": "Hi"}, "own")
        assert isinstance(parsed, ResponsesCall)
        self.translation = parsed

    def make(self, status: str = "completed") -> None:
        """What the renderer does when the response is there."""
        keeping = self.translation.keeping
        assert keeping is not None
        keeping.response = {"id": keeping.response_id, "status": status, "output": []}

    async def events(self) -> AsyncGenerator[bytes, None]:
        try:
            yield b"first"
            yield b"delta"
            if self._fails:
                raise upstream_error("p", "broke off.")
            self.make()
            yield b"end"
        finally:
            self.closed = True

    async def reply(self) -> Reply:
        events = self.events()
        reply = Reply(events, first=await anext(events), translation=self.translation)
        return await self._turn.kept(reply)


async def test_the_end_is_told_when_the_response_has_been_kept(store: ResponseStore) -> None:
    turn = await turn_of(store)
    reply = await Body(turn).reply()
    assert not isinstance(reply.body, bytes)
    assert (reply.first, await anext(reply.body)) == (b"first", b"delta")
    assert await is_kept(store, turn) is None
    assert await anext(reply.body) == b"end"
    assert await is_kept(store, turn) == "completed"
    await reply.aclose()


@pytest.mark.parametrize("read", [0, 1])
async def test_a_client_that_leaves_closes_the_provider_and_keeps_nothing(
    store: ResponseStore, read: int
) -> None:
    turn = await turn_of(store)
    body = Body(turn)
    reply = await body.reply()
    assert not isinstance(reply.body, bytes)
    for _ in range(read):
        await anext(reply.body)
    await reply.aclose()
    assert body.closed
    assert await is_kept(store, turn) is None


async def test_a_client_that_leaves_at_the_end_finds_the_response(store: ResponseStore) -> None:
    turn = await turn_of(store)
    reply = await Body(turn).reply()
    assert not isinstance(reply.body, bytes)
    for _ in range(2):
        await anext(reply.body)
    await reply.aclose()
    assert await is_kept(store, turn) == "completed"


async def test_a_response_that_fails_is_kept_as_failed(store: ResponseStore) -> None:
    turn = await turn_of(store)
    body = Body(turn, fails=True)
    reply = await body.reply()

    def render(error: APIError) -> bytes:
        body.make("failed")
        return error.message.encode()

    reply.render_error = render
    assert not isinstance(reply.body, bytes)
    assert await anext(reply.body) == b"delta"
    with pytest.raises(APIError) as caught:
        await anext(reply.body)
    assert await is_kept(store, turn) == "failed"
    assert reply.render_error(caught.value) == b"Provider 'p': broke off."


async def test_a_whole_reply_is_kept_before_it_is_given(store: ResponseStore) -> None:
    turn = await turn_of(store)
    body = Body(turn)
    body.make()
    reply = await turn.kept(Reply(b"{}", translation=body.translation))
    assert reply.body == b"{}"
    assert await is_kept(store, turn) == "completed"


async def test_what_a_vendor_keeps_is_not_kept_here(store: ResponseStore) -> None:
    turn = await turn_of(store)
    reply = Reply(b"{}")
    assert await turn.kept(reply) is reply
    assert await is_kept(store, turn) is None


async def test_each_attempt_makes_a_response_of_its_own(store: ResponseStore) -> None:
    turn = await turn_of(store)
    first, second = Body(turn).translation, Body(turn).translation
    assert first.keeping is not second.keeping
    ids = {each.queued(Labels("m"))["id"] for each in (first, second)}
    assert ids == {turn.keeping.response_id}


@pytest.mark.parametrize(
    ("members", "store_it", "background"),
    [
        ({}, True, False),
        ({"store": None}, True, False),
        ({"store": False}, False, False),
        ({"background": True}, True, True),
    ],
)
async def test_what_is_wanted_of_the_store(
    store: ResponseStore, members: dict[str, Any], store_it: bool, background: bool
) -> None:
    keeping = (await turn_of(store, **members)).keeping
    assert (keeping.store, keeping.background) == (store_it, background)


async def test_nothing_runs_in_the_background_that_is_not_stored(store: ResponseStore) -> None:
    with pytest.raises(APIError, match="background"):
        await turn_of(store, background=True, store=False)


@pytest.mark.parametrize("at_vendor", [True, False])
async def test_what_a_connection_knows_is_sent_to_who_does_not_keep_it(at_vendor: bool) -> None:
    memory = ConnectionMemory(1 << 20, Bodies(1 << 20).one())
    memory.keep("resp_1", Known((RecalledTurn(b'[{"id":"i","role":"user"}]'),), at_vendor))
    recall = Recall(memory, None, "resp_1")
    call = call_of({"input": "Hi", "previous_response_id": "resp_1"}, RESPONSES)
    relayed, lost = await _expanded(KEPT_CALLS[RESPONSES.dialect.name], call, recall, ROUTE)
    assert lost == ()
    if at_vendor:
        assert relayed is None
    else:
        assert relayed is not None
        assert "previous_response_id" not in relayed
        assert from_raw(relayed["input"]) == [{"role": "user"}, {"role": "user", "content": "Hi"}]
    # Either way the connection knows what comes of it.
    recall.answered({"id": "resp_2", "output": []})
    assert memory.find("resp_2") is not None


class KeepingProvider(Provider):
    """One whose vendor keeps responses, and makes them in the background."""

    keeps_responses = True
    relays = frozenset({RESPONSES.name})

    def __init__(self) -> None:
        super().__init__("up", ProviderConfig(), [])
        self.cancelled: list[str] = []

    async def kept_reply(
        self, wire: str, target: Target, reply_id: str, *, cancel: bool = False
    ) -> Reply:
        self.cancelled.append(reply_id)
        return Reply(b"{}")


def nothing(request: Request) -> None:
    """A request that no client sent begins; there is none."""


def goes_on() -> None:
    raise AssertionError("nothing goes on")


class Beginning:
    """A request for a response that a vendor has begun, and answered with `body`."""

    def __init__(self, store: ResponseStore, body: bytes, owner: Owner) -> None:
        self.provider = KeepingProvider()
        self.state = ProviderState("up").target("gpt")
        self.request = Request(RESPONSES, "req_1")
        self.request.call = call_of({"input": "Hi", "background": True}, RESPONSES)
        target = LiveTarget(self.provider, Target("gpt"), self.state)
        self.request.route = Route([target], None, "m")
        self._body = body
        self.background = BackgroundResponses(store, {"up": self.provider})
        self._layer = Responses(self._begin, store, self.background, owner)

    async def _begin(self, request: Request) -> Reply:
        attempt, reply = Attempt(self.state), Reply(self._body)
        request.attempts.add(attempt)
        attempt.has_content()
        reply.when_closed(attempt.finish)
        return reply

    async def reply(self) -> Reply:
        return await self._layer(self.request)


QUEUED = b'{"id":"theirs","status":"queued"}'


@pytest.mark.parametrize("body", [QUEUED, b"[1]"])
async def test_what_a_vendor_has_begun_and_nobody_keeps_does_not_run_there(
    store: ResponseStore, monkeypatch: pytest.MonkeyPatch, body: bytes
) -> None:
    async def away(*_: Any) -> None:
        raise APIError(503, "The store is away.", code="store_unavailable")

    monkeypatch.setattr(store, "save", away)
    begun = Beginning(store, body, Owner(nothing, nothing, goes_on, goes_on))
    is_object = body[:1] == b"{"
    with pytest.raises(APIError if is_object else AttributeError):
        await begun.reply()
    assert begun.state.in_flight == 0
    assert begun.provider.cancelled == (["theirs"] if is_object else [])


@pytest.mark.parametrize("is_away", [True, False])
async def test_a_client_that_leaves_while_it_is_saved_leaves_nothing_alone_at_the_vendor(
    store: ResponseStore, monkeypatch: pytest.MonkeyPatch, is_away: bool
) -> None:
    saving, may_end, save = asyncio.Event(), asyncio.Event(), store.save

    async def slow(*what: Any) -> None:
        saving.set()
        await may_end.wait()
        if is_away:
            raise APIError(503, "The store is away.", code="store_unavailable")
        await save(*what)

    monkeypatch.setattr(store, "save", slow)
    held: list[int] = []
    begun = Beginning(
        store, QUEUED, Owner(nothing, nothing, lambda: held.append(1), lambda: held.append(-1))
    )
    answering = asyncio.create_task(begun.reply())
    await saving.wait()
    answering.cancel()
    await asyncio.sleep(0)
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await answering
    assert begun.state.in_flight == 0
    # Kept, it is followed from here; else it ends there, and the request here.
    assert begun.request.goes_on is not is_away
    assert begun.provider.cancelled == (["theirs"] if is_away else [])
    await begun.background.stop()
    assert held == ([] if is_away else [1, -1])
