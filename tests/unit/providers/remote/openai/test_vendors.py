"""The rows of the vendors' table, and what they do to a request."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from pydantic import ValidationError

from llama_compat.dialects.openai.operations import CHAT, COMPLETIONS
from llama_compat.dialects.openai.usage import wants_usage
from llama_compat.errors import APIError
from llama_compat.exchange import Target
from llama_compat.wire.json_fields import encode_fields, parse_fields
from providers.registry import config_model, provider_type
from providers.remote.openai.requests import vendor_fields
from providers.remote.openai.vendors import VENDORS
from tests.unit.calls import call_of

ISSUED = [
    *("openai", "vllm", "ollama", "nvidia", "fireworks", "together", "groq", "cerebras"),
    *("sambanova", "anthropic", "gemini", "passthrough", "azure", "openrouter", "mistral"),
    *("deepseek", "xai", "huggingface", "sglang", "llama-cpp", "lmstudio"),
    *("cohere", "perplexity", "moonshot", "zai", "minimax", "alibaba", "vercel", "databricks"),
    *("cloudflare", "bedrock", "xiaomi"),
]


def sent(
    provider_type: str,
    body: bytes | dict[str, Any],
    *,
    drop: bool = False,
    chat: bool = True,
    unsupported: str | None = None,
) -> tuple[bytes, tuple[str, ...]]:
    """What goes to the vendor for a client's `body`, and what was dropped."""
    raw = body if isinstance(body, bytes) else json.dumps({"model": "mine", **body}).encode()
    call = call_of(raw, CHAT if chat else COMPLETIONS)
    vendor = VENDORS[provider_type]
    fields, dropped = vendor_fields(
        call, Target("theirs"), vendor, "p", unsupported="drop" if drop else unsupported
    )
    return encode_fields(fields), dropped


@pytest.mark.parametrize("name", ISSUED)
def test_every_vendor_has_usable_settings(name: str) -> None:
    vendor = VENDORS[f"remote::{name}"]
    kind = provider_type(f"remote::{name}")
    given = {} if vendor.base_url else {"base_url": "https://example.com/v1/"}
    config: Any = kind.config.validate(given)
    assert config.base_url == (vendor.base_url or "https://example.com/v1")
    assert kind.make("p", config, ()).id == "p"
    assert vendor.key_variable or not vendor.needs_key


@pytest.mark.parametrize("name", ["passthrough", "azure", "databricks", "cloudflare", "bedrock"])
def test_where_there_is_no_default_the_template_says_where(name: str) -> None:
    with pytest.raises(ValidationError, match="base_url"):
        config_model(f"remote::{name}").validate({})


@pytest.mark.parametrize(
    "setting",
    [
        {"base_url": "api.example.com"},
        {"base_url": "ftp://example.com"},
        {"base_url": "https://example.com/?a=b"},
        {"timeouts": {"connect": 0}},
        {"proxy": "socks5://localhost"},
        {"models": "all"},
        {"nonsense": 1},
    ],
)
def test_wrong_settings_are_found(setting: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        config_model("remote::openai").validate(setting)


def test_the_table_alone_is_light() -> None:
    program = "import sys, providers.remote.openai.vendors; print('httptools' in sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "False"


def test_a_request_keeps_its_bytes() -> None:
    body = b'{"temperature":1.0,"model":"mine","x":{"a":  1E-7,"b":null},"user":null}'
    expected = body.replace(b'"mine"', b'"theirs"')
    for name in ("openai", "passthrough", "vllm", "together"):
        assert sent(f"remote::{name}", body) == (expected, ())


def test_a_parameter_goes_by_the_name_that_the_vendor_knows() -> None:
    body = b'{"model":"mine","max_completion_tokens":5,"seed":1,"messages":[]}'
    assert sent("remote::mistral", body)[0] == (
        b'{"model":"theirs","max_tokens":5,"random_seed":1,"messages":[]}'
    )
    assert b'"max_completion_tokens":5' in sent("remote::cerebras", {"max_tokens": 5})[0].replace(
        b" ", b""
    )
    assert b'"max_tokens"' in sent("remote::cerebras", {"max_tokens": 5}, chat=False)[0]


def test_the_same_limit_by_both_names() -> None:
    both = {"max_tokens": 5, "max_completion_tokens": 6}
    with pytest.raises(APIError) as refused:
        sent("remote::deepseek", both)
    assert refused.value.param == "max_completion_tokens"
    body, dropped = sent("remote::deepseek", both, drop=True)
    assert (json.loads(body)["max_tokens"], dropped) == (5, ("max_completion_tokens",))


def test_what_a_vendor_refuses_is_refused_or_dropped() -> None:
    with pytest.raises(APIError) as refused:
        sent("remote::groq", {"logit_bias": {"1": 5}})
    assert (refused.value.status, refused.value.param) == (400, "logit_bias")
    assert refused.value.code == "unsupported_parameter"
    body, dropped = sent("remote::groq", {"logit_bias": {"1": 5}, "top_p": 1}, drop=True)
    assert json.loads(body) == {"model": "theirs", "top_p": 1}
    assert dropped == ("logit_bias",)


def test_hints_are_left_out_where_a_vendor_refuses_them() -> None:
    hints: dict[str, Any] = {
        "user": "u",
        "prompt_cache_key": "k",
        "safety_identifier": "s",
        "service_tier": "flex",
    }
    for unsupported in (None, "adapt", "drop"):
        body, dropped = sent("remote::mistral", {**hints, "n": 2}, unsupported=unsupported)
        assert (json.loads(body), {*dropped}) == ({"model": "theirs", "n": 2}, {*hints})
    with pytest.raises(APIError) as refused:
        sent("remote::mistral", {"user": "u"}, unsupported="refuse")
    assert refused.value.param == "user"
    with pytest.raises(APIError) as refused:
        sent("remote::mistral", {"user": "u", "store": True})
    assert refused.value.param == "store"
    assert json.loads(sent("remote::openai", hints)[0]) == {"model": "theirs", **hints}


def test_what_asks_for_nothing_is_just_left_out() -> None:
    body, dropped = sent("remote::groq", {"logprobs": False, "logit_bias": None})
    assert (json.loads(body), dropped) == ({"model": "theirs"}, ())
    assert json.loads(sent("remote::ollama", {"n": 1})[0]) == {"model": "theirs"}
    with pytest.raises(APIError):
        sent("remote::ollama", {"n": 2})
    nothing = b'{"model":"mine","n":1,"parallel_tool_calls":true,"store":false,"metadata":{},'
    nothing += b'"service_tier":"auto","modalities":["text"]}'
    assert sent("remote::cohere", nothing) == (b'{"model":"theirs"}', ())
    # The same as where a call is translated.
    text = {"response_format": {"type": "text"}, "presence_penalty": 0}
    assert sent("remote::anthropic", text) == (b'{"model":"theirs"}', ())
    with pytest.raises(APIError):
        sent("remote::anthropic", {"response_format": {"type": "json_object"}})


@pytest.mark.parametrize("name", ["mistral", "cohere", "databricks"])
def test_stream_options_where_they_are_not_known(name: str) -> None:
    options = {"stream_options": {"include_usage": True}}
    assert b"stream_options" in sent("remote::openai", options)[0]
    assert b"stream_options" not in sent(f"remote::{name}", options)[0]


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("cohere", "n", 2),
        ("cohere", "parallel_tool_calls", False),
        ("cohere", "store", True),
        ("cohere", "dimensions", 256),
        ("minimax", "n", 2),
        ("minimax", "logit_bias", {"1": 5}),
    ],
)
def test_what_is_not_in_a_vendors_documentation_is_refused(
    name: str, field: str, value: object
) -> None:
    with pytest.raises(APIError) as refused:
        sent(f"remote::{name}", {field: value})
    assert (refused.value.code, refused.value.param) == ("unsupported_parameter", field)


@pytest.mark.parametrize(
    ("name", "wires"),
    [
        ("cohere", {"chat", "embeddings", "rerank", "rerank_v2"}),
        ("jina", {"embeddings", "rerank", "rerank_v2"}),
        ("voyage", {"voyage_rerank"}),
        ("perplexity", {"responses"}),
        ("moonshot", {"chat", "responses", "messages"}),
        ("zai", {"chat", "messages"}),
        ("minimax", {"chat", "responses", "messages"}),
        ("alibaba", {"chat", "embeddings", "responses", "messages"}),
        ("vercel", {"chat", "embeddings", "responses", "messages", "images"}),
        ("databricks", {"chat", "embeddings"}),
        ("cloudflare", {"chat", "embeddings"}),
        ("bedrock", {"chat"}),
    ],
)
def test_what_a_vendor_does_not_document_is_not_relayed(name: str, wires: set[str]) -> None:
    kind = provider_type(f"remote::{name}")
    config: Any = kind.config.validate({"base_url": "https://example.com/v1"})
    assert set(kind.make("p", config, ()).relays) == wires


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (None, (False, False)),
        ({}, (False, False)),
        ({"include_usage": True}, (True, False)),
        ({"include_usage": True, "continuous_usage_stats": True}, (True, True)),
    ],
)
def test_who_wants_usage(options: Any, expected: tuple[bool, bool]) -> None:
    assert wants_usage(parse_fields(json.dumps({"stream_options": options}).encode())) == expected


@pytest.mark.parametrize(
    ("model", "expected"),
    [("llama-v3", "accounts/fireworks/models/llama-v3"), ("accounts/me/models/x",) * 2],
)
def test_a_vendors_prefix_is_put_before_plain_names(model: str, expected: str) -> None:
    call, target = call_of({"model": "m"}), Target(model)
    fields, _ = vendor_fields(call, target, VENDORS["remote::fireworks"], "p", unsupported=None)
    assert json.loads(encode_fields(fields)) == {"model": expected}


def test_what_a_vendor_refuses_is_adapted_to_where_it_is_a_mere_wish() -> None:
    vendor, target = VENDORS["remote::anthropic"], Target("theirs")
    call = call_of({"seed": 7, "frequency_penalty": 1, "temperature": 0.5})
    fields, dropped = vendor_fields(call, target, vendor, "p", unsupported="adapt")
    assert sorted(dropped) == ["frequency_penalty", "seed"]
    assert "temperature" in fields
    with pytest.raises(APIError) as raised:
        vendor_fields(call_of({"logprobs": True}), target, vendor, "p", unsupported="adapt")
    assert raised.value.param == "logprobs"
