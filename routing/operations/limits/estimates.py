"""How many tokens a request may come to, before anybody has counted them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from msgspec import Raw

from llama_compat.exchange import Call
from llama_compat.wire.json_fields import from_raw

BYTES_PER_TOKEN = 4
"""Of English text, with the JSON around it."""

COMPLETION_TOKENS = 512
"""Of a completion whose request leaves open how long it may be."""

FILE_TOKENS = 1000
"""Of an image, or of another file that is sent in base64."""

_SHORTEST_FILE = 1024

_FILE = re.compile(rb"[A-Za-z0-9+/=_-]{1024,}")


class Estimate(NamedTuple):
    """What a request may come to.

    Attributes:
        prompt_tokens, completion_tokens: so many.
        is_guess: whether the request leaves open how long its completion may be.
    """

    prompt_tokens: int
    completion_tokens: int = 0
    is_guess: bool = True


def estimate(call: Call) -> Estimate:
    """What `call` may come to."""
    if call.operation.kind == "token_count":
        return Estimate(0)
    prompt = prompt_tokens(call.fields)
    if call.operation.kind == "embedding":
        return Estimate(prompt)
    choices = _choices(call.fields)
    if call.max_tokens is None:
        return Estimate(prompt, choices * COMPLETION_TOKENS)
    return Estimate(prompt, choices * call.max_tokens, is_guess=False)


def prompt_tokens(fields: Mapping[str, Raw]) -> int:
    """An estimate of what is in a request, from its size."""
    total = 0
    for value in fields.values():
        view = memoryview(value)
        size = len(view)
        if size > _SHORTEST_FILE:
            for file in _FILE.finditer(view):
                size -= file.end() - file.start() - FILE_TOKENS * BYTES_PER_TOKEN
        total += size
    return total // BYTES_PER_TOKEN + 1


def _choices(fields: Mapping[str, Raw]) -> int:
    """How many completions are asked for."""
    n = from_raw(fields["n"]) if "n" in fields else None
    return n if isinstance(n, int) and n > 0 else 1
