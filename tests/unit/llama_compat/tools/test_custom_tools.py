"""Custom tools as functions, and what a function with one text is called with."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from llama_compat.tools.custom_tools import InputUnwrapper, custom_tool, wrap


def test_a_custom_tool_is_a_function_with_one_text() -> None:
    tool = custom_tool("patch", "Edits.", ("lark", "start: x"))
    assert tool.description == "Edits.\n\nThe input has to match this grammar (lark):\nstart: x"
    assert tool.parameters is not None
    assert tool.parameters["required"] == ["input"]
    assert custom_tool("patch", None).description is None


def unwrap(arguments: str) -> str:
    """The input in `arguments` that come in one piece."""
    unwrapper = InputUnwrapper()
    return unwrapper.push(arguments) + unwrapper.finish()


@given(st.data())
def test_a_custom_input_is_the_same_however_it_is_cut(data: st.DataObject) -> None:
    text = data.draw(st.text(st.sampled_from('{}"\\u0aé input:n\n, '), max_size=30))
    arguments = data.draw(st.sampled_from([text, '{"input": "' + text, wrap(text), '{ "input" :"']))
    places = sorted(data.draw(st.lists(st.integers(0, len(arguments)), max_size=6)))
    bounds = zip([0, *places], [*places, len(arguments)], strict=True)
    unwrapper = InputUnwrapper()
    pieces = [unwrapper.push(arguments[begin:end]) for begin, end in bounds]
    assert "".join(pieces) + unwrapper.finish() == unwrap(arguments)
    assert unwrap(wrap(text)) == text


def test_a_custom_input_may_come_as_something_else() -> None:
    assert unwrap('{"other": 1, "input": "x"}') == "x"
    assert unwrap('{"other": 1}') == '{"other": 1}'
    assert unwrap("*** Begin Patch") == "*** Begin Patch"
    assert unwrap('{"input": "\\ud83d\\ude42\\q\\u12"}') == "🙂q\\u12"
