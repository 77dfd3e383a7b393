"""OpenAI's `finish_reason` to the vocabulary's `StopReason` and back, as tables."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from llama_compat.types import StopReason

STOP_REASONS: dict[str, StopReason] = {
    "stop": StopReason.end_of_turn,
    "eos": StopReason.end_of_turn,
    "eos_token": StopReason.end_of_turn,
    "stop_sequence": StopReason.end_of_turn,
    "end_turn": StopReason.end_of_turn,
    "length": StopReason.out_of_tokens,
    "max_tokens": StopReason.out_of_tokens,
    "model_length": StopReason.out_of_tokens,
    "tool_calls": StopReason.end_of_message,
    "tool_call": StopReason.end_of_message,
    "tool_use": StopReason.end_of_message,
    "function_call": StopReason.end_of_message,
    "content_filter": StopReason.content_filter,
    "refusal": StopReason.content_filter,
    "safety": StopReason.content_filter,
    "recitation": StopReason.content_filter,
}
"""What vendors write as `finish_reason`, OpenAI's own words and those of the rest."""

FINISH_REASON = re.compile(rb'"finish_reason"\s*:\s*"(\w*)"')
"""Finds each in a reply. No text has it in it, as its quotation marks have a backslash before
them."""

BROKEN_OFF = frozenset(
    {"abort", "aborted", "cancelled", "canceled", "error", "insufficient_system_resource"}
)
"""Words of vLLM, SGLang, OpenRouter and DeepSeek for a reply that did not come to its end."""


NO_REASON = frozenset({"", "null", "none"})
"""Words of vendors for a choice that goes on, where OpenAI has null."""


class BrokenOffError(ValueError):
    """A vendor says of a reply that it is not all of it."""

    def __init__(self, word: str) -> None:
        super().__init__(f"the vendor broke the reply off (its finish reason is '{word}')")


_FINISH_REASONS: dict[StopReason, str] = {
    StopReason.end_of_turn: "stop",
    StopReason.end_of_message: "stop",
    StopReason.out_of_tokens: "length",
    StopReason.content_filter: "content_filter",
}


def stop_reason(finish_reason: Any) -> StopReason:
    """The `StopReason` of a vendor's word; an unknown one or none means the model was done.

    Raises:
        BrokenOffError: the word says that it was not.
    """
    word = finish_reason.lower() if isinstance(finish_reason, str) else ""
    if word in BROKEN_OFF:
        raise BrokenOffError(word)
    return STOP_REASONS.get(word, StopReason.end_of_turn)


def matched_stop_string(choice: Mapping[str, Any]) -> str | None:
    """The stop string that ended a choice, where the vendor tells: vLLM and SGLang do."""
    for name in ("stop_reason", "matched_stop"):
        if isinstance(choice.get(name), str):
            return str(choice[name])
    return None


def finish_reason(reason: StopReason, *, called_tools: bool = False) -> str:
    """OpenAI's word for `reason`: `tool_calls` exactly where a reply that ended well has calls.

    A reply that ran out of tokens says `length` even if a call had begun: the call may be cut.
    """
    if called_tools and reason in (StopReason.end_of_turn, StopReason.end_of_message):
        return "tool_calls"
    return _FINISH_REASONS[reason]
