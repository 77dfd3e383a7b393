"""What is particular about a vendor, seen from the vendor's side."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration import wire
from tests.integration.relay import MESSAGES
from tests.integration.scripted_upstream import ScriptedUpstream
from tests.integration.server_process import ServerProcess, running, write_template

VENDORS = [
    "alibaba",
    "anthropic",
    "azure",
    "bedrock",
    "cerebras",
    "cloudflare",
    "cohere",
    "databricks",
    "fireworks",
    "gemini",
    "groq",
    "minimax",
    "mistral",
    "moonshot",
    "ollama",
    "openai",
    "openrouter",
    "passthrough",
    "together",
    "vercel",
    "vllm",
    "zai",
]
CHATLESS = "perplexity"
"""Which has the Responses API alone."""


@pytest.fixture(scope="module")
def vendors(
    upstream: ScriptedUpstream, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    config = {"base_url": upstream.url, "api_key": "sk-vendor", "unsupported": "refuse"}
    template = write_template(
        tmp_path_factory.mktemp("vendors") / "vendors.yaml",
        providers=[
            {"id": one, "type": f"remote::{one}", "config": config} for one in (*VENDORS, CHATLESS)
        ],
        models=[
            {"id": one, "provider": one, "provider_model": "plain"} for one in (*VENDORS, CHATLESS)
        ],
    )
    with running(template) as server:
        yield server


def ask(vendors: ServerProcess, vendor: str, request_id: str, **members: Any) -> wire.Reply:
    return wire.request(
        "POST",
        f"{vendors.base_url}/chat/completions",
        {"model": vendor, "messages": MESSAGES, **members},
        {"x-request-id": request_id},
    )


@pytest.mark.parametrize("vendor", VENDORS)
def test_a_vendor_is_asked_with_its_key(
    vendors: ServerProcess, upstream: ScriptedUpstream, request_id: str, vendor: str
) -> None:
    reply = ask(vendors, vendor, request_id)
    assert reply.status == 200, reply.body
    assert reply.json()["model"] == vendor
    recorded = upstream.request(request_id)
    if vendor == "azure":
        assert recorded.header("api-key") == "sk-vendor"
        assert recorded.header("authorization") is None
        path, _, query = recorded.path.partition("?")
        assert path == "/v1/openai/deployments/plain/chat/completions"
        assert query.startswith("api-version=")
    else:
        assert recorded.header("authorization") == "Bearer sk-vendor"
        assert recorded.path == "/v1/chat/completions"


def test_a_vendors_prefix_goes_before_the_model(
    vendors: ServerProcess, upstream: ScriptedUpstream, request_id: str
) -> None:
    ask(vendors, "fireworks", request_id)
    assert upstream.request(request_id).json()["model"] == "accounts/fireworks/models/plain"


@pytest.mark.parametrize(
    ("vendor", "sent", "arrives"),
    [
        ("openai", "max_tokens", "max_tokens"),
        ("openai", "max_completion_tokens", "max_completion_tokens"),
        ("mistral", "max_completion_tokens", "max_tokens"),
        ("mistral", "seed", "random_seed"),
        ("cerebras", "max_tokens", "max_completion_tokens"),
        ("cohere", "max_completion_tokens", "max_tokens"),
        ("minimax", "max_tokens", "max_completion_tokens"),
        ("zai", "max_completion_tokens", "max_tokens"),
        ("passthrough", "anything_at_all", "anything_at_all"),
    ],
)
def test_parameters_go_by_the_vendors_names(
    vendors: ServerProcess,
    upstream: ScriptedUpstream,
    request_id: str,
    vendor: str,
    sent: str,
    arrives: str,
) -> None:
    assert ask(vendors, vendor, request_id, **{sent: 7}).status == 200
    assert upstream.request(request_id).json() == {
        "model": "plain",
        "messages": MESSAGES,
        arrives: 7,
    }


@pytest.mark.parametrize(
    ("vendor", "api", "place"),
    [
        ("alibaba", "messages", "/apps/anthropic/v1/messages"),
        ("minimax", "messages", "/anthropic/v1/messages"),
        ("moonshot", "messages", "/anthropic/v1/messages"),
        ("vercel", "messages", "/v1/messages"),
        ("zai", "messages", "/api/anthropic/v1/messages"),
        ("zai", "responses", "/v1/chat/completions"),
        ("bedrock", "responses", "/v1/chat/completions"),
        ("bedrock", "messages", "/v1/chat/completions"),
        ("alibaba", "responses", "/v1/responses"),
        ("minimax", "responses", "/v1/responses"),
        ("moonshot", "responses", "/v1/responses"),
        ("vercel", "responses", "/v1/responses"),
        (CHATLESS, "responses", "/v1/responses"),
        (CHATLESS, "messages", "/v1/responses"),
    ],
)
def test_a_vendors_other_apis_are_where_it_has_them(
    vendors: ServerProcess,
    upstream: ScriptedUpstream,
    request_id: str,
    vendor: str,
    api: str,
    place: str,
) -> None:
    body = (
        {"model": vendor, "input": "Hello", "store": False}
        if api == "responses"
        else {"model": vendor, "messages": MESSAGES, "max_tokens": 99}
    )
    url = f"{vendors.url}/v1/{'openai/v1/responses' if api == 'responses' else 'messages'}"
    wire.request("POST", url, body, {"x-request-id": request_id})
    recorded = upstream.request(request_id)
    assert recorded.path == place
    assert recorded.header("authorization") == "Bearer sk-vendor"


def test_a_prompt_for_a_vendor_that_has_chats_alone_is_a_chat(
    vendors: ServerProcess, upstream: ScriptedUpstream, request_id: str
) -> None:
    reply = wire.request(
        "POST",
        f"{vendors.base_url}/completions",
        {"model": "moonshot", "prompt": "Hello"},
        {"x-request-id": request_id},
    )
    assert (reply.status, reply.json()["object"]) == (200, "text_completion")
    recorded = upstream.request(request_id)
    assert recorded.path == "/v1/chat/completions"
    assert recorded.json()["messages"] == [{"role": "user", "content": "Hello"}]


def test_what_only_a_continuation_has_is_refused_where_there_are_chats_alone(
    vendors: ServerProcess, upstream: ScriptedUpstream, request_id: str
) -> None:
    reply = wire.request(
        "POST",
        f"{vendors.base_url}/completions",
        {"model": "moonshot", "prompt": "Hello", "echo": True},
        {"x-request-id": request_id},
    )
    assert (reply.status, reply.error()["param"]) == (400, "echo")
    assert upstream.requests(request_id) == []


@pytest.mark.parametrize(
    ("vendor", "path", "body"),
    [
        (CHATLESS, "embeddings", {"input": "Hello"}),
        ("moonshot", "embeddings", {"input": "Hello"}),
    ],
)
def test_what_a_vendor_does_not_have_is_refused_before_it_is_asked(
    vendors: ServerProcess,
    upstream: ScriptedUpstream,
    request_id: str,
    vendor: str,
    path: str,
    body: dict[str, Any],
) -> None:
    url = f"{vendors.base_url}/{path}"
    reply = wire.request("POST", url, {"model": vendor, **body}, {"x-request-id": request_id})
    assert (reply.status, reply.error()["code"]) == (400, "unsupported_capability")
    assert upstream.requests(request_id) == []


def test_what_a_vendor_refuses_is_refused_by_its_name(
    vendors: ServerProcess, upstream: ScriptedUpstream, request_id: str
) -> None:
    reply = ask(vendors, "groq", request_id, logit_bias={"5": 1})
    assert reply.status == 400
    assert (reply.error()["code"], reply.error()["param"]) == (
        "unsupported_parameter",
        "logit_bias",
    )
    assert upstream.requests(request_id) == []
