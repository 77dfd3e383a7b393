"""How the clients' APIs write a batch: the lines of its input, and those of its output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET, Raw, Struct

from llama_compat.dialects.anthropic_messages.operations import MESSAGES
from llama_compat.dialects.base import Operation
from llama_compat.dialects.openai.operations import CHAT, COMPLETIONS, EMBEDDINGS
from llama_compat.dialects.openai_responses.operations import RESPONSES
from llama_compat.wire.json_fields import parse_fields

MESSAGES_ENDPOINT = "/v1/messages"

OPERATIONS: Mapping[str, Operation] = {
    "/v1/chat/completions": CHAT,
    "/v1/completions": COMPLETIONS,
    "/v1/embeddings": EMBEDDINGS,
    "/v1/responses": RESPONSES,
    MESSAGES_ENDPOINT: MESSAGES,
}
"""What the lines of a batch may ask, by its endpoint."""

OPENAI_ENDPOINTS = tuple(each for each in OPERATIONS if each != MESSAGES_ENDPOINT)

MAX_CUSTOM_ID = 512
"""Characters of a custom_id."""


class LineProblem(Exception):
    """A line is not one of a batch; the message says why, for people."""

    def __init__(self, code: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.param = param

    def shown(self, line: int | None) -> dict[str, Any]:
        """As OpenAI's `errors` has it."""
        return {"code": self.code, "message": self.message, "param": self.param, "line": line}


class Line(NamedTuple):
    """One line of a batch's input.

    Attributes:
        custom_id: the client's name for it.
        body: what is asked: a JSON object.
    """

    custom_id: str
    body: bytes


class LineOutcome(Struct, frozen=True):
    """What became of one line.

    Attributes:
        status: HTTP status; 0 where there was no answer.
        request_id: of the request that it was; empty where there was none.
        body: of the answer.
        code, message: why there was none.
        cost: in billionths of a dollar; None where nobody knows.
    """

    status: int = 0
    request_id: str = ""
    body: bytes = b""
    code: str = ""
    message: str = ""
    cost: int | None = 0

    @property
    def is_good(self) -> bool:
        """Whether the line was answered."""
        return 200 <= self.status < 300


CANCELLED = LineOutcome(
    code="batch_cancelled", message="The batch was cancelled before this line was answered."
)
EXPIRED = LineOutcome(
    code="batch_expired",
    message="This request could not be executed before the completion window expired.",
)
KEY_GONE = LineOutcome(
    code="batch_key_gone",
    message="The key of this batch opens nothing any more: it was revoked, or has expired.",
)
UNKNOWN_OUTCOME = LineOutcome(
    code="unknown_outcome",
    message="The server's process ended while this line was on its way. Whether it was answered,"
    " and paid for, is not known, so it was not asked again.",
    cost=None,
)


class _Head(Struct):
    custom_id: Any = UNSET
    method: Any = UNSET
    url: Any = UNSET
    body: Raw = Raw()
    params: Raw = Raw()


_heads = msgspec.json.Decoder(_Head)


def read_line(line: bytes, endpoint: str) -> Line:
    """A line of an input.

    Args:
        line: without its end.
        endpoint: of the batch.

    Raises:
        LineProblem: it is none of such a batch.
    """
    head = _head(line)
    custom_id = head.custom_id
    if custom_id is UNSET:
        raise LineProblem(
            "missing_required_parameter", "Missing required parameter: 'custom_id'.", "custom_id"
        )
    if not isinstance(custom_id, str) or not 0 < len(custom_id) <= MAX_CUSTOM_ID:
        raise LineProblem(
            "invalid_custom_id",
            f"'custom_id' has to be a text of 1 to {MAX_CUSTOM_ID} characters.",
            "custom_id",
        )
    is_messages = endpoint == MESSAGES_ENDPOINT
    if not is_messages:
        if head.method != "POST":
            raise LineProblem("invalid_method", "'method' has to be 'POST'.", "method")
        if head.url != endpoint:
            raise LineProblem(
                "mismatched_url", f"'url' has to be that of the batch, '{endpoint}'.", "url"
            )
    name = "params" if is_messages else "body"
    body = bytes(head.params if is_messages else head.body)
    if not body:
        raise LineProblem(
            "missing_required_parameter", f"Missing required parameter: '{name}'.", name
        )
    if not body.startswith(b"{"):
        raise LineProblem("invalid_type", f"'{name}' has to be an object.", name)
    return Line(custom_id, body)


def _head(line: bytes) -> _Head:
    try:
        return _heads.decode(line)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        pass
    try:
        fields = parse_fields(line)  # which reads what msgspec does not, and says what is wrong
    except ValueError as error:
        raise LineProblem(
            "invalid_json_line", f"This line is not a JSON object: {error}."
        ) from None
    named = {name: fields[name] for name in _Head.__struct_fields__ if name in fields}
    head = _Head()
    for name, raw in named.items():
        setattr(head, name, raw if name in ("body", "params") else _plain(raw))
    return head


def _plain(raw: Raw) -> Any:
    try:
        return msgspec.json.decode(raw)
    except msgspec.MsgspecError:
        return None


class _Model(Struct):
    model: Any = ""


_models = msgspec.json.Decoder(_Model)


def model_of(body: bytes) -> str:
    """The model that a line asks for; empty where it names none."""
    try:
        model = _models.decode(body).model
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return ""
    return model if isinstance(model, str) else ""


def render_result(
    endpoint: str, batch_id: str, number: int, custom_id: str, told: LineOutcome
) -> bytes:
    """The line of the output, or of the file of errors.

    Args:
        endpoint: of the batch.
        batch_id: its id.
        number: of the line in the input, from 1.
        custom_id: the client's name for the line.
        told: what became of it.
    """
    if endpoint == MESSAGES_ENDPOINT:
        return _messages_result(custom_id, told)
    response: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    if told.status:
        response = {
            "status_code": told.status,
            "request_id": told.request_id,
            "body": Raw(told.body.strip()),
        }
    else:
        error = {"code": told.code, "message": told.message}
    result: dict[str, Any] = {
        "id": f"batch_req_{batch_id.rpartition('_')[2]}_{number}",
        "custom_id": custom_id,
        "response": response,
        "error": error,
    }
    if not told.is_good:
        result["line"] = number
    return msgspec.json.encode(result).replace(b"\n", b" ")


_MESSAGES_TYPES = {CANCELLED.code: "canceled", EXPIRED.code: "expired"}


def _messages_result(custom_id: str, told: LineOutcome) -> bytes:
    result: dict[str, Any]
    if told.is_good:
        result = {"type": "succeeded", "message": Raw(told.body.strip())}
    elif told.status:
        result = {"type": "errored", "error": Raw(told.body.strip())}
    elif told.code in _MESSAGES_TYPES:
        result = {"type": _MESSAGES_TYPES[told.code]}
    else:
        error = {"type": "api_error", "message": f"{told.code}: {told.message}"}
        result = {"type": "errored", "error": {"type": "error", "error": error}}
    encoded = msgspec.json.encode({"custom_id": custom_id, "result": result})
    return encoded.replace(b"\n", b" ")
