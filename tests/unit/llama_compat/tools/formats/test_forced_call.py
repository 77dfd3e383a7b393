"""The call of a reply that was made to begin with one."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_compat.tools.formats import FORMATS, ForcedCallParser
from llama_compat.types import (
    AnyToolCall,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallParseStatus,
    UnparseableToolCall,
)

OPENINGS = {"get": '<call>{"name": "get", "with": {', "get_all": '<call>{"name": "get_all": {'}
GET = OPENINGS["get"]


def parse(pieces: Sequence[str], openings: dict[str, str] | None = None) -> list[AnyToolCall | str]:
    """The calls and texts that are found; what is streamed of a call has to be the call."""
    parser = ForcedCallParser(openings or OPENINGS)
    deltas = [delta for piece in pieces for delta in parser.push(piece)] + parser.flush()
    found: list[AnyToolCall | str] = []
    arguments = ""
    for delta in deltas:
        if isinstance(delta, TextDelta):
            found.append(delta.text)
            continue
        assert isinstance(delta, ToolCallDelta)
        assert delta.index == 0
        arguments += delta.arguments
        if delta.tool_call is not None:
            assert delta.tool_call.arguments_json == arguments
            found.append(delta.tool_call)
    assert parser.called == any(not isinstance(each, str) for each in found)
    return found


REPLIES = [
    (f'{GET}"city": "Paris"}}', "get", '{"city": "Paris"}', True),
    (f" \n{GET}}}}}</call> and more {{", "get", "{}", True),
    (f'{GET}"a": "}}\\"", "b": [{{}}]}}, "name": "get_all"}}', "get", None, True),
    (OPENINGS["get_all"] + "}", "get_all", "{}", True),
    (f'{GET}"city": "Pa', "get", '{"city": "Pa', False),
    (f'{GET}"city": ]}}', "get", '{"city": ', False),
    (f'{GET}"city": Paris}}', "get", '{"city": ', False),
    ('<call>{"name": "get",', "get", "", False),
]


@pytest.mark.parametrize(("text", "tool_name", "arguments", "succeeded"), REPLIES)
@pytest.mark.parametrize("cut", [1, 3, 1000])
def test_what_is_behind_the_opening_are_the_arguments(
    text: str, tool_name: str, arguments: str | None, succeeded: bool, cut: int
) -> None:
    (call,) = parse([text[at : at + cut] for at in range(0, len(text), cut)])
    assert isinstance(call, ToolCall if succeeded else UnparseableToolCall)
    assert call.tool_name == tool_name
    assert call.call_id.startswith("call_")
    if arguments is not None:
        assert call.arguments_json == arguments


@given(data=st.data(), text=st.sampled_from([reply[0] for reply in REPLIES]))
def test_any_cut_gives_the_same(data: st.DataObject, text: str) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(1, len(text) - 1))))
    pieces = [text[i:j] for i, j in zip([0, *cuts], [*cuts, len(text)], strict=True)]

    def said(found: list[AnyToolCall | str]) -> list[tuple[type, str, str]]:
        return [(type(c), c.tool_name, c.arguments_json) for c in found if not isinstance(c, str)]

    assert said(parse(pieces)) == said(parse([text]))


def test_the_arguments_come_as_they_are_written() -> None:
    parser = ForcedCallParser(OPENINGS)
    assert parser.push(GET[:-3]) == []
    started, first = parser.push(GET[-3:])
    assert isinstance(started, ToolCallDelta)
    assert started.parse_status is ToolCallParseStatus.started
    (second,) = parser.push('"a": ')
    assert isinstance(first, ToolCallDelta)
    assert isinstance(second, ToolCallDelta)
    assert (first.arguments, second.arguments) == ("{", '"a": ')
    *_, last = parser.push("1}}")
    assert isinstance(last, ToolCallDelta)
    assert last.parse_status is ToolCallParseStatus.succeeded
    assert parser.push('{"b": 2}') == parser.flush() == []


def test_too_little_to_tell_the_tool() -> None:
    assert parse(['<call>{"name": "g']) == []
    assert parse([]) == []


def test_a_reply_that_does_not_begin_so_is_text() -> None:
    assert parse(["Hello ", "there"]) == ["Hello there"]


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_every_format_can_be_made_to_call(name: str) -> None:
    openings = {tool: FORMATS[name].call_opening(tool) for tool in ("f", 'say "hi"')}
    for tool, opening in openings.items():
        (call,) = parse([opening, '"x": 1}'], openings)
        assert (call.tool_name, call.arguments) == (tool, {"x": 1})  # type: ignore[union-attr]
