"""Log probabilities in OpenAI's two shapes: the chat shape and the older one of text completions.

Vendors use both, and some write the older one in chat replies too. Of the older there are two
styles: with `top_logprobs`, a dictionary for each token, or with the chosen tokens alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from llama_compat.types import TokenLogProb, TokenLogProbs


def render_chat_logprobs(logprobs: Sequence[TokenLogProbs] | None) -> dict[str, Any] | None:
    """A chat choice's `logprobs`."""
    if logprobs is None:
        return None
    return {
        "content": [
            {
                **_render_token(token.chosen),
                "top_logprobs": [_render_token(alternative) for alternative in token.top],
            }
            for token in logprobs
        ],
        "refusal": None,
    }


def _render_token(token: TokenLogProb) -> dict[str, Any]:
    return {"token": token.token, "logprob": token.logprob, "bytes": list(token.token_bytes)}


def render_text_logprobs(
    logprobs: Sequence[TokenLogProbs] | None, text_offset: int
) -> dict[str, Any] | None:
    """A text choice's `logprobs`: four parallel lists.

    `text_offset` is where the first token begins. `top_logprobs` is null where no alternatives were
    asked for, and its item for a prompt's first token is.
    """
    if logprobs is None:
        return None
    top_logprobs = [
        {alternative.token: alternative.logprob for alternative in token.top} or None
        for token in logprobs
    ]
    offsets = []
    for token in logprobs:
        offsets.append(text_offset)
        text_offset += len(token.chosen.token)
    return {
        "tokens": [token.chosen.token for token in logprobs],
        "token_logprobs": [token.chosen.logprob for token in logprobs],
        "top_logprobs": top_logprobs if any(top_logprobs) else None,
        "text_offset": offsets,
    }


def parse_logprobs(value: Mapping[str, Any] | None) -> tuple[TokenLogProbs, ...] | None:
    """A choice's `logprobs` in whichever shape the vendor writes; None if there are none.

    Raises:
        ValueError, TypeError, KeyError: it has neither shape.
    """
    if not value:
        return None
    if value.get("tokens") is not None:
        return _parse_text_logprobs(value)
    content = value.get("content")
    if content is None:
        return None
    return tuple(
        TokenLogProbs(
            _parse_token(token),
            tuple(_parse_token(alternative) for alternative in token.get("top_logprobs") or ()),
        )
        for token in content
    )


def _parse_token(value: Mapping[str, Any]) -> TokenLogProb:
    token, token_bytes = value["token"], value.get("bytes")
    if token_bytes is None:
        return _token(token, value["logprob"])
    return TokenLogProb(token, bytes(token_bytes), value["logprob"])


def _parse_text_logprobs(value: Mapping[str, Any]) -> tuple[TokenLogProbs, ...]:
    tokens, chosen = value["tokens"], value["token_logprobs"]
    alternatives = value.get("top_logprobs") or [None] * len(tokens)
    return tuple(
        TokenLogProbs(_token(token, logprob), _parse_alternatives(top))
        for token, logprob, top in zip(tokens, chosen, alternatives, strict=True)
    )


def _parse_alternatives(top: Mapping[str, float] | None) -> tuple[TokenLogProb, ...]:
    best_first = sorted((top or {}).items(), key=lambda item: -item[1])
    return tuple(_token(token, logprob) for token, logprob in best_first)


def _token(token: str, logprob: float | None) -> TokenLogProb:
    return TokenLogProb(token, token.encode(errors="replace"), logprob)
