"""What a reply is made of in which the server runs tools: the model's turns, and calls of tools."""

from __future__ import annotations

import time
from typing import Literal

from msgspec import Struct

from llama_compat.types import Usage

PartKind = Literal["turn", "tool"]


class ReplyPart(Struct):
    """One turn, or one call; begun as it is made.

    Attributes:
        kind: which of both.
        name: of the tool, as the model calls it; empty for a turn.
        tool: what kind of tool it is, such as `web_search` or `mcp`.
        begun, ended: on the clock of `time.monotonic`; `ended` is 0 for what was broken off.
        error: what went wrong in a word, such as `unavailable`; empty where nothing did. Never what
            a tool was given or gave.
        usage: of a turn, once it has ended.
    """

    kind: PartKind
    name: str = ""
    tool: str = ""
    begun: float = 0.0
    ended: float = 0.0
    error: str = ""
    usage: Usage | None = None

    def __post_init__(self) -> None:
        self.begun = self.begun or time.monotonic()

    def end(self, error: str = "", usage: Usage | None = None) -> None:
        """It has ended, with this error or with none."""
        self.ended, self.error, self.usage = time.monotonic(), error, usage
