"""What goes to a vendor and what comes back, where all goes well."""

from __future__ import annotations

import base64
import json
import re
import struct

import pytest

from tests.integration import wire
from tests.integration.relay import MESSAGES, UPSTREAM_KEY, Gateway, chat
from tests.integration.upstream_behaviours import FULL_REPLY, OWN_NAME, TEXT, USAGE

ODD_REQUEST = (
    b'{ "temperature": 1.0,"model":"scripted/plain", "messages":[{"role":"user",'
    b'"content":"caf\\u00e9 \xf0\x9f\x99\x82 \\/"}],  "seed": 7, "top_p":1e0, "user": null,'
    b'"max_tokens": 12345678,'
    b' "x_vendor":{"model":"inner","big":123456789012345678901234567890,"float":2.50,"tiny":1E-7,'
    b'"list":[1,  2.0,null,true]},"stop":["\\n\\n"],"tools":[],"unknown":"kept"}'
)


def members(raw: bytes) -> dict[str, str]:
    """Each member of a JSON object with its value as it is spelled."""
    text, place = raw.decode(), 1
    decoder = json.JSONDecoder()
    found = {}
    while match := re.compile(r'[\s,]*("(?:[^"\\]|\\.)*")\s*:\s*').match(text, place):
        _, end = decoder.raw_decode(text, match.end())
        found[json.loads(match[1])] = text[match.end() : end]
        place = end
    return found


def test_a_request_arrives_as_it_was_sent_but_for_the_model(
    gateway: Gateway, request_id: str
) -> None:
    reply = gateway.post(ODD_REQUEST, headers={"x-request-id": request_id})
    assert reply.status == 200
    sent, arrived = members(ODD_REQUEST), members(gateway.upstream.request(request_id).body)
    assert arrived == {**sent, "model": '"plain"'}


def test_a_reply_comes_back_as_it_was_sent_but_for_the_model(gateway: Gateway) -> None:
    reply = gateway.post(chat("plain"))
    assert members(reply.body) == {**members(FULL_REPLY), "model": '"scripted/plain"'}


def test_nothing_is_added_to_a_request(gateway: Gateway, request_id: str) -> None:
    gateway.post(chat("plain"), headers={"x-request-id": request_id})
    recorded = gateway.upstream.request(request_id)
    assert recorded.json() == {"model": "plain", "messages": MESSAGES}
    assert recorded.path == "/v1/chat/completions"


@pytest.mark.parametrize(
    ("path", "param", "values"),
    [
        ("/chat/completions", "messages", [None, [], "hello", {}, 5, True]),
        ("/completions", "prompt", [None, [], {}, 5, True]),
        ("/embeddings", "input", [None, [], {}, 5, True]),
    ],
)
def test_nobody_is_asked_without_something_to_answer(
    gateway: Gateway, request_id: str, path: str, param: str, values: list[object]
) -> None:
    for value in values:
        question = {"model": "scripted/plain", param: value}
        reply = gateway.post(question, path=path, headers={"x-request-id": request_id})
        assert reply.status == 400, value
        assert reply.error()["param"] == param
    assert not gateway.upstream.requests(request_id)


def test_the_vendor_gets_its_own_key_and_not_the_clients(gateway: Gateway, request_id: str) -> None:
    headers = {
        "x-request-id": request_id,
        "authorization": "Bearer sk-the-clients",
        "cookie": "session=the-clients",
        "x-forwarded-for": "10.1.2.3",
    }
    gateway.post(chat("plain"), headers=headers)
    recorded = gateway.upstream.request(request_id)
    assert recorded.header("authorization") == f"Bearer {UPSTREAM_KEY}"
    assert recorded.header("cookie") is None
    assert "sk-the-clients" not in str(recorded.headers)
    assert (recorded.header("content-type") or "").startswith("application/json")


def test_a_big_body_arrives_whole(gateway: Gateway, request_id: str) -> None:
    image = "data:image/png;base64," + "A" * 16_000_000
    parts = [{"type": "image_url", "image_url": {"url": image}}]
    question = {"model": "scripted/plain", "messages": [{"role": "user", "content": parts}]}
    assert gateway.post(question, headers={"x-request-id": request_id}).status == 200
    assert gateway.upstream.request(request_id).json()["messages"] == question["messages"]


def test_text_completions(gateway: Gateway, request_id: str) -> None:
    question = {"model": "scripted/text-completion", "prompt": [1, 2, 3]}
    reply = gateway.post(question, path="/completions", headers={"x-request-id": request_id}).json()
    assert reply["model"] == "scripted/text-completion"
    assert reply["choices"][0]["text"] == TEXT
    assert gateway.upstream.request(request_id).path == "/v1/completions"
    assert gateway.upstream.request(request_id).json()["prompt"] == [1, 2, 3]
    parts = list(
        gateway.openai.completions.create(
            model="scripted/text-completion",
            prompt="Hello",
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    assert "".join(choice.text for part in parts for choice in part.choices) == TEXT
    assert {part.model for part in parts} == {"scripted/text-completion"}
    assert parts[-1].usage is not None
    assert parts[-1].usage.total_tokens == USAGE["total_tokens"]


def test_embeddings(gateway: Gateway, request_id: str) -> None:
    question = b'{"model":"scripted/plain","input":["a","b"],"dimensions":3}'
    reply = gateway.post(question, path="/embeddings", headers={"x-request-id": request_id})
    assert reply.status == 200
    assert reply.json()["model"] == "scripted/plain"
    assert members(reply.body)["data"].count("3e-05") == 1
    recorded = gateway.upstream.request(request_id)
    assert recorded.path == "/v1/embeddings"
    assert recorded.json() == {"model": "plain", "input": ["a", "b"], "dimensions": 3}
    parsed = gateway.openai.embeddings.create(
        model="scripted/plain", input="a", encoding_format="float"
    )
    assert parsed.data[0].embedding == [0.25, -1.0, 3e-05]


def test_embeddings_are_base64_for_a_client_that_asks_for_it(gateway: Gateway) -> None:
    """The vendor gives numbers all the same, as many do."""
    question = {"model": "scripted/plain", "input": "a", "encoding_format": "base64"}
    (embedded,) = gateway.post(question, path="/embeddings").json()["data"]
    assert base64.b64decode(embedded["embedding"]) == struct.pack("<3f", 0.25, -1.0, 3e-05)


@pytest.mark.parametrize("stream", [False, True])
def test_compressed_replies_are_understood(gateway: Gateway, stream: bool) -> None:
    reply = gateway.post(chat("gzipped", stream=stream), headers={"accept-encoding": "identity"})
    assert reply.headers["content-encoding"] is None
    assert reply.body.count(b"scripted/gzipped") >= 1
    assert OWN_NAME.encode() not in reply.body


@pytest.mark.parametrize("stream", [False, True])
def test_useful_headers_come_back_and_the_vendors_own_do_not(
    gateway: Gateway, request_id: str, stream: bool
) -> None:
    reply = gateway.post(
        chat("vendor-headers", stream=stream), headers={"x-request-id": request_id}
    )
    assert reply.headers["x-ratelimit-remaining-requests"] == "41"
    assert reply.headers["x-ratelimit-reset-tokens"] == "6m0s"
    for name in ("server", "set-cookie", "x-powered-by", "x-hop", "keep-alive"):
        assert reply.headers[name] is None, name
    assert reply.headers.get_all("x-request-id") == [request_id]
    assert len(reply.headers.get_all("content-type") or []) == 1


def test_a_request_id_is_made_up_where_the_client_sent_none(gateway: Gateway) -> None:
    made_up = gateway.post(chat("plain")).headers["x-request-id"]
    assert made_up
    assert len(gateway.upstream.requests(made_up)) == 1
    assert "scripted/plain" in gateway.server.wait_for_log(made_up)


def test_the_key_is_nowhere_to_be_seen(gateway: Gateway) -> None:
    for name in ("plain", "status-401", "html-502", "refused/plain", "error-first"):
        reply = gateway.post(chat(name))
        assert UPSTREAM_KEY not in reply.body.decode() + str(reply.headers)
    assert UPSTREAM_KEY not in gateway.server.log
    assert UPSTREAM_KEY not in wire.request("GET", f"{gateway.base_url}/models").body.decode()
