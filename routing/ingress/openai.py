"""`POST` completions, chat completions and embeddings: parse, check, dispatch, answer.

These are plain ASGI, beside FastAPI's routing rather than in it: a relayed request spends most of
its time in whatever stands between the socket and the provider.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from llama_compat.dialects.openai.parameters import (
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
from llama_compat.wire.json_fields import JSONFields, from_raw, parse_fields
from providers.base import Provider
from routing.asgi import Receive, Scope, Send
from routing.ingress.answer import Answer
from routing.ingress.disconnect import ClientGone, ClientWatch
from routing.models import ModelTable

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Operation:
    """One OpenAI call: what its request has to have, and which provider method answers it.

    Attributes:
        required: the field without which there is nothing to do.
        expected: what that field has to be: what JSON begins with, and for messages.
        checks: of other fields.
        call: has a provider answer.
    """

    required: str
    expected: tuple[str, str]
    checks: Mapping[str, Check]
    call: Callable[[Provider, OpenAIRequest], Awaitable[OpenAIReply]]


OPERATIONS: dict[str, Operation] = {
    "/chat/completions": Operation(
        "messages",
        ("[", "an array of messages"),
        CHAT_CHECKS,
        lambda provider, request: provider.openai_chat_completion(request),
    ),
    "/completions": Operation(
        "prompt",
        ('["', "a string or an array"),
        COMPLETION_CHECKS,
        lambda provider, request: provider.openai_completion(request),
    ),
    "/embeddings": Operation(
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


def _parse_body(body: bytes) -> JSONFields:
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
