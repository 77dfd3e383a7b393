"""The layer that answers what was answered before: who asks, who waits, who pays."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from msgspec.structs import replace

from llama_compat.distribution import CacheSettings, ExactCacheSettings, ServerSettings
from llama_compat.errors import APIError, upstream_error
from llama_compat.exchange import GUARDRAILS_HEADER, Principal, Reply, Target
from llama_compat.types import Usage
from providers.base import Provider, ProviderConfig
from routing.cache.exact import ExactCache
from routing.cache.readings import Reading
from routing.cache.replies.store import MemoryReplies
from routing.layers.cache import CacheLayer
from routing.layers.chain import Owner
from routing.models import Route
from routing.policy.attempts import Attempt, Attempts
from routing.policy.targets import LiveTarget, ProviderState
from routing.request import Request
from tests.unit.calls import call_of

USAGE = Usage(3, 2)
PROVIDER = Provider("up", ProviderConfig(), [])
ROUTE = Route([LiveTarget(PROVIDER, Target("gpt"), ProviderState("up").target("gpt"))], None, "m")


def chunk(text: str, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish}
    return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"


FIRST, LAST = chunk("a"), chunk("b", "stop")
WHOLE = json.dumps(
    {
        "choices": [
            {"index": 0, "message": {"role": "assistant", "content": "a"}, "finish_reason": "stop"}
        ]
    }
).encode()


class Chain:
    """A cache in front of a vendor who says when it is told to.

    Attributes:
        asked: the requests that came through.
        go: what the vendor says next: the last piece, or an error.
        held: how often the runtime is held.
        headers: of what the vendor says as a whole.
        vendor: who says it.
    """

    def __init__(self, **settings: Any) -> None:
        self.asked: list[Request] = []
        self.go: asyncio.Queue[bytes | APIError] = asyncio.Queue()
        self.start: asyncio.Queue[APIError | None] = asyncio.Queue()
        self.held = 0
        self.headers: dict[str, str] = {}
        cache = ExactCache.of(
            CacheSettings(exact=ExactCacheSettings(sampled=True, **settings)), ServerSettings(), ""
        )
        owner = Owner(lambda _: None, lambda _: None, self._hold, self._release)
        assert isinstance(cache.store, MemoryReplies)
        self.store = cache.store
        self.vendor = self._vendor
        self.layer = CacheLayer(
            lambda request: self.vendor(request), {"": cache, "none": None}, owner
        )

    def _hold(self) -> None:
        self.held += 1

    def _release(self) -> None:
        self.held -= 1

    async def _vendor(self, request: Request) -> Reply:
        self.asked.append(request)
        error = await self.start.get()
        if error is not None:
            raise error
        assert request.call is not None
        if not request.call.stream:
            return Reply(WHOLE, headers=self.headers, read_usage=lambda: USAGE)
        body = self._stream()
        return Reply(body, await anext(body), read_usage=lambda: USAGE)

    async def _stream(self) -> AsyncGenerator[bytes, None]:
        yield FIRST
        said = await self.go.get()
        if isinstance(said, APIError):
            raise said
        yield said

    def request(
        self, *, stream: bool = True, control: bytes = b"", key: str = "a", **more: Any
    ) -> Request:
        messages = [{"role": "user", "content": "x"}]
        call = call_of({"messages": messages, "stream": stream, **more})
        headers = [(b"cache-control", control)] if control else []
        request = Request(call.operation, "req", Principal(key), Attempts(headers))
        request.call, request.route = replace(call, principal=Principal(key)), ROUTE
        return request


async def read(reply: Reply) -> bytes:
    if isinstance(reply.body, bytes):
        return reply.body
    try:
        return reply.first + b"".join([piece async for piece in reply.body])
    finally:
        await reply.aclose()


async def settled() -> None:
    for _ in range(30):
        await asyncio.sleep(0)


async def test_who_comes_while_another_waits_is_told_what_that_one_is() -> None:
    chain = Chain()
    requests = [chain.request() for _ in range(5)]
    answers = [asyncio.ensure_future(chain.layer(each)) for each in requests]
    await settled()
    chain.start.put_nowait(None)
    chain.go.put_nowait(LAST)
    replies = [await each for each in answers]
    assert {await read(each) for each in replies} == {FIRST + LAST}
    assert len(chain.asked) == 1
    assert [each.cached for each in requests] == [False, *[True] * 4]
    assert [each.usage for each in replies] == [USAGE] * 5
    late = chain.request()
    reply = await chain.layer(late)
    assert (await read(reply), reply.usage, late.cached) == (FIRST + LAST, USAGE, True)
    assert reply.headers["x-llama-compat-cache"] == "hit"


async def test_where_the_first_fails_the_others_ask_for_themselves() -> None:
    chain = Chain()
    requests = [chain.request() for _ in range(3)]
    answers = [asyncio.ensure_future(chain.layer(each)) for each in requests]
    await settled()
    for each in (upstream_error("up", "is down"), None, None):
        chain.start.put_nowait(each)
    for _ in range(2):
        chain.go.put_nowait(LAST)
    with pytest.raises(APIError, match="is down"):
        await answers[0]
    assert [await read(await each) for each in answers[1:]] == [FIRST + LAST] * 2
    assert len(chain.asked) == 3
    assert not any(each.cached for each in requests)


@pytest.mark.parametrize("begun", [False, True])
async def test_who_asked_leaves_and_the_others_are_told_all_the_same(begun: bool) -> None:
    chain = Chain()
    ended: list[Request] = []
    leader, follower = chain.request(), chain.request()
    leader.when_ended(ended.append)
    first = asyncio.ensure_future(chain.layer(leader))
    await settled()
    second = asyncio.ensure_future(chain.layer(follower))
    await settled()
    if begun:
        chain.start.put_nowait(None)
        await (await first).aclose()
    else:
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        chain.start.put_nowait(None)
    # It is the first request that is paid for, so it ends with what it had asked for.
    assert (leader.goes_on, chain.held, ended) == (True, 1, [])
    chain.go.put_nowait(LAST)
    assert await read(await second) == FIRST + LAST
    await settled()
    assert (leader.goes_on, chain.held, ended) == (False, 0, [leader])
    assert leader.reply is not None
    assert (leader.reply.usage, leader.reply.is_complete, leader.cancelled) == (USAGE, True, False)
    assert len(chain.asked) == 1
    assert len(chain.store) == 1


async def test_of_whole_replies_too_one_is_asked_for() -> None:
    chain = Chain()
    requests = [chain.request(stream=False) for _ in range(4)]
    answers = [asyncio.ensure_future(chain.layer(each)) for each in requests]
    await settled()
    chain.start.put_nowait(None)
    replies = [await each for each in answers]
    assert [each.body for each in replies] == [WHOLE] * 4
    assert [each.usage for each in replies] == [USAGE] * 4
    assert [each.cached for each in requests] == [False, True, True, True]
    assert [each.headers["x-llama-compat-cache"] for each in replies] == ["miss", *["hit"] * 3]
    assert len(chain.asked) == 1
    assert not chain.layer._underway


async def test_where_a_whole_one_fails_the_others_ask_for_themselves() -> None:
    chain = Chain()
    requests = [chain.request(stream=False) for _ in range(3)]
    answers = [asyncio.ensure_future(chain.layer(each)) for each in requests]
    await settled()
    for each in (upstream_error("up", "is down"), None, None):
        chain.start.put_nowait(each)
    with pytest.raises(APIError, match="is down"):
        await answers[0]
    assert [(await each).body for each in answers[1:]] == [WHOLE] * 2
    assert len(chain.asked) == 3
    assert not chain.layer._underway


async def test_who_asked_for_a_whole_one_stays_while_others_wait() -> None:
    chain = Chain()
    deserted: list[bool] = []

    def desert() -> None:
        deserted.append(True)

    first, second = (chain.request(stream=False) for _ in range(2))
    leading = asyncio.ensure_future(chain.layer(first))
    await settled()
    assert not first.is_wanted(desert)  # by nobody else
    following = asyncio.ensure_future(chain.layer(second))
    await settled()
    assert first.is_wanted(desert)
    following.cancel()
    with pytest.raises(asyncio.CancelledError):
        await following
    assert deserted == [True]
    chain.start.put_nowait(None)
    assert (await leading).body == WHOLE
    assert not first.is_wanted(desert)


async def test_when_all_have_left_nothing_goes_on() -> None:
    chain = Chain()
    requests = [chain.request(), chain.request()]
    answers = [asyncio.ensure_future(chain.layer(each)) for each in requests]
    await settled()
    chain.start.put_nowait(None)
    replies = [await each for each in answers]
    for each in replies:
        await each.aclose()
    await settled()
    assert chain.held == 0
    assert len(chain.store) == 0
    assert not chain.layer._underway


async def test_a_stream_that_breaks_off_is_nobodys_again() -> None:
    chain = Chain()
    for _ in range(2):
        chain.start.put_nowait(None)
        chain.go.put_nowait(upstream_error("up", "broke"))
        with pytest.raises(APIError, match="broke"):
            await read(await chain.layer(chain.request()))
    assert len(chain.asked) == 2
    assert len(chain.store) == 0


async def test_stopped_all_of_it_ends() -> None:
    chain = Chain()
    chain.start.put_nowait(None)
    reply = await chain.layer(chain.request())
    await chain.layer.stop()
    with pytest.raises(APIError):
        await read(reply)
    assert not chain.layer._underway


async def test_one_that_is_asked_anew_is_kept_anew() -> None:
    chain = Chain()
    for control in (b"", b"no-cache"):
        chain.start.put_nowait(None)
        chain.go.put_nowait(LAST)
        await read(await chain.layer(chain.request(control=control)))
    assert len(chain.asked) == 2
    assert len(chain.store) == 1


async def test_a_stream_is_read_whole_and_the_other_way() -> None:
    chain = Chain()
    chain.start.put_nowait(None)
    whole = await chain.layer(chain.request(stream=False))
    assert whole.body == WHOLE
    again = chain.request()
    streamed = await chain.layer(again)
    said = await read(streamed)
    assert b'"content":"a"' in said
    assert (again.cached, streamed.usage) == (True, USAGE)
    assert len(chain.asked) == 1


async def test_a_model_without_one_is_left_alone() -> None:
    chain = Chain()
    request = chain.request(stream=False)
    route = Route(list(ROUTE.targets), None, "none")
    request.route = route
    chain.start.put_nowait(None)
    reply = await chain.layer(request)
    assert "x-llama-compat-cache" not in reply.headers
    assert request.call is not None
    assert not request.call.recorded


async def test_keys_have_their_own() -> None:
    chain = Chain()
    for key in ("a", "b"):
        chain.start.put_nowait(None)
        await read(await chain.layer(chain.request(stream=False, key=key)))
    assert len(chain.asked) == 2


async def test_what_was_hidden_is_said_each_time() -> None:
    chain = Chain()
    chain.headers = {GUARDRAILS_HEADER: "redacted=pii", "x-other": "1"}
    for expected in ("miss", "hit"):
        chain.start.put_nowait(None)
        reply = await chain.layer(chain.request(stream=False))
        assert reply.headers["x-llama-compat-cache"] == expected
        assert reply.headers[GUARDRAILS_HEADER] == "redacted=pii"


SEARCH = {"type": "function", "function": {"name": "web_search"}}


async def test_a_key_that_may_not_have_a_tool_run_is_not_given_what_it_found() -> None:
    chain = Chain(share="all", tools=True)
    keys = [Principal("a"), Principal("b"), Principal("c", tools=()), Principal("d", tools=())]
    said = []
    for key in keys:
        request = chain.request(stream=False, tools=[SEARCH])
        assert request.call is not None
        request.principal, request.call = key, replace(request.call, principal=key)
        chain.start.put_nowait(None)
        reply = await chain.layer(request)
        said.append(reply.headers["x-llama-compat-cache"])
    assert said == ["miss", "hit", "miss", "hit"]


@pytest.mark.parametrize("is_remembered", [False, True])
@pytest.mark.parametrize(
    "asks",
    [
        {"tools": [{"type": "mcp", "server_label": "x"}]},
        {"tools": [{"type": "mcp_toolset", "server_label": "x"}]},
        {"tools": [{"type": "file_search_20260101", "vector_store_ids": ["vs_1"]}]},
        {"mcp_servers": [{"name": "x"}]},
    ],
)
async def test_what_a_server_is_told_to_do_is_done_each_time(
    asks: Any, is_remembered: bool
) -> None:
    chain = Chain(tools=True)
    for _ in range(2):
        chain.start.put_nowait(None)
        request = chain.request(stream=False, **asks)
        if is_remembered:
            call = request.call
            assert call is not None
            request.reading = Reading(call.fields, request.operation.look(call.fields, {}))
        reply = await chain.layer(request)
        assert reply.headers["x-llama-compat-cache"] == "bypass"
    assert len(chain.asked) == 2


@pytest.mark.parametrize("finish", ["stop", "length"])
async def test_a_relayed_reply_is_looked_at_when_somebody_asks_again(finish: str) -> None:
    chain = Chain()
    body = WHOLE.replace(b'"stop"', f'"{finish}"'.encode())
    looked: list[Usage] = []

    async def relayed(request: Request) -> Reply:
        chain.asked.append(request)
        request.attempts.made.append(Attempt(ROUTE.targets[0].state))
        headers = {"content-type": "application/json", GUARDRAILS_HEADER: "redacted=pii"}
        return Reply(body, headers=headers, read_usage=lambda: looked.append(USAGE) or USAGE)

    chain.vendor = relayed
    await chain.layer(chain.request(stream=False))
    assert (len(chain.store), looked) == (1, [])
    again = chain.request(stream=False)
    reply = await chain.layer(again)
    assert (reply.body, reply.usage, again.cached) == (body, USAGE, finish == "stop")
    assert (len(chain.asked), len(chain.store)) == ((1, 1) if again.cached else (2, 1))
    assert reply.headers["content-type"] == "application/json"
    assert reply.headers[GUARDRAILS_HEADER] == "redacted=pii"
    assert ("age" in reply.headers) is again.cached
