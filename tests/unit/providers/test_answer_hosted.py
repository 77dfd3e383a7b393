"""Who runs a tool that a request asks a server for: the vendor that has it, or we."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw

from llama_compat.catalog import Catalog
from llama_compat.dialects.openai.operations import CHAT
from llama_compat.dialects.openai_responses.operations import RESPONSES
from llama_compat.errors import APIError
from llama_compat.exchange import Call, Principal, Target
from llama_compat.fitting.fit import fit_of
from llama_compat.fitting.honoured import honoured
from llama_compat.hosted.settings import ToolsSettings, WebSearchSettings
from llama_compat.hosted.vocabulary import MCPTool, UserLocation, WebSearchTool
from llama_compat.types import (
    ChatCompletionRequest,
    ResponseFormat,
    SamplingParams,
    ToolChoice,
    ToolDefinition,
    UserMessage,
)
from llama_compat.wire.json_fields import encode_json
from providers.registry import provider_type
from routing.tools.toolbox import ServerTools
from tests.unit.calls import call_of

OPENAI = "https://api.openai.com/v1"


@pytest.mark.parametrize(
    ("kind", "config", "wire", "expected"),
    [
        ("remote::openai", {}, "responses", {"web_search", "file_search", "mcp"}),
        ("remote::openai", {}, "chat", {"web_search"}),
        ("remote::openai", {"base_url": "https://other.example/v1"}, "responses", set()),
        ("remote::vllm", {"base_url": "http://localhost/v1"}, "responses", set()),
        (
            "remote::vllm",
            {"base_url": "http://localhost/v1", "hosted_tools": ["mcp"]},
            "responses",
            {"mcp"},
        ),
        ("remote::anthropic-messages", {}, "messages", {"web_search", "web_fetch", "mcp"}),
        (
            "remote::anthropic-messages",
            {"base_url": "https://other.example"},
            "messages",
            set(),
        ),
        (
            "remote::gemini-native",
            {},
            "gemini_generate",
            {"web_search", "web_fetch", "file_search", "mcp"},
        ),
        ("remote::gemini-native", {"hosted_tools": []}, "gemini_generate", set()),
        (
            "remote::gemini-native",
            {"base_url": "https://other.example"},
            "gemini_generate",
            set(),
        ),
    ],
)
def test_a_vendor_has_its_own_tools(
    kind: str, config: dict[str, Any], wire: str, expected: set[str]
) -> None:
    provider = made(kind, **config)
    assert provider.hosted_tools(wire) == expected


FUNCTION = ToolDefinition("f")
JSON = ResponseFormat("json_object")
SEARCHES = ToolChoice("required", "web_search")
CLAUDE, GEMINI, GPT, ASKED = (
    ("remote::anthropic-messages", "claude-sonnet-4-5"),
    ("remote::gemini-native", "gemini-2.5-flash"),
    ("remote::openai", "gpt-5-search-api"),
    ("remote::openai", "gpt-5.5"),
)


@pytest.mark.parametrize(
    ("tool", "asked", "who"),
    [
        ({}, {}, {CLAUDE, GEMINI, GPT, ASKED}),
        ({"context_size": "high"}, {}, {CLAUDE, GEMINI, GPT, ASKED}),
        ({"location": UserLocation("Cairo")}, {}, {CLAUDE, GPT, ASKED}),
        ({"max_uses": 3}, {}, {CLAUDE, ASKED}),
        ({"allowed_domains": ("a.example",)}, {}, {CLAUDE, ASKED}),
        ({"blocked_domains": ("b.example",)}, {}, {CLAUDE}),
        ({"allowed_domains": ("a.example",), "blocked_domains": ("b.example",)}, {}, set()),
        ({}, {"max_hosted_calls": 3}, {CLAUDE, ASKED}),
        ({}, {"tools": (FUNCTION,)}, {CLAUDE, ASKED}),
        ({}, {"tools": (FUNCTION,), "tool_choice": ToolChoice("required", "f")}, {ASKED}),
        ({}, {"tools": (ToolDefinition("web_search"),)}, {ASKED}),
        ({"name": "web_search_2"}, {"tools": (ToolDefinition("web_search"),)}, {ASKED}),
        ({}, {"tool_choice": SEARCHES}, {CLAUDE, ASKED}),
        ({}, {"response_format": JSON}, {GPT}),
        ({}, {"hosted": (MCPTool("docs"),)}, {CLAUDE, ASKED}),
        ({}, {"reasoning_effort": "minimal"}, {CLAUDE, GEMINI, GPT}),
        ({}, {"sampling": SamplingParams(stop=("x",))}, {CLAUDE, GEMINI, GPT}),
    ],
)
@pytest.mark.parametrize(("kind", "model"), [CLAUDE, GEMINI, GPT, ASKED])
def test_a_vendor_searches_where_it_can_be_told_all_that_is_asked(
    kind: str, model: str, tool: dict[str, Any], asked: dict[str, Any], who: set[Any]
) -> None:
    search = WebSearchTool(**{"name": "web_search", **tool})
    hosted = (search, *asked.get("hosted", ()))
    request = ChatCompletionRequest(model, (UserMessage("Hi"),), **{**asked, "hosted": hosted})
    provider = made(kind)
    assert provider.searches(search, request) is ((kind, model) in who)
    ours = made(kind, hosted_tools=[])
    assert not ours.searches(search, request)
    elsewhere = made(kind, base_url="https://other.example/v1")
    assert not elsewhere.searches(search, request)


@pytest.mark.parametrize(
    ("model", "searches"),
    [
        ("gpt-5.5", True),
        ("openai/gpt-4.1", True),
        ("gpt-4o-mini", True),
        ("o4-mini", True),
        ("gpt-4.1-nano", False),
        ("gpt-4", False),
        ("gpt-3.5-turbo", False),
        ("o1", False),
        ("gpt-4o-search-preview", True),
    ],
)
def test_which_of_openais_models_search(model: str, searches: bool) -> None:
    search = WebSearchTool("web_search")
    request = ChatCompletionRequest(model, (UserMessage("Hi"),), hosted=(search,))
    facts = Catalog({"openai"}).facts("openai", model)
    target = Target(model, fit=fit_of(facts))
    body = {"model": "m", "input": "Hi", "tools": [{"type": "web_search"}]}
    call = call_of(encode_json(body), RESPONSES)
    if searches:
        _, fitted = honoured(made("remote::openai"), call, target)
        assert fitted.changes["vendor_search"].name == "web_search"
    else:
        with pytest.raises(APIError, match="web_search"):
            honoured(made("remote::openai"), call, target)
    alone = made("remote::openai", wires=["chat"])
    assert alone.searches(search, request) is ("-search" in model)


OPTIONS = b"{}"


@pytest.mark.parametrize(
    ("kind", "config", "model", "options", "elsewhere"),
    [
        ("remote::openai", {}, "gpt-5.5", OPTIONS, True),
        ("remote::openai", {}, "gpt-5.5", b"null", False),
        ("remote::openai", {}, "gpt-5.5", None, False),
        ("remote::openai", {}, "gpt-5-search-api", OPTIONS, False),
        # Relayed, it would be refused.
        ("remote::openai", {"wires": ["chat"]}, "gpt-5.5", OPTIONS, True),
        ("remote::openai", {"base_url": "http://localhost/v1"}, "gpt-5.5", OPTIONS, False),
        ("remote::perplexity", {}, "sonar", OPTIONS, False),
        ("remote::openrouter", {}, "gpt-5.5", OPTIONS, False),
    ],
)
def test_a_chat_that_asks_for_a_search_is_relayed_to_models_that_search_in_chats(
    kind: str, config: dict[str, Any], model: str, options: bytes | None, elsewhere: bool
) -> None:
    fields = {} if options is None else {"web_search_options": Raw(options)}
    call = Call(CHAT, fields, "m", stream=False, request_id="r")
    assert made(kind, **config).searches_elsewhere(call, model) is elsewhere


def made(kind: str, **config: Any) -> Any:
    registered = provider_type(kind)
    settings: Any = registered.config.validate({"api_key": "k", **config})
    return registered.make("p", settings, [])


def test_a_call_has_those_that_it_asks_for_and_the_template_has() -> None:
    search = WebSearchSettings(backend="files", folder=".")
    tools = ServerTools(ToolsSettings(web_search=search))
    toolbox = tools.for_call(
        Principal("k"),
        frozenset({"web_search", "mcp"}),
        asks_users=True,
        affords=lambda usage: True,
        parts=[],
    )
    assert toolbox.kinds == toolbox.known == {"web_search"}
