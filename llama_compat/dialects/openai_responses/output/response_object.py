"""The response object, every key of it there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import structs

from llama_compat.dialects.counts import count, members, with_reasoning
from llama_compat.dialects.openai.usage import service_tier as served_in
from llama_compat.dialects.openai_responses.input.tools import described
from llama_compat.types import Units, Usage


def repeated(body: Mapping[str, Any]) -> dict[str, Any]:
    """What a response repeats of the request `body`, and what holds where that is silent."""
    text = body.get("text") or {}
    reasoning = body.get("reasoning") or {}
    return {
        "instructions": body.get("instructions"),
        "max_output_tokens": body.get("max_output_tokens"),
        "max_tool_calls": body.get("max_tool_calls"),
        "metadata": body.get("metadata") or {},
        "parallel_tool_calls": body.get("parallel_tool_calls") is not False,
        "temperature": _or(body.get("temperature"), 1.0),
        "top_p": _or(body.get("top_p"), 1.0),
        "presence_penalty": _or(body.get("presence_penalty"), 0.0),
        "frequency_penalty": _or(body.get("frequency_penalty"), 0.0),
        "top_logprobs": body.get("top_logprobs") or 0,
        "text": {**text, "format": text.get("format") or {"type": "text"}},
        "tool_choice": body.get("tool_choice") or "auto",
        "tools": described(body.get("tools")),
        "truncation": body.get("truncation") or "disabled",
        "reasoning": {
            "effort": reasoning.get("effort"),
            "summary": reasoning.get("summary") or reasoning.get("generate_summary"),
        },
        # What was really done, not what was wished for.
        "service_tier": "default",
        "safety_identifier": body.get("safety_identifier"),
        "prompt_cache_key": body.get("prompt_cache_key"),
        "user": body.get("user"),
    }


def _or(value: Any, default: Any) -> Any:
    return default if value is None else value


def response_object(
    said: Mapping[str, Any],
    *,
    response_id: str,
    created: int,
    model: str,
    status: str,
    output: Sequence[Mapping[str, Any]] = (),
    completed: int | None = None,
    incomplete: str | None = None,
    usage: Usage | None = None,
    service_tier: str | None = None,
    error: Mapping[str, Any] | None = None,
    store: bool = False,
    background: bool = False,
    previous_response_id: str | None = None,
) -> dict[str, Any]:
    """A response as it stands.

    Args:
        said: what `repeated` gives.
        response_id, created, model: what it is called, since when (seconds since 1970), of which
            model.
        status: OpenAI's word for where it stands.
        output: its items.
        completed: when it was completed, in seconds since 1970.
        incomplete: why it is incomplete.
        usage: what it cost, once that is known.
        service_tier: in which tier it was served, where the vendor says so.
        error: why it failed.
        store, background, previous_response_id: what a store makes of it.
    """
    return {
        "id": response_id,
        "object": "response",
        "created_at": created,
        "completed_at": completed,
        "status": status,
        "background": background,
        "error": error,
        "incomplete_details": None if incomplete is None else {"reason": incomplete},
        "model": model,
        "output": list(output),
        "previous_response_id": previous_response_id,
        "store": store,
        **said,
        "usage": None if usage is None else render_usage(usage),
        **served_in(service_tier),
    }


def render_usage(usage: Usage) -> dict[str, Any]:
    """The `usage` of a response, in tokens."""
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.cached_tokens or 0,
            "cache_write_tokens": usage.cache_write_tokens or 0,
        },
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens or 0},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }


def parse_usage(usage: Any) -> Usage | None:
    """A vendor's `usage`; None where it tells none."""
    usage = members(usage)
    if not usage:
        return None
    read = members(usage.get("input_tokens_details"))
    written = members(usage.get("output_tokens_details"))
    reasoning = count(written.get("reasoning_tokens"))
    return Usage(
        prompt_tokens=count(usage.get("input_tokens")) or 0,
        completion_tokens=with_reasoning(count(usage.get("output_tokens")) or 0, reasoning),
        cached_tokens=count(read.get("cached_tokens")),
        reasoning_tokens=reasoning,
        cache_write_tokens=count(read.get("cache_write_tokens")),
    )


SEARCH_CALL = "web_search_call"
"""The type of the items in which a vendor has searched the web."""


def is_search(item: Mapping[str, Any]) -> bool:
    """Whether an item is a search of the web, and not the look at a page that one has found: that
    is not paid for (https://developers.openai.com/api/docs/guides/tools-web-search, 2026-11-23)."""
    if item.get("type") != SEARCH_CALL:
        return False
    return bool(members(item.get("action")).get("type", "search") == "search")


def response_usage(response: Mapping[str, Any]) -> Usage | None:
    """What a vendor has counted for a response, and the searches of the web in its items; None
    where it tells nothing."""
    usage = parse_usage(response.get("usage"))
    items = response.get("output")
    searches = sum(
        is_search(item)
        for item in (items if isinstance(items, list) else ())
        if isinstance(item, Mapping)
    )
    if usage is None or not searches:
        return usage
    return structs.replace(usage, units=Units(searches=searches))
