"""A recorded request as a conversation, whichever client API it came by."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from llama_compat.dialects.base import Operation
from llama_compat.dialects.openai.chat.requests import render_message, render_request
from llama_compat.errors import APIError
from llama_compat.types import ChatCompletionRequest
from llama_compat.wire.malformed import UNREADABLE
from routing.ingress.apis import CLIENT_APIS
from routing.observability.records.record import Record

_SAYS = ("content", "tool_calls", "reasoning_content", "refusal")


def as_chat(record: Record, body: bytes) -> dict[str, Any] | None:
    """What was asked, as OpenAI's chat completions have it; the model by the name asked for.

    Args:
        record: of the request.
        body: the request's, as it was kept.

    Returns:
        None where it is no conversation, or was cut off when it was kept.
    """
    operation = _operation_of(record)
    if operation is None or operation.kind not in ("chat", "completion"):
        return None
    try:
        fields = msgspec.json.decode(body)
        asked: Any = operation.parse(fields, record.model)
        request = asked.requests[0]
    except (APIError, *UNREADABLE):
        # It was good when it came; what is kept may be cut or covered.
        return None
    if not isinstance(request, ChatCompletionRequest):
        prompt = fields.get("prompt")
        if not isinstance(prompt, str):
            return None
        return {"model": record.model, "messages": [{"role": "user", "content": prompt}]}
    rendered = render_request(msgspec.structs.replace(request, model=record.model, stream=False))
    return dict(rendered)


def said(record: Record, body: bytes) -> dict[str, Any] | None:
    """The model's message in a reply, as OpenAI's chat completions have it.

    Args:
        record: of the request.
        body: the reply's, as it was kept.

    Returns:
        None where there is none, or it can't be read.
    """
    operation = _operation_of(record)
    if operation is None or operation.replies is None:
        return None
    try:
        found = operation.replies.said(body, bool(record.stream))
    except UNREADABLE:
        return None
    message = {} if found is None else dict(render_message(found.completion_message))
    # A stream of nothing that can be read is one in which nothing was said.
    return message if any(message.get(name) for name in _SAYS) else None


def _operation_of(record: Record) -> Operation | None:
    for each in _operations():
        if each.name == record.operation and each.dialect.name == record.api:
            return each
    return None


def _operations() -> Iterator[Operation]:
    for api in CLIENT_APIS:
        yield from api.operations.values()
        yield from (each.operation for each in api.patterns)
