"""Whose reasoning a model's is."""

from __future__ import annotations

import pytest

from llama_compat.catalog.makers import makers_name, reasoning_family


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


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("us.anthropic.claude-opus-4-6-v1", "claude-opus-4-6"),
        ("anthropic.claude-3-haiku-20240307-v1:0:48k", "claude-3-haiku-20240307"),
        ("claude-opus-4-6@default", "claude-opus-4-6"),
        ("claude-sonnet-4-5@20250929", "claude-sonnet-4-5-20250929"),
        ("claude-v1:" + "1" * 100_000 + "!", "claude-v1:" + "1" * 100_000 + "!"),
        ("gpt-6", "gpt-6"),
    ],
)
def test_a_model_of_a_cloud_is_called_as_its_maker_calls_it(model: str, name: str) -> None:
    assert makers_name(model) == name
