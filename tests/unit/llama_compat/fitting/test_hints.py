"""Which hints of a request are told, and which are left out by name."""

from __future__ import annotations

import re
from typing import Any

import pytest

from llama_compat.dialects.anthropic_messages.operations import MESSAGES
from llama_compat.dialects.base import Operation
from llama_compat.dialects.gemini.operations import GENERATE
from llama_compat.dialects.gemini_interactions.operations import INTERACTIONS
from llama_compat.dialects.openai.operations import CHAT, COMPLETIONS, EMBEDDINGS
from llama_compat.dialects.openai_responses.operations import RESPONSES
from llama_compat.fitting.hints import (
    NO_HINTS,
    HintPlaces,
    MetadataPlace,
    hints_said,
    places_but_for,
    without_hints,
)
from llama_compat.types import ChatCompletionRequest, UserMessage

OPENAI = places_but_for(frozenset())
OPAQUE = HintPlaces(
    frozenset({"safety_identifier", "user"}),
    one_user=True,
    user=re.compile(r"[a-z0-9_-]{1,20}"),
    tiers=frozenset({"auto", "priority"}),
)
SAID = {"user": "user", "safety_identifier": "safety_identifier", "service_tier": "service_tier"}


@pytest.mark.parametrize(
    ("operation", "body", "said"),
    [
        (
            CHAT,
            {"user": "u", "metadata": {"k": "v"}, "prediction": {"type": "content"}},
            {"user": "user", "metadata": "metadata", "prediction": "prediction"},
        ),
        (CHAT, {"service_tier": "flex", "prompt_cache_key": "k"}, {"service_tier": "service_tier"}),
        (CHAT, {"service_tier": "auto", "user": "", "metadata": {}, "prediction": None}, {}),
        (COMPLETIONS, {"user": "u"}, {"user": "user"}),
        (EMBEDDINGS, {"user": "u"}, {"user": "user"}),
        (
            RESPONSES,
            {"safety_identifier": "s", "metadata": {"k": "v"}, "service_tier": "default"},
            {"safety_identifier": "safety_identifier"},
        ),
        (RESPONSES, {"client_metadata": {"k": "v"}}, {"client_metadata": ""}),
        (MESSAGES, {"metadata": {"user_id": "u"}}, {"metadata.user_id": "user"}),
        (MESSAGES, {"metadata": {"user_id": None}, "service_tier": "standard_only"}, {}),
        (MESSAGES, {"metadata": "u", "cache_control": {"type": "ephemeral"}}, {}),
        (MESSAGES, {"context_management": {"edits": [1]}}, {"context_management": ""}),
        (
            GENERATE,
            {"safetySettings": [{}], "labels": {"k": "v"}, "serviceTier": "flex"},
            {"safetySettings": "", "labels": "", "serviceTier": "service_tier"},
        ),
        (
            GENERATE,
            {"safety_settings": [{}], "generation_config": {"media_resolution": "LOW"}},
            {"safety_settings": "", "generation_config.media_resolution": ""},
        ),
        (GENERATE, {"serviceTier": "SERVICE_TIER_STANDARD", "labels": {}, "store": False}, {}),
        (
            INTERACTIONS,
            {"labels": {"k": "v"}, "service_tier": "priority"},
            {"labels": "", "service_tier": "service_tier"},
        ),
    ],
)
def test_what_a_request_has_of_hints(
    operation: Operation, body: dict[str, Any], said: dict[str, str]
) -> None:
    assert hints_said(body, operation.hints(body)) == said
    # What is a hint is not asked for as well.
    assert not set(operation.parameters({**body, "messages": [], "input": []})) & set(said)


@pytest.mark.parametrize(
    ("hints", "places", "gone", "kept"),
    [
        ({"user": "ann@example.com", "service_tier": "flex"}, OPENAI, [], None),
        ({"user": "u", "safety_identifier": "s"}, OPENAI, [], None),
        ({"user": "u" * 65}, OPENAI, ["user"], {}),
        ({"user": "u"}, places_but_for(frozenset({"user"})), ["user"], {}),
        ({"service_tier": "flex"}, places_but_for(frozenset({"service_tier"})), "tier", {}),
        ({"user": "u-1", "service_tier": "priority"}, OPAQUE, [], None),
        ({"user": "u-1", "safety_identifier": "s"}, OPAQUE, ["user"], {"safety_identifier": "s"}),
        ({"user": "u-1", "safety_identifier": "s@"}, OPAQUE, "safety", {"user": "u-1"}),
        ({"user": "ann@example.com", "service_tier": "flex"}, OPAQUE, "both", {}),
        ({"user": "u", "safety_identifier": "s", "service_tier": "auto"}, NO_HINTS, "all", {}),
    ],
)
def test_what_there_is_no_place_for_is_left_out_by_name(
    hints: dict[str, str], places: HintPlaces, gone: Any, kept: dict[str, str] | None
) -> None:
    named = {
        "tier": ["service_tier"],
        "safety": ["safety_identifier"],
        "both": ["user", "service_tier"],
        "all": ["user", "safety_identifier", "service_tier"],
    }.get(gone if isinstance(gone, str) else "", gone)
    request = ChatCompletionRequest("m", (UserMessage("Hi"),), **hints)  # type: ignore[arg-type]
    said = {name: name for name in SAID if name in hints}
    left_out, changes = without_hints(request, said, places)
    assert left_out == named
    assert {**hints, **changes} == {**dict.fromkeys(hints), **(hints if kept is None else kept)}


def test_what_has_no_word_in_the_vocabulary_is_always_left_out() -> None:
    request = ChatCompletionRequest("m", (UserMessage("Hi"),), user="u")
    said = {"metadata.user_id": "user", "labels": "", "prediction": "prediction"}
    assert without_hints(request, said, OPENAI) == (["labels", "prediction"], {})


KEEPING = HintPlaces(metadata=MetadataPlace(re.compile("[a-z]+"), re.compile("[a-z ]*"), most=2))
ALL = {"metadata": "metadata"}


@pytest.mark.parametrize(
    ("metadata", "places", "gone", "kept"),
    [
        ({"team": "blue", "run": ""}, KEEPING, [], {"team": "blue", "run": ""}),
        ({"team": "blue", "Run": "a"}, KEEPING, ["metadata.Run"], {"team": "blue"}),
        ({"team": "a", "run": "7"}, KEEPING, ["metadata.run"], {"team": "a"}),
        ({"team": "a", "run": 7}, KEEPING, ["metadata.run"], {"team": "a"}),
        ({"a": "", "b": "", "c": ""}, KEEPING, ["metadata.c"], {"a": "", "b": ""}),
        ({"Team": "a"}, KEEPING, ["metadata"], None),
        ({"team": "a"}, NO_HINTS, ["metadata"], None),
    ],
)
def test_of_what_is_kept_with_a_request_goes_what_fits(
    metadata: dict[str, Any],
    places: HintPlaces,
    gone: list[str],
    kept: dict[str, str] | None,
) -> None:
    request = ChatCompletionRequest("m", (UserMessage("Hi"),), metadata=metadata)
    assert without_hints(request, ALL, places) == (gone, {"metadata": kept})
    # Where somebody else keeps all of it, nothing is missed.
    assert without_hints(request, {}, places) == ([], {"metadata": kept})
