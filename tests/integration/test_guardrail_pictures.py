"""Pictures judged by a model that sees, in every client's API, whoever is asked then."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from aiohttp import web
from openai.types.chat import ChatCompletionMessageParam
from pydantic import ConfigDict, TypeAdapter

from tests.integration import wire
from tests.integration.matrix.clients import CLIENTS, Client
from tests.integration.matrix.said import PIXEL, Ask, Refused
from tests.integration.native_suite import Reply, Vendor
from tests.integration.native_vendor import Answer
from tests.integration.openai_vendor import OpenAIVendor
from tests.integration.server_process import running, write_template
from tests.integration.strict_vendors import STRICT, StrictVendors, _complaints, _completion
from tests.integration.test_native_anthropic import AnthropicVendor

SEERS = [name for name, client in CLIENTS.items() if "image" in client.can]
VENDORS: dict[str, type[Vendor]] = {"openai": OpenAIVendor, "anthropic": AnthropicVendor}
TYPES = {"openai": "remote::passthrough", "anthropic": "remote::anthropic-messages"}

POLICY = {"model": "judge", "format": "policy", "policy": "No pixels.", "max_count": 2}
RAILS: dict[str, dict[str, Any]] = {
    "block": {"images": POLICY},
    "redact": {"images": POLICY, "mode": "redact"},
    "monitor": {"images": POLICY, "mode": "monitor"},
    "lenient": {"images": POLICY, "on_error": "allow"},
    "results": {"images": POLICY, "scan": "tool_results"},
    "replies": {"images": POLICY, "scan": "output"},
    "replies-redact": {"images": POLICY, "scan": "output", "mode": "redact"},
    "fetched": {"images": {**POLICY, "allow_private_addresses": True}},
    "llama-guard": {"images": {"model": "judge", "format": "llama_guard"}},
    "shield-gemma": {"images": {**POLICY, "format": "shield_gemma"}},
}

_MESSAGES = TypeAdapter(list[ChatCompletionMessageParam], config=ConfigDict(extra="forbid"))


class SeeingJudge(StrictVendors):
    """A vendor that takes what OpenAI takes, and judges pictures.

    Attributes:
        says: its answer.
        shown: the pictures that it was shown, each time.
        served: how often the picture was fetched that it has itself.
    """

    def __init__(self) -> None:
        super().__init__()
        self.says = "0"
        self.shown: list[str] = []
        self.texts: list[str] = []
        self.served = 0

    def will_say(self, answer: str) -> None:
        self.says, self.shown, self.texts, self.served = answer, [], [], 0

    def _add_routes(self, router: web.UrlDispatcher) -> None:
        router.add_get("/pixel.png", self._pixel)
        super()._add_routes(router)

    async def _pixel(self, request: web.Request) -> web.Response:
        self.served += 1
        return web.Response(body=base64.b64decode(PIXEL), content_type="image/png")

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        complaint = next(_complaints(STRICT["openai"], body), None)
        if complaint is not None:
            return web.json_response({"error": {"message": complaint}}, status=400)
        _MESSAGES.validate_python(body["messages"])
        for part in body["messages"][-1]["content"]:
            if part["type"] == "image_url":
                self.shown.append(part["image_url"]["url"])
            else:
                self.texts.append(part["text"])
        return web.json_response(_completion({"content": self.says}))


class Seen:
    """A server whose guardrails look at pictures."""

    def __init__(self, url: str, judge: SeeingJudge, vendors: dict[str, Any]) -> None:
        self.url = url
        self.judge = judge
        self.vendors = vendors

    def client(self, name: str) -> Client:
        return CLIENTS[name](self.url)  # type: ignore[call-arg]

    def chat(self, model: str, *urls: str, **more: Any) -> wire.Reply:
        parts: list[dict[str, Any]] = [{"type": "text", "text": "What is this?"}]
        parts += [{"type": "image_url", "image_url": {"url": url}} for url in urls]
        messages = [{"role": "user", "content": parts}]
        body = {"model": model, "messages": messages, **more}
        return wire.request("POST", f"{self.url}/v1/chat/completions", body)

    def sent(self, vendor: str) -> str:
        return str(self.vendors[vendor].server.last.content, "utf-8")


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    with ExitStack() as stack:
        judge = stack.enter_context(SeeingJudge())
        servers = {
            name: stack.enter_context(vendor.server_type()) for name, vendor in VENDORS.items()
        }
        configs = {
            "openai": {"base_url": f"{servers['openai'].url}/v1"},
            "anthropic": {"base_url": servers["anthropic"].url, "api_key": "sk-x"},
        }
        template = write_template(
            tmp_path_factory.mktemp("pictures") / "pictures.yaml",
            providers=[
                {
                    "id": "judge",
                    "type": "remote::passthrough",
                    "config": {"base_url": judge.base_url("openai")},
                },
                *(
                    {"id": name, "type": TYPES[name], "config": config}
                    for name, config in configs.items()
                ),
            ],
            models=[
                {"id": "judge", "provider": "judge"},
                *(
                    {
                        "id": f"{name}-{rail}",
                        "provider": name,
                        "provider_model": "claude" if name == "anthropic" else "theirs",
                        "guardrails": [{"name": rail, **settings}],
                    }
                    for name in VENDORS
                    for rail, settings in RAILS.items()
                ),
            ],
        )
        server = stack.enter_context(running(template))
        vendors = {
            name: vendor(servers[name], server.base_url)  # type: ignore[call-arg]
            for name, vendor in VENDORS.items()
        }
        for each in vendors.values():
            each.will_say(Reply(text="A pixel."))
        yield Seen(server.url, judge, vendors)


each_way = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
each_client = pytest.mark.parametrize("client", SEERS)
each_vendor = pytest.mark.parametrize("vendor", VENDORS)


@each_way
@each_client
@each_vendor
def test_a_picture_is_judged_before_it_is_sent(
    seen: Seen, vendor: str, client: str, stream: bool
) -> None:
    seen.vendors[vendor].will_say(Reply(text="A pixel."))
    ask = Ask(f"{vendor}-block", "What is this?", image=True)
    seen.judge.will_say("1")
    with pytest.raises(Refused) as refused:
        seen.client(client).ask(ask, stream=stream)
    assert refused.value.status == 400
    assert seen.judge.shown == [f"data:image/png;base64,{PIXEL}"]
    assert not seen.vendors[vendor].server.received
    seen.judge.will_say("0")
    assert seen.client(client).ask(ask, stream=stream).text == "A pixel."
    assert PIXEL in seen.sent(vendor)


@each_way
@each_client
@each_vendor
def test_a_picture_may_be_a_word(seen: Seen, vendor: str, client: str, stream: bool) -> None:
    seen.vendors[vendor].will_say(Reply(text="A pixel."))
    seen.judge.will_say("1")
    ask = Ask(f"{vendor}-redact", "What is this?", image=True)
    assert seen.client(client).ask(ask, stream=stream).text == "A pixel."
    assert PIXEL not in seen.sent(vendor)
    assert "<IMAGE_1>" in seen.sent(vendor)
    assert "What is this?" in seen.sent(vendor)


def test_what_is_only_counted_goes_by(seen: Seen) -> None:
    seen.judge.will_say("1")
    reply = seen.chat("openai-monitor", f"data:image/png;base64,{PIXEL}")
    assert reply.status == 200
    assert PIXEL in seen.sent("openai")


def test_a_picture_is_judged_once(seen: Seen) -> None:
    seen.judge.will_say("0")
    url = f"data:image/png;base64,{PIXEL}"
    assert seen.chat("openai-block", url, url, url).status == 200
    assert seen.judge.shown == [url]


@pytest.mark.parametrize("spoilt", ["I see.", ""])
def test_a_judge_that_fails_lets_nothing_by(seen: Seen, spoilt: str) -> None:
    seen.judge.will_say(spoilt)
    url = f"data:image/png;base64,{PIXEL}"
    assert seen.chat("openai-block", url).status == 400
    assert seen.chat("openai-lenient", url).status == 200


def test_more_than_are_judged_are_not_told(seen: Seen) -> None:
    seen.judge.will_say("0")
    urls = [f"data:image/png;base64,{PIXEL[:-4]}{number}gg=" for number in range(3)]
    assert seen.chat("openai-block", *urls).status == 400
    assert seen.judge.shown == []


@pytest.mark.parametrize(
    ("model", "against"), [("llama-guard", "unsafe\nS1"), ("shield-gemma", "Yes")]
)
def test_judges_are_asked_in_their_own_words(seen: Seen, model: str, against: str) -> None:
    url = f"data:image/png;base64,{PIXEL}"
    seen.judge.will_say(against)
    assert seen.chat(f"openai-{model}", url).status == 400
    if model == "shield-gemma":
        assert "No pixels." in seen.judge.texts[0]
    seen.judge.will_say({"llama-guard": "safe", "shield-gemma": "No"}[model])
    assert seen.chat(f"openai-{model}", url).status == 200


@each_vendor
def test_what_was_judged_is_what_is_sent(seen: Seen, vendor: str) -> None:
    seen.vendors[vendor].will_say(Reply(text="A pixel."))
    seen.judge.will_say("0")
    url = f"{seen.judge.url}/pixel.png"
    assert seen.chat(f"{vendor}-fetched", url).status == 200
    assert seen.judge.served == 1
    assert seen.judge.shown == [f"data:image/png;base64,{PIXEL}"]
    assert url not in seen.sent(vendor)
    assert PIXEL in seen.sent(vendor)
    seen.judge.will_say("1")
    assert seen.chat(f"{vendor}-fetched", url).status == 400


def test_no_url_leads_into_the_own_network(seen: Seen) -> None:
    seen.judge.will_say("0")
    for url in (f"{seen.judge.url}/pixel.png", "http://169.254.169.254/latest/meta-data/"):
        assert seen.chat("openai-block", url).status == 400
    assert seen.judge.served == 0


def test_pictures_of_tools_are_told_apart(seen: Seen) -> None:
    source = {"type": "base64", "media_type": "image/png", "data": PIXEL}
    picture = {"type": "image", "source": source}
    call = {"type": "tool_use", "id": "1", "name": "look", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "1", "content": [picture]}

    def ask(*turns: list[dict[str, Any]]) -> int:
        roles = ("user", "assistant", "user")
        messages = [
            {"role": role, "content": turn} for role, turn in zip(roles, turns, strict=False)
        ]
        body = {
            "model": "openai-results",
            "max_tokens": 9,
            "messages": messages,
            "tools": [{"name": "look", "input_schema": {"type": "object"}}],
        }
        return wire.request("POST", f"{seen.url}/v1/messages", body).status

    seen.judge.will_say("1")
    assert ask([picture]) == 200
    assert seen.judge.shown == []
    assert ask([{"type": "text", "text": "Look"}], [call], [result]) == 400
    assert len(seen.judge.shown) == 1


@pytest.mark.parametrize("name", ["file", "f\\u0069le"])
def test_what_nobody_can_look_at_does_not_go_by(seen: Seen, name: str) -> None:
    part = json.dumps({"type": "NAME", "NAME": {"file_id": "file-1"}}).replace("NAME", name)
    for model, status in (("openai-block", 400), ("openai-lenient", 200)):
        user = f'{{"role": "user", "content": [{part}]}}'
        body = f'{{"model": "{model}", "messages": [{user}]}}'.encode()
        headers = {"content-type": "application/json"}
        reply = wire.request("POST", f"{seen.url}/v1/chat/completions", body, headers)
        assert reply.status == status


DRAWN = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}
REPLIES: dict[str, Any] = {
    "chat/completions": {
        "id": "1",
        "object": "chat.completion",
        "created": 1,
        "model": "theirs",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "See.", "images": [DRAWN]},
                "finish_reason": "stop",
            }
        ],
    },
    "images/generations": {"created": 1, "data": [{"b64_json": PIXEL}]},
}


def drawn(seen: Seen, path: str, model: str, *, stream: bool = False) -> tuple[int, str]:
    """What the client gets of a vendor's reply with a picture in it."""
    said = REPLIES["images/generations" if "images" in path else "chat/completions"]
    chunk = json.loads(json.dumps(said).replace('"message"', '"delta"'))
    events = [f"data: {json.dumps(chunk)}\n\n".encode(), b"data: [DONE]\n\n"]
    seen.vendors["openai"].server.will_answer(
        Answer([json.dumps(said).encode()]),
        streamed=Answer(events, content_type="text/event-stream"),
    )
    asked: dict[str, Any] = {"prompt": "Draw!"}
    if "enerateContent" in path:
        asked = {"contents": [{"role": "user", "parts": [{"text": "Draw!"}]}]}
    elif "chat" in path:
        asked = {"model": model, "messages": [{"role": "user", "content": "Draw!"}]}
        asked |= {"stream": True} if stream else {}
    else:
        asked["model"] = model
    reply = wire.request("POST", f"{seen.url}{path.format(model=model)}", asked)
    return reply.status, reply.body.decode()


@pytest.mark.parametrize(
    ("path", "end"),
    [
        ("/v1/chat/completions", "content_filter"),
        ("/v1/chat/completions?stream", "content_filter"),
        ("/v1beta/models/{model}:generateContent", "SAFETY"),
        ("/v1beta/models/{model}:streamGenerateContent?alt=sse", "SAFETY"),
        ("/v1/images/generations", "content_filter"),
    ],
)
def test_what_is_drawn_is_judged_before_it_is_shown(seen: Seen, path: str, end: str) -> None:
    path, stream = path.removesuffix("?stream"), path.endswith("?stream")
    seen.judge.will_say("0")
    assert PIXEL in drawn(seen, path, "openai-block", stream=stream)[1]
    assert seen.judge.shown == [DRAWN["image_url"]["url"]]
    seen.judge.will_say("1")
    status, blocked = drawn(seen, path, "openai-block", stream=stream)
    assert PIXEL not in blocked
    assert end in blocked
    assert status == (400 if "images" in path else 200)
    status, hidden = drawn(seen, path, "openai-redact", stream=stream)
    assert PIXEL not in hidden
    assert ("<IMAGE_1>" in hidden) == ("images" not in path)
    assert status == (400 if "images" in path else 200)
    assert PIXEL in drawn(seen, path, "openai-monitor", stream=stream)[1]
    assert PIXEL in drawn(seen, path, "openai-results", stream=stream)[1]


def test_images_that_come_by_and_by_are_judged_one_by_one(seen: Seen) -> None:
    """Each event has a picture of its own: how far it is, or the one that was asked for."""
    sketch = base64.b64encode(base64.b64decode(PIXEL) + b"a sketch").decode()
    frame = {
        "created_at": 1,
        "size": "1024x1024",
        "quality": "low",
        "background": "opaque",
        "output_format": "png",
    }
    kind = "image_generation"
    usage = {"total_tokens": 2, "input_tokens": 1, "output_tokens": 1}
    details = {"text_tokens": 1, "image_tokens": 0}
    events: list[dict[str, Any]] = [
        {"type": f"{kind}.partial_image", "b64_json": sketch, "partial_image_index": 0},
        {
            "type": f"{kind}.completed",
            "b64_json": PIXEL,
            "usage": {**usage, "input_tokens_details": details},
        },
    ]
    raw = [f"data: {json.dumps({**each, **frame})}\n\n".encode() for each in events]
    seen.vendors["openai"].server.will_answer(
        Answer([], status=500), streamed=Answer(raw, content_type="text/event-stream")
    )

    def asked(model: str) -> wire.Reply:
        body = {"model": model, "prompt": "Draw!", "stream": True}
        return wire.request("POST", f"{seen.url}/v1/images/generations", body)

    seen.judge.will_say("0")
    assert asked("openai-results").body == b"".join(raw)
    assert seen.judge.shown == []
    assert asked("openai-replies").body == b"".join(raw)
    assert seen.judge.shown == [f"data:image/png;base64,{each}" for each in (sketch, PIXEL)]
    seen.judge.will_say("1")
    for model in ("openai-replies", "openai-replies-redact"):
        reply = asked(model)
        assert PIXEL[:20].encode() not in reply.body
        assert b'"content_filter"' in reply.body
