"""Converse's usage, whose input tokens leave out those of caches, and its stop reasons."""

from __future__ import annotations

from typing import Any

from llama_compat.dialects.counts import count, members
from llama_compat.types import StopReason, Usage

STOP_REASONS = {
    "end_turn": StopReason.end_of_turn,
    "stop_sequence": StopReason.end_of_turn,
    "tool_use": StopReason.end_of_message,
    "max_tokens": StopReason.out_of_tokens,
    "model_context_window_exceeded": StopReason.out_of_tokens,
    "guardrail_intervened": StopReason.content_filter,
    "content_filtered": StopReason.content_filter,
}

FAILURES = frozenset({"malformed_model_output", "malformed_tool_use"})
"""Stop reasons of replies that are none: asking again may help."""


def parse_stop_reason(reason: Any) -> StopReason:
    """What a `stopReason` comes to; one that is not known means the model was done.

    Raises:
        ValueError: it says that the model failed.
    """
    if reason in FAILURES:
        raise ValueError(f"the model failed with {reason}")
    return STOP_REASONS.get(reason, StopReason.end_of_turn)


def parse_usage(usage: Any) -> Usage:
    """What was counted.

    https://docs.aws.amazon.com/bedrock/latest/userguide/prompt-caching.html: what is read from a
    cache and written to one is beside `inputTokens` (2026-11-23).
    """
    told = members(usage)
    cached = count(told.get("cacheReadInputTokens"))
    written = count(told.get("cacheWriteInputTokens"))
    return Usage(
        prompt_tokens=(count(told.get("inputTokens")) or 0) + (cached or 0) + (written or 0),
        completion_tokens=count(told.get("outputTokens")) or 0,
        cached_tokens=cached,
        cache_write_tokens=written,
    )
