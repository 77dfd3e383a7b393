"""Which of Gemini's own APIs are relayed, as the template has them."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

import pytest

from providers.remote.gemini.provider import GeminiConfig, GeminiProvider
from providers.remote.gemini.vertex import VertexGeminiConfig, VertexGeminiProvider

COUNTED = {"gemini_count_tokens", "gemini_embed", "gemini_batch_embed"}


@pytest.mark.parametrize(
    ("apis", "relayed"),
    [
        ({}, {"gemini_generate", "interactions", *COUNTED}),
        ({"apis": ["generate_content"]}, {"gemini_generate", *COUNTED}),
        ({"apis": ["interactions"]}, {"interactions", *COUNTED}),
    ],
)
def test_calls_of_an_api_that_is_not_there_are_translated(
    apis: dict[str, Any], relayed: Set[str]
) -> None:
    provider = GeminiProvider("g", GeminiConfig.model_validate({"api_key": "x", **apis}), [])
    assert provider.relays == relayed


def test_vertex_ai_counts_and_embeds_in_other_ways() -> None:
    config = VertexGeminiConfig.model_validate({"project": "mine", "api_key": "x"})
    assert VertexGeminiProvider("v", config, []).relays == {"gemini_generate"}
