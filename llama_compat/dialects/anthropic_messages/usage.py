"""Anthropic's `usage`, whose input tokens leave out those of caches, and its stop reasons.

Where several models took part in a reply, or one several times, `iterations` has what each time
cost. With `fallbacks` all else in `usage` is about the model that answered, and leaves out who
declined before; a compaction and an advisor are never in it (`BetaUsage` of `anthropic` 2.12.0,
https://platform.claude.com/docs/en/build-with-claude/refusals-and-fallback, read on 2026-11-23).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from llama_compat.dialects.counts import count, members, with_reasoning
from llama_compat.types import StopReason, Units, Usage

PAUSED = "pause_turn"
"""Why a message ended that goes on where it is sent back."""

STOP_REASONS = {
    "end_turn": StopReason.end_of_turn,
    "stop_sequence": StopReason.end_of_turn,
    PAUSED: StopReason.end_of_turn,
    "tool_use": StopReason.end_of_message,
    "max_tokens": StopReason.out_of_tokens,
    "model_context_window_exceeded": StopReason.out_of_tokens,
    "refusal": StopReason.content_filter,
}

TIERS = {"standard": "default", "priority": "priority"}
"""OpenAI's word for the tier in which Anthropic served; it has none for a batch."""

_ANSWERED_TIERS = {word: tier for tier, word in TIERS.items()}

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


def render_usage(usage: Usage, service_tier: str | None = None) -> dict[str, Any]:
    """`usage`, and OpenAI's word for a tier; what the provider did not tell is left out."""
    cached, written = usage.cached_tokens or 0, usage.cache_write_tokens or 0
    rendered: dict[str, Any] = {"input_tokens": max(usage.prompt_tokens - cached - written, 0)}
    if usage.cache_write_tokens is not None:
        rendered["cache_creation_input_tokens"] = written
    if usage.cached_tokens is not None:
        rendered["cache_read_input_tokens"] = cached
    rendered["output_tokens"] = usage.completion_tokens
    if usage.reasoning_tokens is not None:
        rendered["output_tokens_details"] = {"thinking_tokens": usage.reasoning_tokens}
    if service_tier in _ANSWERED_TIERS:
        rendered["service_tier"] = _ANSWERED_TIERS[service_tier]
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
        details = members(counts.get("output_tokens_details"))
        paid = _paid(counts.get("iterations")) or [counts]
        cached = _sum(paid, "cache_read_input_tokens")
        written = _sum(paid, "cache_creation_input_tokens")
        plain = _sum(paid, "input_tokens") or 0
        searches = count(members(counts.get("server_tool_use")).get("web_search_requests"))
        thoughts = count(details.get("thinking_tokens"))
        return Usage(
            prompt_tokens=plain + (written or 0) + (cached or 0),
            completion_tokens=with_reasoning(_sum(paid, "output_tokens") or 0, thoughts),
            cached_tokens=cached,
            reasoning_tokens=thoughts,
            cache_write_tokens=written,
            units=Units(searches=searches) if searches else None,
        )

    @property
    def service_tier(self) -> str | None:
        """OpenAI's word for the tier in which it was served."""
        tier = self._counts.get("service_tier")
        return TIERS.get(tier) if isinstance(tier, str) else None


def _paid(iterations: Any) -> list[Mapping[str, Any]]:
    """Those of `iterations` that are paid for: who declined before it said anything is not."""
    known = [members(each) for each in iterations] if isinstance(iterations, list) else []
    return [each for each in known if count(each.get("output_tokens"))]


def _sum(counted: Sequence[Mapping[str, Any]], name: str) -> int | None:
    known = [each for each in (count(every.get(name)) for every in counted) if each is not None]
    return sum(known) if known else None
