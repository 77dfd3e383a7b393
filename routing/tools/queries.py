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


class Uses:
    """How often tools of one kind may be used in a reply, however many a request names.

    Args:
        most: that.
    """

    def __init__(self, most: int) -> None:
        self._left = most

    def within(self, most: int | None) -> TheseUses:
        """Those of one tool, of which the request may want no more than `most`."""
        return TheseUses(self, self._left if most is None else most)

    def take(self) -> bool:
        """Use one more; False where none is left."""
        if self._left <= 0:
            return False
        self._left -= 1
        return True


class TheseUses:
    """Those of one tool, for `Uses.within`.

    Args:
        uses: of all tools of its kind.
        most: of it.
    """

    def __init__(self, uses: Uses, most: int) -> None:
        self._uses = uses
        self._left = most

    def take(self, message: str) -> None:
        """Use one more.

        Raises:
            ToolError: none is left, for which the model is told `message`.
        """
        if self._left <= 0 or not self._uses.take():
            raise ToolError("max_uses_exceeded", message)
        self._left -= 1


class Searches:
    """The searches of one tool, in one reply.

    Args:
        uses: so many may be made.
        longest: so many characters a query may have.
    """

    def __init__(self, uses: TheseUses, longest: int) -> None:
        self._uses = uses
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
        self._uses.take("No more searches may be made. Answer now.")
        return query
