"""Who runs a tool that a request asks a server for: the vendor that has it, or we."""

from __future__ import annotations

from typing import Any

import pytest

from llama_compat.exchange import Principal
from llama_compat.hosted.settings import ToolsSettings, WebSearchSettings
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
    ],
)
def test_a_vendor_has_its_own_tools(
    kind: str, config: dict[str, Any], wire: str, expected: set[str]
) -> None:
    registered = provider_type(kind)
    settings: Any = registered.config.validate({"api_key": "k", **config})
    provider = registered.make("p", settings, [])
    assert provider.hosted_tools(wire) == expected


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
