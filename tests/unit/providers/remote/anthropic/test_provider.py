"""What `remote::anthropic-messages` sends with each request."""

from __future__ import annotations

from typing import Any

import pytest

from llama_compat.catalog.facts import over
from llama_compat.fitting.fit import SAMPLING, fit_of
from llama_compat.types import (
    ChatCompletionRequest,
    ResponseFormat,
    UserMessage,
)
from providers.remote.anthropic.provider import AnthropicMessagesConfig, AnthropicMessagesProvider


def provider(**config: Any) -> AnthropicMessagesProvider:
    settings = AnthropicMessagesConfig.model_validate({"api_key": "sk-ant", **config})
    return AnthropicMessagesProvider("p", settings, [])


@pytest.mark.parametrize(
    ("config", "header"),
    [
        ({}, {"x-api-key": "sk-ant"}),
        ({"version": "2026-10-21"}, {"authorization": "Bearer sk-ant"}),
        ({"key_header": "authorization"}, {"authorization": "Bearer sk-ant"}),
        ({"version": "2026-10-21", "key_header": "x-api-key"}, {"x-api-key": "sk-ant"}),
        ({"api_key": None}, {}),
    ],
)
def test_the_key_is_in_one_header(config: dict[str, Any], header: dict[str, str]) -> None:
    version = config.get("version", "2023-06-01")
    assert provider(**config).request_headers() == {"anthropic-version": version, **header}


@pytest.mark.parametrize(
    ("version", "refused"), [("2023-06-01", frozenset()), ("2026-10-21", SAMPLING)]
)
def test_a_version_counts_for_every_model(version: str, refused: frozenset[str]) -> None:
    fit = fit_of(over(provider(version=version).model_facts))
    assert (frozenset() if fit is None else fit.refused) == refused


@pytest.mark.parametrize(
    ("stops", "told"), [(("\n", "END", " "), ("END",)), (("a", "b"), ("a", "b"))]
)
def test_a_blank_stop_string_is_not_told_to_claude(
    stops: tuple[str, ...], told: tuple[str, ...]
) -> None:
    untold = tuple(each for each in stops if each not in told)
    assert provider().stop_bound("claude-x").split(stops) == (told, untold)


def test_thought_is_left_out_before_a_call_that_is_forced() -> None:
    asked = ChatCompletionRequest(
        "m",
        (UserMessage("Hi"),),
        reasoning_effort="high",
        response_format=ResponseFormat("json_object"),
    )
    assert provider().unsupported_values(asked).keys() == {"reasoning_effort"}
