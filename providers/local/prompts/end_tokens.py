"""Tokens that end a reply, whatever a model's settings say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llama_compat.text.end_of_turn import END_OF_TURN_MARKERS
from llama_compat.types import StopReason

if TYPE_CHECKING:
    from providers.local.engine import Vocabulary

END_TOKENS: dict[str, StopReason] = {
    **END_OF_TURN_MARKERS,
    "<|endoftext|>": StopReason.end_of_turn,
    "<|end_of_text|>": StopReason.end_of_turn,
    "<|eot|>": StopReason.end_of_turn,
    "<end_of_turn>": StopReason.end_of_turn,
    "<|end_of_turn|>": StopReason.end_of_turn,
    "<|END_OF_TURN_TOKEN|>": StopReason.end_of_turn,
    "<|eom|>": StopReason.end_of_message,
}
"""Special tokens that end a turn, though not every model's settings say so."""


def known_end_tokens(vocabulary: Vocabulary) -> dict[int, StopReason]:
    """Those of `END_TOKENS` that are special tokens of `vocabulary`, by their ids."""
    found = {vocabulary.id_of(token): reason for token, reason in END_TOKENS.items()}
    return {
        token_id: reason
        for token_id, reason in found.items()
        if token_id is not None and vocabulary.is_special(token_id)
    }
