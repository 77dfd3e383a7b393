"""The line of the log about a request, as text for people and as JSON for machines.

JSON is one object a line, with the same fields.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any, Literal
from urllib.parse import quote

import msgspec
from msgspec import Struct, structs

LogFormat = Literal["text", "json"]

LOG_FORMAT = "LLAMA_COMPAT_LOG_FORMAT"
"""The variable that tells workers which it is."""


class RequestLine(Struct, frozen=True):
    """What is logged of a request.

    Attributes:
        request_id: its `x-request-id`.
        path: what was asked for.
        model: by which name; on one line, as all text here.
        status: HTTP status; 0 where there was none.
        milliseconds: how long it took.
        input_tokens, output_tokens: where they are logged.
        via: the targets that were asked, where there were several.
        outcome: what went wrong; empty where nothing did.
    """

    request_id: str
    path: str
    model: str
    status: int
    milliseconds: float
    input_tokens: int | None = None
    output_tokens: int | None = None
    via: str = ""
    outcome: str = ""

    def __str__(self) -> str:
        tokens = ""
        if self.input_tokens is not None:
            tokens = f" tokens={self.input_tokens}+{self.output_tokens}"
        via = f" via {self.via}" if self.via else ""
        outcome = f": {self.outcome}" if self.outcome else ""
        return (
            f"{self.request_id} POST {self.path} model={self.model} status={self.status or '-'}"
            f" {self.milliseconds:.0f} ms{tokens}{via}{outcome}"
        )

    def linked(self, page: str) -> str:
        """The same for a terminal, in which the id leads to the request's own page.

        Args:
            page: where the server's page is, as in `http://127.0.0.1:8321/`.
        """
        # https://gist.github.com/egmontkob/eb114294efbcd5adb1944c9f3cb5feda (OSC 8)
        address = f"{page}#/requests/{quote(self.request_id, safe='')}"
        link = f"\x1b]8;;{address}\x1b\\{self.request_id}\x1b]8;;\x1b\\"
        return link + str(self).removeprefix(self.request_id)

    def fields(self) -> dict[str, Any]:
        """What there is of it, by name."""
        members = structs.asdict(self)
        return {name: value for name, value in members.items() if value not in ("", None)}


class JSONFormatter(logging.Formatter):
    """One JSON object a line: `time`, `level`, `logger`, `message`, and the fields of a request."""

    def format(self, record: logging.LogRecord) -> str:
        """The line of `record`."""
        members: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        if isinstance(record.msg, RequestLine):
            members |= {"message": "request", **record.msg.fields()}
        else:
            members["message"] = record.getMessage()
        if record.exc_info:
            members["exception"] = self.formatException(record.exc_info)
        try:
            return msgspec.json.encode(members).decode()
        except UnicodeEncodeError:  # half a character
            return json.dumps(members)
