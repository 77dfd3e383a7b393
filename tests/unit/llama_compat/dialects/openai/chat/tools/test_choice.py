"""Which of a chat's tools the model may call."""

from __future__ import annotations

from typing import Any

import pytest

from llama_compat.dialects.openai.chat import parse_request
from llama_compat.errors import APIError
from llama_compat.types import ToolChoice

FUNCTIONS = [{"type": "function", "function": {"name": name}} for name in ("f", "g", "h")]


def offered(choice: Any) -> tuple[ToolChoice | None, list[str]]:
    messages = [{"role": "user", "content": "x"}]
    body = {"messages": messages, "tools": FUNCTIONS, "tool_choice": choice}
    request = parse_request(body, "m").request
    return request.tool_choice, [tool.tool_name for tool in request.tools]


def allowed(mode: str, *names: str) -> dict[str, Any]:
    tools = [{"type": "function", "function": {"name": name}} for name in names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}


@pytest.mark.parametrize(
    ("choice", "found", "names"),
    [
        (None, None, ["f", "g", "h"]),
        ("none", ToolChoice("none"), ["f", "g", "h"]),
        (FUNCTIONS[1], ToolChoice("required", "g"), ["f", "g", "h"]),
        (allowed("auto", "h", "f"), ToolChoice("auto"), ["f", "h"]),
        (allowed("required", "g"), ToolChoice("required"), ["g"]),
        (allowed("auto"), None, []),
    ],
)
def test_what_may_and_must_be_called(
    choice: Any, found: ToolChoice | None, names: list[str]
) -> None:
    assert offered(choice) == (found, names)


@pytest.mark.parametrize(
    ("choice", "param"),
    [
        ("any", "tool_choice"),
        ({"type": "custom", "custom": {"name": "f"}}, "tool_choice"),
        (allowed("none", "f"), "tool_choice"),
        (allowed("required"), "tool_choice.allowed_tools.tools"),
        (allowed("auto", "f", "x"), "tool_choice.allowed_tools.tools[1]"),
        (
            {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": "f"}},
            "tool_choice.allowed_tools.tools",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(choice: Any, param: str) -> None:
    with pytest.raises(APIError) as refused:
        offered(choice)
    assert (refused.value.status, refused.value.param) == (400, param)
