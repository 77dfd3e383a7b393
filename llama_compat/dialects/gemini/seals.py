"""`thoughtSignature`: Gemini's own seals as they are, those of other families in a wrapper.

A client that talks to another family's model through this API gives its seals back so, and only
that family gets them.
"""

from __future__ import annotations

import base64
import binascii

from llama_compat.types import ReasoningContent, ReasoningDelta

FAMILY = "gemini"

ANY_SIGNATURE = "skip_thought_signature_validator"
"""The signature of calls that the model did not make, or whose own was lost on the way:
https://ai.google.dev/gemini-api/docs/thought-signatures"""

_WRAPPER = b"llama_compat"

WRAPPED = base64.b64encode(_WRAPPER)
"""What is in every request with a seal in a wrapper."""


def render_seal(thought: ReasoningContent | ReasoningDelta) -> str | None:
    """The `thoughtSignature` of a thought; None if it is not sealed."""
    if thought.signature is None or thought.sealed_by == FAMILY:
        return thought.signature
    redacted = b"redacted" if thought.redacted else b""
    parts = (_WRAPPER, thought.sealed_by.encode(), redacted, thought.signature.encode())
    return base64.b64encode(b"\0".join(parts)).decode()


def parse_seal(text: str, signature: str | None) -> ReasoningContent:
    """The thought `text` with its `thoughtSignature`."""
    if signature is None:
        return ReasoningContent(text)
    try:
        wrapper, family, redacted, seal = base64.b64decode(signature, b"-_").split(b"\0", 3)
        if wrapper == _WRAPPER:
            return ReasoningContent(text, seal.decode(), family.decode(), bool(redacted))
    except (binascii.Error, ValueError):
        pass
    return ReasoningContent(text, signature, FAMILY)
