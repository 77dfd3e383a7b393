"""Tools of a Messages request that its model is to be shown later: those with `defer_loading`.

A client that searches among its tools itself, as Claude Code does, says what was found by a
`tool_reference` in the result of its search; from there on the model has that tool. No other
vendor knows either word, so its models are given the tools that are named, and read the names.

Source: https://platform.claude.com/docs/en/agents-and-tools/tool-use/tool-search-tool, under
"Custom tool search implementation" (2026-11-28).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from llama_compat.dialects.members import objects_among, text_in

REFERENCE = "tool_reference"

_HOSTED_SEARCH = "tool_search_tool_"
"""How the types of Anthropic's own searches among tools begin."""


def reference_text(block: Mapping[str, Any], path: str) -> str:
    """What a model reads in the place of a reference.

    Raises:
        APIError: 400, it names no tool.
    """
    return f"Found the tool {text_in(block, 'tool_name', path)}."


def withheld_tools(body: Mapping[str, Any]) -> Collection[str]:
    """The names of the tools that the model of a request does not have yet.

    Where Anthropic's own search is to find them there are none: nobody else runs it, and a tool
    that can't be found could never be called.
    """
    tools = list(objects_among(body.get("tools")))
    deferred = {str(tool.get("name")) for tool in tools if tool.get("defer_loading") is True}
    if not deferred or any(str(tool.get("type")).startswith(_HOSTED_SEARCH) for tool in tools):
        return ()
    choice = body.get("tool_choice")
    chosen = choice.get("name") if isinstance(choice, dict) else None
    return deferred - {str(chosen), *_found(body.get("messages"))}


def _found(messages: Any) -> Iterator[str]:
    for message in objects_among(messages):
        for result in objects_among(message.get("content")):
            if result.get("type") == "tool_result":
                for block in objects_among(result.get("content")):
                    if block.get("type") == REFERENCE:
                        yield str(block.get("tool_name"))
