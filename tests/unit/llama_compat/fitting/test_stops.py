"""Which stop strings a vendor is told."""

from __future__ import annotations

import json
from typing import Any

import pytest

from llama_compat.dialects.anthropic_messages.operations import MESSAGES
from llama_compat.dialects.base import Operation
from llama_compat.dialects.gemini.operations import GENERATE
from llama_compat.dialects.gemini_interactions.operations import INTERACTIONS
from llama_compat.dialects.ollama import operations as ollama
from llama_compat.dialects.openai.operations import CHAT, COMPLETIONS
from llama_compat.dialects.stop_lists import ANY_STOPS, StopBound
from llama_compat.exchange import Call
from llama_compat.fitting.stops import all_told
from llama_compat.wire.json_fields import parse_object


class Provider:
    """One whose vendor takes so many."""

    def __init__(self, bound: StopBound) -> None:
        self._bound = bound

    def stop_bound(self, model: str) -> StopBound:
        return self._bound


def call_of(operation: Operation, body: dict[str, Any]) -> Call:
    return Call(operation, parse_object(json.dumps(body).encode()), "m", False, "r")


@pytest.mark.parametrize(
    ("bound", "stops", "told", "untold"),
    [
        (ANY_STOPS, "abcdefgh", "abcdefgh", ""),
        (StopBound(4), "abcd", "abcd", ""),
        (StopBound(4), "abcdef", "abcd", "ef"),
        (StopBound(0), "ab", "", "ab"),
        (StopBound(blank=False), "a\nb ", "ab", "\n "),
        (StopBound(1, blank=False), "\nab", "a", "\nb"),
        (StopBound(2), "aabb", "aa", "bb"),
        (StopBound(4), "", "", ""),
    ],
)
def test_a_vendor_is_told_as_many_as_it_takes(
    bound: StopBound, stops: str, told: str, untold: str
) -> None:
    assert bound.split(stops) == (tuple(told), tuple(untold))


THREE = ["a", "b", "c"]


@pytest.mark.parametrize(
    ("operation", "body"),
    [
        (CHAT, {"stop": THREE}),
        (COMPLETIONS, {"stop": THREE}),
        (MESSAGES, {"stop_sequences": THREE}),
        (GENERATE, {"generationConfig": {"stopSequences": THREE}}),
        (GENERATE, {"generation_config": {"stop_sequences": THREE}}),
        (INTERACTIONS, {"generation_config": {"stop_sequences": THREE}}),
        (ollama.CHAT, {"options": {"stop": THREE}}),
        (ollama.GENERATE, {"options": {"stop": THREE}}),
        (ollama.RAW_GENERATE, {"options": {"stop": THREE}}),
    ],
)
def test_they_are_found_wherever_an_api_has_them(
    operation: Operation, body: dict[str, Any]
) -> None:
    call = call_of(operation, body)
    assert not all_told(Provider(StopBound(2)), call, "m")
    assert all_told(Provider(StopBound(3)), call, "m")
    assert all_told(Provider(ANY_STOPS), call, "m")


@pytest.mark.parametrize(
    "body", [{}, {"stop": None}, {"stop": 5}, {"stop": [1, 2]}, {"stop": "a"}, {"stop": ["a"]}]
)
def test_what_is_no_list_of_them_is_left_to_the_vendor(body: dict[str, Any]) -> None:
    assert all_told(Provider(StopBound(1)), call_of(CHAT, body), "m")


def test_a_configuration_that_is_malformed_is_left_to_the_vendor() -> None:
    body = {"generation_config": "none", "generationConfig": {"stopSequences": THREE}}
    assert all_told(Provider(StopBound(1)), call_of(INTERACTIONS, body), "m")
