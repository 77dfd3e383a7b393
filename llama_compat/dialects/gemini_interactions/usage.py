"""The `usage` of an interaction: thoughts are counted beside the answer, not as part of it."""

from __future__ import annotations

from typing import Any

from llama_compat.dialects.counts import count, members
from llama_compat.types import Units, Usage

_SEARCH = "google_search"
"""The tool whose calls are paid for by themselves."""


def render_usage(usage: Usage, searches: int = 0) -> dict[str, Any]:
    """What an interaction says of its tokens, and of so many searches."""
    thoughts = usage.reasoning_tokens or 0
    grounding = {"grounding_tool_count": [{"type": _SEARCH, "count": searches}]}
    return {
        "total_input_tokens": usage.prompt_tokens,
        "total_cached_tokens": usage.cached_tokens or 0,
        "total_output_tokens": usage.completion_tokens - thoughts,
        "total_thought_tokens": thoughts,
        "total_tool_use_tokens": 0,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        **(grounding if searches else {}),
    }


def parse_usage(usage: Any) -> Usage | None:
    """A vendor's `usage`; None where it tells none."""
    usage = members(usage)
    if not usage:
        return None
    thoughts = count(usage.get("total_thought_tokens"))
    tools = usage.get("grounding_tool_count")
    searches = sum(
        count(each.get("count")) or 0
        for each in map(members, tools if isinstance(tools, list) else ())
        if each.get("type") == _SEARCH
    )
    return Usage(
        prompt_tokens=(count(usage.get("total_input_tokens")) or 0)
        + (count(usage.get("total_tool_use_tokens")) or 0),
        completion_tokens=(count(usage.get("total_output_tokens")) or 0) + (thoughts or 0),
        cached_tokens=count(usage.get("total_cached_tokens")),
        reasoning_tokens=thoughts,
        units=Units(searches=searches) if searches else None,
    )
