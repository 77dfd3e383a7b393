"""Whole replies: what one has to have, so that an error or nonsense with status 200 is none.

One rule for every wire, relayed or translated; what it has to have is the wire's to say.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from msgspec import Raw

from llama_compat.errors import upstream_error
from llama_compat.wire.json_fields import JSONFields, parse_fields
from providers.remote.upstream.vendor_errors import (
    error_in_answer,
    is_error_in_other_words,
    no_json,
    says_error,
)

_NOTHING = (None, Raw(b"null"))

_ONE_EACH = frozenset({"candidates", "choices", "data", "embeddings"})
"""Lists with one item for each thing that was asked for. Others may be empty: what a model had
nothing to say in."""

_EMPTY_BYTES = 32
"""So long is an empty list at most, however much space somebody leaves in it."""


def reply_fields(
    provider: str, body: bytes, required: Collection[str], *, may_have_failed: bool = False
) -> JSONFields:
    """The members of a whole reply, checked as `check_reply` does.

    Raises:
        APIError: 502; it is no JSON object, or none that is a reply.
    """
    try:
        fields = parse_fields(body)
    except ValueError as error:
        raise no_json(provider, body, error) from None
    check_reply(provider, fields, body, required, may_have_failed=may_have_failed)
    return fields


def check_reply(
    provider: str,
    members: Mapping[str, Any],
    body: bytes,
    required: Collection[str],
    *,
    may_have_failed: bool = False,
) -> None:
    """See to it that a vendor's answer of status 200 is a reply.

    Args:
        provider: its id, for messages.
        members: of the object that the answer is, raw or decoded.
        body: the answer.
        required: a reply has at least one of these.
        may_have_failed: a reply may have an `error` beside them, in which it says how it ended.

    Raises:
        APIError: 502, or the status that an error in it names.
    """
    lacks_all = True
    for name in required:
        value = members.get(name)
        if value not in _NOTHING and not (name in _ONE_EACH and _is_empty(value)):
            lacks_all = False
            break
    error = members.get("error")
    if error is not None and says_error(error) and (lacks_all or not may_have_failed):
        raise error_in_answer(provider, body)
    if lacks_all:
        if is_error_in_other_words(members):
            raise error_in_answer(provider, body)
        names = " or ".join(f"'{name}'" for name in required)
        raise upstream_error(provider, f"answered with JSON that has no {names}.")


def _is_empty(value: Any) -> bool:
    """Whether a member, raw or decoded, is an empty list."""
    if not isinstance(value, Raw):
        return bool(value == [])
    return memoryview(value).nbytes <= _EMPTY_BYTES and not bytes(value).strip(b"[] \t\r\n")
