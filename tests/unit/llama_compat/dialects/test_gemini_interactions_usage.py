"""What an interaction cost, as Google tells it."""

from __future__ import annotations

from typing import Any

import pytest
from google.genai.interactions import Usage as GooglesUsage

from llama_compat.dialects.gemini_interactions.usage import parse_usage
from llama_compat.types import Units, Usage


@pytest.mark.parametrize(
    ("tools", "searches"),
    [
        ([{"type": "google_search", "count": 2}, {"type": "google_maps", "count": 5}], 2),
        ([{"type": "google_search", "count": 0}], None),
        ([{"type": "google_maps", "count": 1}], None),
        ([], None),
    ],
)
def test_searches_of_googles_are_paid_for(tools: Any, searches: int | None) -> None:
    told = {"total_input_tokens": 3, "total_output_tokens": 4, "grounding_tool_count": tools}
    GooglesUsage.model_validate(told)
    units = None if searches is None else Units(searches=searches)
    assert parse_usage(told) == Usage(3, 4, units=units)


@pytest.mark.parametrize("nonsense", ["x", [1], [{"type": "google_search", "count": "many"}], 3])
def test_a_reply_is_not_lost_to_nonsense(nonsense: Any) -> None:
    assert parse_usage({"total_input_tokens": 3, "grounding_tool_count": nonsense}) == Usage(3)
