"""The Responses API, wire -> vocabulary: what a request asks."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llama_compat.dialects.base import Operation
from llama_compat.dialects.openai_responses.compact import TASK
from llama_compat.dialects.openai_responses.input.items import (
    SUMMARY_INTRODUCTION,
    described_items,
    parse_input,
)
from llama_compat.dialects.openai_responses.input.requests import parse_request
from llama_compat.dialects.openai_responses.input.tools import model_name
from llama_compat.dialects.openai_responses.keeping import Keeping, kept
from llama_compat.dialects.openai_responses.operations import (
    COMPACT,
    INPUT_TOKENS,
    RESPONSES,
)
from llama_compat.dialects.openai_responses.sealed import PREFIX, Summary, seal, unseal
from llama_compat.errors import APIError
from llama_compat.tools.names import OPENAI_NAMES
from llama_compat.types import (
    ChatCompletionRequest,
    CompletionMessage,
    ImageContent,
    Message,
    ReasoningContent,
    RefusalContent,
    ResponseFormat,
    SystemMessage,
    TextContent,
    ToolCall,
    ToolChoice,
    ToolDefinition,
    ToolResponseMessage,
    TopPSamplingStrategy,
    UserMessage,
)
from llama_compat.wire.json_fields import parse_fields, to_raw
from tests.examples import examples

URL = "https://example.org/a.png"


def user(text: str = "Hi") -> dict[str, Any]:
    return {"role": "user", "content": text}


def function_call(call_id: str = "c1", **members: Any) -> dict[str, Any]:
    base = {"type": "function_call", "call_id": call_id, "name": "look", "arguments": "{}"}
    return {**base, **members}


def answer(call_id: str = "c1", output: Any = "fine") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def look(call_id: str = "c1") -> ToolCall:
    return ToolCall(call_id, "look", {}, "{}")


def said(*parts: Any) -> CompletionMessage:
    return CompletionMessage(tuple(parts))


ASSISTANT_PARTS = [
    {"type": "output_text", "text": "No", "annotations": []},
    {"type": "refusal", "refusal": "Never"},
]
IMAGE_PARTS = [
    {"type": "input_text", "text": "See"},
    {"type": "input_image", "image_url": URL, "detail": "low"},
]
IMAGE_CONTENT = (TextContent("See"), ImageContent(URL, "low"))
CUSTOM_CALL = {"type": "custom_tool_call", "call_id": "c1", "name": "patch", "input": 'a"\n'}
CUSTOM_ANSWER = {"type": "custom_tool_call_output", "call_id": "c1", "output": "ok"}
SEALED = ReasoningContent("Hm", "c2VhbA==", "anthropic")
OWN_REASONING = {"type": "reasoning", "summary": [], "encrypted_content": seal(SEALED)}
OPEN_REASONING = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [],
    "content": [{"type": "reasoning_text", "text": "Hm"}],
}
FOREIGN_REASONING = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "Thinks."}],
    "encrypted_content": "gAAAA",
}

CONVERSATIONS: list[tuple[str, Any, list[Message]]] = [
    ("text", "Hi", [UserMessage("Hi")]),
    ("a message without a type", [user()], [UserMessage("Hi")]),
    ("one text part", [user([{"type": "input_text", "text": "Hi"}])], [UserMessage("Hi")]),  # type: ignore[arg-type]
    (
        "images",
        [{"type": "message", "role": "user", "content": IMAGE_PARTS}],
        [UserMessage(IMAGE_CONTENT)],
    ),
    (
        "developer and system",
        [{"role": "developer", "content": "A"}, {"role": "system", "content": "B"}, user()],
        [SystemMessage("A"), SystemMessage("B"), UserMessage("Hi")],
    ),
    (
        "an assistant's text, whatever its phase",
        [{"role": "assistant", "content": "Yes", "phase": "commentary"}],
        [said(TextContent("Yes"))],
    ),
    (
        "an assistant's parts",
        [{"type": "message", "role": "assistant", "content": ASSISTANT_PARTS}],
        [said(TextContent("No"), RefusalContent("Never"))],
    ),
    (
        "a call and its output",
        [function_call(), answer()],
        [said(look()), ToolResponseMessage("c1", "fine")],
    ),
    (
        "an output of parts",
        [function_call(), answer(output=IMAGE_PARTS)],
        [said(look()), ToolResponseMessage("c1", IMAGE_CONTENT)],
    ),
    (
        "calls at the same time",
        [function_call(), function_call("c2"), answer("c2"), answer()],
        [
            said(look(), look("c2")),
            ToolResponseMessage("c2", "fine"),
            ToolResponseMessage("c1", "fine"),
        ],
    ),
    (
        "calls one after another",
        [function_call(), answer(), function_call("c2"), answer("c2")],
        [
            said(look()),
            ToolResponseMessage("c1", "fine"),
            said(look("c2")),
            ToolResponseMessage("c2", "fine"),
        ],
    ),
    (
        "a text between a call and its output",
        [function_call(), {"role": "assistant", "content": "Wait"}, answer()],
        [said(look(), TextContent("Wait")), ToolResponseMessage("c1", "fine")],
    ),
    (
        "a user between a call and its output",
        [function_call(), user(), answer()],
        [said(look()), ToolResponseMessage("c1", "fine"), UserMessage("Hi")],
    ),
    (
        "a custom tool",
        [CUSTOM_CALL, CUSTOM_ANSWER],
        [
            said(ToolCall("c1", "patch", {"input": 'a"\n'}, '{"input":"a\\"\\n"}')),
            ToolResponseMessage("c1", "ok"),
        ],
    ),
    (
        "a function of a namespace",
        [function_call(name="ask", namespace="team"), answer()],
        [said(ToolCall("c1", "team__ask", {}, "{}")), ToolResponseMessage("c1", "fine")],
    ),
    ("our own reasoning", [OWN_REASONING, function_call()], [said(SEALED, look())]),
    (
        "open reasoning",
        [OPEN_REASONING, {"role": "assistant", "content": "So"}],
        [said(ReasoningContent("Hm"), TextContent("So"))],
    ),
    ("another server's reasoning", [FOREIGN_REASONING, user()], [UserMessage("Hi")]),
    (
        "our own summary",
        [{"type": "compaction", "encrypted_content": seal(Summary("All."))}, user()],
        [UserMessage(SUMMARY_INTRODUCTION + "All."), UserMessage("Hi")],
    ),
]


@pytest.mark.parametrize(
    ("value", "expected"), [row[1:] for row in CONVERSATIONS], ids=[row[0] for row in CONVERSATIONS]
)
def test_items_become_messages(value: Any, expected: list[Message]) -> None:
    assert list(parse_input(value)) == expected


WRONG: list[tuple[Any, str]] = [
    (None, "input"),
    ([], "input"),
    (5, "input"),
    (["x"], "input[0]"),
    ([{"role": "critic", "content": "x"}], "input[0].role"),
    ([{"type": "message", "content": "x"}], "input[0].role"),
    ([{"role": "user"}], "input[0].content"),
    ([user(), {"role": "user", "content": [{"type": "input_video"}]}], "input[1].content[0].type"),
    ([{"role": "user", "content": [{"type": "input_file"}]}], "input[0].content[0].file_id"),
    (
        [{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}],
        "input[0].content[0].image_url",
    ),
    ([{"role": "user", "content": [{"type": "input_text"}]}], "input[0].content[0].text"),
    ([{"type": "function_call", "name": "x", "arguments": "{}"}], "input[0].call_id"),
    ([{"type": "function_call", "call_id": "c", "arguments": "{}"}], "input[0].name"),
    ([answer()], "input[0].call_id"),
    ([function_call(), answer(output=None)], "input[1].output"),
    ([{"type": "item_reference", "id": "msg_1"}], "input[0].id"),
    ([{"id": "msg_1"}], "input[0].id"),
]


@pytest.mark.parametrize(("value", "param"), WRONG)
def test_what_is_malformed_is_named(value: Any, param: str) -> None:
    with pytest.raises(APIError) as caught:
        parse_input(value)
    assert (caught.value.status, caught.value.param) == (400, param)


def parse(**members: Any) -> ChatCompletionRequest:
    return parse_request({"model": "public", "input": "Hi", **members}, "own").request


FUNCTION = {
    "type": "function",
    "name": "look",
    "description": "Looks.",
    "parameters": {"type": "object", "properties": {}},
    "strict": True,
}
CUSTOM = {"type": "custom", "name": "patch"}
SPACE = {"type": "namespace", "name": "team", "description": "", "tools": [{**FUNCTION}, CUSTOM]}


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        (
            {"instructions": "Be brief."},
            {"messages": (SystemMessage("Be brief."), UserMessage("Hi"))},
        ),
        (
            {"reasoning": {"effort": "low"}, "text": {"verbosity": "high"}},
            {"reasoning_effort": "low", "verbosity": "high"},
        ),
        ({"text": {"verbosity": "medium"}}, {"verbosity": None}),
        (
            {"text": {"format": {"type": "json_object"}}},
            {"response_format": ResponseFormat("json_object")},
        ),
        (
            {
                "text": {
                    "format": {
                        "type": "json_schema",
                        "name": "n",
                        "schema": {"type": "object"},
                        "strict": True,
                    }
                }
            },
            {
                "response_format": ResponseFormat(
                    "json_schema", "n", {"type": "object"}, True, path="text.format.schema"
                )
            },
        ),
        ({"top_logprobs": 3}, {"logprobs": 3}),
        ({"include": ["message.output_text.logprobs"]}, {"logprobs": 0}),
        ({"tools": [FUNCTION]}, {"tool_choice": None, "parallel_tool_calls": None}),
        ({"tools": [FUNCTION], "tool_choice": "auto"}, {"tool_choice": None}),
        ({"tools": [FUNCTION], "tool_choice": "required"}, {"tool_choice": ToolChoice("required")}),
        ({"tools": [FUNCTION], "tool_choice": "none"}, {"tool_choice": ToolChoice("none")}),
        (
            {"tools": [FUNCTION], "tool_choice": {"type": "function", "name": "look"}},
            {"tool_choice": ToolChoice("required", "look")},
        ),
        (
            {"tools": [CUSTOM], "tool_choice": {"type": "custom", "name": "patch"}},
            {"tool_choice": ToolChoice("required", "patch")},
        ),
        ({"tools": [FUNCTION], "parallel_tool_calls": False}, {"parallel_tool_calls": False}),
        ({"stream": True}, {"stream": True}),
    ],
)
def test_members_say_what_they_do_in_chat(
    members: dict[str, Any], expected: dict[str, Any]
) -> None:
    request = parse(**members)
    assert {name: getattr(request, name) for name in expected} == expected


def test_sampling_is_chats() -> None:
    sampling = parse(temperature=0.5, top_p=0.9, max_output_tokens=7, presence_penalty=1).sampling
    assert sampling.strategy == TopPSamplingStrategy(0.5, 0.9)
    assert (sampling.max_tokens, sampling.presence_penalty) == (7, 1)


def test_tools_are_flattened() -> None:
    tools = parse(tools=[FUNCTION, CUSTOM, SPACE]).tools
    assert [tool.tool_name for tool in tools] == ["look", "patch", "team__look", "team__patch"]
    assert tools[0] == ToolDefinition(
        "look", "Looks.", {"type": "object", "properties": {}}, strict=True
    )
    assert tools[1].parameters == {
        "type": "object",
        "properties": {"input": {"type": "string"}},
        "required": ["input"],
        "additionalProperties": False,
    }


def test_tools_may_be_added_by_an_item() -> None:
    item = {"type": "additional_tools", "role": "developer", "tools": [CUSTOM]}
    tools = parse(tools=[FUNCTION], input=[item, user()]).tools
    assert [tool.tool_name for tool in tools] == ["look", "patch"]
    again = {**item, "tools": [{**FUNCTION, "description": "Newer."}]}
    (tool,) = parse(tools=[FUNCTION], input=[again, user()]).tools
    assert tool.description == "Newer."


@pytest.mark.parametrize(
    ("allowed", "mode", "offered", "choice"),
    [
        ([{"type": "function", "name": "look"}], "auto", ["look"], None),
        ([{"type": "custom", "name": "patch"}], "required", ["patch"], ToolChoice("required")),
        ([{"type": "namespace", "name": "team"}], "auto", ["team__look", "team__patch"], None),
        ([], "auto", [], None),
    ],
)
def test_only_allowed_tools_are_offered(
    allowed: list[Any], mode: str, offered: list[str], choice: ToolChoice | None
) -> None:
    wanted = {"type": "allowed_tools", "mode": mode, "tools": allowed}
    request = parse(tools=[FUNCTION, CUSTOM, SPACE], tool_choice=wanted)
    assert [tool.tool_name for tool in request.tools] == offered
    assert request.tool_choice == choice


@pytest.mark.parametrize(
    ("members", "param"),
    [
        ({"tools": [{"type": "function"}]}, "tools[0].name"),
        ({"tools": [FUNCTION, FUNCTION]}, "tools"),
        ({"tools": ["x"]}, "tools[0]"),
        (
            {"tools": [FUNCTION], "tool_choice": {"type": "function", "name": "no"}},
            "tool_choice.name",
        ),
        ({"tools": [FUNCTION], "tool_choice": {"type": "mcp"}}, "tool_choice.type"),
        ({"tools": [FUNCTION], "tool_choice": "perhaps"}, "tool_choice"),
        (
            {
                "tools": [FUNCTION],
                "tool_choice": {
                    "type": "allowed_tools",
                    "mode": "auto",
                    "tools": [{"type": "function", "name": "no"}],
                },
            },
            "tool_choice.tools[0].name",
        ),
        ({"text": {"format": {"type": "xml"}}}, "text.format"),
        ({"instructions": [user()]}, "instructions"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"prompt": {"id": "pmpt_1"}}, "prompt"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"background": True}, "background"),
    ],
)
def test_what_makes_no_sense_is_named(members: dict[str, Any], param: str) -> None:
    with pytest.raises(APIError) as caught:
        parse(**members)
    assert (caught.value.status, caught.value.param) == (400, param)


@pytest.mark.parametrize("name", ["previous_response_id", "background"])
def test_what_needs_a_store_says_how_to_turn_it_on(name: str) -> None:
    with pytest.raises(APIError, match="responses_store"):
        parse(**{name: "resp_1"})


def test_a_store_brings_what_was_said_before() -> None:
    keeping = Keeping("resp_2", store=True, earlier=[user("First")], references={"i": user("Ref")})
    body = {"input": [{"type": "item_reference", "id": "i"}, user()], "instructions": "Be brief."}
    parsed = kept(RESPONSES, keeping).parse({**body, "previous_response_id": "resp_1"}, "own")
    texts = [message.content for message in parsed.request.messages]  # type: ignore[union-attr]
    assert texts == ["Be brief.", "First", "Ref", "Hi"]
    with pytest.raises(APIError) as caught:
        kept(RESPONSES, keeping).parse({"input": [{"type": "item_reference", "id": "j"}]}, "own")
    assert caught.value.code == "item_not_found"


# --------------------------------------------------------------------------------------------------
# What is asked of the provider
# --------------------------------------------------------------------------------------------------

GRAMMAR = {"type": "grammar", "syntax": "lark", "definition": 'start: "x"'}
FOREIGN_COMPACTION = {"type": "compaction", "encrypted_content": "gAAA"}


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ({}, {}),
        (
            {"max_output_tokens": 5, "temperature": 0.5},
            {"max_output_tokens": "max_tokens", "temperature": "temperature"},
        ),
        (
            {"presence_penalty": 0, "frequency_penalty": 0.5},
            {"frequency_penalty": "frequency_penalty"},
        ),
        ({"text": {"format": {"type": "text"}, "verbosity": "medium"}}, {}),
        (
            {"text": {"format": {"type": "json_object"}, "verbosity": "low", "x": 1}},
            {"text.format": "response_format", "text.verbosity": "verbosity", "text.x": ""},
        ),
        (
            {"reasoning": {"effort": "low", "summary": "auto"}},
            {"reasoning.effort": "reasoning_effort"},
        ),
        ({"reasoning": {"effort": None, "mode": "pro"}}, {"reasoning.mode": ""}),
        ({"include": ["reasoning.encrypted_content"]}, {}),
        ({"include": ["message.output_text.logprobs"]}, {"include": "logprobs"}),
        ({"top_logprobs": 2}, {"top_logprobs": "top_logprobs"}),
        ({"truncation": "disabled"}, {}),
        ({"truncation": "auto"}, {"truncation": "truncation"}),
        ({"stream_options": {"include_obfuscation": True}}, {}),
        ({"stream_options": {"x": True}}, {"stream_options.x": ""}),
        (
            {"tools": [FUNCTION], "tool_choice": "auto", "parallel_tool_calls": True},
            {"tools": "tools"},
        ),
        (
            {"tools": [FUNCTION], "tool_choice": "required", "parallel_tool_calls": False},
            {
                "tools": "tools",
                "tool_choice": "tool_choice",
                "parallel_tool_calls": "parallel_tool_calls",
            },
        ),
        ({"tool_choice": "none", "parallel_tool_calls": False}, {}),
        ({"tools": [{"type": "web_search"}]}, {"tools[0].web_search": "hosted_tools"}),
        (
            {"tools": [{**SPACE, "tools": [{"type": "mcp"}]}]},
            {"tools": "tools", "tools[0].tools[0].mcp": "hosted_tools"},
        ),
        (
            {"tools": [{**CUSTOM, "format": GRAMMAR}]},
            {"tools": "tools", "tools[0].format": "tool_grammar"},
        ),
        ({"tools": [{**CUSTOM, "format": {"type": "text"}}]}, {"tools": "tools"}),
        ({"tools": [{**FUNCTION, "async": True}]}, {"tools": "tools", "tools[0].async": ""}),
        (
            {"tools": [{**FUNCTION, "allowed_callers": ["programmatic"]}]},
            {"tools": "tools", "tools[0].allowed_callers": ""},
        ),
        (
            {"input": [{"type": "web_search_call", "id": "ws_1"}, user()]},
            {"input[0].web_search_call": ""},
        ),
        ({"input": [FOREIGN_COMPACTION, user()]}, {"input[0].compaction": ""}),
        ({"context_management": [{"type": "compaction"}]}, {"context_management": ""}),
        ({"moderation": {"model": "m"}}, {"moderation": ""}),
        ({"image": {"context_compression": "enabled"}}, {"image": ""}),
        ({"prompt_cache_options": {"ttl": "30m"}}, {}),
        ({"prompt_cache_options": {"prewarm": True}}, {"prompt_cache_options.prewarm": ""}),
        ({"top_k": 5, "seed": 1}, {"top_k": "top_k", "seed": "seed"}),
        # Chat's own words are none here, though a provider may know them.
        (
            {"response_format": {"type": "json_object"}, "max_tokens": 5},
            {"response_format": "", "max_tokens": ""},
        ),
        (
            {
                "metadata": {"a": "b"},
                "user": "u",
                "safety_identifier": "s",
                "prompt_cache_key": "k",
                "service_tier": "flex",
                "client_metadata": {},
                "store": True,
                "max_tool_calls": 3,
                "top_p": None,
            },
            {},
        ),
    ],
)
def test_what_is_asked_of_the_provider_is_named(
    members: dict[str, Any], expected: dict[str, str]
) -> None:
    assert RESPONSES.parameters({"model": "m", "input": "Hi", **members}) == expected


@pytest.mark.parametrize(
    ("members", "param"),
    [
        ({"include": ["x"]}, "include[0]"),
        ({"include": "x"}, "include"),
        ({"tools": {}}, "tools"),
        ({"truncation": "sometimes"}, "truncation"),
        ({"metadata": {"a": 1}}, "metadata.a"),
        ({"text": "x"}, "text"),
    ],
)
def test_a_wrong_shape_is_named(members: dict[str, Any], param: str) -> None:
    with pytest.raises(APIError) as caught:
        RESPONSES.parameters({"model": "m", "input": "Hi", **members})
    assert caught.value.param == param


def test_a_grammar_that_is_not_enforced_is_described() -> None:
    (tool,) = parse(tools=[{**CUSTOM, "description": "Patches.", "format": GRAMMAR}]).tools
    assert tool.description is not None
    assert tool.description.startswith("Patches.\n\n")
    assert 'start: "x"' in tool.description


@pytest.mark.parametrize(
    ("members", "param"),
    [
        ({"temperature": 3}, "temperature"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"top_logprobs": 21}, "top_logprobs"),
        ({"stream": "yes"}, "stream"),
        ({"store": 1}, "store"),
        ({"stream_options": {"include_obfuscation": True}}, "stream_options"),
        ({"model": None}, "model"),
    ],
)
def test_the_first_look_names_what_is_wrong(members: dict[str, Any], param: str) -> None:
    fields = parse_fields(bytes(to_raw({"model": "m", "input": "Hi", **members})))
    with pytest.raises(APIError) as caught:
        RESPONSES.look(fields, {})
    assert (caught.value.status, caught.value.param) == (400, param)


def test_long_names_get_a_short_form_that_is_their_own() -> None:
    long = [model_name("x" * 60 + end, "team") for end in "ab"]
    assert len(set(long)) == 2
    assert {len(name) for name in long} == {OPENAI_NAMES.length}
    assert model_name("ask", "team") == "team__ask"
    assert OPENAI_NAMES.takes(model_name("ask", "my team"))


# --------------------------------------------------------------------------------------------------
# The other calls, and other servers
# --------------------------------------------------------------------------------------------------


def test_a_conversation_is_compacted_from_its_record() -> None:
    items = [user("Launch?"), function_call(), answer(), {"role": "assistant", "content": "Yes"}]
    parsed = COMPACT.parse({"input": items}, "own")
    system, record = parsed.request.messages  # type: ignore[union-attr]
    assert system == SystemMessage(TASK)
    assert record.content == (
        "[user]\nLaunch?\n\n[assistant calls look, c1]\n{}\n\n[result of c1]\nfine\n\n"
        "[assistant]\nYes"
    )


def test_a_record_names_what_is_no_text() -> None:
    url = "data:application/pdf;base64,JVBERi0xLjc="
    parts = [
        {"type": "input_text", "text": "See: "},
        {"type": "input_file", "file_data": url, "filename": "a.pdf"},
        {"type": "input_file", "file_data": url},
        {"type": "input_image", "image_url": "https://example.com/a.png"},
    ]
    parsed = COMPACT.parse({"input": [{"role": "user", "content": parts}]}, "own")
    _, record = parsed.request.messages  # type: ignore[union-attr]
    assert record.content == "[user]\nSee: [document: a.pdf][document][image]"


def test_streams_of_what_comes_whole_are_refused() -> None:
    for operation in (COMPACT, INPUT_TOKENS):
        with pytest.raises(APIError, match="comes whole"):
            operation.look(parse_fields(b'{"model": "m", "stream": true}'), {})


def test_tokens_that_cannot_be_counted_are_refused() -> None:
    with pytest.raises(APIError, match="web_search"):
        INPUT_TOKENS.parse({"input": "Hi", "tools": [{"type": "web_search"}]}, "own")


@pytest.mark.parametrize("text", ["", "gAAA", PREFIX, PREFIX + "!!", PREFIX + "e30="])
def test_what_is_not_ours_is_not_unsealed(text: str) -> None:
    assert unseal(text) is None


def test_items_are_listed_in_their_full_form() -> None:
    listed = described_items([user(), {"role": "assistant", "content": "Yes"}, answer()], "u")
    assert [item["id"] for item in listed] == ["msg_u0000", "msg_u0001", "fco_u0002"]
    assert listed[0]["content"] == [{"type": "input_text", "text": "Hi"}]
    assert listed[1]["content"][0]["annotations"] == []
    assert described_items([{**user(), "id": {"x": 1}}], "u")[0]["id"] == "msg_u0000"
    assert described_items([{**user(), "id": "mine"}], "u")[0]["id"] == "mine"
    assert described_items("Hi", "u")[0]["content"] == listed[0]["content"]
    assert described_items([{"role": "user", "content": [5]}, {"role": "user"}], "u")


# --------------------------------------------------------------------------------------------------
# Whatever is sent
# --------------------------------------------------------------------------------------------------

_WORDS = st.sampled_from(
    re.findall(
        r"\w+",
        "type role content id call_id name arguments output input tools message user assistant"
        " function custom namespace function_call function_call_output reasoning text summary"
        " encrypted_content input_text input_image image_url format grammar allowed_tools mode auto"
        " required json_schema schema item_reference additional_tools compaction web_search",
    )
)
_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | _WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_WORDS, inner, max_size=4),
    max_leaves=12,
)
_TYPED = st.fixed_dictionaries({"type": _WORDS}, optional={"name": _WORDS, "tools": _VALUES})
_MEMBERS = st.sampled_from(
    re.findall(
        r"\w+",
        "input instructions tools tool_choice text reasoning include stream_options metadata store"
        " image prompt_cache_options context_management truncation future",
    )
)


def refusal(operation: Operation, body: dict[str, Any]) -> APIError | None:
    try:
        operation.look(parse_fields(bytes(to_raw(body))), {})
        operation.parameters(body)
        operation.parse(body, "own")
    except APIError as error:
        return error
    return None


@settings(max_examples=examples(150), deadline=None)
@given(
    st.dictionaries(
        _MEMBERS, _VALUES | _TYPED | st.lists(_TYPED | _VALUES, max_size=3), max_size=4
    ),
    st.sampled_from([RESPONSES, COMPACT, INPUT_TOKENS]),
)
def test_whatever_is_sent_is_read_or_refused_by_name(
    members: dict[str, Any], operation: Operation
) -> None:
    body = {"model": "m", "input": [user()], **members}
    refused = refusal(operation, body)
    assert refused is None or refused.status == 400
    if isinstance(body["input"], list):
        described_items([item for item in body["input"] if isinstance(item, dict)], "u")
