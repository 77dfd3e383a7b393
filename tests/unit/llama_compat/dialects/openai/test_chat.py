"""OpenAI's chat completions: requests, replies and streams, in both directions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming
from pydantic import TypeAdapter

from llama_compat.dialects.openai.chat import (
    StreamParser,
    StreamRenderer,
    parse_reply,
    parse_request,
    render_reply,
    render_request,
)
from llama_compat.dialects.openai.finish_reasons import STOP_REASONS, finish_reason, stop_reason
from llama_compat.dialects.openai.usage import parse_usage, render_usage
from llama_compat.errors import APIError
from llama_compat.events import Collector, reply_events
from llama_compat.types import (
    ChatCompletionRequest,
    ChatCompletionResponse,
    CompletionMessage,
    Delta,
    GreedySamplingStrategy,
    ImageContent,
    Message,
    ReasoningContent,
    ReasoningDelta,
    RefusalDelta,
    ResponseFormat,
    SamplingParams,
    StopReason,
    StreamComplete,
    StreamEvent,
    StreamProgress,
    StreamStart,
    SystemMessage,
    TextContent,
    TextDelta,
    TokenLogProb,
    TokenLogProbs,
    ToolCall,
    ToolCallDelta,
    ToolCallParseStatus,
    ToolChoice,
    ToolDefinition,
    ToolResponseMessage,
    TopKSamplingStrategy,
    TopPSamplingStrategy,
    UnparseableToolCall,
    Usage,
    UserMessage,
)
from llama_compat.wire import sse
from tests.examples import examples
from tests.unit import vocabulary

LABELS: dict[str, Any] = {"reply_id": "chatcmpl-1", "model": "m", "created": 1}
USER = {"role": "user", "content": "Hi"}

# --------------------------------------------------------------------------------------------------
# Requests: wire -> vocabulary
# --------------------------------------------------------------------------------------------------


def parsed(**body: Any) -> ChatCompletionRequest:
    return parse_request({"messages": [USER], **body}, "m").request


def parsed_message(message: dict[str, Any]) -> Any:
    return parsed(messages=[message]).messages[0]


def function(name: str = "f", **members: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, **members}}


def call(arguments: Any = "{}", **members: Any) -> dict[str, Any]:
    return {"id": "c1", **function(arguments=arguments), **members}


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (USER, UserMessage("Hi")),
        ({**USER, "name": "Ann"}, UserMessage("Hi", "Ann")),
        ({"role": "system", "content": "Be."}, SystemMessage("Be.")),
        (
            {"role": "developer", "content": "Be.", "name": "x"},
            SystemMessage("Be.", role="developer", name="x"),
        ),
        (
            {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
            UserMessage((TextContent("Hi"),)),
        ),
        (
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x"}}]},
            UserMessage((ImageContent("http://x"),)),
        ),
        (
            {
                "role": "user",
                "content": [
                    {"type": "image_url", "image_url": {"url": "data:,", "detail": "low"}},
                    {"type": "image_url", "image_url": "http://y"},
                ],
            },
            UserMessage((ImageContent("data:,", "low"), ImageContent("http://y"))),
        ),
        ({"role": "assistant", "content": "Hi"}, CompletionMessage.of("Hi")),
        ({"role": "assistant", "content": ""}, CompletionMessage.of("")),
        (
            {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
            CompletionMessage.of((TextContent("No."),)),
        ),
        (
            {"role": "assistant", "content": None, "refusal": "No."},
            CompletionMessage.of("", refusal="No."),
        ),
        (
            {"role": "assistant", "content": "Hi", "reasoning_content": "why", "name": "x"},
            CompletionMessage.of("Hi", reasoning="why", name="x"),
        ),
        (
            {"role": "assistant", "content": "Hi", "reasoning": "why"},
            CompletionMessage.of("Hi", reasoning="why"),
        ),
        (
            {"role": "assistant", "tool_calls": [call('{"x": 1}'), call("{")]},
            CompletionMessage.of(
                "",
                tool_calls=(
                    ToolCall("c1", "f", {"x": 1}, '{"x": 1}'),
                    UnparseableToolCall("c1", "f", "{"),
                ),
            ),
        ),
        (
            {
                "role": "assistant",
                "tool_calls": [call(extra_content={"google": {"thought_signature": "sealed"}})],
            },
            CompletionMessage.of("", tool_calls=(ToolCall("c1", "f", {}, "{}", "sealed"),)),
        ),
        (
            {"role": "assistant", "tool_calls": [{"id": "c1", **function()}]},
            CompletionMessage.of("", tool_calls=(ToolCall("c1", "f", {}, "{}"),)),
        ),
        (
            {"role": "tool", "tool_call_id": "c1", "content": "4"},
            ToolResponseMessage("c1", "4"),
        ),
    ],
)
def test_messages_are_parsed(message, expected):
    assert parsed_message(message) == expected


def test_calls_with_empty_ids_have_their_answers():
    """As some servers make them; other vendors refused the conversation ever after."""
    called = [{"id": "", **function(name="f")}, {**function(name="g")}]
    answers = [
        {"role": "tool", "tool_call_id": "", "name": "g", "content": "of g"},
        {"role": "tool", "tool_call_id": "", "content": "of f"},
    ]
    talk = [USER, {"role": "assistant", "tool_calls": called}, *answers]
    _, said, *given = parse_request({"messages": talk}, "m").request.messages
    ids = {call.tool_name: call.call_id for call in said.tool_calls}
    assert len({*ids.values()}) == 2
    assert [(each.call_id, each.content) for each in given] == [
        (ids["g"], "of g"),
        (ids["f"], "of f"),
    ]
    # And the same whenever it comes again.
    assert parse_request({"messages": talk}, "m").request.messages[1] == said


def test_a_call_without_an_id_gets_one():
    message = parsed_message({"role": "assistant", "tool_calls": [function(arguments="{}")]})
    assert message.tool_calls[0].call_id.startswith("call_")


@pytest.mark.parametrize(
    ("tool", "expected"),
    [
        (function(), ToolDefinition("f")),
        (
            function(description="Adds.", parameters={"type": "object"}, strict=True),
            ToolDefinition("f", "Adds.", {"type": "object"}, True),
        ),
        (
            function(parameters={"numbers": "list[int]", "unit": "str | None"}),
            ToolDefinition(
                "f",
                parameters={
                    "type": "object",
                    "properties": {
                        "numbers": {"type": "array", "items": {"type": "integer"}},
                        "unit": {"type": ["string", "null"]},
                    },
                    "required": ["numbers"],
                },
            ),
        ),
        (
            function(parameters={"type": "object", "properties": {"x": {"type": "list[str]"}}}),
            ToolDefinition(
                "f",
                parameters={
                    "type": "object",
                    "properties": {"x": {"type": "array", "items": {"type": "string"}}},
                },
            ),
        ),
    ],
)
def test_tools_are_parsed(tool, expected):
    assert parsed(tools=[tool]).tools == (expected,)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        ("auto", ToolChoice("auto")),
        ("required", ToolChoice("required")),
        ("none", ToolChoice("none")),
        (function("g"), ToolChoice("required", "g")),
    ],
)
def test_tool_choices_are_parsed(value, expected):
    assert parsed(tool_choice=value).tool_choice == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        ({"type": "text"}, ResponseFormat("text")),
        ({"type": "json_object"}, ResponseFormat("json_object")),
        (
            {"type": "json_schema", "json_schema": {"name": "n", "schema": {}, "strict": True}},
            ResponseFormat("json_schema", "n", {}, True),
        ),
        (
            {"type": "json_schema", "json_schema": {"name": "n"}},
            ResponseFormat("json_schema", "n"),
        ),
        ({"type": "json_object", "schema": None}, ResponseFormat("json_object")),
        (
            {"type": "json_object", "schema": {"const": 1}},
            ResponseFormat("json_schema", "response", {"const": 1}, path="response_format.schema"),
        ),
    ],
)
def test_response_formats_are_parsed(value, expected):
    assert parsed(response_format=value).response_format == expected


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ({}, None),
        ({"logprobs": False, "top_logprobs": 3}, None),
        ({"logprobs": True}, 0),
        ({"logprobs": True, "top_logprobs": 3}, 3),
    ],
)
def test_wanted_logprobs_are_counted(body, wanted):
    assert parsed(**body).logprobs == wanted


def test_what_else_a_request_says_is_parsed():
    request = parsed(parallel_tool_calls=False, reasoning_effort="low", stream=True)
    assert request.parallel_tool_calls is False
    assert request.reasoning_effort == "low"
    assert request.stream
    assert parsed() == ChatCompletionRequest("m", (UserMessage("Hi"),), stream=False)


def test_every_choice_is_a_request_with_a_seed_of_its_own():
    chat = parse_request({"messages": [USER], "n": 3, "seed": 7}, "m")
    assert [request.sampling.seed for request in chat.requests] == [7, 8, 9]
    unseeded = parse_request({"messages": [USER], "n": 2}, "m")
    assert unseeded.requests == [unseeded.request] * 2


def test_usage_in_a_stream_is_asked_for():
    chat = parse_request(
        {"messages": [USER], "stream": True, "stream_options": {"include_usage": True}}, "m"
    )
    assert (chat.stream, chat.include_usage) == (True, True)
    plain = parse_request({"messages": [USER], "stream_options": None}, "m")
    assert (plain.stream, plain.include_usage, plain.n) == (False, False, 1)


def assistant(**members: Any) -> dict[str, Any]:
    return {"messages": [{"role": "assistant", **members}]}


def user(content: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": content}]}


ERRORS: list[tuple[dict[str, Any], str, str]] = [
    ({"messages": None}, "messages", "missing_required_parameter"),
    ({"messages": []}, "messages", "invalid_value"),
    ({"messages": "Hi"}, "messages", "invalid_value"),
    ({"messages": ["Hi"]}, "messages[0]", "invalid_type"),
    ({"messages": [USER, {"content": "Hi"}]}, "messages[1].role", "missing_required_parameter"),
    ({"messages": [{"role": "robot", "content": ""}]}, "messages[0].role", "invalid_value"),
    (
        {"messages": [{"role": "function", "content": ""}]},
        "messages[0].name",
        "missing_required_parameter",
    ),
    ({"messages": [{"role": ["user"]}]}, "messages[0].role", "invalid_value"),
    ({"messages": [{"role": "user"}]}, "messages[0].content", "missing_required_parameter"),
    ({"messages": [{**USER, "name": 1}]}, "messages[0].name", "invalid_type"),
    (user(1), "messages[0].content", "invalid_value"),
    (user(["Hi"]), "messages[0].content[0]", "invalid_type"),
    (user([{"type": "text"}]), "messages[0].content[0].text", "missing_required_parameter"),
    (user([{"type": "text", "text": 1}]), "messages[0].content[0].text", "invalid_type"),
    (user([{"type": "input_film"}]), "messages[0].content[0].type", "invalid_value"),
    (user([{"type": "input_audio"}]), "messages[0].content[0].input_audio", "invalid_type"),
    (
        user([{"type": "input_audio", "input_audio": {"format": "wav"}}]),
        "messages[0].content[0].input_audio.data",
        "missing_required_parameter",
    ),
    (user([{}]), "messages[0].content[0].type", "invalid_value"),
    (user([{"type": "image_url"}]), "messages[0].content[0].image_url", "invalid_type"),
    (
        user([{"type": "image_url", "image_url": {}}]),
        "messages[0].content[0].image_url.url",
        "missing_required_parameter",
    ),
    (
        user([{"type": "image_url", "image_url": {"url": "x", "detail": 1}}]),
        "messages[0].content[0].image_url.detail",
        "invalid_type",
    ),
    (assistant(), "messages[0].content", "invalid_value"),
    (assistant(tool_calls={"a": 1}), "messages[0].tool_calls", "invalid_value"),
    (assistant(tool_calls=["f"]), "messages[0].tool_calls[0]", "invalid_type"),
    (assistant(tool_calls=[{"id": "c"}]), "messages[0].tool_calls[0].function", "invalid_type"),
    (
        assistant(tool_calls=[{"function": {}}]),
        "messages[0].tool_calls[0].function.name",
        "missing_required_parameter",
    ),
    (
        assistant(tool_calls=[call({"x": 1})]),
        "messages[0].tool_calls[0].function.arguments",
        "invalid_type",
    ),
    (assistant(tool_calls=[call(id=1)]), "messages[0].tool_calls[0].id", "invalid_type"),
    (assistant(content="", refusal=1), "messages[0].refusal", "invalid_type"),
    (assistant(content="", reasoning=1), "messages[0].reasoning", "invalid_type"),
    (
        {"messages": [{"role": "tool", "content": ""}]},
        "messages[0].tool_call_id",
        "missing_required_parameter",
    ),
    ({"tools": {"f": 1}}, "tools", "invalid_value"),
    ({"tools": ["f"]}, "tools[0]", "invalid_type"),
    ({"tools": [{"type": "retrieval"}]}, "tools[0].type", "invalid_value"),
    ({"tools": [{"type": "function"}]}, "tools[0].function", "invalid_type"),
    (
        {"tools": [function(), {"type": "function", "function": {}}]},
        "tools[1].function.name",
        "missing_required_parameter",
    ),
    ({"tools": [function(description=1)]}, "tools[0].function.description", "invalid_type"),
    ({"tools": [function(strict="yes")]}, "tools[0].function.strict", "invalid_type"),
    ({"tools": [function(parameters=[])]}, "tools[0].function.parameters", "invalid_type"),
    (
        {"tools": [function(parameters={"x": "list[thing]"})]},
        "tools[0].function.parameters",
        "invalid_value",
    ),
    ({"tool_choice": "any"}, "tool_choice", "invalid_value"),
    ({"tool_choice": {"type": "function"}}, "tool_choice", "invalid_value"),
    ({"response_format": "json"}, "response_format", "invalid_value"),
    ({"response_format": {"type": "xml"}}, "response_format", "invalid_value"),
    (
        {"response_format": {"type": "json_schema", "json_schema": {}}},
        "response_format",
        "invalid_value",
    ),
    (
        {"response_format": {"type": "json_object", "schema": 1}},
        "response_format.schema",
        "invalid_type",
    ),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": 1}}},
        "response_format.json_schema.schema",
        "invalid_type",
    ),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "strict": 1}}},
        "response_format.json_schema.strict",
        "invalid_type",
    ),
    ({"reasoning_effort": 3}, "reasoning_effort", "invalid_type"),
]


@pytest.mark.parametrize(("body", "param", "code"), ERRORS)
def test_what_is_malformed_is_named(body, param, code):
    with pytest.raises(APIError) as raised:
        parsed(**body)
    assert (raised.value.status, raised.value.param, raised.value.code) == (400, param, code)
    assert param in raised.value.message or raised.value.code == "invalid_value"


def test_a_schema_nested_too_deeply_is_refused():
    schema: dict[str, Any] = {}
    for _ in range(2000):
        schema = {"items": schema}
    with pytest.raises(APIError, match="nested too deeply") as raised:
        parsed(tools=[function(parameters=schema)])
    assert raised.value.param == "tools[0].function.parameters"


# --------------------------------------------------------------------------------------------------
# Requests: vocabulary -> wire
# --------------------------------------------------------------------------------------------------

tools = st.builds(
    ToolDefinition,
    vocabulary.names,
    st.none() | st.text(max_size=5),
    st.none() | st.just({"type": "object", "properties": {"x": {"type": "integer"}}}) | st.just({}),
    st.none() | st.booleans(),
)
choices = st.one_of(
    st.builds(ToolChoice, st.sampled_from(["auto", "required", "none"])),
    st.builds(ToolChoice, st.just("required"), vocabulary.names),
)
formats = st.one_of(
    st.builds(ResponseFormat, st.sampled_from(["text", "json_object"])),
    st.builds(
        ResponseFormat,
        st.just("json_schema"),
        vocabulary.names,
        st.none() | vocabulary.json_objects,
        st.none() | st.booleans(),
    ),
)


@st.composite
def samplings(draw: st.DrawFn) -> SamplingParams:
    sampling = draw(vocabulary.samplings(2.0))
    penalties = st.sampled_from([0.0, 0.5, -2.0])
    return structs.replace(
        sampling,
        max_tokens=draw(st.none() | st.integers(1, 99)),
        seed=draw(st.none() | st.integers()),
        frequency_penalty=draw(penalties),
        presence_penalty=draw(penalties),
        repetition_penalty=draw(st.sampled_from([1.0, 1.25])),
        logit_bias=draw(st.dictionaries(st.integers(0, 99), st.integers(-9, 9), max_size=2)),
    )


@st.composite
def requests(draw: st.DrawFn) -> ChatCompletionRequest:
    offered = tuple(draw(st.lists(tools, max_size=2)))
    return ChatCompletionRequest(
        model="m",
        messages=draw(vocabulary.conversations(signed=True, tools_give_images=False)),
        sampling=draw(samplings()),
        tools=offered,
        tool_choice=draw(st.none() | choices) if offered else None,
        parallel_tool_calls=draw(st.none() | st.booleans()) if offered else None,
        response_format=draw(st.none() | formats),
        reasoning_effort=draw(st.none() | st.just("low")),
        logprobs=draw(st.none() | st.integers(0, 20)),
        stream=draw(st.booleans()),
    )


def without_stated(request: ChatCompletionRequest) -> ChatCompletionRequest:
    return structs.replace(request, sampling=structs.replace(request.sampling, stated=frozenset()))


@given(requests())
def test_a_rendered_request_is_parsed_as_the_same(request):
    body = json.loads(json.dumps(render_request(request)))
    parsed = without_stated(parse_request(body, "m").request)
    if request.response_format == ResponseFormat("json_object"):
        parsed = structs.replace(parsed, messages=request.messages)  # one more may say so
    if not request.tools:  # without which nothing may be said of them
        request = structs.replace(request, tool_choice=None, parallel_tool_calls=None)
    tools = tuple(map(_with_members, request.tools))
    assert parsed == structs.replace(request, tools=tools)


def _with_members(tool: ToolDefinition) -> ToolDefinition:
    if tool.parameters is None:
        return tool
    empty: dict[str, Any] = {"type": "object", "properties": {}}
    return structs.replace(tool, parameters=empty | dict(tool.parameters))


def test_parameters_are_the_schema_of_an_object_and_need_tools() -> None:
    asked = ChatCompletionRequest(
        "m",
        (UserMessage("Hi"),),
        tools=(ToolDefinition("f", parameters={"type": "object"}), ToolDefinition("g")),
        tool_choice=ToolChoice("auto"),
        parallel_tool_calls=False,
    )
    body = render_request(asked)
    functions = [tool["function"] for tool in body["tools"]]
    assert functions == [
        {"name": "f", "parameters": {"type": "object", "properties": {}}},
        {"name": "g"},
    ]
    assert (body["tool_choice"], body["parallel_tool_calls"]) == ("auto", False)
    body = render_request(structs.replace(asked, tools=()))
    assert not {"tools", "tool_choice", "parallel_tool_calls"} & body.keys()


IN_JSON = "Answer in JSON."


@pytest.mark.parametrize(
    ("asked", "sent"),
    [
        ([UserMessage("Hi")], [("system", IN_JSON), ("user", "Hi")]),
        # There are chat templates that take no second system message.
        (
            [SystemMessage("Be kind.", "developer"), UserMessage("Hi")],
            [("developer", f"Be kind.\n\n{IN_JSON}"), ("user", "Hi")],
        ),
        (
            [SystemMessage((TextContent("a"),)), UserMessage("Hi")],
            [
                (
                    "system",
                    [{"type": "text", "text": "a"}, {"type": "text", "text": IN_JSON}],
                ),
                ("user", "Hi"),
            ],
        ),
        ([SystemMessage("As Json."), UserMessage("Hi")], [("system", "As Json."), ("user", "Hi")]),
        ([UserMessage((TextContent("JSON"),))], [("user", [{"type": "text", "text": "JSON"}])]),
    ],
)
def test_where_a_json_object_is_wanted_one_message_says_json(
    asked: list[Message], sent: list[tuple[str, Any]]
) -> None:
    # OpenAI and others answer 400 otherwise, and the other APIs' clients need not say so.
    request = ChatCompletionRequest(
        "m", tuple(asked), response_format=ResponseFormat("json_object")
    )
    said = [(each["role"], each["content"]) for each in render_request(request)["messages"]]
    assert said == sent
    plain = structs.replace(request, response_format=ResponseFormat("text"))
    assert len(render_request(plain)["messages"]) == len(asked)


@settings(max_examples=examples(30))
@given(requests())
def test_a_rendered_request_is_one_by_openais_own_types(request):
    body = render_request(request)
    for name in ("top_k", "repetition_penalty"):  # extensions that others take
        body.pop(name, None)
    TypeAdapter(CompletionCreateParamsNonStreaming).validate_python({**body, "stream": False})


@settings(max_examples=examples(30))
@given(requests())
def test_nothing_that_nobody_set_is_sent(request):
    body = render_request(request)
    assert None not in body.values()
    assert ("tools" in body) == bool(request.tools)
    assert ("stream_options" in body) == request.stream


def test_a_bare_request_is_bare():
    request = ChatCompletionRequest("m", (UserMessage("Hi"),), stream=False)
    assert render_request(request) == {"model": "m", "messages": [USER]}


def test_how_tools_are_called_is_not_said_where_there_are_none():
    """ "'parallel_tool_calls' is only allowed when 'tools' are specified", which other APIs leave
    open."""
    request = ChatCompletionRequest(
        "m",
        (UserMessage("Hi"),),
        tool_choice=ToolChoice("none"),
        parallel_tool_calls=False,
        stream=False,
    )
    assert render_request(request) == {"model": "m", "messages": [USER]}


def test_the_limit_has_the_name_that_the_vendor_knows():
    request = ChatCompletionRequest(
        "m", (UserMessage("Hi"),), sampling=SamplingParams(max_tokens=5), stream=False
    )
    assert render_request(request)["max_completion_tokens"] == 5
    assert render_request(request, max_tokens_name="max_tokens")["max_tokens"] == 5


def test_what_the_caller_stated_is_sent_though_it_is_a_default():
    body = {"messages": [USER], "temperature": 1, "presence_penalty": 0}
    rendered = render_request(parse_request(body, "m").request)
    assert rendered["temperature"] == 1
    assert rendered["presence_penalty"] == 0
    assert "top_p" not in rendered


@pytest.mark.parametrize(
    ("strategy", "members"),
    [
        (GreedySamplingStrategy(), {"temperature": 0}),
        (TopPSamplingStrategy(), {}),
        (TopPSamplingStrategy(0.5, 0.9), {"temperature": 0.5, "top_p": 0.9}),
        (TopKSamplingStrategy(5), {"top_k": 5}),
    ],
)
def test_strategies_are_rendered(strategy, members):
    request = ChatCompletionRequest(
        "m", (UserMessage("Hi"),), sampling=SamplingParams(strategy=strategy), stream=False
    )
    assert render_request(request) == {"model": "m", "messages": [USER], **members}


# --------------------------------------------------------------------------------------------------
# Whole replies
# --------------------------------------------------------------------------------------------------

tokens = st.builds(
    lambda content, logprob: TokenLogProb(content, content.encode(), logprob),
    st.text(max_size=3),
    st.floats(-20, 0),
)
logprobs = st.lists(
    st.builds(TokenLogProbs, tokens, st.lists(tokens, max_size=2).map(tuple)),
    min_size=1,
    max_size=3,
).map(tuple)


@st.composite
def responses(draw: st.DrawFn) -> ChatCompletionResponse:
    response = draw(vocabulary.responses(signed=True))
    calls = draw(vocabulary.call_lists(signed=True))
    ended = StopReason.end_of_message if calls else StopReason.end_of_turn
    said = response.completion_message
    message = CompletionMessage.of(
        said.content,
        calls,
        reasoning=said.reasoning,
        refusal=draw(st.none() | vocabulary.texts),
        stop_reason=draw(
            st.sampled_from([ended, StopReason.out_of_tokens, StopReason.content_filter])
        ),
    )
    return structs.replace(
        response, completion_message=message, logprobs=draw(st.none() | logprobs)
    )


@given(st.lists(responses(), min_size=1, max_size=3))
def test_a_rendered_reply_is_parsed_as_the_same(replies):
    usage = replies[0].usage
    replies = [structs.replace(reply, usage=usage) for reply in replies]
    body = json.loads(json.dumps(render_reply(replies, usage, **LABELS)))
    ChatCompletion.model_validate(body, strict=True)
    assert parse_reply(body) == replies


def reply(message: dict[str, Any], **members: Any) -> dict[str, Any]:
    return {"choices": [{"message": {"role": "assistant", **message}, **members}]}


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({"content": "Hi"}, CompletionMessage.of("Hi")),
        ({"content": None}, CompletionMessage.of("")),
        ({}, CompletionMessage.of("")),
        (
            {"content": "Hi", "reasoning_content": "why", "reasoning": "twice"},
            CompletionMessage.of("Hi", reasoning="why"),
        ),
        ({"content": "Hi", "reasoning": "why"}, CompletionMessage.of("Hi", reasoning="why")),
        ({"content": "Hi", "reasoning": {"effort": 1}}, CompletionMessage.of("Hi")),
        (
            {
                "content": [
                    {"type": "thinking", "thinking": [{"type": "text", "text": "why"}]},
                    {"type": "thinking", "thinking": "?"},
                    {"type": "text", "text": "Hi"},
                ]
            },
            CompletionMessage.of("Hi", reasoning="why?"),
        ),
        ({"content": None, "refusal": "No."}, CompletionMessage.of("", refusal="No.")),
    ],
)
def test_vendors_ways_to_say_text_are_understood(message, expected):
    [response] = parse_reply(reply(message, finish_reason="stop"))
    assert response.completion_message == structs.replace(
        expected, stop_reason=StopReason.end_of_turn
    )
    assert response.usage == Usage()
    assert response.logprobs is None


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({"tool_calls": [call('{"x": 1}')]}, ToolCall("c1", "f", {"x": 1}, '{"x": 1}')),
        ({"tool_calls": [call({"x": 1})]}, ToolCall("c1", "f", {"x": 1}, '{"x":1}')),
        ({"tool_calls": [call(None)]}, ToolCall("c1", "f", {}, "{}")),
        ({"tool_calls": [call("{")]}, UnparseableToolCall("c1", "f", "{")),
    ],
)
@pytest.mark.parametrize("word", ["tool_calls", "stop", None])
def test_vendors_ways_to_call_are_understood(message, expected, word):
    [response] = parse_reply(reply(message, finish_reason=word))
    assert response.completion_message.tool_calls == (expected,)
    assert response.completion_message.stop_reason is StopReason.end_of_message


def test_the_older_function_call_is_a_call():
    [response] = parse_reply(
        reply({"function_call": {"name": "f", "arguments": "{}"}}, finish_reason="function_call")
    )
    [made] = response.completion_message.tool_calls
    assert (made.tool_name, made.arguments_json) == ("f", "{}")
    assert made.call_id.startswith("call_")
    assert response.completion_message.stop_reason is StopReason.end_of_message


LOGPROBS_THAT_OVERFLOW = {"content": [{"token": "a", "logprob": 0.0, "bytes": [10**25]}]}


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"choices": []},
        {"choices": [{}]},
        {"choices": ["text"]},
        {"choices": [{"message": "text"}]},
        {"choices": 3},
        {"choices": [{"message": {"tool_calls": ["f"]}}]},
        {"choices": [{"message": {}, "logprobs": {"content": [{}]}}]},
        {"choices": [{"message": {"content": {}}}]},
        {"choices": [{"message": {"refusal": 3}}]},
        {"choices": [{"message": {"tool_calls": [{"function": {"name": 3}}]}}]},
        {"choices": [{"message": {}, "logprobs": LOGPROBS_THAT_OVERFLOW}]},
    ],
)
def test_what_is_no_reply_is_a_value_error(body):
    with pytest.raises(ValueError, match=r"^the reply"):
        parse_reply(body)


def test_calls_alone_leave_the_content_null():
    calls = (ToolCall("c1", "f", {}, "{}"),)
    message = CompletionMessage.of("", tool_calls=calls, stop_reason=StopReason.end_of_message)
    body = render_reply([ChatCompletionResponse(message)], Usage(), **LABELS)
    assert body["choices"][0]["message"]["content"] is None
    assert body["choices"][0]["finish_reason"] == "tool_calls"


# Usage and the reasons to stop --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (None, Usage()),
        ({}, Usage()),
        ({"prompt_tokens": 3, "completion_tokens": None}, Usage(3, 0)),
        (
            {
                "prompt_tokens": 3,
                "completion_tokens": 4,
                "prompt_tokens_details": {"cached_tokens": 2},
                "completion_tokens_details": {"reasoning_tokens": 1},
            },
            Usage(3, 4, 2, 1),
        ),
        (
            {"prompt_tokens": 3, "prompt_tokens_details": None, "prompt_cache_hit_tokens": 2},
            Usage(3, 0, 2),
        ),
        ({"prompt_tokens": "3", "completion_tokens": 4.0}, Usage(3, 4)),
        ({"prompt_tokens": -3, "completion_tokens": True}, Usage()),
        ({"prompt_tokens": [3], "completion_tokens": 10**25}, Usage()),
        ({"prompt_tokens": 3, "prompt_tokens_details": {"cached_tokens": {}}}, Usage(3)),
        ({"prompt_tokens": 3, "prompt_tokens_details": 2}, Usage(3)),
        ("many", Usage()),
        ([3], Usage()),
    ],
)
def test_usage_is_parsed(usage, expected):
    assert parse_usage(usage) == expected


def test_usage_that_the_provider_did_not_tell_is_left_out():
    assert render_usage(Usage(3, 4)) == {
        "prompt_tokens": 3,
        "completion_tokens": 4,
        "total_tokens": 7,
    }
    assert parse_usage(render_usage(Usage(3, 4, 0, 0))) == Usage(3, 4, 0, 0)


@pytest.mark.parametrize(("word", "reason"), STOP_REASONS.items())
def test_vendors_words_are_translated(word, reason):
    assert stop_reason(word) is reason


@pytest.mark.parametrize("word", ["", None, "something_new"])
def test_an_unknown_word_means_that_the_model_was_done(word):
    assert stop_reason(word) is StopReason.end_of_turn


@pytest.mark.parametrize(
    ("reason", "called", "word"),
    [
        (StopReason.end_of_turn, False, "stop"),
        (StopReason.end_of_message, False, "stop"),
        (StopReason.end_of_turn, True, "tool_calls"),
        (StopReason.end_of_message, True, "tool_calls"),
        (StopReason.out_of_tokens, False, "length"),
        (StopReason.out_of_tokens, True, "length"),
        (StopReason.content_filter, False, "content_filter"),
        (StopReason.content_filter, True, "content_filter"),
    ],
)
def test_reasons_are_translated(reason, called, word):
    assert finish_reason(reason, called_tools=called) == word


# --------------------------------------------------------------------------------------------------
# Streams
# --------------------------------------------------------------------------------------------------


def rendered(
    *events: StreamEvent, include_usage: bool = False, choice: int = 0
) -> list[dict[str, Any]]:
    renderer = StreamRenderer(**LABELS, include_usage=include_usage)
    chunks = [chunk for event in events for chunk in renderer.render(choice, event)]
    usage = next((event.usage for event in events if isinstance(event, StreamComplete)), Usage())
    chunks += renderer.finish(usage)
    for chunk in chunks:
        ChatCompletionChunk.model_validate(json.loads(msgspec.json.encode(chunk)), strict=True)
    return chunks


def parsed_stream(
    chunks: Iterable[dict[str, Any]], *, done: bool = False, **options: Any
) -> list[StreamEvent]:
    parser = StreamParser(**options)
    events = [event for chunk in chunks for event in parser.push(chunk)]
    return [*events, *parser.finish(done=done)]


def collected(events: Iterable[StreamEvent]) -> ChatCompletionResponse:
    collector = Collector()
    for event in events:
        collector.add(event)
    return collector.chat_completion()


def deltas(events: Iterable[StreamEvent]) -> list[Delta]:
    return [event.delta for event in events if isinstance(event, StreamProgress)]


def delta_chunk(delta: dict[str, Any], **members: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, **members}]}


STOP = delta_chunk({}, finish_reason="stop")


@st.composite
def streams(draw: st.DrawFn) -> list[StreamEvent]:
    """The events of a reply, its texts and arguments cut anywhere."""
    response = draw(responses())
    message = response.completion_message

    def pieces(text: str | None) -> list[str]:
        text = text or ""
        cuts = sorted(draw(st.sets(st.integers(0, len(text)), max_size=3)))
        return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True) if b > a]

    made: list[Delta] = [ReasoningDelta(piece) for piece in pieces(message.reasoning)]
    made += [TextDelta(piece) for piece in pieces(str(message.content))]
    made += [RefusalDelta(piece) for piece in pieces(message.refusal)]
    for index, tool_call in enumerate(message.tool_calls):
        status = ToolCallParseStatus
        if draw(st.booleans()):
            made.append(
                ToolCallDelta(
                    index,
                    status.started,
                    call_id=tool_call.call_id,
                    tool_name=tool_call.tool_name,
                )
            )
            made += [
                ToolCallDelta(index, status.in_progress, arguments=piece)
                for piece in pieces(tool_call.arguments_json)
            ]
        ended = status.succeeded if isinstance(tool_call, ToolCall) else status.failed
        made.append(ToolCallDelta(index, ended, tool_call=tool_call))
    events: list[StreamEvent] = [StreamProgress(delta) for delta in made]
    if draw(st.booleans()):
        events.append(StreamProgress(TextDelta(""), draw(logprobs)))
    reason = message.stop_reason or StopReason.end_of_turn
    return [StreamStart(), *events, StreamComplete(reason, response.usage)]


@settings(max_examples=examples(30))
@given(streams(), st.data())
def test_a_rendered_stream_cut_anywhere_is_parsed_as_the_same_reply(events, data):
    chunks = rendered(*events, include_usage=True)
    content = b"".join(sse.encode_data(msgspec.json.encode(chunk)) for chunk in chunks)
    decoder = sse.EventDecoder()
    decoded = [
        json.loads(event.data)
        for piece in data.draw(vocabulary.cuts(content))
        for event in decoder.feed(piece)
        if event.data is not None
    ]
    for whole_calls in (False, True):
        again = collected(parsed_stream(decoded, whole_calls=whole_calls))
        assert again == collected(events)


@given(responses())
def test_a_stream_gives_the_same_as_a_whole_reply(response):
    events = list(reply_events(response))
    whole = parse_reply(render_reply([response], response.usage, **LABELS))
    assert [collected(parsed_stream(rendered(*events, include_usage=True)))] == whole


@settings(max_examples=examples(30))
@given(streams())
def test_openais_own_client_reads_the_stream_as_the_same_reply(events):
    state = ChatCompletionStreamState()
    for chunk in rendered(*events, include_usage=True):
        state.handle_chunk(ChatCompletionChunk.model_validate(chunk))
    expected = collected(events)
    completion = state.current_completion_snapshot
    [choice] = completion.choices
    message = choice.message
    assert (message.content or "") == expected.completion_message.content
    assert [
        (made.id, made.function.name, made.function.arguments) for made in message.tool_calls or ()
    ] == [
        (made.call_id, made.tool_name, made.arguments_json)
        for made in expected.completion_message.tool_calls
    ]
    reason = events[-1].stop_reason
    assert choice.finish_reason == finish_reason(
        reason, called_tools=bool(expected.completion_message.tool_calls)
    )
    assert completion.usage is not None
    assert completion.usage.total_tokens == sum(
        (expected.usage.prompt_tokens, expected.usage.completion_tokens)
    )


# The renderer -------------------------------------------------------------------------------------


def test_a_stream_begins_with_the_role_and_ends_with_the_reason():
    chunks = rendered(
        StreamStart(3),
        StreamProgress(TextDelta("Hi")),
        StreamComplete(StopReason.end_of_turn, Usage(3, 1)),
    )
    assert [chunk["choices"][0] for chunk in chunks] == [
        {
            "index": 0,
            "delta": {"role": "assistant", "content": ""},
            "logprobs": None,
            "finish_reason": None,
        },
        {"index": 0, "delta": {"content": "Hi"}, "logprobs": None, "finish_reason": None},
        {"index": 0, "delta": {}, "logprobs": None, "finish_reason": "stop"},
    ]
    assert all("usage" not in chunk for chunk in chunks)


CALLED = [
    ToolCallDelta(0, ToolCallParseStatus.started, call_id="c1", tool_name="f"),
    ToolCallDelta(0, ToolCallParseStatus.succeeded, tool_call=ToolCall("c1", "f", {}, "{}")),
]


def test_the_first_chunk_says_whether_a_call_or_words_begin():
    """As OpenAI's own: clients take an empty text for the beginning of one."""
    begun = ToolCallDelta(0, ToolCallParseStatus.started, call_id="c1", tool_name="f")
    ends = StreamComplete(StopReason.end_of_turn)
    for first, content in (
        (StreamProgress(begun), None),
        (StreamProgress(TextDelta("Hi")), ""),
        (StreamProgress(ReasoningDelta("why")), None),
        (StreamProgress(RefusalDelta("No.")), None),
        (ends, ""),
    ):
        chunks = rendered(StreamStart(), first, StreamProgress(begun), ends)
        deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
        assert deltas[0] == {"role": "assistant", "content": content}
        assert not any("role" in delta for delta in deltas[1:])


@pytest.mark.parametrize(
    "said",
    [
        [],
        [TextDelta("Hi")],
        [ReasoningDelta("why")],
        [ReasoningDelta("why"), TextDelta("Hi")],
        [ReasoningDelta("why"), RefusalDelta("No.")],
        [RefusalDelta("No.")],
        [ReasoningDelta("why"), *CALLED],
        [TextDelta("Hi"), *CALLED],
        CALLED,
    ],
)
def test_a_stream_comes_to_the_content_of_a_whole_reply(said: list[Any]):
    """A client that puts deltas together has a text, or none, where the whole message has."""
    events = [StreamStart(), *map(StreamProgress, said), StreamComplete(StopReason.end_of_turn)]
    collector = Collector()
    for event in events:
        collector.add(event)
    whole = render_reply([collector.chat_completion()], Usage(), **LABELS)
    state = ChatCompletionStreamState()
    for chunk in rendered(*events):
        state.handle_chunk(ChatCompletionChunk.model_validate(chunk))
    streamed = state.current_completion_snapshot.choices[0].message
    assert streamed.content == whole["choices"][0]["message"]["content"]


def test_a_first_chunk_waits_for_what_is_said_in_its_choice():
    renderer = StreamRenderer(**LABELS, include_usage=False)
    for choice in (0, 1):
        assert not list(renderer.render(choice, StreamStart(token_ids=(1, 2))))
    assert not list(renderer.render(0, StreamProgress(TextDelta(""))))
    first, second = renderer.render(1, StreamProgress(TextDelta("a")))
    assert (first["choices"][0]["index"], first["prompt_token_ids"]) == (1, [1, 2])
    assert second["choices"][0]["delta"] == {"content": "a"}
    assert len(list(renderer.render(1, StreamProgress(TextDelta("b"))))) == 1
    assert len(list(renderer.render(0, StreamComplete(StopReason.end_of_turn)))) == 2


def test_usage_comes_last_and_is_null_before():
    chunks = rendered(
        StreamStart(), StreamComplete(StopReason.end_of_turn, Usage(3, 1)), include_usage=True
    )
    assert [chunk["usage"] for chunk in chunks[:-1]] == [None, None]
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["total_tokens"] == 4


def call_event(index: int, status: str, **members: Any) -> StreamProgress:
    return StreamProgress(ToolCallDelta(index, ToolCallParseStatus(status), **members))


def sent_calls(chunks: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        fragment
        for chunk in chunks
        for choice in chunk["choices"]
        for fragment in choice["delta"].get("tool_calls", ())
    ]


def test_id_and_name_are_given_once_and_the_index_is_stable():
    first, second = ToolCall("c1", "f", {}, "{}"), UnparseableToolCall("c2", "g", "{]")
    chunks = rendered(
        call_event(0, "started", call_id="c1", tool_name="f"),
        call_event(1, "started", call_id="c2", tool_name="g"),
        call_event(1, "in_progress", arguments="{"),
        call_event(0, "in_progress", arguments="{}"),
        call_event(1, "in_progress", arguments="]"),
        call_event(0, "succeeded", tool_call=first),
        call_event(1, "failed", tool_call=second),
        StreamComplete(StopReason.end_of_message),
    )
    assert sent_calls(chunks) == [
        {"index": 0, "id": "c1", "type": "function", "function": {"name": "f", "arguments": ""}},
        {"index": 1, "id": "c2", "type": "function", "function": {"name": "g", "arguments": ""}},
        {"index": 1, "function": {"arguments": "{"}},
        {"index": 0, "function": {"arguments": "{}"}},
        {"index": 1, "function": {"arguments": "]"}},
    ]
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"


@pytest.mark.parametrize("started", [True, False])
def test_a_whole_call_is_given_in_full(started):
    made = ToolCall("c1", "f", {}, "{}", thought_signature="sealed")
    begin = [call_event(0, "started", call_id="c1", tool_name="f")] if started else []
    fragments = sent_calls(rendered(*begin, call_event(0, "succeeded", tool_call=made)))
    assert "".join(fragment["function"]["arguments"] for fragment in fragments) == "{}"
    assert fragments[-1]["extra_content"] == {"google": {"thought_signature": "sealed"}}
    assert [fragment["id"] for fragment in fragments if "id" in fragment] == ["c1"]


def test_choices_keep_their_calls_apart():
    renderer = StreamRenderer(**LABELS, include_usage=False)
    begun = ToolCallDelta(0, ToolCallParseStatus.started, call_id="c1", tool_name="f")
    for choice in (0, 1):
        [chunk] = renderer.render(choice, StreamProgress(begun))
        assert chunk["choices"][0]["index"] == choice
        assert sent_calls([chunk])[0]["id"] == "c1"
    [last] = renderer.render(2, StreamComplete(StopReason.end_of_turn))
    assert last["choices"][0]["finish_reason"] == "stop"


def test_empty_deltas_are_not_sent():
    for delta in (TextDelta(""), ReasoningDelta(""), RefusalDelta("")):
        assert rendered(StreamProgress(delta)) == []


# The parser ---------------------------------------------------------------------------------------


def test_chunks_become_events():
    events = parsed_stream(
        [
            delta_chunk({"role": "assistant", "content": ""}),
            delta_chunk({"reasoning": "why"}),
            delta_chunk({"content": "Hi"}),
            delta_chunk({}, finish_reason="length"),
            {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 1}},
        ]
    )
    assert events == [
        StreamStart(),
        StreamProgress(ReasoningDelta("why")),
        StreamProgress(TextDelta("Hi"), part=1),
        StreamComplete(StopReason.out_of_tokens, Usage(3, 1)),
    ]


def test_reasoning_and_text_of_one_chunk_are_both_given():
    events = parsed_stream([delta_chunk({"content": "Hi", "reasoning_content": "why"}), STOP])
    assert deltas(events) == [ReasoningDelta("why"), TextDelta("Hi")]


def test_only_the_wanted_choice_is_read():
    chunks = [
        {"choices": [{"index": index, "delta": {"content": str(index)}, "finish_reason": "stop"}]}
        for index in (0, 1)
    ]
    assert deltas(parsed_stream(chunks)) == [TextDelta("0")]


def test_a_choice_without_an_index_is_the_first():
    events = parsed_stream([{"choices": [{"delta": {"content": "a"}, "finish_reason": "stop"}]}])
    assert deltas(events) == [TextDelta("a")]


def test_text_cut_inside_a_character_is_joined():
    events = parsed_stream(
        [delta_chunk({"content": "a\ud83d"}), delta_chunk({"content": "\ude00"}), STOP]
    )
    assert deltas(events) == [TextDelta("a"), TextDelta("😀")]
    alone = parsed_stream([delta_chunk({"content": "a\ud83d"}), STOP])
    assert deltas(alone) == [TextDelta("a"), TextDelta("\N{REPLACEMENT CHARACTER}")]


def test_half_a_character_in_a_whole_reply_is_replaced():
    message = {"content": "a\ud83d", "reasoning_content": "b\ud83d", "refusal": "c\ud83d"}
    [response] = parse_reply({"choices": [{"message": message, "finish_reason": "stop"}]})
    said = response.completion_message
    assert [said.content, said.reasoning, said.refusal] == ["a\ufffd", "b\ufffd", "c\ufffd"]


def test_logprobs_go_with_the_first_delta_or_alone():
    content = [{"token": "Hi", "logprob": -1.0, "bytes": None, "top_logprobs": []}]
    token = TokenLogProbs(TokenLogProb("Hi", b"Hi", -1.0))
    for delta, text in (({"content": "Hi"}, "Hi"), ({}, "")):
        _, event, _ = parsed_stream([delta_chunk(delta, logprobs={"content": content}), STOP])
        assert event == StreamProgress(TextDelta(text), (token,))


def test_the_older_shape_of_logprobs_is_understood():
    older = {"tokens": ["Hi"], "token_logprobs": [-1.0]}
    _, event, _ = parsed_stream([delta_chunk({"content": "Hi"}, logprobs=older), STOP])
    assert event == StreamProgress(TextDelta("Hi"), (TokenLogProbs(TokenLogProb("Hi", b"Hi", -1)),))


def test_streamed_calls_are_put_together():
    chunks = [
        delta_chunk({"tool_calls": [{"index": 0, **call('{"a"')}, {"index": 1, "id": "c2"}]}),
        delta_chunk({"tool_calls": [{"index": 1, "function": {"name": "g"}}]}),
        delta_chunk({"tool_calls": [{"index": 0, "function": {"arguments": ":1}"}}]}),
        delta_chunk({}, finish_reason="stop"),
    ]
    response = collected(parsed_stream(chunks))
    assert response.completion_message.tool_calls == (
        ToolCall("c1", "f", {"a": 1}, '{"a":1}'),
        ToolCall("c2", "g", {}, "{}"),
    )
    assert response.completion_message.stop_reason is StopReason.end_of_message


def test_a_streamed_function_call_of_the_older_kind_is_a_call():
    chunks = [
        delta_chunk({"function_call": {"name": "f", "arguments": ""}}),
        delta_chunk({"function_call": {"arguments": "{}"}}),
        delta_chunk({}, finish_reason="function_call"),
    ]
    [made] = collected(parsed_stream(chunks)).completion_message.tool_calls
    assert (made.tool_name, made.arguments_json) == ("f", "{}")


def test_a_call_that_runs_out_of_tokens_fails():
    chunks = [delta_chunk({"tool_calls": [call("")]}), delta_chunk({}, finish_reason="length")]
    response = collected(parsed_stream(chunks))
    assert response.completion_message.tool_calls == (UnparseableToolCall("c1", "f", ""),)
    assert response.completion_message.stop_reason is StopReason.out_of_tokens


def test_a_stream_that_breaks_off_fails_its_calls_and_says_so():
    parser = StreamParser()
    parser.push(delta_chunk({"tool_calls": [call('{"x": 1}'), call("{", id="c2")]}))
    due: list[StreamEvent] = []
    with pytest.raises(ValueError, match="broke off"):
        due.extend(parser.finish())
    ended = {delta.parse_status for delta in deltas(due) if isinstance(delta, ToolCallDelta)}
    assert ToolCallParseStatus.failed in ended
    assert not any(isinstance(event, StreamComplete) for event in due)


def test_done_makes_up_for_a_missing_reason():
    events = parsed_stream([delta_chunk({"content": "Hi"})], done=True)
    assert events[-1] == StreamComplete(StopReason.end_of_turn)


@pytest.mark.parametrize(
    "chunk",
    [
        {"choices": ["text"]},
        {"choices": [{"delta": "text"}]},
        {"choices": 3},
        {"choices": [{"delta": {"refusal": ["no"]}}]},
        {"choices": [{"delta": {"tool_calls": [{"function": {"name": ["f"]}}]}}]},
        {"choices": [{"delta": {}, "logprobs": LOGPROBS_THAT_OVERFLOW}]},
        {"choices": [{"delta": {"tool_calls": ["f"]}}]},
        {"choices": [{"delta": {"content": 3}}]},
        {"choices": [{"delta": {}, "logprobs": {"content": [{}]}}]},
    ],
)
def test_what_is_no_chunk_is_a_value_error(chunk):
    with pytest.raises(ValueError, match="not a chat completion chunk"):
        StreamParser().push(chunk)


@pytest.mark.parametrize("index", [1, "0", -1, 7])
def test_the_first_choice_is_read_whatever_its_number(index):
    chunks = [
        {"choices": [{"index": each, "delta": {"content": text}, "finish_reason": None}]}
        for each, text in ((index, "a"), (2, "no"), (index, "b"))
    ]
    assert deltas(parsed_stream([*chunks, STOP], done=True)) == [TextDelta("a"), TextDelta("b")]


@pytest.mark.parametrize("reason", ["", "null", "None"])
def test_a_word_for_no_reason_is_no_end(reason):
    parser = StreamParser()
    parser.push({"choices": [{"delta": {"content": "a"}, "finish_reason": reason}]})
    assert not parser.complete
    with pytest.raises(ValueError, match="broke off"):
        list(parser.finish())


@pytest.mark.parametrize("reason", ["", 7, ["stop"], "whatever"])
def test_a_reason_that_nobody_knows_is_an_end(reason):
    parser = StreamParser()
    parser.push({"choices": [{"delta": {"content": "a"}, "finish_reason": None}]})
    parser.push({"choices": [{"delta": {}, "finish_reason": reason}]})
    assert parser.complete
    assert list(parser.finish())[-1] == StreamComplete(StopReason.end_of_turn)


def test_a_call_may_have_a_number_for_an_id():
    called = {"index": "0", "id": 12, "function": {"name": "f", "arguments": "{}"}}
    events = parsed_stream([delta_chunk({"tool_calls": [called]}), STOP])
    assert collected(events).completion_message.tool_calls == (ToolCall("12", "f", {}, "{}"),)
    [response] = parse_reply({"choices": [{"message": {"tool_calls": [called]}}]})
    assert response.completion_message.tool_calls == (ToolCall("12", "f", {}, "{}"),)


PIXEL = ImageContent("data:image/png;base64,aGk=")


def rendered_messages(*messages: Message) -> Any:
    return render_request(ChatCompletionRequest("m", messages))["messages"]


def test_calls_keep_their_ids() -> None:
    """How long one may be is each vendor's to say, and its provider's to see to."""
    ids = ["call_1", "fc_" + "a" * 38, "fc_" + "a" * 38 + "b"]
    calls = tuple(ToolCall(each, "f", {}, "{}") for each in ids)
    answers = [ToolResponseMessage(each, "x") for each in ids]
    [asked, *told] = rendered_messages(CompletionMessage(calls), *answers)
    assert [call["id"] for call in asked["tool_calls"]] == ids
    assert [each["tool_call_id"] for each in told] == ids


def test_images_that_tools_give_are_the_users() -> None:
    image = {"type": "image_url", "image_url": {"url": PIXEL.url}}
    calls = (ToolCall("1", "f", {}, "{}"), ToolCall("2", "f", {}, "{}"))
    answers = (
        ToolResponseMessage("1", (TextContent("a"), PIXEL)),
        ToolResponseMessage("2", (PIXEL, PIXEL)),
    )
    given = [
        {"type": "text", "text": "The images that the call 1 gave:"},
        image,
        {"type": "text", "text": "The images that the call 2 gave:"},
        image,
        image,
    ]
    told = [
        {"role": "tool", "tool_call_id": "1", "content": "a"},
        {"role": "tool", "tool_call_id": "2", "content": ""},
    ]
    asked = CompletionMessage.of("", calls)
    last = {"type": "text", "text": "So?"}
    for following, expected in (
        ((), [{"role": "user", "content": given}]),
        ((UserMessage("So?"),), [{"role": "user", "content": [*given, last]}]),
        (
            (CompletionMessage.of("Hm"),),
            [{"role": "user", "content": given}, {"role": "assistant", "content": "Hm"}],
        ),
    ):
        rendered = rendered_messages(asked, *answers, *following)
        assert rendered[1:] == [*told, *expected]


def test_a_tools_failure_is_told_in_words() -> None:
    failed = ToolResponseMessage("1", "No clock", is_error=True)
    in_parts = ToolResponseMessage("2", (TextContent("No "), TextContent("clock")), is_error=True)
    assert [message["content"] for message in rendered_messages(failed, in_parts)] == [
        "Error: No clock",
        [{"type": "text", "text": text} for text in ("Error: ", "No ", "clock")],
    ]


def test_only_thoughts_that_nobody_sealed_are_for_everybody() -> None:
    thoughts = (
        ReasoningContent("One. "),
        ReasoningContent("Two. ", "c2VhbA==", "anthropic"),
        ReasoningContent("", "b3Bhcw==", "anthropic", redacted=True),
        ReasoningContent("Three."),
    )
    (mixed, sealed) = rendered_messages(
        CompletionMessage((*thoughts, TextContent("Hi"))),
        CompletionMessage((*thoughts[1:3], TextContent("Hi"))),
    )
    assert mixed == {"role": "assistant", "content": "Hi", "reasoning_content": "One. Three."}
    assert sealed == {"role": "assistant", "content": "Hi"}


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({"stop_reason": "END"}, "END"),
        ({"matched_stop": "END"}, "END"),
        ({"stop_reason": 151645}, None),
        ({"stop_reason": None, "matched_stop": 7}, None),
        ({}, None),
    ],
)
def test_the_stop_string_that_vllm_and_sglang_tell(told: dict[str, Any], expected: str | None):
    (whole,) = parse_reply(reply({"content": "Hi"}, finish_reason="stop", **told))
    assert whole.completion_message.stop_string == expected
    last = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop", **told}]}
    streamed = parsed_stream([delta_chunk({"content": "Hi"}), last])
    assert streamed[-1] == StreamComplete(StopReason.end_of_turn, stop_string=expected)
