"""The tools of one call of a client API that a server runs, as the loop knows them: what there are,
how far a reply may go with them, and how one is run."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from msgspec import Struct

from llama_compat.hosted.parts import ReplyPart
from llama_compat.hosted.vocabulary import HostedCall
from llama_compat.types import AnyToolCall, ChatCompletionRequest, ToolDefinition, Usage


class Bounds(Struct, frozen=True):
    """How far one reply may go.

    Attributes:
        turns: how often the model is asked; the last time it may call no tool of the server's.
        parallel: calls side by side.
        seconds: for one call.
        result_bytes: what a call may give the model; the rest is cut off.
        tokens: of prompts and completions of all turns together, after which there is no other
            turn; None for any number.
    """

    turns: int = 10
    parallel: int = 4
    seconds: float = 30.0
    result_bytes: int = 64 * 1024
    tokens: int | None = None


class OpenTools(Protocol):
    """The server's tools while one reply is made."""

    @property
    def definitions(self) -> Sequence[ToolDefinition]:
        """What the model is shown."""
        ...

    @property
    def listed(self) -> Sequence[HostedCall]:
        """What the client is shown of where the tools come from."""
        ...

    def name_of(self, label: str, name: str) -> str | None:
        """What the model calls the tool `name` of the MCP server `label`; None where it is not
        among these."""
        ...

    def begun(self, call: AnyToolCall) -> HostedCall:
        """The call as it is shown before it runs; one that waits for the user's word is not run."""
        ...

    async def run(self, call: AnyToolCall) -> HostedCall:
        """Run a call; whatever goes wrong is what it gives, but for what the client is to blame
        for.

        Raises:
            APIError: that.
        """
        ...


class HostedToolbox(Protocol):
    """What the server runs for one call of a client API."""

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of tools that it runs, of those that the call asks for."""
        ...

    @property
    def known(self) -> frozenset[str]:
        """The kinds of tools that the server has."""
        ...

    @property
    def stays_here(self) -> bool:
        """Whether no vendor can run them, as what they need is here: vector stores, and MCP servers
        of the template."""
        ...

    @property
    def bounds(self) -> Bounds:
        """How far it goes."""
        ...

    @property
    def adapted(self) -> Sequence[str]:
        """What the models were told in another way of the tools that were opened, by name."""
        ...

    @property
    def parts(self) -> list[ReplyPart]:
        """What was done so far; the loop adds to it as it goes."""
        ...

    def affords(self, usage: Usage) -> bool:
        """Whether the model may be asked again after it has used so much."""
        ...

    def opened(self, request: ChatCompletionRequest) -> AbstractAsyncContextManager[OpenTools]:
        """The tools that `request` asks for, for one reply to it.

        Raises:
            APIError: 400, 403, it asks for what there is not, or what is not for it.
        """
        ...
