"""What this server hides in `encrypted_content`, so that it comes back with the next request.

It is no secret, only opaque: the client has the same text in clear. What another server put there
can't be read here, and is left out.
"""

from __future__ import annotations

import base64
import binascii

import msgspec
from msgspec import Struct

from llama_compat.types import ReasoningContent
from llama_compat.wire.json_fields import encode_json

PREFIX = "llama-compat.1."
"""What begins so is this server's own."""


class CallSeal(Struct, frozen=True, tag="call_seal"):
    """The sealed reasoning that a vendor wants back with the call `call_id`, for which OpenAI's
    items have no place."""

    call_id: str
    thought_signature: str


class Summary(Struct, frozen=True, tag="summary"):
    """What a conversation came to that was compacted."""

    text: str


Sealed = ReasoningContent | CallSeal | Summary

_decoder = msgspec.json.Decoder(Sealed)


def seal(content: Sealed) -> str:
    """`content` as `encrypted_content`."""
    return PREFIX + base64.urlsafe_b64encode(encode_json(content)).decode()


def unseal(text: str) -> Sealed | None:
    """What `seal` made `text` of; None if it did not."""
    if not text.startswith(PREFIX):
        return None
    try:
        content: Sealed = _decoder.decode(base64.urlsafe_b64decode(text.removeprefix(PREFIX)))
        return content
    except (binascii.Error, ValueError):
        return None
