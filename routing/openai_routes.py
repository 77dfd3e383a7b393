"""`POST` completions, chat completions and embeddings: parse, check, dispatch, answer.

These are plain ASGI, beside FastAPI's routing rather than in it: a relayed request spends most of
its time in whatever stands between the socket and the provider.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from llama_compat import sse
from llama_compat.dialects.openai_parameters import (
    CHAT_CHECKS,
    COMPLETION_CHECKS,
    EMBEDDING_CHECKS,
    Check,
    check_parameters,
)
from llama_compat.errors import (
    APIError,
    context_length_exceeded,
    internal_error,
    invalid_parameter,
    missing_parameter,
    request_too_large,
    shutting_down,
)
from llama_compat.exchange import OpenAIReply, OpenAIRequest
from llama_compat.json_fields import JSONFields, from_raw, parse_fields
from providers.base import Provider
from routing.dispatch import ClientGone, ClientWatch, Receive
from routing.models import ModelTable

Scope = Mapping[str, Any]
Send = Callable[[dict[str, Any]], Awaitable[None]]

log = logging.getLogger(__name__)

_PRINTABLE = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) != "%")

MAX_LOGGED = 1000
"""Of what is said of a request, so many characters are in the log."""

STREAM_HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
    "x-accel-buffering": "no",
}


@dataclass(frozen=True, slots=True)
class Operation:
    """One OpenAI call: what its request has to have, and which provider method answers it.

    Attributes:
        name: for messages.
        required: the field without which there is nothing to do.
        expected: what that field has to be: what JSON begins with, and for messages.
        checks: of other fields.
        call: has a provider answer.
    """

    name: str
    required: str
    expected: tuple[str, str]
    checks: Mapping[str, Check]
    call: Callable[[Provider, OpenAIRequest], Awaitable[OpenAIReply]]


OPERATIONS: dict[str, Operation] = {
    "/chat/completions": Operation(
        "chat completion",
        "messages",
        ("[", "an array of messages"),
        CHAT_CHECKS,
        lambda provider, request: provider.openai_chat_completion(request),
    ),
    "/completions": Operation(
        "completion",
        "prompt",
        ('["', "a string or an array"),
        COMPLETION_CHECKS,
        lambda provider, request: provider.openai_completion(request),
    ),
    "/embeddings": Operation(
        "embedding",
        "input",
        ('["', "a string or an array"),
        EMBEDDING_CHECKS,
        lambda provider, request: provider.openai_embeddings(request),
    ),
}


class OpenAIEndpoint:
    """The ASGI endpoint of one operation.

    Args:
        operation: which one.
        models: what there is to dispatch to.
        max_body_bytes: larger requests are refused with 413.
    """

    def __init__(self, operation: Operation, models: ModelTable, max_body_bytes: int) -> None:
        self._operation = operation
        self._models = models
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; whatever goes wrong is answered too, in OpenAI's shape."""
        answer = Answer(send, scope)
        try:
            body = await read_body(scope, receive, self._max_body_bytes)
            async with ClientWatch(receive):
                await self._answer(body, answer)
        except ClientGone:
            answer.outcome = "client disconnected"
        except APIError as error:
            await answer.error(error)
        except asyncio.CancelledError:
            # Not the client's doing: the server stops and the time for running requests is over.
            await answer.error(shutting_down())
        except Exception:
            log.exception("request %s failed", answer.request_id)
            await answer.error(internal_error())
        answer.log()

    async def _answer(self, body: bytes, answer: Answer) -> None:
        operation = self._operation
        fields = _parse_body(body)
        parameters = check_parameters(fields, operation.checks)
        model = _required_model(fields)
        answer.model = model
        route = await self._models.resolve(model)
        _check_required(fields, operation)
        _check_context(parameters, route.context_length)
        request = OpenAIRequest(
            model=model,
            provider_model=route.provider_model,
            fields=fields,
            stream=parameters.get("stream", False),
            request_id=answer.request_id,
            context_length=route.context_length,
        )
        reply = await operation.call(route.provider, request)
        try:
            await answer.reply(reply, request.dropped)
        finally:
            await reply.aclose()


def _parse_body(body: bytes) -> Any:
    try:
        return parse_fields(body)
    except ValueError as error:
        raise APIError(
            400,
            f"The request body must be a JSON object: {error}.",
            code="invalid_json",
        ) from None


def _required_model(fields: Mapping[str, Any]) -> str:
    if "model" not in fields:
        raise missing_parameter("model")
    model = from_raw(fields["model"])
    if not isinstance(model, str) or not model:
        raise invalid_parameter("model", "'model' must be a string.", "invalid_type")
    return model


def _check_required(fields: JSONFields, operation: Operation) -> None:
    # Not decoded, as it may be all of a large request: a look at how it begins is enough here, and
    # the provider sees to what is inside.
    name, (begins, expected) = operation.required, operation.expected
    begin = bytes(memoryview(fields[name])[:8]).decode("latin-1") if name in fields else "null"
    if begin == "null":
        raise missing_parameter(name)
    if begin[0] not in begins:
        raise invalid_parameter(
            name, f"Invalid type for '{name}': expected {expected}.", "invalid_type"
        )
    if begin[0] == "[" and begin[1:].lstrip().startswith("]"):
        raise invalid_parameter(name, f"Invalid '{name}': the array is empty.", "empty_array")


def _check_context(parameters: Mapping[str, Any], context_length: int | None) -> None:
    # Only the provider can count the prompt; but what is wanted alone may be too much already.
    wanted = parameters.get("max_completion_tokens", parameters.get("max_tokens", 0))
    if context_length is not None and wanted > context_length:
        raise context_length_exceeded(context_length, 0, wanted)


async def read_body(scope: Scope, receive: Receive, limit: int) -> bytes:
    """The whole body of a request.

    Raises:
        APIError: 413 as soon as it is known to be over `limit` bytes.
        ClientGone: the client left before it had sent everything.
    """
    for name, value in scope["headers"]:
        if name == b"content-length" and int(value) > limit:
            raise request_too_large(limit)
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        part = message.get("body", b"")
        size += len(part)
        if size > limit:
            raise request_too_large(limit)
        parts.append(part)
        if not message.get("more_body"):
            return parts[0] if len(parts) == 1 else b"".join(parts)


_SANE_REQUEST_ID = re.compile(rb"[\x21-\x7e]{1,128}")


def sent_request_id(scope: Scope) -> str | None:
    """The client's `x-request-id` if it is short printable ASCII."""
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _SANE_REQUEST_ID.fullmatch(value):
            return bytes(value).decode()
    return None


def new_request_id() -> str:
    """For a client that names its request not."""
    return f"req_{os.urandom(12).hex()}"


class Answer:
    """The answer to one request: what has been sent of it, and the line about it in the log."""

    def __init__(self, send: Send, scope: Scope) -> None:
        self._send = send
        self._path = scope["path"]
        self._begun = time.perf_counter()
        self._streaming = False
        self._status = 0
        self._sent_id = sent_request_id(scope)
        self.request_id = self._sent_id or new_request_id()
        self.model = "-"
        self.outcome = ""

    async def reply(self, reply: OpenAIReply, dropped: list[str]) -> None:
        """Send a provider's reply; a stream event by event, as they come."""
        headers = {**reply.headers}
        if dropped:
            # The names are the client's: what a header can't hold is percent-encoded.
            names = (quote(name, safe=_PRINTABLE, errors="replace") for name in dropped)
            headers["x-llama-compat-dropped"] = ", ".join(names)
        if isinstance(reply.body, bytes):
            await self._start(reply.status, {**headers, "content-length": str(len(reply.body))})
            await self._body(reply.body, more=False)
            return
        await self._start(reply.status, {**headers, **STREAM_HEADERS})
        self._streaming = True
        if reply.first:
            await self._body(reply.first)
        async for events in reply.body:
            await self._body(events)
        await self._body(sse.DONE, more=False)

    async def error(self, error: APIError) -> None:
        """Send `error`: as a response of its own, or as a stream's last event."""
        self.outcome = error.message
        if self._streaming:
            await self._body(sse.encode_data(error.json()) + sse.DONE, more=False)
        elif not self._status:
            body = error.json()
            headers = {**error.headers, "content-type": "application/json"}
            headers["content-length"] = str(len(body))
            vendors_id = error.headers.get("x-upstream-request-id")
            if vendors_id is not None and self._sent_id is None:
                # A client that has no name of its own for the request asks the vendor by this one.
                self.outcome += f" (the vendor's request {vendors_id})"
                headers["x-request-id"] = vendors_id
            await self._start(error.status, headers)
            await self._body(body, more=False)

    async def _start(self, status: int, headers: Mapping[str, str]) -> None:
        self._status = status
        raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        if "x-request-id" not in headers:
            raw.append((b"x-request-id", self.request_id.encode()))
        await self._send({"type": "http.response.start", "status": status, "headers": raw})

    async def _body(self, body: bytes, *, more: bool = True) -> None:
        await self._send({"type": "http.response.body", "body": body, "more_body": more})

    def log(self) -> None:
        """One line about the request."""
        level = logging.WARNING if self.outcome else logging.INFO
        if log.isEnabledFor(level):
            milliseconds = (time.perf_counter() - self._begun) * 1000
            log.log(
                level,
                "%s POST %s model=%s status=%s %.0f ms%s",
                self.request_id,
                self._path,
                _one_line(self.model),
                self._status or "-",
                milliseconds,
                f": {_one_line(self.outcome)}" if self.outcome else "",
            )


def _one_line(text: str) -> str:
    """`text`, which may be anybody's, without what would forge lines of the log or fill it."""
    text = text[:MAX_LOGGED]
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else ascii(character)[1:-1] for character in text
    )
