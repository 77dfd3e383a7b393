"""Who runs a tool that a request asks a server for: the vendor that has it, or we."""

from __future__ import annotations

from typing import Any

import pytest

from llama_compat.exchange import Principal
from llama_compat.hosted.settings import ToolsSettings, WebSearchSettings
from llama_compat.hosted.vocabulary import MCPTool, UserLocation, WebSearchTool
from llama_compat.types import (
    ChatCompletionRequest,
    ResponseFormat,
    ToolChoice,
    ToolDefinition,
    UserMessage,
)
from providers.registry import provider_type
from routing.tools.toolbox import ServerTools

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
        ("remote::gemini-native", {}, "gemini_generate", {"web_search"}),
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
CLAUDE, GEMINI, GPT = (
    ("remote::anthropic-messages", "claude-sonnet-4-5"),
    ("remote::gemini-native", "gemini-2.5-flash"),
    ("remote::openai", "gpt-5-search-api"),
)


@pytest.mark.parametrize(
    ("tool", "asked", "who"),
    [
        ({}, {}, {CLAUDE, GEMINI, GPT}),
        ({"context_size": "high"}, {}, {CLAUDE, GEMINI, GPT}),
        ({"location": UserLocation("Cairo")}, {}, {CLAUDE, GPT}),
        ({"max_uses": 3}, {}, {CLAUDE}),
        ({"allowed_domains": ("a.example",)}, {}, {CLAUDE}),
        ({"allowed_domains": ("a.example",), "blocked_domains": ("b.example",)}, {}, set()),
        ({}, {"max_hosted_calls": 3}, {CLAUDE}),
        ({}, {"tools": (FUNCTION,)}, {CLAUDE}),
        ({}, {"tools": (FUNCTION,), "tool_choice": ToolChoice("required", "f")}, set()),
        ({}, {"tools": (ToolDefinition("web_search"),)}, set()),
        ({"name": "web_search_2"}, {"tools": (ToolDefinition("web_search"),)}, set()),
        ({}, {"tool_choice": SEARCHES}, {CLAUDE}),
        ({}, {"response_format": JSON}, {GPT}),
        ({}, {"hosted": (MCPTool("docs"),)}, {CLAUDE}),
    ],
)
@pytest.mark.parametrize(("kind", "model"), [CLAUDE, GEMINI, GPT])
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
