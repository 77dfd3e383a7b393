"""OpenAI's `usage`, the same in all of its replies."""

from __future__ import annotations

from typing import Any

from llama_compat.dialects.counts import count, members
from llama_compat.types import Usage


def render_usage(usage: Usage) -> dict[str, Any]:
    """OpenAI's `usage`; details that the provider did not tell are left out."""
    rendered: dict[str, Any] = {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }
    if usage.cached_tokens is not None:
        rendered["prompt_tokens_details"] = {"cached_tokens": usage.cached_tokens}
    if usage.reasoning_tokens is not None:
        rendered["completion_tokens_details"] = {"reasoning_tokens": usage.reasoning_tokens}
    return rendered


def parse_usage(usage: Any) -> Usage:
    """A vendor's `usage`; zeros for what it does not tell, or not in numbers: a reply that is paid
    for is not lost to that."""
    usage = members(usage)
    read = members(usage.get("prompt_tokens_details"))
    cached = count(read.get("cached_tokens"))
    if cached is None:
        cached = count(usage.get("prompt_cache_hit_tokens"))  # DeepSeek
    prompt = count(usage.get("prompt_tokens")) or 0
    completion = count(usage.get("completion_tokens")) or 0
    said = members(usage.get("completion_tokens_details"))
    reasoning = count(said.get("reasoning_tokens"))
    if reasoning and count(usage.get("total_tokens")) == prompt + completion + reasoning:
        completion += reasoning  # xAI counts it beside the completion
    return Usage(
        prompt_tokens=prompt,
        completion_tokens=completion,
        cached_tokens=cached,
        reasoning_tokens=reasoning,
        cache_write_tokens=count(read.get("cache_write_tokens")),  # OpenRouter
    )
