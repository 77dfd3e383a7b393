"""What several APIs say of the server's tools, and what is not known of that."""

from __future__ import annotations

from typing import Any

import pytest

from llama_compat.dialects.anthropic_messages.operations import MESSAGES
from llama_compat.dialects.base import HOSTED_SETTING, Operation
from llama_compat.dialects.openai.operations import CHAT
from llama_compat.dialects.openai_responses.operations import RESPONSES
from llama_compat.hosted.asked.common import unread_settings

SEARCH = {"type": "web_search", "external_web_access": False, "filters": {}}
CLAUDES = {"type": "web_search_20260318", "name": "web_search", "response_inclusion": "excluded"}
SERVER = {"type": "mcp", "server_label": "x", "server_description": "Does things."}


@pytest.mark.parametrize(
    ("operation", "members", "named"),
    [
        (
            RESPONSES,
            {"tools": [SERVER, SEARCH]},
            ["tools[0].server_description", "tools[1].external_web_access"],
        ),
        (MESSAGES, {"tools": [CLAUDES]}, ["tools[0].response_inclusion"]),
        (CHAT, {"web_search_options": {"unheard": 1}}, ["web_search_options.unheard"]),
        (CHAT, {"tools": [SERVER]}, ["tools[0].server_description"]),
    ],
)
def test_no_setting_is_ignored_in_silence(
    operation: Operation, members: dict[str, Any], named: list[str]
) -> None:
    asked = operation.parameters({"model": "m", "input": "x", "messages": [], **members})
    assert [path for path, name in asked.items() if name == HOSTED_SETTING] == named


@pytest.mark.parametrize(
    "tool",
    [
        {"type": "function", "name": "f", "bogus": 1},
        {"type": "web_search", "external_web_access": True, "search_context_size": "low"},
        {"type": "web_search_20250305", "max_uses": 3, "allowed_callers": ["direct"]},
        {"type": "web_search", "defer_loading": False, "user_location": None},
        {"type": "mcp_toolset", "mcp_server_name": "x", "configs": {}},
    ],
)
def test_what_is_read_or_asks_for_nothing_is_not_named(tool: Any) -> None:
    assert list(unread_settings(tool, "tools[0]")) == []
