"""Tokens that end a reply, whatever a model's settings say."""

from __future__ import annotations

from llama_compat.types import StopReason

END_TOKENS: dict[str, StopReason] = {
    "<|endoftext|>": StopReason.end_of_turn,
    "<|end_of_text|>": StopReason.end_of_turn,
    "<|im_end|>": StopReason.end_of_turn,
    "<|eot_id|>": StopReason.end_of_turn,
    "<|eot|>": StopReason.end_of_turn,
    "<end_of_turn>": StopReason.end_of_turn,
    "<|end_of_turn|>": StopReason.end_of_turn,
    "<|END_OF_TURN_TOKEN|>": StopReason.end_of_turn,
    "<|eom_id|>": StopReason.end_of_message,
    "<|eom|>": StopReason.end_of_message,
}
"""Special tokens that end a turn, though not every model's settings say so."""
