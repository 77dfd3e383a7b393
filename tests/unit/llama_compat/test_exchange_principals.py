"""Which tools a key's patterns could let it have run."""

from __future__ import annotations

import pytest

from llama_compat.exchange import Principal


@pytest.mark.parametrize(
    ("patterns", "may"),
    [
        (None, True),
        ((), False),
        (("web_search",), False),
        (("*",), True),
        (("mcp*",), True),
        (("mcp.docs.*",), True),
        (("mcp.docs.add",), True),
        (("mcp.d?cs.add",), True),
        (("mcp.docs",), False),
        (("mcp.docs2.*",), False),
        (("mcp.other.*", "web_*"), False),
        (("mcp.[do]*",), True),
    ],
)
def test_whether_any_tool_of_a_server_may_be_called(
    patterns: tuple[str, ...] | None, may: bool
) -> None:
    assert Principal("someone", tools=patterns).may_call_below("mcp.docs.") is may
