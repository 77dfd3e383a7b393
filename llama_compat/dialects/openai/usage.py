"""OpenAI's `usage` and `service_tier`, the same in all of its replies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Raw, Struct

from llama_compat.dialects.counts import MAX_COUNT, count, members, with_reasoning
from llama_compat.types import Usage
from llama_compat.wire.json_fields import from_raw


def wants_usage(fields: Mapping[str, Raw]) -> tuple[bool, bool]:
    """Whether the client asked for usage in a last chunk, and whether for usage in every chunk."""
    options = from_raw(fields["stream_options"]) if "stream_options" in fields else None
    if not isinstance(options, dict):
        return False, False
    return options.get("include_usage") is True, options.get("continuous_usage_stats") is True


def render_usage(usage: Usage) -> dict[str, Any]:
    """OpenAI's `usage`; details that the provider did not tell are left out."""
    rendered: dict[str, Any] = {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }
    read = {"cached_tokens": usage.cached_tokens, "cache_write_tokens": usage.cache_write_tokens}
    if told := {name: tokens for name, tokens in read.items() if tokens is not None}:
        rendered["prompt_tokens_details"] = told
    if usage.reasoning_tokens is not None:
        rendered["completion_tokens_details"] = {"reasoning_tokens": usage.reasoning_tokens}
    return rendered


_Tokens = Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)]


class _PromptDetails(Struct):
    cached_tokens: _Tokens | None = None
    cache_write_tokens: _Tokens | None = None


class _CompletionDetails(Struct):
    reasoning_tokens: _Tokens | None = None


class _Counted(Struct):
    """A `usage` that is as it should be; null and what is left out are the same."""

    prompt_tokens: _Tokens
    completion_tokens: _Tokens
    total_tokens: _Tokens | None = None
    prompt_cache_hit_tokens: _Tokens | None = None  # DeepSeek
    prompt_tokens_details: _PromptDetails | None = None
    completion_tokens_details: _CompletionDetails | None = None


_counted = msgspec.json.Decoder(_Counted)


def read_usage(raw: Raw | None) -> Usage | None:
    """A vendor's `usage` as it was sent, otherwise as `parse_usage`; None where there is none."""
    if raw is None:
        return None
    try:
        it = _counted.decode(raw)
    except (msgspec.MsgspecError, RecursionError):
        value = from_raw(raw)
        return parse_usage(value) if isinstance(value, dict) else None
    read, said = it.prompt_tokens_details, it.completion_tokens_details
    cached = None if read is None else read.cached_tokens
    return _usage(
        it.prompt_tokens,
        it.completion_tokens,
        it.total_tokens,
        it.prompt_cache_hit_tokens if cached is None else cached,
        None if said is None else said.reasoning_tokens,
        None if read is None else read.cache_write_tokens,
    )


def parse_usage(usage: Any) -> Usage:
    """A vendor's `usage`; zeros for what it does not tell, or not in numbers: a reply that is paid
    for is not lost to that."""
    usage = members(usage)
    read = members(usage.get("prompt_tokens_details"))
    cached = count(read.get("cached_tokens"))
    if cached is None:
        cached = count(usage.get("prompt_cache_hit_tokens"))
    said = members(usage.get("completion_tokens_details"))
    return _usage(
        count(usage.get("prompt_tokens")) or 0,
        count(usage.get("completion_tokens")) or 0,
        count(usage.get("total_tokens")),
        cached,
        count(said.get("reasoning_tokens")),
        count(read.get("cache_write_tokens")),
    )


def _usage(
    prompt: int,
    completion: int,
    total: int | None,
    cached: int | None,
    reasoning: int | None,
    written: int | None,
) -> Usage:
    if reasoning and total == prompt + completion + reasoning:
        completion += reasoning  # xAI counts it beside the completion
    else:
        completion = with_reasoning(completion, reasoning)
    return Usage(prompt, completion, cached, reasoning, written)


def parse_service_tier(body: Mapping[str, Any]) -> str | None:
    """The tier in which a request wants to be served, or in which a reply was; a hint, so that None
    is anything that is no word."""
    tier = body.get("service_tier")
    return tier if isinstance(tier, str) else None


def service_tier(tier: str | None) -> dict[str, str]:
    """The member of a reply that says in which tier it was served, where that is known."""
    return {} if tier is None else {"service_tier": tier}
