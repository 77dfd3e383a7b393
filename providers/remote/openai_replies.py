"""A vendor's whole OpenAI replies: checked, mended, otherwise as they came."""

from __future__ import annotations

from msgspec import Raw

from llama_compat.dialects.openai.mending import ReplyKind, mend_completion, mend_embeddings
from llama_compat.errors import upstream_error
from llama_compat.wire.json_fields import JSONFields, parse_fields
from providers.remote.upstream_errors import (
    NO_ERROR,
    error_in_answer,
    is_error_in_other_words,
    makes_no_sense,
    no_json,
)


def completion_fields(provider: str, body: bytes, kind: ReplyKind, model: Raw) -> JSONFields:
    """The members of a whole chat or text completion, naming `model` (JSON).

    Raises:
        APIError: 502, it is none.
    """
    fields = object_fields(provider, body, "choices")
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
    fields = object_fields(provider, body, "data")
    try:
        mend_embeddings(fields, model, as_base64=as_base64)
    except ValueError as error:
        raise makes_no_sense(provider, error) from None
    return fields


def object_fields(provider: str, body: bytes, required: str) -> JSONFields:
    """The members of a whole reply, which has `required`.

    Raises:
        APIError: 502; it is no such reply, or an error in spite of its status.
    """
    try:
        fields = parse_fields(body)
    except ValueError as error:
        raise no_json(provider, body, error) from None
    if fields.get("error") not in NO_ERROR:
        raise error_in_answer(provider, body)
    if required not in fields:
        if is_error_in_other_words(fields):
            raise error_in_answer(provider, body)
        raise upstream_error(provider, f"answered with JSON that has no '{required}'.")
    return fields
