"""Every row of `own.toml`, held against what its vendor says.

The cases are written by hand from the vendors' pages. A row without a case that it decides fails.
"""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from llama_compat.catalog import Catalog
from llama_compat.catalog.own import newer_models, own_rows
from llama_compat.catalog.vendors import VENDORS

OPENAI_REASONING = {
    "frequency_penalty",
    "presence_penalty",
    "logprobs",
    "top_logprobs",
    "logit_bias",
}

XAI_REASONING = ("frequency_penalty", "presence_penalty", "reasoning_effort", "stop")

CASES: list[tuple[str, str, str, Any]] = [
    # Anthropic
    ("anthropic", "claude-haiku-4-5", "thinking", "budget"),
    ("anthropic", "claude-opus-4-5-20251101", "sampling", "one"),
    ("anthropic", "claude-opus-4-6", "thinking", "adaptive"),
    ("anthropic", "claude-sonnet-4-6", "efforts", ("none", "low", "medium", "high", "max")),
    ("anthropic", "claude-sonnet-4-6", "sampling", "one"),
    ("anthropic", "claude-opus-4-7", "sampling", "default"),
    ("anthropic", "claude-opus-5", "sampling", "default"),
    ("anthropic", "claude-haiku-5-5", "sampling", "default"),
    ("anthropic", "claude-lyric-5-7", "sampling", "default"),  # what is still to come
    ("anthropic", "claude-3-5-haiku-latest", "sampling", "any"),
    ("anthropic", "claude-haiku-4-5-20251001", "sampling", "one"),
    ("anthropic", "claude-opus-4-6", "prefill", False),
    ("anthropic", "claude-sonnet-5-5", "prefill", False),
    ("anthropic", "claude-sonnet-4-5", "prefill", None),
    ("anthropic", "claude-3-5-haiku-latest", "prefill", None),
    ("amazon-bedrock", "us.anthropic.claude-opus-4-6-v1", "prefill", False),
    ("google-vertex", "claude-opus-4-7@default", "prefill", False),
    ("google", "gemini-3.8-flash", "prefill", False),
    ("google-vertex", "gemini-3.5-flash-lite", "prefill", False),
    ("google", "gemini-3.1-pro-preview", "prefill", None),
    ("google", "gemini-2.5-pro", "prefill", None),
    ("anthropic", "claude-opus-5-5", "context", 1_000_000),
    ("anthropic", "claude-opus-4-8", "thinking_off", "omitted"),
    ("anthropic", "claude-opus-5", "thinking_off", None),
    ("anthropic", "claude-sonnet-4-5", "structured_output", True),
    ("anthropic", "claude-3-haiku-20240307", "structured_output", False),
    ("anthropic", "claude-opus-4-0", "structured_output", False),
    ("anthropic", "claude-opus-5-5", "efforts", ("low", "medium", "high", "xhigh", "max")),
    ("anthropic", "claude-opus-5", "efforts", ("none", "low", "medium", "high", "xhigh", "max")),
    ("anthropic", "claude-sonnet-5-5", "thinking_off", "between_tools"),
    ("anthropic", "claude-fable-5-1", "thinking_bound", True),
    ("anthropic", "claude-haiku-5-5", "thinking_bound", True),
    ("anthropic", "claude-opus-5", "thinking_bound", None),
    ("amazon-bedrock", "eu.anthropic.claude-haiku-5-5-v1:0", "thinking_bound", True),
    ("amazon-bedrock", "anthropic.claude-haiku-4-5-20251001-v1:0", "thinking", "budget"),
    ("amazon-bedrock", "us.anthropic.claude-fable-5-1", "thinking_bound", True),
    ("amazon-bedrock", "us.anthropic.claude-opus-5", "thinking_bound", None),
    ("amazon-bedrock", "us.amazon.nova-2-lite-v1:0", "thinking", None),
    ("google-vertex", "claude-sonnet-5-5@20261001", "thinking_bound", True),
    ("google-vertex", "claude-opus-4@20250514", "thinking", "budget"),
    ("google-vertex", "claude-opus-4-7@default", "thinking_off", "omitted"),
    ("google-vertex", "gemini-3.8-flash", "thinking_bound", None),
    ("google", "gemini-2.5-flash", "json_beside_tools", False),
    ("google-vertex", "gemini-2.5-pro", "json_beside_tools", False),
    ("google", "gemini-3.8-flash", "json_beside_tools", None),
    ("anthropic", "claude-3-7-sonnet-20250219", "sampling", "unthinking"),
    ("anthropic", "claude-opus-4-1-20250805", "sampling", "one"),
    ("anthropic", "claude-haiku-4-5", "usual_effort", "none"),
    ("amazon-bedrock", "us.anthropic.claude-sonnet-4-5-20250929-v1:0", "sampling", "one"),
    ("google-vertex", "claude-opus-4-6@default", "sampling", "one"),
    ("anthropic", "claude-opus-4-7", "sampling", "default"),
    ("anthropic", "claude-sonnet-5-5", "forced_tools", False),
    ("anthropic", "claude-fable-5-1", "json_object", False),
    ("anthropic", "claude-opus-5", "forced_tools", None),
    ("anthropic", "claude-haiku-5-5", "forced_tools", None),
    ("anthropic", "claude-sonnet-4-20250514", "successor", "claude-sonnet-4-6"),
    ("anthropic", "claude-opus-4-0", "shutdown", date(2026, 6, 15)),
    ("anthropic", "claude-opus-4-1-20250805", "shutdown", date(2026, 8, 5)),
    ("anthropic", "claude-3-7-sonnet-20250219", "shutdown", date(2026, 2, 19)),
    ("anthropic", "claude-3-opus-20240229", "shutdown", date(2026, 1, 5)),
    ("anthropic", "claude-3-sonnet-20240229", "shutdown", date(2025, 7, 21)),
    ("anthropic", "claude-3-5-sonnet-20241022", "shutdown", date(2025, 10, 28)),
    ("anthropic", "claude-mythos-preview", "shutdown", date(2026, 6, 30)),
    ("anthropic", "claude-sonnet-4-5", "shutdown", date(2026, 11, 30)),
    ("anthropic", "claude-opus-4-5", "shutdown", None),
    ("anthropic", "claude-sonnet-5", "released", date(2026, 6, 30)),
    ("anthropic", "claude-sonnet-5-5", "released", None),
    ("anthropic", "claude-opus-5", "successor", "claude-opus-5-5"),
    # OpenAI
    ("openai", "whisper-1", "input", ("audio",)),
    ("azure", "gpt-4o-transcribe-diarize", "makes", ("text",)),
    ("openai", "gpt-4o-mini-tts-2025-12-15", "makes", ("audio",)),
    ("openai", "tts-1-hd", "input", ("text",)),
    ("openai", "gpt-audio-mini", "makes", ("text", "audio")),
    ("openai", "gpt-6-sol", "renamed", {"max_tokens": "max_completion_tokens"}),
    ("openai", "gpt-4o", "renamed", None),
    ("openai", "gpt-5.3-chat-latest", "renamed", None),
    ("openai", "gpt-5-mini", "sampling", "default"),
    ("openai", "gpt-5-mini", "refuses", tuple(sorted(OPENAI_REASONING))),
    ("openai", "gpt-5.4", "sampling", "unthinking"),
    ("azure", "gpt-5.4", "sampling", "unthinking"),
    ("openai", "o4-mini", "refuses", tuple(sorted({*OPENAI_REASONING, "stop"}))),
    ("openai", "o3-mini", "refuses", tuple(sorted(OPENAI_REASONING))),
    ("openai", "o3", "instructions", "developer"),
    ("openai", "gpt-5.4-mini", "calls_in_responses", True),
    ("azure", "gpt-6-astra", "calls_in_responses", True),
    ("openai", "gpt-5.3-chat-latest", "calls_in_responses", None),
    ("openai", "gpt-5.2", "calls_in_responses", None),
    ("openai", "gpt-5.4-mini", "usual_effort", "none"),
    ("openai", "gpt-5.4-pro", "usual_effort", None),
    ("openai", "gpt-5", "efforts", ("minimal", "low", "medium", "high")),
    ("openai", "gpt-5-pro", "efforts", ("high",)),
    ("openai", "gpt-5.1", "usual_effort", "none"),
    ("openai", "gpt-5.5", "efforts", ("none", "low", "medium", "high", "xhigh")),
    ("openai", "gpt-5.2", "usual_effort", "none"),
    ("openai", "gpt-5.2-pro", "usual_effort", None),
    ("openai", "gpt-6-luna", "usual_effort", "medium"),
    ("openai", "gpt-6.1-terra", "context", 1_050_000),
    ("openai", "gpt-6-astra", "released", date(2026, 9, 3)),
    ("openai", "gpt-6-luna", "released", date(2026, 9, 22)),
    ("openai", "gpt-4o-mini", "shutdown", date(2027, 1, 14)),
    ("openai", "gpt-4.1", "successor", "gpt-6-luna"),
    ("openai", "o3", "shutdown", date(2026, 12, 11)),
    ("openai", "gpt-5-mini", "successor", "gpt-6.1-terra"),
    ("openai", "gpt-5-nano", "shutdown", date(2026, 12, 11)),
    ("openai", "gpt-5.4-nano", "shutdown", date(2027, 4, 1)),
    ("openai", "gpt-4.1-nano", "shutdown", date(2026, 10, 23)),
    ("openai", "gpt-5.3-chat-latest", "successor", "gpt-5.5"),
    ("openai", "gpt-5-codex", "shutdown", date(2026, 7, 23)),
    ("openai", "o1-preview", "shutdown", date(2025, 7, 28)),
    ("openai", "o1-mini", "shutdown", date(2025, 10, 27)),
    ("openai", "gpt-5.5", "shutdown", None),
    ("openai", "gpt-3.5-turbo", "web_search", False),
    ("openai", "gpt-4", "web_search", False),
    ("openai", "gpt-4-turbo", "web_search", False),
    ("openai", "gpt-4.1-nano", "web_search", False),
    ("openai", "o1", "web_search", False),
    ("openai", "o3-mini", "web_search", False),
    ("openai", "gpt-4o-mini", "web_search", None),
    ("openai", "o3", "web_search", None),
    # Google
    ("google", "gemini-2.5-flash", "thinking", "budget"),
    ("google", "gemini-3.5-flash", "thinking", "level"),
    ("google", "gemini-3.5-flash", "efforts", ("minimal", "low", "medium", "high")),
    ("google", "gemini-3.8-flash", "efforts", ("low", "medium", "high")),
    ("google", "gemini-3.7-flash", "output", 65_536),
    ("google", "gemini-3.8-flash", "released", date(2026, 9, 2)),
    ("google", "gemini-2.0-flash", "shutdown", date(2026, 6, 1)),
    ("google", "gemini-2.5-pro", "successor", "gemini-3.8-flash"),
    ("google", "gemini-2.5-flash", "successor", "gemini-3.5-flash-lite"),
    ("google", "gemini-2.5-flash-lite", "shutdown", None),
    ("google", "gemini-3-pro-preview", "shutdown", date(2026, 3, 9)),
    ("google", "gemini-3.1-flash-lite", "shutdown", date(2027, 5, 7)),
    # Others
    ("deepseek", "deepseek-v4-flash", "instructions", "system"),
    ("deepseek", "deepseek-v4-pro", "thinking", "effort"),
    ("deepseek", "deepseek-reasoner", "successor", "deepseek-v4-flash"),
    ("mistral", "mistral-large-latest", "instructions", "system"),
    (
        "xai",
        "grok-4",
        "refuses",
        ("frequency_penalty", "presence_penalty", "reasoning_effort", "stop"),
    ),
    ("xai", "grok-4.20-non-reasoning", "refuses", None),
]


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return Catalog({vendor for vendor, _, _, _ in CASES})


@pytest.mark.parametrize(("vendor", "model", "fact", "value"), CASES)
def test_what_a_model_takes(
    catalog: Catalog, vendor: str, model: str, fact: str, value: Any
) -> None:
    found = getattr(catalog.facts(vendor, model), fact)
    assert (tuple(sorted(found)) if fact == "refuses" and found else found) == value


@pytest.mark.parametrize("place", range(len(own_rows())))
def test_every_row_has_a_case_that_it_decides(place: int) -> None:
    row, later = own_rows()[place], own_rows()[place + 1 :]

    def decides(vendor: str, model: str, fact: str) -> bool:
        over = any(
            each.fits(vendor, model) and getattr(each.facts, fact) is not None for each in later
        )
        return row.fits(vendor, model) and getattr(row.facts, fact) is not None and not over

    assert any(decides(vendor, model, fact) for vendor, model, fact, _ in CASES), row


@pytest.mark.parametrize("place", range(len(own_rows())))
def test_every_row_says_where_it_is_from(place: int) -> None:
    row = own_rows()[place]
    assert row.source.startswith("https://")
    assert date(2026, 11, 1) <= row.read
    assert row.facts.known()
    assert {*row.vendors} <= {each.listed for each in VENDORS.values()}


def test_no_row_is_of_no_model(catalog: Catalog) -> None:
    """Each pattern fits a model that there is, or was."""
    known = [(each.vendor, each.model) for each in catalog.models()]
    idle = [
        row.models
        for row in own_rows()
        if not any(row.fits(vendor, model) for vendor, model in known)
    ]
    assert idle == []


def test_what_came_after_the_list_is_shown(catalog: Catalog) -> None:
    shown = {(each.vendor, each.model) for each in catalog.models()}
    for vendor in ("anthropic", "openai", "google"):
        assert {(vendor, model) for model in newer_models(vendor)} <= shown
