"""`POST /responses/input_tokens`: how many tokens a request has as a prompt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from llama_compat.dialects.base import UNKNOWN
from llama_compat.dialects.openai_responses.input.items import unsupported_items
from llama_compat.dialects.openai_responses.input.requests import (
    check_shapes,
    parse_request,
)
from llama_compat.dialects.openai_responses.input.tools import unsupported_tools
from llama_compat.dialects.openai_responses.keeping import Keeping
from llama_compat.errors import unsupported_capability
from llama_compat.types import ChatCompletionRequest
from llama_compat.wire.json_fields import encode_json

_UNCOUNTED = frozenset({"personality", "truncation"})
"""What would make the prompt another one, and nobody here knows."""


class InputTokensCall(Struct, frozen=True):
    """One request as it came: the conversation whose tokens are counted."""

    request: ChatCompletionRequest

    def render_reply(self, tokens: int) -> bytes:
        """The `response.input_tokens` object."""
        return encode_json({"object": "response.input_tokens", "input_tokens": tokens})


def parse_count(
    body: Mapping[str, Any], model: str, *, keeping: Keeping | None = None
) -> InputTokensCall:
    """The request `body` for the provider's `model`.

    Raises:
        APIError: 400 naming what is malformed, or can't be counted.
    """
    check_shapes(body)
    for path in parameters(body):
        raise unsupported_capability(model, f"counting the tokens of '{path}'")
    return InputTokensCall(parse_request(body, model, keeping=keeping).request)


def parameters(body: Mapping[str, Any]) -> Mapping[str, str]:
    """The members that can't be counted."""
    uncounted = [
        name for name in _UNCOUNTED if body.get(name) is not None and body[name] != "disabled"
    ]
    return {
        **dict.fromkeys((*uncounted, *unsupported_items(body.get("input"))), UNKNOWN),
        **dict(unsupported_tools(body.get("tools"))),
    }
