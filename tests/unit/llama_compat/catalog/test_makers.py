"""Whose reasoning a model's is."""

from __future__ import annotations

import pytest

from llama_compat.catalog.makers import reasoning_family


@pytest.mark.parametrize(
    ("model", "family"),
    [
        ("claude-opus-5", "anthropic"),
        ("us.anthropic.claude-opus-5-v1:0", "anthropic"),
        ("anthropic/claude-opus-5", "anthropic"),
        ("models/gemini-3.8-flash", "gemini"),
        ("deepseek-ai/DeepSeek-V4-Pro", "deepseek"),
        ("xiaomi/mimo-v2.5-pro", "xiaomi"),
        ("own", "own"),
        ("/models/own.gguf", "own.gguf"),
        ("some/biglm-7b", "biglm-7b"),
    ],
)
def test_a_name_says_it(model: str, family: str) -> None:
    assert reasoning_family(model) == family
