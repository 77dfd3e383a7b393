"""OpenAI's `finish_reason` to the vocabulary's `StopReason` and back, as tables."""

from __future__ import annotations

from llama_compat.types import StopReason

STOP_REASONS: dict[str, StopReason] = {
    "stop": StopReason.end_of_turn,
    "eos": StopReason.end_of_turn,
    "eos_token": StopReason.end_of_turn,
    "stop_sequence": StopReason.end_of_turn,
    "end_turn": StopReason.end_of_turn,
    "length": StopReason.out_of_tokens,
    "max_tokens": StopReason.out_of_tokens,
    "tool_calls": StopReason.end_of_message,
    "function_call": StopReason.end_of_message,
    "content_filter": StopReason.content_filter,
}
"""What vendors write as `finish_reason`, OpenAI's own words and those of the rest."""

_FINISH_REASONS: dict[StopReason, str] = {
    StopReason.end_of_turn: "stop",
    StopReason.end_of_message: "stop",
    StopReason.out_of_tokens: "length",
    StopReason.content_filter: "content_filter",
}


def stop_reason(finish_reason: str | None) -> StopReason:
    """The `StopReason` of a vendor's word; an unknown one or none means the model was done."""
    return STOP_REASONS.get(finish_reason or "stop", StopReason.end_of_turn)


def finish_reason(reason: StopReason, *, called_tools: bool = False) -> str:
    """OpenAI's word for `reason`: `tool_calls` exactly where a reply that ended well has calls.

    A reply that ran out of tokens says `length` even if a call had begun: the call may be cut.
    """
    if called_tools and reason in (StopReason.end_of_turn, StopReason.end_of_message):
        return "tool_calls"
    return _FINISH_REASONS[reason]
