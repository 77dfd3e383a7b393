"""Where a request says up to what its prompt is to be cached: `cachePoint`.

The places are those of `llama_compat.dialects.anthropic_messages.input.cache_marks`. Claude takes
them in all three, Nova in the system prompt and the messages, and others refuse them:
https://docs.aws.amazon.com/bedrock/latest/userguide/prompt-caching.html (2026-11-23).
"""

from __future__ import annotations

from typing import Any

from llama_compat.dialects.anthropic_messages.input.cache_marks import LAST_TURNS
from llama_compat.dialects.bedrock_converse.families import ModelFamily

_POINT = {"cachePoint": {"type": "default"}}


def with_cache_points(body: dict[str, Any], family: ModelFamily | None) -> None:
    """Mark the body of a request, where models of the family take marks."""
    if family not in ("claude", "nova"):
        return
    if family == "claude" and "toolConfig" in body:
        body["toolConfig"]["tools"].append(_POINT)
    if "system" in body:
        body["system"].append(_POINT)
    asked = [turn["content"] for turn in body["messages"] if turn["role"] == "user"]
    for content in asked[-LAST_TURNS:]:
        content.append(_POINT)
