"""How many tokens a request may come to, before anybody has counted them."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Raw

from llama_compat.exchange import Call
from llama_compat.types import Usage
from llama_compat.wire.json_fields import from_raw
from routing.operations.records.estimate import prompt_tokens

COMPLETION_TOKENS = 512
"""Of a completion whose request leaves open how long it may be."""


def expected_usage(call: Call) -> Usage:
    """What `call` may come to: as many tokens as it lets be generated, if it says how many."""
    if call.operation.kind == "token_count":
        return Usage()
    prompt = prompt_tokens(call.fields)
    if call.operation.kind == "embedding":
        return Usage(prompt)
    longest = COMPLETION_TOKENS if call.max_tokens is None else call.max_tokens
    return Usage(prompt, choices(call.fields) * longest)


def choices(fields: Mapping[str, Raw]) -> int:
    """How many completions a request asks for."""
    n = from_raw(fields["n"]) if "n" in fields else None
    return n if isinstance(n, int) and n > 0 else 1
