"""Anthropic's `usage`, whose input tokens leave out those of caches, and its stop reasons."""

from __future__ import annotations

from typing import Any

from llama_compat.dialects.counts import count, members
from llama_compat.types import StopReason, Usage

STOP_REASONS = {
    "end_turn": StopReason.end_of_turn,
    "stop_sequence": StopReason.end_of_turn,
    "pause_turn": StopReason.end_of_turn,
    "tool_use": StopReason.end_of_message,
    "max_tokens": StopReason.out_of_tokens,
    "model_context_window_exceeded": StopReason.out_of_tokens,
    "refusal": StopReason.content_filter,
}

_RENDERED = {
    StopReason.out_of_tokens: "max_tokens",
    StopReason.content_filter: "refusal",
}


def render_stop_reason(
    reason: StopReason, *, stop_string: str | None, called_tools: bool, refused: bool
) -> str:
    """Anthropic's word for why a reply ended: `tool_use` where it ended well and has calls."""
    if refused:
        return "refusal"
    if reason in _RENDERED:
        return _RENDERED[reason]
    if called_tools:
        return "tool_use"
    return "end_turn" if stop_string is None else "stop_sequence"


def render_usage(usage: Usage) -> dict[str, Any]:
    """`usage`; what the provider did not tell is left out."""
    cached, written = usage.cached_tokens or 0, usage.cache_write_tokens or 0
    rendered: dict[str, Any] = {"input_tokens": max(usage.prompt_tokens - cached - written, 0)}
    if usage.cache_write_tokens is not None:
        rendered["cache_creation_input_tokens"] = written
    if usage.cached_tokens is not None:
        rendered["cache_read_input_tokens"] = cached
    rendered["output_tokens"] = usage.completion_tokens
    if usage.reasoning_tokens is not None:
        rendered["output_tokens_details"] = {"thinking_tokens": usage.reasoning_tokens}
    return rendered


class Counts:
    """The token counts of a message; in a stream later ones replace earlier ones."""

    def __init__(self, usage: Any = None) -> None:
        self._counts: dict[str, Any] = {}
        self.update(usage)

    def update(self, usage: Any) -> None:
        """Take the `usage` of a message or of an event."""
        for name, value in members(usage).items():
            if value is not None:
                self._counts[name] = value

    def usage(self) -> Usage:
        """The vocabulary's prompt tokens include what was read from a cache and written to it."""
        counts = self._counts
        cached = count(counts.get("cache_read_input_tokens"))
        written = count(counts.get("cache_creation_input_tokens"))
        details = members(counts.get("output_tokens_details"))
        return Usage(
            prompt_tokens=(count(counts.get("input_tokens")) or 0) + (written or 0) + (cached or 0),
            completion_tokens=count(counts.get("output_tokens")) or 0,
            cached_tokens=cached,
            reasoning_tokens=count(details.get("thinking_tokens")),
            cache_write_tokens=written,
        )
