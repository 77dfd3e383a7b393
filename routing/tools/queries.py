"""What models ask of tools that search, and how often they may."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from routing.tools.tool import ToolError

QUERY_PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {"query": {"type": "string", "description": "What to look for."}},
    "required": ["query"],
    "additionalProperties": False,
}
"""The JSON schema of a tool that takes a query."""


class Searches:
    """The searches of one reply.

    Args:
        most: so many may be made.
        longest: so many characters a query may have.
    """

    def __init__(self, most: int, longest: int) -> None:
        self._left = most
        self._longest = longest

    def begin(self, arguments: Mapping[str, Any]) -> str:
        """The query of one more search, which counts from now on.

        Raises:
            ToolError: it is none, or as many were made as may be.
        """
        query = arguments.get("query")
        if not isinstance(query, str) or not query.strip():
            raise ToolError("invalid_tool_input", "'query' must be a text.")
        if len(query) > self._longest:
            raise ToolError(
                "query_too_long", f"The query is longer than {self._longest} characters."
            )
        if self._left <= 0:
            raise ToolError("max_uses_exceeded", "No more searches may be made. Answer now.")
        self._left -= 1
        return query
