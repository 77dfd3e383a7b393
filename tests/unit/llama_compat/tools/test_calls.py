"""Streamed tool calls put together from fragments."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_compat.tools.calls import (
    ToolCallAssembler,
    new_call_id,
    parse_json,
    parse_tool_call,
)
from llama_compat.types import (
    AnyToolCall,
    ToolCall,
    ToolCallDelta,
    ToolCallParseStatus,
    UnparseableToolCall,
)

Fragment = dict[str, Any]


def assemble(
    *fragments: Fragment, whole: bool = False, cut: bool = False
) -> tuple[list[ToolCallDelta], list[AnyToolCall]]:
    """All events, and the calls that they end with in the order of their index."""
    assembler = ToolCallAssembler(whole=whole)
    events = [event for fragment in fragments for event in assembler.push(**fragment)]
    events += assembler.finish(cut=cut)
    calls = {event.index: event.tool_call for event in events if event.tool_call is not None}
    assert sorted(calls) == list(range(len(calls)))
    return events, [calls[index] for index in sorted(calls)]


def statuses(events: list[ToolCallDelta]) -> list[str]:
    return [event.parse_status.value for event in events]


# parse_tool_call ----------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", " ", "\n\t"])
def test_no_text_is_no_arguments(text):
    assert parse_tool_call("id", "f", text) == ToolCall("id", "f", {}, "{}")


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ('{"a": 1}', {"a": 1}),
        ('{"a": 1000000000000000000000000000000}', {"a": 10**30}),
        ('{"a": "\\ud83d\\ude00"}', {"a": "😀"}),
        ('{"a": "\\ud83d"}', {"a": "\ud83d"}),
        (' {"a":\n[1.50]} ', {"a": [1.5]}),
    ],
)
def test_arguments_are_parsed_and_their_text_kept(text, arguments):
    assert parse_tool_call("id", "f", text) == ToolCall("id", "f", arguments, text)


@pytest.mark.parametrize(
    "text",
    ['{"a": 1', "[1]", "null", '"text"', "{'a': 1}", '{"a": NaN}', "{}{}", "[" * 100_000, "x"],
)
def test_what_is_no_json_object_is_kept_as_text(text):
    assert parse_tool_call("id", "f", text) == UnparseableToolCall("id", "f", text)


def test_deep_nesting_is_a_value_error():
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_json('{"a":' * 50_000)


def test_new_ids_have_openais_form_and_differ():
    ids = {new_call_id() for _ in range(100)}
    assert len(ids) == 100
    assert all(re.fullmatch(r"call_[0-9a-f]{24}", call_id) for call_id in ids)


# The usual stream ---------------------------------------------------------------------------------


def test_a_call_starts_progresses_and_succeeds():
    events, calls = assemble(
        {"index": 0, "call_id": "c1", "tool_name": "f", "arguments": ""},
        {"index": 0, "arguments": '{"a"'},
        {"index": 0, "arguments": ": 1}"},
    )
    call = ToolCall("c1", "f", {"a": 1}, '{"a": 1}')
    assert events == [
        ToolCallDelta(0, ToolCallParseStatus.started, call_id="c1", tool_name="f"),
        ToolCallDelta(0, ToolCallParseStatus.in_progress, arguments='{"a"'),
        ToolCallDelta(0, ToolCallParseStatus.in_progress, arguments=": 1}"),
        ToolCallDelta(0, ToolCallParseStatus.succeeded, tool_call=call),
    ]
    assert calls == [call]


def test_whole_mode_gives_only_the_complete_call():
    events, calls = assemble(
        {"index": 0, "call_id": "c1", "tool_name": "f"},
        {"index": 0, "arguments": '{"a": 1}'},
        {"index": 1, "call_id": "c2", "tool_name": "g"},
        whole=True,
    )
    assert statuses(events) == ["succeeded", "succeeded"]
    assert [call.tool_name for call in calls] == ["f", "g"]


def test_interleaved_calls_are_told_apart_by_index():
    events, calls = assemble(
        {"index": 3, "call_id": "c1", "tool_name": "f"},
        {"index": 7, "call_id": "c2", "tool_name": "g"},
        {"index": 7, "arguments": '{"b"'},
        {"index": 3, "arguments": '{"a"'},
        {"index": 7, "arguments": ":2}"},
        {"index": 3, "arguments": ":1}"},
    )
    assert [event.index for event in events] == [0, 1, 1, 0, 1, 0, 0, 1]
    assert calls == [
        ToolCall("c1", "f", {"a": 1}, '{"a":1}'),
        ToolCall("c2", "g", {"b": 2}, '{"b":2}'),
    ]


def test_end_completes_one_call_and_leaves_the_others_open():
    assembler = ToolCallAssembler()
    assembler.push(index=1, call_id="c1", tool_name="f", arguments="{}")
    assembler.push(index=2, call_id="c2", tool_name="g")
    assert statuses(assembler.end(1)) == ["succeeded"]
    assert assembler.end(1) == []
    assert assembler.end(9) == []
    assert [event.tool_call for event in assembler.finish()] == [ToolCall("c2", "g", {}, "{}")]
    assert assembler.finish() == []


def test_an_index_that_has_ended_begins_a_new_call():
    assembler = ToolCallAssembler(whole=True)
    assembler.push(index=0, call_id="c1", tool_name="f")
    first = assembler.end(0)
    assembler.push(index=0, call_id="c2", tool_name="f")
    second = assembler.finish()
    assert [event.index for event in first + second] == [0, 1]


# Ids and names that are late or missing -----------------------------------------------------------


def test_a_late_id_is_waited_for():
    events, calls = assemble(
        {"index": 0, "tool_name": "f"},
        {"index": 0, "call_id": "c1"},
        {"index": 0, "arguments": "{}"},
    )
    assert statuses(events) == ["started", "in_progress", "succeeded"]
    assert events[0].call_id == calls[0].call_id == "c1"


def test_an_id_is_made_when_the_arguments_begin_without_one():
    events, calls = assemble(
        {"index": 0, "tool_name": "f", "arguments": "{"},
        {"index": 0, "call_id": "too-late", "arguments": "}"},
    )
    assert statuses(events) == ["started", "in_progress", "in_progress", "succeeded"]
    assert re.fullmatch(r"call_[0-9a-f]{24}", events[0].call_id)
    assert calls[0].call_id == events[0].call_id


def test_arguments_before_the_name_wait_for_it():
    events, calls = assemble(
        {"index": 0, "call_id": "c1", "arguments": '{"a"'},
        {"index": 0, "arguments": ":"},
        {"index": 0, "tool_name": "f", "arguments": "1}"},
    )
    assert statuses(events) == ["started", "in_progress", "succeeded"]
    assert events[1].arguments == '{"a":1}'
    assert calls == [ToolCall("c1", "f", {"a": 1}, '{"a":1}')]


def test_a_call_without_a_name_has_its_arguments_as_in_a_whole_reply():
    # They can be read: what is missing the client sees, and the model that reads it again.
    events, calls = assemble({"index": 0, "call_id": "c1", "arguments": '{"a":1}'})
    assert statuses(events) == ["started", "in_progress", "succeeded"]
    assert (
        calls == [parse_tool_call("c1", "", '{"a":1}')] == [ToolCall("c1", "", {"a": 1}, '{"a":1}')]
    )


def test_id_and_name_repeated_on_each_fragment_are_one_call():
    fragment = {"index": 0, "call_id": "c1", "tool_name": "f"}
    _, calls = assemble({**fragment, "arguments": '{"a":'}, {**fragment, "arguments": "{}}"})
    assert calls == [ToolCall("c1", "f", {"a": {}}, '{"a":{}}')]


# Calls without index, and with one index for all --------------------------------------------------

WHOLE_CALLS = [
    {"call_id": "c1", "tool_name": "f", "arguments": '{"a":1}'},
    {"call_id": "c2", "tool_name": "f", "arguments": '{"a":2}'},
    {"call_id": "c3", "tool_name": "g", "arguments": '{"a":3}'},
]


@pytest.mark.parametrize("index", [None, 0])
@pytest.mark.parametrize("with_ids", [True, False])
def test_whole_calls_without_an_index_of_their_own_stay_apart(index, with_ids):
    fragments = [{**call, "index": index} for call in WHOLE_CALLS]
    if not with_ids:
        fragments = [{**fragment, "call_id": ""} for fragment in fragments]
    _, calls = assemble(*fragments)
    assert [(call.tool_name, call.arguments_json) for call in calls] == [
        ("f", '{"a":1}'),
        ("f", '{"a":2}'),
        ("g", '{"a":3}'),
    ]


def test_a_name_alone_is_repeated_until_the_arguments_are_whole():
    _, calls = assemble(
        {"tool_name": "f", "arguments": '{"a": "}'},
        {"tool_name": "f", "arguments": '\\"'},
        {"tool_name": "f", "arguments": '"}'},
        {"tool_name": "f", "arguments": "{}"},
    )
    assert [call.arguments_json for call in calls] == ['{"a": "}\\""}', "{}"]


def test_without_index_a_fragment_belongs_to_the_last_call():
    _, calls = assemble(
        {"call_id": "c1", "tool_name": "f"},
        {"arguments": '{"a"'},
        {"arguments": ":1}"},
        {"call_id": "c2", "tool_name": "g"},
        {"arguments": "{}"},
    )
    assert [call.arguments_json for call in calls] == ['{"a":1}', "{}"]


@pytest.mark.parametrize("index", [None, 0])
def test_interleaved_calls_are_told_apart_by_id_alone(index):
    _, calls = assemble(
        {"index": index, "call_id": "c1", "tool_name": "f"},
        {"index": index, "call_id": "c2", "tool_name": "g"},
        {"index": index, "call_id": "c1", "arguments": '{"a":1}'},
        {"index": index, "call_id": "c2", "arguments": '{"b":2}'},
    )
    assert calls == [
        ToolCall("c1", "f", {"a": 1}, '{"a":1}'),
        ToolCall("c2", "g", {"b": 2}, '{"b":2}'),
    ]


def test_one_id_at_two_indexes_is_two_calls():
    _, calls = assemble(
        {"index": 0, "call_id": "same", "tool_name": "f", "arguments": "{}"},
        {"index": 1, "call_id": "same", "tool_name": "g", "arguments": "{}"},
    )
    assert [call.tool_name for call in calls] == ["f", "g"]


# Arguments ----------------------------------------------------------------------------------------


def test_arguments_may_be_cut_inside_an_escape():
    text = '{"a": "\\u00e9\\n\\ud83d\\ude00\\\\"}'
    _, calls = assemble(
        {"index": 0, "call_id": "c1", "tool_name": "f"},
        *({"index": 0, "arguments": character} for character in text),
    )
    assert calls == [ToolCall("c1", "f", {"a": "é\n😀\\"}, text)]


def test_arguments_may_be_cut_inside_a_character():
    events, calls = assemble(
        {"index": 0, "call_id": "c1", "tool_name": "f"},
        {"index": 0, "arguments": '{"a": "\ud83d'},
        {"index": 0, "arguments": '\ude00"}'},
    )
    assert [event.arguments for event in events[1:-1]] == ['{"a": "', '😀"}']
    assert calls == [ToolCall("c1", "f", {"a": "😀"}, '{"a": "😀"}')]


def test_half_a_character_in_a_whole_call_becomes_its_escape():
    call = parse_tool_call("c1", "f", '{"a": "\ud83d\ude00\ud83d"}')
    assert call.arguments_json == '{"a": "😀\\ud83d"}'
    assert parse_tool_call("c1", "f", "\ud83d") == UnparseableToolCall("c1", "f", "\\ud83d")


def test_half_a_character_that_stays_alone_becomes_its_escape():
    events, calls = assemble(
        {"index": 0, "call_id": "c1", "tool_name": "f", "arguments": '{"a": "\ude00\ud83d"}'},
        {"index": 1, "call_id": "c2", "tool_name": "f", "arguments": '{"a": "\ud83d'},
    )
    assert calls[0].arguments_json == '{"a": "\\ude00\\ud83d"}'
    assert calls[1] == UnparseableToolCall("c2", "f", '{"a": "\\ud83d')
    for event in events:
        event.arguments.encode()


def test_invalid_json_fails_and_keeps_its_text():
    events, calls = assemble(
        {"index": 0, "call_id": "c1", "tool_name": "f", "arguments": '{"a": 1,}'}
    )
    assert statuses(events) == ["started", "in_progress", "failed"]
    assert calls == [UnparseableToolCall("c1", "f", '{"a": 1,}')]


def test_a_stream_that_ends_in_mid_call_fails_it():
    events, calls = assemble(
        {"index": 0, "call_id": "c1", "tool_name": "f", "arguments": '{"a": '},
        {"index": 1, "call_id": "c2", "tool_name": "g"},
        cut=True,
    )
    assert statuses(events)[-2:] == ["failed", "failed"]
    assert calls == [UnparseableToolCall("c1", "f", '{"a": '), UnparseableToolCall("c2", "g", "")]


def test_a_cut_does_not_hurt_a_call_that_was_complete():
    _, calls = assemble(
        {"index": 0, "call_id": "c1", "tool_name": "f", "arguments": "{}"}, cut=True
    )
    assert calls == [ToolCall("c1", "f", {}, "{}")]


@pytest.mark.parametrize("arguments", ["", "  ", None])
def test_no_arguments_at_all_are_an_empty_object(arguments):
    events, calls = assemble(
        {"index": 0, "call_id": "c1", "tool_name": "f", "arguments": arguments}
    )
    assert statuses(events) == ["started", "succeeded"]
    assert calls == [ToolCall("c1", "f", {}, "{}")]


def test_blanks_before_the_arguments_are_given_with_them():
    events, _ = assemble(
        {"index": 0, "call_id": "c1", "tool_name": "f", "arguments": "\n"},
        {"index": 0, "arguments": " {"},
        {"index": 0, "arguments": "}"},
    )
    assert [event.arguments for event in events[1:-1]] == ["\n {", "}"]


def test_a_thought_signature_goes_with_the_finished_call():
    _, calls = assemble(
        {"index": 0, "call_id": "c1", "tool_name": "f", "thought_signature": "sealed"},
        {"index": 0, "arguments": "{}"},
    )
    assert calls == [ToolCall("c1", "f", {}, "{}", thought_signature="sealed")]


# Properties ---------------------------------------------------------------------------------------

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


@st.composite
def streams(draw: st.DrawFn) -> tuple[list[Fragment], list[str]]:
    """The fragments of up to three calls, their arguments cut anywhere, the calls interleaved."""
    count = draw(st.integers(1, 3))
    texts, queues = [], []
    for index in range(count):
        arguments = draw(st.dictionaries(st.text(max_size=4), json_values, max_size=3))
        text = json.dumps(arguments, ensure_ascii=draw(st.booleans()))
        cuts = sorted(draw(st.sets(st.integers(0, len(text)), max_size=6)))
        pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        texts.append(text)
        queues.append(
            [
                {"index": index, "call_id": f"c{index}", "tool_name": f"f{index}"},
                *({"index": index, "arguments": piece} for piece in pieces),
            ]
        )
    order = draw(st.permutations([index for index, queue in enumerate(queues) for _ in queue]))
    first_seen = list(dict.fromkeys(order))
    return [queues[index].pop(0) for index in order], [texts[index] for index in first_seen]


@given(streams())
def test_any_interleaving_of_any_pieces_gives_the_calls(stream):
    fragments, texts = stream
    events, calls = assemble(*fragments)
    assert [call.arguments_json for call in calls] == texts
    assert all(isinstance(call, ToolCall) for call in calls)
    for index, text in enumerate(texts):
        own = [event for event in events if event.index == index]
        assert statuses(own)[0] == "started"
        assert statuses(own)[-1] == "succeeded"
        assert "".join(event.arguments for event in own) == text
    assert assemble(*fragments, whole=True)[1] == calls


@pytest.mark.parametrize("wrong", [3, ["f"], {"a": 1}, True])
def test_a_name_and_an_id_are_text(wrong: Any) -> None:
    for call in ({"call_id": wrong, "tool_name": "f"}, {"call_id": "c", "tool_name": wrong}):
        with pytest.raises(ValueError, match="of a tool call is no text"):
            ToolCallAssembler().push(**call)
        with pytest.raises(ValueError, match="of a tool call is no text"):
            parse_tool_call(**call, arguments_json="{}")
