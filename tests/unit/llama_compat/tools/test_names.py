"""Names of tools as each API takes them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_compat.tools.names import (
    ANTHROPIC_NAMES,
    GEMINI_NAMES,
    OPENAI_NAMES,
    NameForm,
    with_fitting_names,
    with_own_names,
)
from llama_compat.types import (
    ChatCompletionRequest,
    CompletionMessage,
    StreamEvent,
    StreamProgress,
    StreamStart,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallParseStatus,
    ToolChoice,
    ToolDefinition,
    UnparseableToolCall,
    UserMessage,
)

LONG = "mcp__plugin_jenkins-mcp-plugin_jenkins__jenkins_get_build_console"
FORMS = [OPENAI_NAMES, ANTHROPIC_NAMES, GEMINI_NAMES]


@pytest.mark.parametrize(
    ("form", "taken", "refused"),
    [
        (OPENAI_NAMES, ["f", "1-a_B", "a" * 64], ["", LONG, "a.b", "a:b", "é", "a\n"]),
        (ANTHROPIC_NAMES, ["f", "1-a_B", LONG, "a" * 128], ["", "a" * 129, "a.b", "a b"]),
        (GEMINI_NAMES, ["f", "_a.b:c-1"], ["", LONG, "1a", "-a", "a/b"]),
    ],
)
def test_what_fits_stays_and_all_else_comes_to_fit(
    form: NameForm, taken: list[str], refused: list[str]
) -> None:
    assert [form.fitted(name) for name in taken] == taken
    fitted = [form.fitted(name) for name in refused]
    assert all(map(form.takes, fitted))
    assert not set(fitted) & set(refused)


@given(st.sampled_from(FORMS), st.sets(st.text(max_size=140), min_size=2, max_size=4))
def test_no_two_names_come_to_be_one(form: NameForm, names: set[str]) -> None:
    fitted = {form.fitted(name) for name in names}
    assert len(fitted) == len(names)
    assert all(map(form.takes, fitted))


def asked(*names: str, called: str = "f") -> ChatCompletionRequest:
    calls = (ToolCall("c1", called, {}, "{}"), UnparseableToolCall("c2", called, "{"))
    return ChatCompletionRequest(
        "m",
        (UserMessage("x"), CompletionMessage(calls)),
        tools=tuple(ToolDefinition(name) for name in names),
        tool_choice=ToolChoice("required", names[-1]),
    )


def test_a_request_whose_names_fit_is_the_same() -> None:
    request = asked("f", "g")
    assert with_fitting_names(request, OPENAI_NAMES) is request


def test_a_tool_has_one_name_wherever_it_is_named() -> None:
    told = with_fitting_names(asked("f", LONG, called=LONG), OPENAI_NAMES)
    short = OPENAI_NAMES.fitted(LONG)
    assert [tool.tool_name for tool in told.tools] == ["f", short]
    assert told.tool_choice == ToolChoice("required", short)
    (_, said) = told.messages
    assert isinstance(said, CompletionMessage)
    assert [call.tool_name for call in said.tool_calls] == [short, short]


def test_what_a_model_calls_has_the_clients_name_again() -> None:
    request, short = asked("f", LONG), OPENAI_NAMES.fitted(LONG)
    call = ToolCall("c1", short, {}, "{}")
    said: list[StreamEvent] = [
        StreamStart(),
        StreamProgress(TextDelta(short)),
        StreamProgress(ToolCallDelta(0, ToolCallParseStatus.started, "c1", short)),
        StreamProgress(ToolCallDelta(0, ToolCallParseStatus.succeeded, tool_call=call)),
        StreamProgress(ToolCallDelta(1, ToolCallParseStatus.started, "c2", "other")),
    ]

    async def events() -> AsyncGenerator[StreamEvent, None]:
        for each in said:
            yield each

    async def heard() -> list[StreamEvent]:
        return [each async for each in with_own_names(events(), request, OPENAI_NAMES)]

    own = ToolCall("c1", LONG, {}, "{}")
    assert asyncio.run(heard()) == [
        *said[:2],
        StreamProgress(ToolCallDelta(0, ToolCallParseStatus.started, "c1", LONG)),
        StreamProgress(ToolCallDelta(0, ToolCallParseStatus.succeeded, tool_call=own)),
        said[4],
    ]
