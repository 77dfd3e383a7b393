"""Lines that a vendor's own batch answers: what comes to more than one request is sent."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from llama_compat.dialects.openai.operations import CHAT
from llama_compat.exchange import Target
from llama_compat.wire.json_fields import encode_json, parse_fields
from providers.registry import provider_type
from providers.remote.openai.provider import RemoteOpenAIProvider
from providers.remote.upstream.deferred import Capture, NotSent, Replay
from routing.layers.deferred import ByRequests, Deferral, by_deferral
from routing.policy.targets import LiveTarget, States
from routing.request import Request

BODY = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
REPLY = {
    "id": "1",
    "object": "chat.completion",
    "created": 1,
    "model": "gpt",
    "choices": [
        {"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}
    ],
    "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7},
}


class Toolbox:
    """Asks for tools of these kinds."""

    stays_here = False

    def __init__(self, *kinds: str) -> None:
        self.kinds = frozenset(kinds)


SEARCHES = "gpt-4o-search-preview"
"""A model that searches in chat completions, as others do in responses alone."""


def live(type: str = "remote::openai", model: str = "gpt", **config: Any) -> LiveTarget:
    kind = provider_type(type)
    settings = kind.config.validate({"api_key": "sk", **config})
    provider = kind.make("v", settings, [])  # type: ignore[arg-type]
    return LiveTarget(provider, Target(model), States().provider("v").target(model))


def asked(target: LiveTarget, by: Any, **more: Any) -> Request:
    request = Request(CHAT, "req_1")
    fields = parse_fields(encode_json({**BODY, **more}))
    request.asks(fields, CHAT.look(fields, {}), counts_usage=True)
    request.deferral = Deferral(target, by, is_answered=not isinstance(by, Capture))
    return request


def upstream(target: LiveTarget) -> Any:
    assert isinstance(target.provider, RemoteOpenAIProvider)
    return target.provider.upstream


async def test_a_line_is_seen_and_answered() -> None:
    target = live()
    with pytest.raises(NotSent) as caught:
        await by_deferral(asked(target, Capture(upstream(target))))
    assert caught.value.unsent.path == "/chat/completions"
    assert b'"model":"gpt"' in caught.value.unsent.body
    request = asked(target, Replay(upstream(target), 200, encode_json(REPLY)))
    reply = await by_deferral(request)
    await reply.aclose()
    assert isinstance(reply.body, bytes)
    assert b'"model":"m"' in reply.body.replace(b": ", b":")
    assert reply.usage is not None
    assert reply.usage.completion_tokens == 4
    # What is known of the target is of requests that were sent there.
    assert (target.state.attempts, target.state.in_flight) == (0, 0)
    assert target.state.wholes.last == 0.0


async def test_tools_of_the_server_are_for_requests() -> None:
    fetch = {"tools": [{"type": "web_fetch", "name": "web_fetch"}]}
    search: dict[str, Any] = {"web_search_options": {}}
    for target, more, toolbox, expected in (
        (live(model=SEARCHES), search, Toolbox("web_search"), NotSent),
        (live(), search, Toolbox("web_search"), ByRequests),
        (live(), fetch, Toolbox("web_fetch"), ByRequests),
    ):
        request = asked(target, Capture(upstream(target)), **more)
        assert request.call is not None
        request.call = replace(request.call, toolbox=toolbox)
        with pytest.raises(expected):
            await by_deferral(request)


async def test_a_search_that_a_vendor_may_pause_is_for_requests() -> None:
    """It is asked to go on then; OpenAI's own chat completions have no such thing."""
    claude = live("remote::anthropic-messages")
    provider: Any = claude.provider
    for more, expected in (({}, NotSent), ({"web_search_options": {}}, ByRequests)):
        with pytest.raises(expected):
            await by_deferral(asked(claude, Capture(provider.upstream), **more))
    for model, expected in ((SEARCHES, NotSent), ("gpt", ByRequests)):
        gpt = live(model=model)
        with pytest.raises(expected):
            await by_deferral(asked(gpt, Capture(upstream(gpt)), web_search_options={}))


async def test_several_replies_are_where_they_are_one_request() -> None:
    target = live()
    with pytest.raises(NotSent):
        await by_deferral(asked(target, Capture(upstream(target)), n=2))
    request = asked(target, Capture(upstream(target)), n=2)
    assert request.call is not None
    request.call = replace(request.call, may_be_relayed=False)
    with pytest.raises(ByRequests):
        await by_deferral(request)
