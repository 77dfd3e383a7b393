"""Requests held against what their provider and their model can honour."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from llama_compat.catalog.facts import Facts
from llama_compat.dialects.anthropic_messages.operations import COUNT_TOKENS, MESSAGES
from llama_compat.dialects.base import Operation
from llama_compat.dialects.gemini.requests import always_thinks
from llama_compat.dialects.openai.operations import CHAT, COMPLETIONS, EMBEDDINGS
from llama_compat.dialects.rerank.operations import RERANK
from llama_compat.errors import APIError
from llama_compat.exchange import Target
from llama_compat.fitting.fit import fit_of
from llama_compat.fitting.hints import NO_HINTS, HintPlaces
from llama_compat.fitting.honoured import VocabularyProvider, check, honoured
from llama_compat.fitting.placeless import IMAGE_DETAIL
from llama_compat.types import ChatCompletionRequest
from tests.unit.calls import call_of

ALL = frozenset(
    {"reasoning_effort", "response_format", "temperature", "tools", "top_p", "verbosity"}
)
NAMED = {"role": "user", "content": "Hi", "name": "ann"}
CHAT_BODY = {"model": "m", "messages": [NAMED]}


def provider(unsupported: str | None = None, **members: Any) -> VocabularyProvider:
    def takes_all(request: Any) -> Mapping[str, str]:
        return {}

    placeless = members.pop("placeless", frozenset())
    own: dict[str, Any] = {
        "id": "p",
        "config": SimpleNamespace(unsupported=unsupported),
        "placeless_in": lambda request: placeless,
        "hint_places": NO_HINTS,
        "parameters": ALL,
        "embedding_parameters": frozenset({"dimensions"}),
        "rerank_parameters": frozenset({"truncation"}),
        "unsupported_values": takes_all,
        **members,
    }
    return cast(VocabularyProvider, SimpleNamespace(**own))


@pytest.mark.parametrize(
    ("efforts", "adapted", "dropped", "effort"),
    [
        # The nearest that the model knows, where there is one; what it always does, where not.
        (("low", "high"), ["reasoning_effort=low"], [], "low"),
        (None, [], ["reasoning_effort"], None),
    ],
)
def test_a_provider_is_asked_about_the_effort_that_the_model_is_told(
    efforts: Any, adapted: list[str], dropped: list[str], effort: str | None
) -> None:
    fit = fit_of(Facts(efforts=efforts, output=100))
    call = call_of({**CHAT_BODY, "reasoning_effort": "none"}, CHAT)
    asked = provider(unsupported_values=always_thinks)
    translation, fitted = honoured(asked, call, Target("gemini-3-pro", fit=fit))
    assert (fitted.adapted, fitted.dropped) == (adapted, dropped)
    (request,) = cast(Any, translation).requests
    assert isinstance(request, ChatCompletionRequest)
    assert fitted.changes.get("reasoning_effort", request.reasoning_effort) == effort


@pytest.mark.parametrize("unsupported", [None, "adapt", "drop", "refuse"])
def test_what_has_no_place_is_refused_where_the_template_says_so(unsupported: str | None) -> None:
    one = provider(unsupported, placeless=frozenset({"messages.name"}))
    call = call_of(CHAT_BODY, CHAT)
    if unsupported == "refuse":
        with pytest.raises(APIError) as refused:
            honoured(one, call, Target("m"))
        assert (refused.value.status, refused.value.param) == (400, "messages.name")
        return
    _, fitted = honoured(one, call, Target("m"))
    assert fitted.dropped == ["messages.name"]
    assert fitted.changes["messages"][0].name is None


IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA==", "detail": "low"}}
DETAILED = {"model": "m", "messages": [{"role": "user", "content": [IMAGE]}]}


@pytest.mark.parametrize("unsupported", [None, "adapt", "drop", "refuse"])
@pytest.mark.parametrize(
    ("body", "operation", "members", "gone"),
    [
        ({**CHAT_BODY, "user": "u"}, CHAT, {}, "user"),
        ({**CHAT_BODY, "user": "u"}, CHAT, {"hint_places": HintPlaces(frozenset({"user"}))}, None),
        ({**CHAT_BODY, "service_tier": "auto", "metadata": {}}, CHAT, {}, None),
        ({**CHAT_BODY, "prediction": {"type": "content", "content": "x"}}, CHAT, {}, "prediction"),
        ({"model": "m", "prompt": "Once", "user": "u"}, COMPLETIONS, {}, "user"),
        ({"model": "m", "input": "Once", "user": "u"}, EMBEDDINGS, {}, "user"),
        (DETAILED, CHAT, {"placeless": frozenset({IMAGE_DETAIL})}, IMAGE_DETAIL),
        (DETAILED, CHAT, {}, None),
    ],
)
def test_a_hint_has_a_request_refused_only_where_the_template_says_so(
    body: Any, operation: Operation, members: Any, gone: str | None, unsupported: str | None
) -> None:
    one, call = provider(unsupported, **members), call_of(body, operation)
    if gone is not None and unsupported == "refuse":
        with pytest.raises(APIError) as refused:
            honoured(one, call, Target("m"))
        assert (refused.value.status, refused.value.param) == (400, gone)
        return
    _, fitted = honoured(one, call, Target("m"))
    assert fitted.dropped == ([] if gone is None else [gone])


@pytest.mark.parametrize("unsupported", [None, "adapt", "drop", "refuse"])
@pytest.mark.parametrize(("reasoning", "free"), [(False, False), (True, True), (None, True)])
def test_thinking_that_is_left_to_a_model_asks_nothing_of_one_that_can_t(
    reasoning: bool | None, free: bool, unsupported: str | None
) -> None:
    fit = fit_of(Facts(reasoning=reasoning, output=100))
    body = {**CHAT_BODY, "max_tokens": 9, "thinking": {"type": "adaptive"}}
    translation, fitted = honoured(
        provider(unsupported, parameters=ALL | {"max_tokens"}),
        call_of(body, MESSAGES),
        Target("m", fit=fit),
    )
    (request,) = cast(Any, translation).requests
    assert (fitted.dropped, request.reasoning_effort) == ([], None)
    assert request.adaptive_thinking
    assert fitted.changes.get("adaptive_thinking", True) is free


@pytest.mark.parametrize(
    ("members", "refused"),
    [
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
        ({"verbosity": "low", "temperature": 0.5}, None),
    ],
)
def test_what_is_for_chats_alone_is_not_for_prompts(
    members: dict[str, Any], refused: str | None
) -> None:
    call = call_of({"model": "m", "prompt": "Once", **members}, COMPLETIONS)
    if refused is None:
        assert honoured(provider(), call, Target("m"))[1].dropped == ["verbosity"]
        return
    with pytest.raises(APIError) as error:
        honoured(provider(), call, Target("m"))
    assert (error.value.status, error.value.param) == (400, refused)


@pytest.mark.parametrize(
    ("operation", "body", "refused"),
    [
        (CHAT, CHAT_BODY, None),
        (CHAT, {**CHAT_BODY, "messages": 7}, "messages"),
        (CHAT, {**CHAT_BODY, "logit_bias": {"1": 1}}, "logit_bias"),
        (EMBEDDINGS, {"model": "m", "input": "x", "dimensions": 7}, None),
        (EMBEDDINGS, {"model": "m", "input": "x", "truncate": "END"}, "truncate"),
        (RERANK, {"model": "m", "query": "x", "documents": ["y"]}, None),
        (RERANK, {"model": "m", "query": "x", "documents": 7}, "documents"),
        (COUNT_TOKENS, CHAT_BODY, None),
        (COUNT_TOKENS, {"model": "m", "messages": 7}, "messages"),
    ],
)
def test_what_is_wrong_is_known_before_its_model_is_there(
    operation: Operation, body: dict[str, Any], refused: str | None
) -> None:
    call = call_of(body, operation)
    if refused is None:
        check(provider(), call, Target("m"))
        return
    with pytest.raises(APIError) as error:
        check(provider(), call, Target("m"))
    assert (error.value.status, error.value.param) == (400, refused)
