from __future__ import annotations

import json
from typing import Any

import pytest

from llama_compat.catalog.facts import Facts
from llama_compat.dialects.anthropic_messages.operations import MESSAGES
from llama_compat.dialects.gemini.operations import GENERATE
from llama_compat.dialects.openai.operations import CHAT, EMBEDDINGS
from llama_compat.dialects.openai_responses.operations import RESPONSES
from llama_compat.fitting.fit import GO_ON, fit_of
from llama_compat.fitting.relayed import FittedFields, fit_fields
from tests.unit.calls import call_of

HI: list[Any] = [{"role": "user", "content": "hi"}]


def fitted(body: dict[str, Any], operation: Any = CHAT, **facts: Any) -> FittedFields | None:
    fit = fit_of(Facts(**facts))
    assert fit is not None
    return fit_fields(fit, call_of(body, operation))


def becomes(body: dict[str, Any], operation: Any = CHAT, **facts: Any) -> tuple[Any, list[str]]:
    """What is sent but for the model and what was said, and what is told of it."""
    found = fitted(body, operation, **facts)
    assert found is not None
    sent = {name: json.loads(bytes(raw)) for name, raw in found.fields.items()}
    for name in ("model", "messages", "contents", "input"):
        sent.pop(name, None)
    return sent, [*found.adapted, *found.dropped]


def test_members_that_nothing_is_done_about_keep_their_bytes() -> None:
    raw = b'{"model":"m","messages":[ {"role":"user","content":"\\u0068i"} ],"temperature":0.50}'
    fit = fit_of(Facts(sampling="default"))
    assert fit is not None
    call = call_of(raw)
    found = fit_fields(fit, call)
    assert found is not None
    assert found.dropped == ("temperature",)
    assert [*found.fields] == ["model", "messages"]
    assert all(found.fields[name] is call.fields[name] for name in found.fields)


@pytest.mark.parametrize(
    ("asked", "facts", "sent", "told"),
    [
        ({"temperature": 1}, {"sampling": "default"}, {}, ["temperature"]),
        ({"stop": []}, {"refuses": ("stop",)}, {}, ["stop"]),
        (
            {"temperature": 0, "reasoning_effort": "none"},
            {"sampling": "unthinking"},
            {"temperature": 0, "reasoning_effort": "none"},
            [],
        ),
        ({"stop": ["x"]}, {"refuses": ("stop",)}, {"stop": ["x"]}, []),  # for the vendor to say
        (
            {"max_tokens": 5},
            {"renamed": {"max_tokens": "max_completion_tokens"}},
            {"max_completion_tokens": 5},
            ["max_tokens=max_completion_tokens"],
        ),
        (
            {"max_tokens": 5, "max_completion_tokens": 6},
            {"renamed": {"max_tokens": "max_completion_tokens"}},
            {"max_tokens": 5, "max_completion_tokens": 6},
            [],
        ),
        (
            {"reasoning_effort": "max"},
            {"efforts": ("low", "high")},
            {"reasoning_effort": "high"},
            ["reasoning_effort=high"],
        ),
        ({"reasoning_effort": "low"}, {"reasoning": False}, {}, ["reasoning_effort"]),
        ({"reasoning_effort": 7}, {"efforts": ("low",)}, {"reasoning_effort": 7}, []),
    ],
)
def test_chats(asked: Any, facts: Any, sent: Any, told: list[str]) -> None:
    assert becomes({"messages": HI, **asked}, **facts) == (sent, told)


def test_roles() -> None:
    said = [{"role": "developer", "content": "a"}, *HI]
    found = fitted({"messages": said}, instructions="system")
    assert found is not None
    assert json.loads(bytes(found.fields["messages"])) == [{"role": "system", "content": "a"}, *HI]
    assert found.adapted == ("messages.role=system",)


def test_responses() -> None:
    body = {"input": "hi", "reasoning": {"effort": "minimal", "summary": "auto"}, "top_p": 0.5}
    sent, told = becomes(body, RESPONSES, efforts=("low",), sampling="default")
    assert sent == {"reasoning": {"effort": "low", "summary": "auto"}}
    assert told == ["reasoning.effort=low", "top_p"]


@pytest.mark.parametrize(
    ("asked", "facts", "sent"),
    [
        (
            {"thinking": {"type": "enabled", "budget_tokens": 9000, "display": "omitted"}},
            {"thinking": "adaptive"},
            {
                "thinking": {"type": "adaptive", "display": "omitted"},
                "output_config": {"effort": "medium"},
            },
        ),
        (
            {"output_config": {"effort": "low", "format": {}}, "thinking": {"type": "adaptive"}},
            {"thinking": "budget"},
            {
                "output_config": {"format": {}},
                "thinking": {"type": "enabled", "budget_tokens": 1024},
            },
        ),
        ({"output_config": {"effort": "max"}, "max_tokens": 500}, {"thinking": "budget"}, {}),
        ({"thinking": {"type": "disabled"}}, {"thinking_off": "omitted"}, {}),
        (
            {"thinking": {"type": "disabled"}},
            {"thinking_off": "between_tools"},
            {"thinking": {"type": "between_tools"}},
        ),
        (
            {"thinking": {"type": "disabled"}},
            {"thinking": "adaptive", "efforts": ("low", "high")},
            {"output_config": {"effort": "low"}},
        ),
        (
            {"output_config": {"effort": "xhigh"}},
            {"thinking": "adaptive", "efforts": ("low", "high")},
            {"output_config": {"effort": "high"}},
        ),
        (
            {"thinking": {"type": "adaptive"}},
            {"thinking": "adaptive", "efforts": ("low",)},
            {"thinking": {"type": "adaptive"}},
        ),
        (
            {"thinking": {"type": "nonsense"}},
            {"thinking": "adaptive"},
            {"thinking": {"type": "nonsense"}},
        ),
    ],
    ids=str,
)
def test_messages(asked: Any, facts: Any, sent: Any) -> None:
    body = {"messages": HI, "max_tokens": 10_000, **asked}
    found, told = becomes(body, MESSAGES, **facts)
    del found["max_tokens"]
    assert found == sent
    changed = {name for name in ("thinking", "output_config") if asked.get(name) != sent.get(name)}
    assert {each.partition("=")[0] for each in told} == changed


@pytest.mark.parametrize(
    ("thinking", "facts", "sent"),
    [
        (
            {"thinkingBudget": 0},
            {"thinking": "level", "efforts": ("low",)},
            {"thinkingLevel": "LOW"},
        ),
        ({"thinkingLevel": "low"}, {"thinking": "level"}, {"thinkingLevel": "low"}),
        (
            {"thinkingLevel": "MINIMAL", "includeThoughts": True},
            {"thinking": "level", "efforts": ("low",)},
            {"thinkingLevel": "LOW", "includeThoughts": True},
        ),
        ({"thinkingLevel": "HIGH"}, {"thinking": "budget"}, {"thinkingBudget": 24576}),
        ({"thinkingBudget": -1}, {"thinking": "level"}, {"thinkingBudget": -1}),
    ],
    ids=str,
)
def test_gemini(thinking: Any, facts: Any, sent: Any) -> None:
    said = [{"parts": [{"text": "hi"}]}]
    body = {"contents": said, "generationConfig": {"thinkingConfig": thinking}}
    found, told = becomes(body, GENERATE, **facts)
    assert found == {"generationConfig": {"thinkingConfig": sent}}
    assert bool(told) is (thinking != sent)


def test_a_reply_that_has_to_be_rendered_anew_is_translated() -> None:
    schema = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}}
    body = {"messages": HI, "response_format": schema}
    assert fitted(body, structured_output=False) is None
    older = {"type": "json_object", "schema": {"type": "object"}}
    assert fitted({"messages": HI, "response_format": older}, structured_output=False) is None
    body = {"messages": HI, "response_format": {"type": "json_object"}}
    assert fitted(body, structured_output=False) is not None
    assert fitted({"messages": HI}, structured_output=False) is not None


def test_what_generates_nothing_passes_as_it_is() -> None:
    sent, told = becomes({"input": "hi", "temperature": 0.5}, EMBEDDINGS, sampling="default")
    assert (sent, told) == ({"temperature": 0.5}, [])


@pytest.mark.parametrize(
    ("last", "goes_on"),
    [
        ({"role": "assistant", "content": "It is"}, True),
        ({"role": "assistant", "content": [{"type": "text", "text": "It is"}]}, True),
        ({"role": "assistant", "content": ""}, False),
        ({"role": "user", "content": "x"}, False),
    ],
)
def test_a_model_that_does_not_go_on_by_itself_is_asked_to(
    last: dict[str, Any], goes_on: bool
) -> None:
    call = call_of({"messages": [*HI, last]})
    fit = fit_of(Facts(prefill=False))
    assert fit is not None
    found = fit_fields(fit, call)
    assert found is not None
    told = json.loads(bytes(found.fields["messages"]))
    assert told[:2] == [*HI, last]
    assert told[2:] == ([{"role": "user", "content": GO_ON}] if goes_on else [])
    assert found.adapted == (("messages.prefill=user",) if goes_on else ())


FUNCTION: Any = {"type": "function", "function": {"name": "look"}}


@pytest.mark.parametrize(
    ("asked", "is_relayed"),
    [
        ({"response_format": {"type": "json_object"}, "tools": [FUNCTION]}, False),
        ({"response_format": {"type": "json_object"}}, True),
        ({"tools": [FUNCTION]}, True),
    ],
)
def test_json_beside_tools_is_translated_where_a_model_has_none(
    asked: dict[str, Any], is_relayed: bool
) -> None:
    found = fitted({"messages": HI, **asked}, json_beside_tools=False)
    assert (found is not None) is is_relayed
