"""Which of the server's tools a request asks for: one reading, for who may and for what is kept."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw

from llama_compat.errors import APIError
from llama_compat.hosted.asked.named import NamedTools, act, tools_named
from llama_compat.wire.json_fields import encode_json, parse_fields

WEB = {"type": "web_search_20260318", "name": "web_search"}
FILES = {"type": "file_search_20260101", "vector_store_ids": ["vs_1", 2, "vs_1", "vs_2"]}
SERVER = {"type": "mcp_toolset", "server_label": "x", "server_url": "https://x.example"}


@pytest.mark.parametrize(
    ("members", "named", "acts"),
    [
        ({"tools": [{"type": "function", "name": "web_search"}]}, NamedTools(), False),
        ({"tools": [], "mcp_servers": [], "web_search_options": None}, NamedTools(), False),
        ({"tools": [WEB]}, NamedTools(frozenset({"web_search"})), False),
        ({"web_search_options": {}}, NamedTools(frozenset({"web_search"})), False),
        ({"tools": [FILES]}, NamedTools(frozenset({"file_search"}), ("vs_1", "vs_2")), True),
        (
            {"tools": [SERVER], "mcp_servers": [{"name": "y"}, {"url": "z"}]},
            NamedTools(frozenset({"mcp"}), (), (("x", "https://x.example"), ("y", ""))),
            True,
        ),
        (
            {
                "tools": [
                    {"url_context": {}, "fileSearch": {"file_search_store_names": ["vs_1"]}},
                    {"file_search": {"fileSearchStoreNames": ["fileSearchStores/vs_2"]}},
                ]
            },
            NamedTools(frozenset({"web_fetch", "file_search"}), ("vs_1", "vs_2")),
            True,
        ),
        (
            {
                "tools": {
                    "mcpServers": [
                        {"name": "x", "streamableHttpTransport": {"url": "https://x.example"}},
                        {"streamable_http_transport": {"url": "https://y.example"}},
                        {"name": "z"},
                    ]
                }
            },
            NamedTools(
                frozenset({"mcp"}),
                (),
                (("x", "https://x.example"), ("mcp", "https://y.example"), ("z", "")),
            ),
            True,
        ),
        ({"tools": [{"urlContext": None, "mcpServers": []}]}, NamedTools(), False),
        ({"tools": "mcp", "mcp_servers": "x"}, NamedTools(frozenset({"mcp"})), True),
    ],
)
def test_what_a_request_asks_a_server_for(
    members: dict[str, Any], named: NamedTools, acts: bool
) -> None:
    fields = parse_fields(encode_json(members))
    assert (tools_named(fields), act(fields)) == (named, acts)


def test_a_name_that_is_written_as_escapes_is_one() -> None:
    fields = {"tools": Raw(rb'[{"type": "fil\u0065_search", "vector_store_ids": ["vs"]}]')}
    assert (tools_named(fields).stores, act(fields)) == (("vs",), True)


@pytest.mark.parametrize("name", ["tools", "mcp_servers"])
def test_what_is_nested_too_deeply_to_be_read_is_refused(name: str) -> None:
    deep = b"[" * 100_000 + b'"mcp"' + b"]" * 100_000
    with pytest.raises(APIError) as refused:
        tools_named({name: Raw(deep)})
    assert (refused.value.param, refused.value.code) == (name, "nested_too_deeply")
