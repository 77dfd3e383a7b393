"""Tool calls written into text, and found there again."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_compat.tools.formats import (
    FORMATS,
    guess_tool_format,
    plain_messages,
    reply_parser,
)
from llama_compat.types import (
    CompletionMessage,
    Delta,
    ImageContent,
    ReasoningDelta,
    SystemMessage,
    TextContent,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallParseStatus,
    ToolChoice,
    ToolDefinition,
    ToolResponseMessage,
    UnparseableToolCall,
    UserMessage,
)

OBJECT = {"type": "object", "properties": {"x": {}, "y": {}}}
TOOLS = (
    ToolDefinition("f", "Adds.", OBJECT),
    ToolDefinition("g"),
    ToolDefinition("brave_search", parameters={"properties": {"query": {}}}),
    ToolDefinition("code_interpreter", parameters={"properties": {"code": {}}}),
)
FORMAT_NAMES = sorted(set(FORMATS) - {"qwen"})

JSON_LIKE = sorted(set(FORMAT_NAMES) - {"qwen3_coder"})
"""Those that write every value so that its type shows."""

Found = tuple[str, list[tuple[str, str]]]


def deltas_of(name: str, pieces: Sequence[str], tools: Sequence[ToolDefinition]) -> list[Delta]:
    parser = reply_parser(FORMATS[name], tools)
    return [delta for piece in pieces for delta in parser.push(piece)] + parser.flush()


def found(name: str, pieces: Sequence[str], tools: Sequence[ToolDefinition] = TOOLS) -> Found:
    """The text, and each call's name and arguments."""
    deltas = deltas_of(name, pieces, tools)
    text = "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))
    calls = [
        delta.tool_call
        for delta in deltas
        if isinstance(delta, ToolCallDelta) and delta.tool_call is not None
    ]
    assert all(isinstance(call, ToolCall) for call in calls)
    return text, [(call.tool_name, call.arguments_json) for call in calls]


# What is a call -----------------------------------------------------------------------------------

CALLS: list[tuple[str, str, str, list[tuple[str, str]]]] = [
    # hermes
    (
        "hermes",
        'Let me see.\n<tool_call>\n{"name": "f", "arguments": {"x": 1.50}}\n</tool_call>\n',
        "Let me see.\n",
        [("f", '{"x": 1.50}')],
    ),
    (
        "hermes",
        '\n<tool_call>{"name":"f","arguments":{}}</tool_call>\n<tool_call>\n'
        '{"arguments":{"a":"}</tool_call>{"},"name":"g"}</tool_call>',
        "",
        [("f", "{}"), ("g", '{"a":"}</tool_call>{"}')],
    ),
    (
        "hermes",
        '<tool_call>[{"name":"f"},{"name":"g"}]</tool_call>',
        "",
        [("f", "{}"), ("g", "{}")],
    ),
    ("hermes", '<tool_call>{"name":"f","arguments":{}}', "", [("f", "{}")]),
    ("hermes", '<tool_call>{"name":"f","arguments":null}</tool_call>', "", [("f", "{}")]),
    (
        "hermes",
        '<tool_call>{"name":"f","arguments":"{\\"x\\": 1}"}</tool_call>',
        "",
        [("f", '{"x": 1}')],
    ),
    (
        "hermes",
        '<tool_call>{"function":{"name":"f","arguments":{"x":2}}}</tool_call>',
        "",
        [("f", '{"x":2}')],
    ),
    ("hermes", 'a <tool_call>{"name":"g"}</tool_call> b', "a  b", [("g", "{}")]),
    (
        "hermes",
        '<tool_call>bad<tool_call>{"name":"g"}</tool_call>',
        "<tool_call>bad",
        [("g", "{}")],
    ),
    # qwen3_coder
    (
        "qwen3_coder",
        "Let me see.\n<tool_call>\n<function=f>\n<parameter=x>\n1.50\n</parameter>\n<parameter=y>\n"
        "two\nlines \n</parameter>\n</function>\n</tool_call>\n",
        "Let me see.\n",
        [("f", '{"x": 1.50, "y": "two\\nlines "}')],
    ),
    (
        "qwen3_coder",
        "<tool_call>\n<function=g>\n</function>\n</tool_call>\n"
        "<tool_call><function=f><parameter=x>[1, {}]</parameter></function></tool_call>",
        "",
        [("g", "{}"), ("f", '{"x": [1, {}]}')],
    ),
    (
        "qwen3_coder",
        "<tool_call><function=g></function>\n<function=f><parameter=x>a</parameter></function>"
        "</tool_call>",
        "",
        [("g", "{}"), ("f", '{"x": "a"}')],
    ),
    (
        "qwen3_coder",
        "<tool_call><function=f><parameter=x>a </tool_call> b</function> <parameter=y> </parameter>"
        "</function></tool_call> c",
        " c",
        [("f", '{"x": "a </tool_call> b</function> <parameter=y> "}')],
    ),
    ("qwen3_coder", "<tool_call><function=g></function>\n", "", [("g", "{}")]),
    (
        "qwen3_coder",
        "<tool_call>\n<function=f>\n<parameter=x>\n1\n</parameter>\n</tool_call>",
        "",
        [("f", '{"x": 1}')],
    ),
    (
        "qwen3_coder",
        "Well.\n<function=f>\n<parameter=x>\n1\n</parameter>\n</function>\n</tool_call>",
        "Well.\n",
        [("f", '{"x": 1}')],
    ),
    ("qwen3_coder", "<function=g></function><function=g></function>", "", [("g", "{}")] * 2),
    (
        "qwen3_coder",
        '<tool_call>\n{"name": "f", "arguments": {"x": "<function="}}\n</tool_call>',
        "",
        [("f", '{"x": "<function="}')],
    ),
    # mistral
    ("mistral", '[TOOL_CALLS][{"name": "f", "arguments": {"x": 1}}]', "", [("f", '{"x": 1}')]),
    (
        "mistral",
        '[TOOL_CALLS] [{"name":"f","arguments":{}}, {"name":"g","arguments":{"x":"]"}}]',
        "",
        [("f", "{}"), ("g", '{"x":"]"}')],
    ),
    (
        "mistral",
        'Ok.[TOOL_CALLS]f[ARGS]{"x": 1}[TOOL_CALLS]g[CALL_ID]abcdef123[ARGS]{}',
        "Ok.",
        [("f", '{"x": 1}'), ("g", "{}")],
    ),
    ("mistral", '[TOOL_CALLS]f{"x": 1}', "", [("f", '{"x": 1}')]),
    # pythonic
    ("pythonic", "[f(x=1, y='a]b'), g()]", "", [("f", '{"x": 1, "y": "a]b"}'), ("g", "{}")]),
    (
        "pythonic",
        'First:\n [f(x=[1, {"k": (2, -3.5)}])]',
        "First:\n ",
        [("f", '{"x": [1, {"k": [2, -3.5]}]}')],
    ),
    ("pythonic", "[f(True, None)]", "", [("f", '{"x": true, "y": null}')]),
    ("pythonic", "[f(x=true, y=null)]", "", [("f", '{"x": true, "y": null}')]),
    ("pythonic", "[f(**{'from': 'é\\n'})]", "", [("f", '{"from": "é\\n"}')]),
    ("pythonic", "[\n  f(x='it\\'s'),\n  g(),\n]", "", [("f", '{"x": "it\'s"}'), ("g", "{}")]),
    # llama3 JSON
    ("llama3_json", '{"name": "f", "parameters": {"x": 1}}', "", [("f", '{"x": 1}')]),
    (
        "llama3_json",
        '{"type":"function","name":"f","parameters":{}}; {"name":"g","arguments":{"x":";"}}',
        "",
        [("f", "{}"), ("g", '{"x":";"}')],
    ),
    (
        "llama3_json",
        'Sure:\n{"type": "function", "function": "g", "parameters": {}}',
        "Sure:\n",
        [("g", "{}")],
    ),
    (
        "llama3_json",
        'Sure.<|python_tag|>{"name": "f", "parameters": {"x": 1}}',
        "Sure.",
        [("f", '{"x": 1}')],
    ),
    # llama3 with the python tag
    ("llama3", '{"name": "f", "parameters": {"x": 1}}', "", [("f", '{"x": 1}')]),
    (
        "llama3",
        '<|python_tag|>{"name": "f", "parameters": {"x": 1}}; {"name": "g", "parameters": {}}',
        "",
        [("f", '{"x": 1}'), ("g", "{}")],
    ),
    (
        "llama3",
        'I look it up.<|python_tag|>brave_search.call(query="who? (me)")',
        "I look it up.",
        [("brave_search", '{"query": "who? (me)"}')],
    ),
    (
        "llama3",
        "<|python_tag|>import math\nprint(math.pi)\n",
        "",
        [("code_interpreter", '{"code": "import math\\nprint(math.pi)"}')],
    ),
]


@pytest.mark.parametrize(("name", "reply", "text", "calls"), CALLS)
def test_calls_are_found(name, reply, text, calls):
    assert found(name, [reply]) == (text, calls)
    assert found(name, list(reply)) == (text, calls)


def test_ids_that_the_model_wrote_are_kept():
    array = '[TOOL_CALLS][{"name": "g", "arguments": {}, "id": "abcdef123"}]'
    named = "[TOOL_CALLS]g[CALL_ID]abcdef124[ARGS]{}"
    ids = [
        delta.call_id
        for delta in deltas_of("mistral", [array, named], TOOLS)
        if isinstance(delta, ToolCallDelta) and delta.parse_status is ToolCallParseStatus.started
    ]
    assert ids == ["abcdef123", "abcdef124"]


def test_each_call_starts_progresses_and_succeeds_under_its_index():
    reply = '<tool_call>{"name":"f","arguments":{"x":1}}</tool_call><tool_call>{"name":"g"}'
    events = [
        (delta.index, delta.parse_status.value)
        for delta in deltas_of("hermes", [reply], TOOLS)
        if isinstance(delta, ToolCallDelta)
    ]
    assert events == [
        (index, status) for index in (0, 1) for status in ("started", "in_progress", "succeeded")
    ]


# What is none -------------------------------------------------------------------------------------

TEXTS = [
    ("hermes", "No tools here."),
    ("hermes", " \n"),
    ("hermes", "a < b, a <tool"),
    ("hermes", "<tool_call>not JSON</tool_call> and on"),
    ("hermes", '<tool_call>{"name": "f", "arguments": {"x": 1}</tool_call>'),
    ("hermes", '<tool_call>{"name": "f", "arguments": [1]}</tool_call>'),
    ("hermes", '<tool_call>{"name": "f", "arguments": {"x": 01}}</tool_call>'),
    ("hermes", '<tool_call>{"name": "other", "arguments": {}}</tool_call>\n'),
    ("hermes", '<tool_call>[{"name": "f"}, {"name": "other"}]</tool_call>'),
    ("hermes", '<tool_call>{"name": 1, "arguments": {}}</tool_call>'),
    ("hermes", '<tool_call>{"name": "f", "arguments": {"x": "a\nb"}}</tool_call>'),
    ("hermes", "<tool_call>[]</tool_call>"),
    ("hermes", '<tool_call>["f"]</tool_call>'),
    ("hermes", '<tool_call>{"name": "f", "arguments": {"x": '),
    ("hermes", '{"name": "f", "arguments": {}}'),
    ("hermes", "</tool_call>"),
    ("qwen3_coder", "<tool_call>not XML</tool_call> and on"),
    ("qwen3_coder", "<tool_call>  "),
    ("qwen3_coder", "<tool_call><function"),
    ("qwen3_coder", "<tool_call><function=f\n>"),
    ("qwen3_coder", "<tool_call><function=other></function></tool_call>\n"),
    ("qwen3_coder", "<tool_call><function=g></function><function=other></function></tool_call>"),
    ("qwen3_coder", "<tool_call><function=f>x</function></tool_call>"),
    ("qwen3_coder", "<tool_call><function=f><parameter=x</function></tool_call>"),
    ("qwen3_coder", "<tool_call><function=f><parameter=x>1</parameter>"),
    ("qwen3_coder", "<tool_call><function=f><parameter=x>1"),
    ("qwen3_coder", "<tool_call>" + "<function=" * 300),
    ("qwen3_coder", "<tool_call><function=" + "f" * 400 + "></function></tool_call>"),
    ("qwen3_coder", "Write <function=other></function> or <function=f"),
    ("qwen3_coder", "<function=f><parameter=x>1</parameter> and on"),
    ("qwen3_coder", '<tool_call>{"name": "other", "arguments": {}}</tool_call>'),
    ("qwen3_coder", "</tool_call>"),
    ("mistral", "[TOOL_CALLS] I would call f"),
    ("mistral", '[TOOL_CALLS][{"name": "other", "arguments": {}}]'),
    ("mistral", '[TOOL_CALLS]other[ARGS]{"x": 1}'),
    ("mistral", '[TOOL_CALLS]f[ARGS]{"x": 1'),
    ("mistral", '[TOOL_CALLS]f[ARGS]{"x": 01}'),
    ("mistral", "[TOOL_CALLS]f[NONSENSE]{}"),
    ("mistral", "[TOOL_CALLS]" + "f" * 400),
    ("mistral", "[TOOL_CA"),
    ("mistral", "[TOOL_CALLS]"),
    ("pythonic", "[1, 2, 3]"),
    ("pythonic", "[link](https://example.com)"),
    ("pythonic", "See [f(x=1)] there."),
    ("pythonic", "[other(x=1)]"),
    ("pythonic", "[f(x=1), other()]"),
    ("pythonic", "[f(x=open('/etc/passwd'))]"),
    ("pythonic", "[f(1, 2, 3)]"),
    ("pythonic", "[f(x=1)"),
    ("pythonic", "[f(x=1), 2]"),
    ("pythonic", "[f(x=b'1')]"),
    ("pythonic", "[f(x={1: 2})]"),
    ("pythonic", "[f(x=1e999)]"),
    ("pythonic", "[f(x='a\nb')]"),
    ("pythonic", "[f(x=1}]"),
    ("pythonic", "[f() for x in y]"),
    ("llama3_json", '{"answer": 42}'),
    ("llama3_json", '{"name": "f"}'),
    ("llama3_json", '{"name": "other", "parameters": {}}'),
    ("llama3_json", 'Use {"name": "f", "parameters": {}} for that.'),
    ("llama3_json", '{"name": "f", "parameters": {}'),
    ("llama3_json", "{}"),
    ("llama3_json", "{ not JSON }"),
    ("llama3_json", '<|python_tag|>brave_search.call(query="x")'),
    ("llama3_json", '<|python_tag|>{"name": "f", "parameters": {}} and on'),
    ("llama3", '<|python_tag|>other.call(query="x")'),
    ("llama3", "<|python_tag|>print(1)"),
    ("llama3", '<|python_tag|>{"name": "other", "parameters": {}}'),
    ("llama3", "<|python_tag|>"),
]


@pytest.mark.parametrize(("name", "reply"), TEXTS)
def test_what_is_no_call_stays_text_unchanged(name, reply):
    tools = [tool for tool in TOOLS if tool.tool_name != "code_interpreter"]
    assert found(name, [reply], tools) == (reply, [])
    assert found(name, list(reply), tools) == (reply, [])


def test_a_call_that_was_not_offered_is_not_taken_for_code():
    reply = '<|python_tag|>wolfram_alpha.call(query="2+2")'
    assert found("llama3", [reply]) == (reply, [])


def test_code_goes_into_the_interpreters_only_parameter():
    interpreter = ToolDefinition("code_interpreter", parameters={"properties": {"source": {}}})
    assert found("llama3", ["<|python_tag|>1 + 1"], [interpreter]) == (
        "",
        [("code_interpreter", '{"source": "1 + 1"}')],
    )


def test_python_warnings_of_what_a_model_wrote_are_kept_quiet(recwarn):
    assert found("pythonic", ['[f(x="\\d+")]']) == ("", [("f", '{"x": "\\\\d+"}')])
    assert not recwarn.list


def test_a_name_of_hundreds_of_names_is_text():
    reply = f"[f(x=1), {'a.' * 500}a(x=1)]"
    assert found("pythonic", [reply]) == (reply, [])


# Streaming ----------------------------------------------------------------------------------------


def test_text_is_given_at_once_and_half_a_marker_never():
    parser = reply_parser(FORMATS["hermes"], TOOLS)
    assert parser.push("Hello") == [TextDelta("Hello")]
    assert parser.push(" <tool_") == [TextDelta(" ")]
    assert parser.push("box>") == [TextDelta("<tool_box>")]
    assert parser.push("<tool_call>{") == []
    assert parser.push("x y") == [TextDelta("<tool_call>{"), TextDelta("x y")]
    assert parser.push(" <tool") == [TextDelta(" ")]
    assert parser.flush() == [TextDelta("<tool")]


def test_a_json_answer_is_streamed_once_it_is_clear_that_it_is_no_call():
    parser = reply_parser(FORMATS["llama3_json"], TOOLS)
    assert parser.push('{"an') == []
    assert parser.push('swer"') == [TextDelta('{"answer'), TextDelta('"')]
    assert parser.push(": 1}") == [TextDelta(": 1}")]


fragments_of_replies = st.lists(
    st.one_of(
        st.sampled_from([reply for _, reply, *_ in [*CALLS, *TEXTS]]),
        st.sampled_from(
            ["<tool_call>", "</tool_call>", "[TOOL_CALLS]", "<|python_tag|>", "[ARGS]", "<think>"]
        ),
        st.sampled_from(
            ["<function=f>", "</function>", "<parameter=x>", "<parameter=", "</parameter>"]
        ),
        st.sampled_from([*"[]{}();\"'\\<>| \n,f", '{"name"', "[f(", "f(x=", "[TOOL"]),
    ),
    max_size=6,
)


@given(st.sampled_from(FORMAT_NAMES), fragments_of_replies, st.data())
def test_any_cut_gives_the_same(name, fragments, data):
    reply = "".join(fragments)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(reply)), max_size=12)))
    pieces = [reply[a:b] for a, b in zip([0, *cuts], [*cuts, len(reply)], strict=True)]
    assert found(name, pieces) == found(name, [reply]) == found(name, list(reply))


@given(st.sampled_from(FORMAT_NAMES), fragments_of_replies)
def test_without_offered_tools_every_text_stays_as_it_is(name, fragments):
    reply = "x" + "".join(fragments)
    assert found(name, [reply], [ToolDefinition("unheard_of")]) == (reply, [])


# Rendering ----------------------------------------------------------------------------------------

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)


@st.composite
def tool_calls(draw: st.DrawFn) -> ToolCall:
    name = draw(st.sampled_from(["f", "g"]))
    arguments = draw(st.dictionaries(st.text(max_size=4), json_values, max_size=3))
    return ToolCall("call_1", name, arguments, json.dumps(arguments, ensure_ascii=False))


@given(st.sampled_from(JSON_LIKE), st.lists(tool_calls(), min_size=1, max_size=3))
def test_rendered_calls_are_found_again(name, calls):
    text, again = found(name, [FORMATS[name].render_calls(calls)])
    assert text == ""
    assert [(tool, json.loads(arguments)) for tool, arguments in again] == [
        (call.tool_name, call.arguments) for call in calls
    ]


TYPED = ToolDefinition(
    "f",
    parameters={
        "type": "object",
        "properties": {
            "text": {"type": "string"},
            "items": {"type": "array"},
            "object": {"type": "object"},
            "count": {"type": ["integer", "null"]},
        },
    },
)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "text": st.text()
            | st.lists(
                st.sampled_from(["</parameter>", "<parameter=x>", "</function>", "</tool_call>"])
            ).map(" ".join),
            "items": st.lists(json_values, max_size=3),
            "object": st.dictionaries(st.text(max_size=3), json_values, max_size=3),
            "count": st.none() | st.integers(),
        },
    )
)
def test_values_between_tags_are_found_again_by_their_types(arguments):
    call = ToolCall("call_1", "f", arguments, json.dumps(arguments, ensure_ascii=False))
    text, [(name, again)] = found(
        "qwen3_coder", [FORMATS["qwen3_coder"].render_calls([call])], [TYPED]
    )
    assert (text, name, json.loads(again)) == ("", "f", arguments)


@pytest.mark.parametrize(
    ("schema", "written", "value"),
    [
        ({"type": "string"}, "12", "12"),
        ({"type": "string"}, "null", "null"),
        ({"type": "string"}, "\n a \n\n", " a \n"),
        ({"type": "integer"}, " 12 ", 12),
        ({"type": "integer"}, "twelve", "twelve"),
        ({"type": "number"}, "1e3", 1000.0),
        ({"type": "boolean"}, "true", True),
        ({"type": "boolean"}, "True", True),
        ({"type": "object"}, "{'a': None}", {"a": None}),
        ({"type": "object"}, "{'a': open}", "{'a': open}"),
        ({"type": "array"}, "[1,\n2]", [1, 2]),
        ({"type": ["string", "null"]}, "null", None),
        ({"type": ["string", "null"]}, "nothing", "nothing"),
        ({"type": ["string", "null"]}, "true", "true"),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, "12", 12),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, "true", "true"),
        ({"enum": ["1", "2"]}, "1", "1"),
        ({}, "12", 12),
        ({}, "True", "True"),
        ({}, '"a"', '"a"'),
        (None, "word", "word"),
    ],
)
def test_a_value_has_the_type_that_the_schema_says(schema, written, value):
    properties = {} if schema is None else {"x": schema}
    tool = ToolDefinition("f", parameters={"type": "object", "properties": properties})
    reply = f"<tool_call><function=f><parameter=x>{written}</parameter></function></tool_call>"
    text, [(_, arguments)] = found("qwen3_coder", [reply], [tool])
    assert (text, json.loads(arguments)) == ("", {"x": value})


@pytest.mark.parametrize(
    ("name", "call", "rendered"),
    [
        (
            "qwen3_coder",
            ToolCall("c", "f", {"x": "a\nb", "y": [1]}, '{"x": "a\\nb", "y": [1]}'),
            "<tool_call>\n<function=f>\n<parameter=x>\na\nb\n</parameter>\n<parameter=y>\n[1]\n"
            "</parameter>\n</function>\n</tool_call>",
        ),
        (
            "qwen3_coder",
            ToolCall("c", "f", {"x": "</function>"}, '{"x": "</function>"}'),
            '<tool_call>\n{"name": "f", "arguments": {"x": "</function>"}}\n</tool_call>',
        ),
        (
            "llama3",
            ToolCall("c", "brave_search", {"query": 'a "b"'}, '{"query": "a \\"b\\""}'),
            '<|python_tag|>brave_search.call(query="a \\"b\\"")',
        ),
        (
            "llama3",
            ToolCall("c", "code_interpreter", {"code": "print(1)"}, '{"code": "print(1)"}'),
            "<|python_tag|>print(1)",
        ),
        (
            "llama3",
            ToolCall("c", "code_interpreter", {"a": 1, "b": 2}, '{"a": 1, "b": 2}'),
            '{"name": "code_interpreter", "parameters": {"a": 1, "b": 2}}',
        ),
        ("pythonic", ToolCall("c", "f", {"º": 1}, '{"º": 1}'), "[f(**{'º': 1})]"),
        ("pythonic", ToolCall("c", "f", {"from": 1}, '{"from": 1}'), "[f(**{'from': 1})]"),
        ("pythonic", UnparseableToolCall("c", "f", '{"x": '), '[f({"x": )]'),
        (
            "hermes",
            UnparseableToolCall("c", "f", '{"x": '),
            '<tool_call>\n{"name": "f", "arguments": {"x": }\n</tool_call>',
        ),
    ],
)
def test_special_calls_are_rendered_as_the_model_writes_them(name, call, rendered):
    assert FORMATS[name].render_calls([call]) == rendered


@pytest.mark.parametrize("name", FORMAT_NAMES)
def test_the_offer_holds_every_tool(name):
    offer = FORMATS[name].render_tools(TOOLS[:2])
    assert '"name": "f"' in offer
    assert '"description": "Adds."' in offer
    assert '"name": "g"' in offer


def test_llama_announces_built_in_tools_by_name():
    offer = FORMATS["llama3"].render_tools(TOOLS)
    assert offer.startswith("Environment: ipython\nTools: brave_search\n\n")
    assert '"name": "brave_search"' not in offer
    assert "code_interpreter" not in offer
    assert FORMATS["llama3"].render_tools(TOOLS[3:]) == "Environment: ipython"


@pytest.mark.parametrize(
    ("name", "rendered"),
    [
        ("hermes", "<tool_response>\n4\n</tool_response>"),
        ("qwen3_coder", "<tool_response>\n4\n</tool_response>"),
        ("mistral", '[TOOL_RESULTS]{"content": "4"}[/TOOL_RESULTS]'),
        ("llama3", '{"output": "4"}'),
        ("pythonic", "f returned:\n4"),
    ],
)
def test_answers_are_rendered(name, rendered):
    assert FORMATS[name].render_response("f", "4") == rendered


# The conversation without tools -------------------------------------------------------------------

CALL = ToolCall("c1", "g", {}, "{}")
WRITTEN = '<tool_call>\n{"name": "g", "arguments": {}}\n</tool_call>'


def test_a_conversation_is_made_plain():
    messages = [
        SystemMessage("Be brief."),
        UserMessage("Go."),
        CompletionMessage.of("Well.", tool_calls=(CALL,)),
        ToolResponseMessage("c1", "one"),
        ToolResponseMessage("unknown", (TextContent("two"),)),
        CompletionMessage.of("Done."),
        ToolResponseMessage("c1", "three"),
    ]
    system, *rest = plain_messages(FORMATS["hermes"], messages, TOOLS)
    assert isinstance(system, SystemMessage)
    assert system.content == "Be brief.\n\n" + FORMATS["hermes"].render_tools(TOOLS)
    assert rest == [
        UserMessage("Go."),
        CompletionMessage.of(f"Well.\n{WRITTEN}"),
        UserMessage(
            "<tool_response>\none\n</tool_response>\n<tool_response>\ntwo\n</tool_response>"
        ),
        CompletionMessage.of("Done."),
        UserMessage("<tool_response>\nthree\n</tool_response>"),
    ]


def test_a_system_message_is_made_for_the_offer():
    offer = FORMATS["hermes"].render_tools(TOOLS)
    assert plain_messages(FORMATS["hermes"], [UserMessage("Go.")], TOOLS) == (
        SystemMessage(offer),
        UserMessage("Go."),
    )


def test_parts_stay_parts():
    image = ImageContent("data:image/png;base64,AA==")
    messages = [CompletionMessage.of((TextContent("See"), image), tool_calls=(CALL,))]
    assert plain_messages(FORMATS["hermes"], messages, ()) == (
        CompletionMessage.of((TextContent("See"), image, TextContent(f"\n{WRITTEN}"))),
    )


def test_pictures_that_tools_gave_come_behind_what_they_answered():
    image, other = (ImageContent(f"data:image/png;base64,{each}") for each in ("AA==", "AQ=="))
    messages = [
        ToolResponseMessage("c1", (TextContent("one"), image)),
        ToolResponseMessage("c1", (other,)),
        UserMessage("And?"),
    ]
    answers, user = plain_messages(FORMATS["hermes"], messages, ())
    text = "<tool_response>\none\n</tool_response>\n<tool_response>\n\n</tool_response>"
    assert answers == UserMessage((TextContent(text), image, other))
    assert user == UserMessage("And?")


@pytest.mark.parametrize(
    ("choice", "ending"),
    [
        (ToolChoice("required", "g"), "You must call the function g now."),
        (ToolChoice("required"), "You must call at least one of these functions now."),
        (ToolChoice("auto"), "</tool_call>"),
        (None, "</tool_call>"),
    ],
)
def test_the_choice_of_a_tool_is_said(choice, ending):
    system, _ = plain_messages(FORMATS["hermes"], [UserMessage("Go.")], TOOLS, choice)
    assert str(system.content).endswith(ending)


@pytest.mark.parametrize(("tools", "choice"), [((), None), (TOOLS, ToolChoice("none"))])
def test_nothing_is_offered_where_nothing_may_be_called(tools, choice):
    messages = (UserMessage("Go."),)
    assert plain_messages(FORMATS["hermes"], messages, tools, choice) == messages


# Reasoning and calls together ---------------------------------------------------------------------


def test_reasoning_comes_before_calls_and_holds_none():
    parser = reply_parser(FORMATS["hermes"], TOOLS, prompt="...<think>\n")
    deltas = parser.push('I <tool_call>{"name":"f"}</tool_call>?</think>\n') + parser.push(
        '<tool_call>{"name": "g", "arguments": {"x": "<think>"}}</tool_call>'
    )
    deltas += parser.flush()
    assert deltas[0] == ReasoningDelta('I <tool_call>{"name":"f"}</tool_call>?')
    assert [delta.tool_call for delta in deltas[1:]][-1].arguments == {"x": "<think>"}
    assert not any(isinstance(delta, TextDelta) for delta in deltas)
    assert parser.called


def test_without_tools_calls_are_text():
    reply = '<tool_call>{"name": "f"}</tool_call>'
    assert found("hermes", [reply], ()) == (reply, [])


# Which format -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("chat_template", "model", "name"),
    [
        ("{{ '<tool_call>' }}", "", "hermes"),
        ("{{ '<tool_call>\\n<function=' + call.name }}", "", "qwen3_coder"),
        ("{{ '[TOOL_CALLS]' }}", "", "mistral"),
        ("{{ '<|python_tag|>' }}", "", "llama3"),
        ("[func_name1(params_name1=params_value1)]", "", "pythonic"),
        ('{"name": function name, "parameters": dictionary of argument name', "", "llama3_json"),
        ("{{ '<tool_call>' }}", "meta-llama/Llama-3.1-8B", "hermes"),
        ("{{ messages }}", "Qwen/Qwen2.5-7B-Instruct", "hermes"),
        (None, "Qwen/Qwen3-8B", "hermes"),
        (None, "Qwen/Qwen3-Coder-30B-A3B-Instruct", "qwen3_coder"),
        (None, "Qwen/Qwen3.5-9B", "qwen3_coder"),
        (None, "SmolLM2-135M-Instruct", "hermes"),
        (None, "mistralai/Mistral-7B-Instruct-v0.3", "mistral"),
        (None, "meta-llama/Llama-3.1-8B-Instruct", "llama3"),
        (None, "/models/Llama-3.2-1B", "llama3_json"),
        (None, "meta-llama/Llama-4-Scout-17B", "pythonic"),
        (None, "gpt2", None),
        (None, "", None),
    ],
)
def test_a_format_is_guessed(chat_template, model, name):
    assert guess_tool_format(chat_template=chat_template, model=model) == name
    assert name is None or name in FORMATS


@pytest.mark.parametrize("name", FORMAT_NAMES)
def test_formats_are_registered_under_their_own_names(name):
    assert FORMATS[name].name == name
