"""Relay or translate: the seam that every call passes."""

from __future__ import annotations

from collections.abc import Awaitable

from llama_compat.exchange import Call, Reply, Target
from llama_compat.translation import answer_token_count
from providers.base import Provider


def answer(
    provider: Provider, call: Call, target: Target, *, relays: bool = True
) -> Awaitable[Reply]:
    """Have `provider` answer `call` from its model `target`.

    A wire that it speaks itself is relayed; for all others the call is put into the vocabulary, and
    for those as well if not `relays`.

    Raises:
        APIError: the call can't be answered, or was not.
    """
    operation = call.operation
    if relays and operation.name in provider.relays:
        return provider.relay(call, target)
    match operation.kind:
        case "chat":
            return provider.openai_chat_completion(call, target)
        case "completion":
            return provider.openai_completion(call, target)
        case "embedding":
            return provider.openai_embeddings(call, target)
        case "token_count":
            return answer_token_count(provider.count_tokens, call, target)
