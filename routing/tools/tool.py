"""What a tool of the server's is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

from msgspec import Struct

from llama_compat.hosted.vocabulary import Source
from llama_compat.types import ToolDefinition


class ToolError(Exception):
    """A call failed, of which the model is told.

    Args:
        code: Anthropic's word for it, where it has one.
        message: what happened, for the model.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class Gave(Struct, frozen=True):
    """What a call gave.

    Attributes:
        text: for the model.
        sources: what was found.
        is_error: whether the tool says itself that it failed.
        images: what it shows, as `data:` URLs.
    """

    text: str
    sources: Sequence[Source] = ()
    is_error: bool = False
    images: Sequence[str] = ()


class ServerTool(Protocol):
    """One tool, for one reply."""

    @property
    def kind(self) -> Literal["web_search", "web_fetch", "file_search", "mcp"]:
        """What it is shown as."""
        ...

    @property
    def name(self) -> str:
        """Its own name."""
        ...

    @property
    def server(self) -> str:
        """The label of its MCP server, if it has one."""
        ...

    @property
    def definition(self) -> ToolDefinition:
        """What the model is shown, under the name by which the model calls it."""
        ...

    @property
    def asks(self) -> bool:
        """Whether the user has to let it run each time."""
        ...

    async def run(self, arguments: Mapping[str, Any]) -> Gave:
        """Do it.

        Raises:
            ToolError: it can't be done.
        """
        ...
