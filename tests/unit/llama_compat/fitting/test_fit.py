from __future__ import annotations

from typing import Any

import pytest

from llama_compat.catalog.facts import EFFORTS, Facts
from llama_compat.fitting.fit import (
    GO_ON,
    Fit,
    Fitted,
    fit_members,
    fit_of,
    fit_request,
    lacking,
    member_at,
    remove,
    set_member,
)
from llama_compat.hosted.vocabulary import WebSearchTool
from llama_compat.types import (
    ChatCompletionRequest,
    CompletionMessage,
    Message,
    ResponseFormat,
    SamplingParams,
    SystemMessage,
    ThinkingForm,
    ToolCall,
    ToolChoice,
    ToolDefinition,
    ToolResponseMessage,
    UserMessage,
)

CALL = ToolCall("c", "f", {}, "{}")
SCHEMA = ResponseFormat("json_schema", "place", {"type": "object"})


def fit(**facts: Any) -> Fit:
    made = fit_of(Facts(**facts))
    assert made is not None
    return made


def request(**fields: Any) -> ChatCompletionRequest:
    return ChatCompletionRequest("m", (UserMessage("hi"),), **fields)


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"context": 100, "tools": True, "structured_output": True, "input": ("text",)},
        {"sampling": "any", "reasoning": True, "shutdown": None},
    ],
)
def test_where_there_is_nothing_to_do_there_is_no_fit(facts: dict[str, Any]) -> None:
    assert fit_of(Facts(**facts)) is None


# Members -----------------------------------------------------------------------------------------


def fitted(made: Fit, body: dict[str, Any], *, lenient: bool = True) -> tuple[Fitted, Any]:
    asked = {name: name for name in body}
    return fit_members(made, body, asked, lenient=lenient), body


@pytest.mark.parametrize("lenient", [False, True])
@pytest.mark.parametrize(
    "body",
    [{"temperature": 1}, {"temperature": 1.0}, {"top_p": 1}, {"top_k": -1}, {"top_k": 0}],
    ids=str,
)
def test_what_is_so_anyway_is_left_out(body: dict[str, Any], lenient: bool) -> None:
    name = next(iter(body))
    found, left = fitted(fit(sampling="default"), {**body}, lenient=lenient)
    assert (found.adapted, found.dropped, found.refused, left) == ([name], [], {}, {})


def test_a_wish_is_dropped_by_name() -> None:
    found, left = fitted(fit(sampling="default"), {"temperature": 0.5, "top_p": True})
    assert (found.dropped, left) == (["temperature", "top_p"], {})


def test_or_left_to_be_refused() -> None:
    found, left = fitted(fit(sampling="default"), {"temperature": 0.5}, lenient=False)
    assert found.refused == {"temperature": "the model takes no other than its default"}
    assert left == {"temperature": 0.5}


def test_what_a_client_would_miss_is_refused() -> None:
    found, left = fitted(fit(refuses=("logprobs", "seed")), {"logprobs": True, "seed": 1})
    assert [*found.refused] == ["logprobs"]
    assert (found.dropped, left) == (["seed"], {"logprobs": True})


@pytest.mark.parametrize(
    ("usual", "asked", "taken"),
    [
        ("none", None, True),
        ("medium", None, False),
        (None, None, False),
        ("medium", "none", True),
        ("none", "low", False),
    ],
)
def test_some_sample_as_long_as_they_do_not_think(
    usual: Any, asked: str | None, taken: bool
) -> None:
    body = {"temperature": 0.5} | ({} if asked is None else {"reasoning_effort": asked})
    _, left = fitted(fit(sampling="unthinking", usual_effort=usual), body)
    assert ("temperature" in left) is taken


@pytest.mark.parametrize(
    ("asked", "left", "adapted", "dropped"),
    [
        ({"temperature": 0.5}, {"temperature"}, [], []),
        ({"top_p": 0.5, "top_k": 4}, {"top_p", "top_k"}, [], []),
        ({"temperature": 0.5, "top_p": 0.5}, {"temperature"}, [], ["top_p"]),
        ({"temperature": 0.5, "top_p": 1}, {"temperature"}, ["top_p"], []),
        ({"temperature": 1.0, "top_p": 0.5}, {"top_p"}, ["temperature"], []),
        ({"temperature": 1, "top_p": 1}, {"temperature"}, ["top_p"], []),
        ({"temperature": 0.5, "top_p": None}, {"temperature", "top_p"}, [], []),
        (
            {"temperature": 0.5, "top_p": 0.5, "reasoning_effort": "low"},
            {"reasoning_effort"},
            [],
            ["temperature", "top_p"],
        ),
    ],
)
def test_some_take_a_temperature_or_a_top_p(
    asked: dict[str, Any], left: set[str], adapted: list[str], dropped: list[str]
) -> None:
    found, body = fitted(fit(sampling="one", usual_effort="none"), dict(asked))
    assert (set(body), found.adapted, found.dropped) == (left, adapted, dropped)


def test_both_are_refused_where_nothing_is_adapted() -> None:
    one = fit(sampling="one", usual_effort="none")
    found, body = fitted(one, {"temperature": 0.5, "top_p": 0.5}, lenient=False)
    assert [*found.refused] == ["top_p"]
    found, body = fitted(one, {"temperature": 0.5, "top_p": 1}, lenient=False)
    assert (body, found.adapted, found.refused) == ({"temperature": 0.5}, ["top_p"], {})


def test_how_hard_to_think_is_read_in_the_words_of_its_api() -> None:
    thinking = {"thinkingBudget": 0}
    body = {"temperature": 0.5, "thinkingConfig": thinking}
    asked = {"temperature": "temperature", "thinkingConfig": "reasoning_effort"}
    one = fit(sampling="one", usual_effort="high")
    fit_members(one, body, asked, lenient=True, effort=lambda _: "none")
    assert body == {"temperature": 0.5, "thinkingConfig": thinking}
    fit_members(one, body, asked, lenient=True, effort=lambda _: "low")
    assert body == {"thinkingConfig": thinking}


@pytest.mark.parametrize(
    ("limit", "becomes"),
    [(99, 99), (100, 100), (101, 100), (1e9, 100), ("200", 100), ("50", "50"), (True, True)],
)
def test_a_limit_is_the_model_s_at_most(limit: Any, becomes: Any) -> None:
    found, left = fitted(fit(output=100), {"max_tokens": limit})
    assert left == {"max_tokens": becomes}
    assert found.adapted == (["max_tokens=100"] if limit != becomes else [])


def test_a_limit_is_left_alone_where_nothing_is_adapted() -> None:
    _, left = fitted(fit(output=100), {"max_tokens": 200}, lenient=False)
    assert left == {"max_tokens": 200}


def test_members_may_lie_deeper() -> None:
    body = {"generationConfig": {"maxOutputTokens": 200, "temperature": 0.5}, "a.b": 1}
    asked = {
        "generationConfig.maxOutputTokens": "max_tokens",
        "generationConfig.temperature": "temperature",
    }
    found = fit_members(fit(output=100, sampling="default"), body, asked, lenient=True)
    assert body == {"generationConfig": {"maxOutputTokens": 100}, "a.b": 1}
    assert found.adapted == ["generationConfig.maxOutputTokens=100"]
    assert found.dropped == ["generationConfig.temperature"]
    assert member_at(body, "a.b") == 1
    remove(body, "a.b")
    set_member(body, "no.such", 1)
    assert body == {"generationConfig": {"maxOutputTokens": 100}}


# The vocabulary ----------------------------------------------------------------------------------


def changed(made: Fit, asked: ChatCompletionRequest, *, adapt: bool = True) -> Fitted:
    found = Fitted()
    fit_request(made, asked, {}, found, adapt=adapt)
    return found


@pytest.mark.parametrize("known", [EFFORTS[1:4], ("low", "high"), ("high",), ("none", "max")])
@pytest.mark.parametrize("wanted", EFFORTS)
def test_an_effort_is_the_nearest_that_the_model_knows(wanted: str, known: Any) -> None:
    effort = fit(efforts=known).effort(wanted)
    assert effort in known
    if wanted in known:
        assert effort == wanted
    elif EFFORTS.index(wanted) < EFFORTS.index(known[-1]):
        assert EFFORTS.index(effort) > EFFORTS.index(wanted)


def test_an_effort_is_mapped_and_named() -> None:
    found = changed(fit(efforts=("low", "high")), request(reasoning_effort="max"))
    assert found.changes == {"reasoning_effort": "high"}
    assert found.adapted == ["reasoning_effort=high"]


def test_or_refused_where_nothing_is_adapted() -> None:
    found = changed(fit(efforts=("low",)), request(reasoning_effort="max"), adapt=False)
    assert found.refused == {"reasoning_effort": "the model knows the efforts 'low'"}


def test_a_word_that_nobody_knows_is_left_for_the_dialect() -> None:
    assert fit(efforts=("low",)).effort("lots") == "lots"


def test_an_effort_may_be_a_budget() -> None:
    found = changed(fit(thinking="budget"), request(reasoning_effort="low"))
    assert found.changes == {"thinking": ThinkingForm("budget")}
    assert found.adapted == ["reasoning_effort=budget"]


def test_what_was_said_though_it_is_usual_is_not_said() -> None:
    sampling = SamplingParams(stated=frozenset({"temperature", "presence_penalty"}))
    found = changed(fit(refuses=("presence_penalty",)), request(sampling=sampling))
    assert found.changes["sampling"].stated == {"temperature"}


@pytest.mark.parametrize(
    ("facts", "asked"),
    [
        ({"forced_tools": False}, {"tool_choice": ToolChoice("required")}),
        ({"forced_tools": False}, {"tool_choice": ToolChoice("required", "look")}),
        ({"json_object": False}, {"response_format": ResponseFormat("json_object")}),
        (
            {"json_beside_tools": False, "forced_tools": False},
            {"response_format": SCHEMA, "tools": (ToolDefinition("look"),)},
        ),
        ({"structured_output": False, "tools": False}, {"response_format": SCHEMA}),
        ({"structured_output": False, "forced_tools": False}, {"response_format": SCHEMA}),
    ],
)
def test_what_has_no_equal_is_refused(facts: dict[str, Any], asked: dict[str, Any]) -> None:
    found = changed(fit(**facts), request(**asked))
    assert len(found.refused) == 1
    assert not found.reply_tool


@pytest.mark.parametrize(
    ("facts", "asked"),
    [
        ({"forced_tools": False}, {"tool_choice": ToolChoice("auto")}),
        ({"json_object": False}, {"response_format": SCHEMA}),
        ({"structured_output": False}, {"response_format": ResponseFormat("json_object")}),
        ({"structured_output": False}, {"response_format": ResponseFormat("text")}),
        ({"json_beside_tools": False}, {"response_format": SCHEMA}),
        ({"json_beside_tools": False}, {"tools": (ToolDefinition("look"),)}),
    ],
)
def test_what_can_be_had_is_left_alone(facts: dict[str, Any], asked: dict[str, Any]) -> None:
    found = changed(fit(**facts), request(**asked))
    assert (found.refused, found.changes) == ({}, {})


@pytest.mark.parametrize(
    ("facts", "asked"),
    [
        ({"structured_output": False}, {"response_format": SCHEMA}),
        (
            {"structured_output": False},
            {"response_format": SCHEMA, "tools": (ToolDefinition("look"),)},
        ),
        (
            {"json_beside_tools": False},
            {"response_format": SCHEMA, "tools": (ToolDefinition("look"),)},
        ),
        (
            {"json_beside_tools": False},
            {
                "response_format": ResponseFormat("json_object"),
                "hosted": (WebSearchTool("web_search"),),
            },
        ),
    ],
)
def test_json_comes_as_a_call_where_a_model_can_not_be_held_to_it(
    facts: dict[str, Any], asked: dict[str, Any]
) -> None:
    found = changed(fit(**facts), request(**asked))
    assert (found.reply_tool, found.refused) == (True, {})
    assert found.adapted == ["response_format=tool"]


def test_instructions_get_the_role_that_the_model_takes() -> None:
    messages = (SystemMessage("a"), SystemMessage("b", "developer"), UserMessage("c"))
    asked = ChatCompletionRequest("m", messages)
    found = changed(fit(instructions="developer"), asked)
    assert found.changes["messages"] == (SystemMessage("a", "developer"), *messages[1:])
    assert found.adapted == ["messages.role=developer"]
    assert changed(fit(instructions="developer"), request()).changes == {}


@pytest.mark.parametrize(
    ("said", "goes_on"),
    [
        ([CompletionMessage.of("It is")], True),
        ([CompletionMessage.of("It is"), SystemMessage("Be brief.")], True),
        ([CompletionMessage.of(" ")], False),
        ([CompletionMessage.of("", [CALL]), ToolResponseMessage("c", "1")], False),
        ([CompletionMessage.of("It is"), UserMessage("What?")], False),
    ],
)
@pytest.mark.parametrize(
    "known", [{"prefill": False}, {"prefill": False, "instructions": "system"}]
)
def test_a_model_that_does_not_go_on_by_itself_is_asked_to(
    said: list[Message], goes_on: bool, known: dict[str, Any]
) -> None:
    messages = (SystemMessage("x", "developer"), UserMessage("hi"), *said)
    found = changed(fit(**known), ChatCompletionRequest("m", messages))
    told = found.changes.get("messages", messages)
    assert (told[-1] == UserMessage(GO_ON)) is goes_on
    assert ("messages.prefill=user" in found.adapted) is goes_on
    assert len(told) == len(messages) + goes_on
    assert told[0].role == known.get("instructions", "developer")


def test_prefill_is_left_alone_elsewhere() -> None:
    asked = ChatCompletionRequest("m", (UserMessage("hi"), CompletionMessage.of("It is")))
    assert fit_of(Facts(prefill=True)) is None
    left = Fitted()
    fit_request(fit(prefill=False), asked, {}, left, adapt=False)
    assert (left.changes, left.refused) == ({}, {})


# What is known beforehand ------------------------------------------------------------------------


def test_what_a_model_lacks() -> None:
    made = fit(
        sampling="default",
        refuses=("logprobs",),
        input=("text", "image"),
        tools=True,
        structured_output=False,
    )
    strict = lacking(made, lenient=False, adapt=False)
    assert strict == {
        *("temperature", "top_p", "top_k", "logprobs"),
        *("audio", "document", "json_schema"),
    }
    assert lacking(made, lenient=True, adapt=True) == {"logprobs", "audio", "document"}
