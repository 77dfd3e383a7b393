"""A vendor's whole OpenAI replies: checked, mended, otherwise as they came; and what is none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Raw

from llama_compat.dialects.openai.repair import ReplyKind, mend_completion, mend_embeddings
from llama_compat.wire.json_fields import JSONFields
from providers.remote.relaying.whole_replies import reply_fields
from providers.remote.upstream.vendor_errors import makes_no_sense, says_error

_ERROR_OBJECTS = ("error", Raw(b'"error"'))


def is_error_chunk(members: Mapping[str, Any]) -> bool:
    """Whether an event's members, raw or decoded, are an error's: OpenAI's shape, or those of vLLM
    and FastAPI."""
    if says_error(members.get("error")):
        return True
    if "choices" in members:
        return False
    return members.get("object") in _ERROR_OBJECTS or "detail" in members


def completion_fields(provider: str, body: bytes, kind: ReplyKind, model: Raw) -> JSONFields:
    """The members of a whole chat or text completion, naming `model` (JSON).

    Raises:
        APIError: 502, it is none.
    """
    fields = reply_fields(provider, body, ["choices"])
    try:
        mend_completion(fields, kind, model)
    except ValueError as error:
        raise makes_no_sense(provider, error) from None
    return fields


def embedding_fields(provider: str, body: bytes, model: Raw, *, as_base64: bool) -> JSONFields:
    """The members of a reply with embeddings, naming `model` (JSON).

    Args:
        provider: its id, for messages.
        body: the reply.
        model: what it is to name.
        as_base64: whether the client asked for base64 rather than numbers.

    Raises:
        APIError: 502, there are none.
    """
    fields = reply_fields(provider, body, ["data"])
    try:
        mend_embeddings(fields, model, as_base64=as_base64)
    except ValueError as error:
        raise makes_no_sense(provider, error) from None
    return fields
