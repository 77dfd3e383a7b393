"""The Interactions API as a way in: what its clients ask, and what they are answered."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from llama_compat.dialects.base import Labels
from llama_compat.dialects.gemini_interactions import StreamParser, parse_reply, render_request
from llama_compat.dialects.gemini_interactions.errors import (
    code_of,
    render_error,
    render_stream_error,
)
from llama_compat.dialects.gemini_interactions.input import as_steps, parse_input
from llama_compat.dialects.gemini_interactions.operations import INTERACTIONS
from llama_compat.dialects.openai_responses.keeping import Keeping, kept
from llama_compat.errors import APIError, UnsupportedHere, model_not_found
from llama_compat.events import Collector, reply_events
from llama_compat.types import (
    ChatCompletionRequest,
    ChatCompletionResponse,
    CompletionMessage,
    ImageContent,
    Message,
    MessagePart,
    ReasoningContent,
    ResponseFormat,
    SamplingParams,
    StopReason,
    SystemMessage,
    TextContent,
    ToolCall,
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
from llama_compat.wire.json_fields import parse_fields
from tests import sdk_interactions as sdk
from tests.unit import vocabulary

LABELS = Labels("public", "req_1", unique="abc", created=1_790_000_000)
FUNCTIONS = [{"type": "function", "name": name} for name in ("f", "g")]


def parse(**body: Any) -> Any:
    return INTERACTIONS.parse({"model": "public", "input": "Hi", **body}, "own")


def asked(**body: Any) -> dict[str, str]:
    return dict(INTERACTIONS.parameters({"model": "public", "input": "Hi", **body}))


def data_of(stream: bytes) -> list[bytes]:
    return [event.data or b"" for event in sse.EventDecoder().feed(stream)]


# --------------------------------------------------------------------------------------------------
# Round trips: what this server asks Google is what Google's clients ask this server
# --------------------------------------------------------------------------------------------------


def as_read(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """`messages` as one reads them whose system messages are one, and whose calls have objects."""
    system = [str(m.content) for m in messages if isinstance(m, SystemMessage)]
    read: list[Message] = [SystemMessage("\n\n".join(system))] if system else []
    for message in messages:
        if isinstance(message, CompletionMessage):
            read.append(CompletionMessage(tuple(map(as_object, message.parts))))
        elif not isinstance(message, SystemMessage):
            read.append(message)
    return tuple(read)


def as_object(part: MessagePart) -> MessagePart:
    if not isinstance(part, UnparseableToolCall):
        return part
    arguments = {"INVALID_JSON": part.arguments_json}
    written = json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))
    return ToolCall(part.call_id, part.tool_name, arguments, written)


SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}


@st.composite
def requests(draw: st.DrawFn) -> ChatCompletionRequest:
    tools = draw(
        st.lists(
            st.builds(
                ToolDefinition,
                vocabulary.names,
                st.none() | vocabulary.texts,
                st.none() | st.just(SCHEMA),
            ),
            max_size=3,
            unique_by=lambda tool: tool.tool_name,
        ).map(tuple)
    )
    choices = [None, ToolChoice("required"), ToolChoice("none")]
    if len(tools) == 1:
        choices.append(ToolChoice("required", tools[0].tool_name))
    sampling = draw(vocabulary.samplings(max_temperature=2.0))
    if isinstance(sampling.strategy, TopKSamplingStrategy):  # which the API has no word for
        sampling = structs.replace(sampling, strategy=TopPSamplingStrategy())
    return ChatCompletionRequest(
        model="gemini-3-pro",
        messages=draw(vocabulary.conversations()),
        sampling=sampling,
        tools=tools,
        tool_choice=draw(st.sampled_from(choices)) if tools else None,
        response_format=draw(
            st.sampled_from(
                [
                    None,
                    ResponseFormat("json_object"),
                    ResponseFormat(
                        "json_schema", "response", SCHEMA, path="response_format.schema"
                    ),
                ]
            )
        ),
        reasoning_effort=draw(st.sampled_from([None, "minimal", "low", "medium", "high", "xhigh"])),
        stream=draw(st.booleans()),
    )


@given(requests())
def test_a_request_survives_the_round_trip(request: ChatCompletionRequest) -> None:
    body = json.loads(json.dumps(render_request(request)))
    assert sdk.unknown_in_request(body) == []
    (read,) = INTERACTIONS.parse(body, "gemini-3-pro").requests  # type: ignore[union-attr]
    assert read == structs.replace(request, messages=as_read(request.messages))


def as_told(message: CompletionMessage) -> tuple[MessagePart, ...]:
    """The parts as one reads them who joins texts in a row, to whom a seal alone is redacted, and
    who may be told the seal of a thought with a call as well."""
    told: list[MessagePart] = []
    for part in message.parts:
        match part, told[-1] if told else None:
            case TextContent(text), TextContent(before):
                told[-1] = TextContent(before + text)
            case ReasoningContent("", str(), "gemini"), _:
                told.append(structs.replace(part, redacted=True))
            case ToolCall(), _:
                told.append(structs.replace(part, thought_signature=None))
            case _:
                told.append(part)
    return tuple(told)


def streamed(call: Any, response: ChatCompletionResponse) -> ChatCompletionResponse:
    """What a client reads of the stream of `response`, the SDK's types having had a look."""
    renderer = call.stream_renderer(LABELS)
    rendered = b"".join(renderer.render(0, event) for event in reply_events(response))
    rendered += renderer.finish(response.usage)
    parser, collector = StreamParser(), Collector()
    for data in data_of(rendered):
        sdk.check_event(data)
        for event in parser.push(json.loads(data)):
            collector.add(event)
    assert list(parser.finish()) == []
    return collector.chat_completion()


@given(vocabulary.ordered_responses("gemini"))
def test_a_reply_survives_the_round_trip(response: ChatCompletionResponse) -> None:
    call = parse()
    body = json.loads(call.render_reply([response], response.usage, LABELS))
    sdk.check_interaction(body)
    whole = parse_reply(body)
    expected = as_told(response.completion_message)
    assert as_told(whole.completion_message) == expected
    stream = streamed(call, response)
    assert stream.completion_message.stop_reason == whole.completion_message.stop_reason
    assert as_told(stream.completion_message) == expected
    for read in (whole, stream):
        assert read.usage == structs.replace(response.usage, cache_write_tokens=None)


@pytest.mark.parametrize("family", ["anthropic", "", "gemini"])
def test_seals_of_all_makers_come_back_to_them(family: str) -> None:
    said = CompletionMessage(
        (
            ReasoningContent("Look outside.", "c2VhbA==" if family else None, family),
            ToolCall("call_1", "f", {"a": 1}, '{"a":1}', "b3RoZXI="),
        ),
        StopReason.end_of_message,
    )
    call = parse()
    body = json.loads(call.render_reply([ChatCompletionResponse(said)], Usage(), LABELS))
    answer = {"type": "function_result", "call_id": "call_1", "name": "f", "result": "ok"}
    read, answered = parse_input([*body["steps"], answer])
    assert isinstance(read, CompletionMessage)
    assert read.parts == said.parts
    assert answered == ToolResponseMessage("call_1", "ok")
    assert streamed(call, ChatCompletionResponse(said)).completion_message.tool_calls


def test_a_seal_that_a_thought_shows_is_not_told_twice() -> None:
    said = CompletionMessage(
        (
            ReasoningContent("", "c2VhbA==", "gemini", redacted=True),
            ToolCall("call_1", "f", {}, "{}", "c2VhbA=="),
        )
    )
    body = json.loads(parse().render_reply([ChatCompletionResponse(said)], Usage(), LABELS))
    assert [step["type"] for step in body["steps"]] == ["thought", "function_call"]


def test_thoughts_are_hidden_from_those_who_say_so_but_not_googles_seals() -> None:
    said = CompletionMessage(
        (
            ReasoningContent("Secret.", "c2VhbA==", "gemini"),
            ReasoningContent("Other.", "b3RoZXI=", "anthropic"),
            ReasoningContent("Plain."),
            TextContent("Hi"),
        )
    )
    call = parse(generation_config={"thinking_summaries": "none"})
    body = json.loads(call.render_reply([ChatCompletionResponse(said)], Usage(), LABELS))
    assert body["steps"] == [
        {"type": "thought", "signature": "c2VhbA=="},
        {"type": "model_output", "content": [{"type": "text", "text": "Hi"}]},
    ]


def test_an_image_stands_between_what_is_said() -> None:
    said = CompletionMessage(
        (
            TextContent("Look: "),
            ImageContent("data:image/png;base64,ZG90"),
            ImageContent("https://example.org/dot.png"),
            TextContent("Nice."),
        )
    )
    response = ChatCompletionResponse(said)
    call = parse()
    body = json.loads(call.render_reply([response], Usage(), LABELS))
    assert body["steps"] == [
        sdk.output(
            sdk.text("Look: "),
            {"type": "image", "data": "ZG90", "mime_type": "image/png"},
            {"type": "image", "uri": "https://example.org/dot.png"},
            sdk.text("Nice."),
        )
    ]
    assert streamed(call, response).completion_message.parts == said.parts


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        (StopReason.end_of_turn, "completed"),
        (StopReason.end_of_message, "requires_action"),
        (StopReason.out_of_tokens, "incomplete"),
        (StopReason.content_filter, "incomplete"),
    ],
)
def test_why_it_ended(reason: StopReason, status: str) -> None:
    response = ChatCompletionResponse(CompletionMessage((TextContent("Hi"),), reason))
    call = parse()
    body = json.loads(call.render_reply([response], Usage(), LABELS))
    assert body["status"] == status
    codes = [error["code"] for error in body.get("errors", ())]
    assert codes == (["content_blocked"] if reason is StopReason.content_filter else [])
    assert parse_reply(body).completion_message.stop_reason == reason
    assert streamed(call, response).completion_message.stop_reason == reason


def test_the_events_are_those_that_google_documents() -> None:
    said = CompletionMessage(
        (
            ReasoningContent("Hm.", "c2VhbA==", "gemini"),
            TextContent("I look."),
            ToolCall("call_1", "f", {"a": 1}, '{"a":1}'),
        ),
        StopReason.end_of_message,
    )
    renderer = parse(previous_interaction_id=None).stream_renderer(LABELS)
    events = [renderer.render(0, event) for event in reply_events(ChatCompletionResponse(said))]
    stream = b"".join([*events, renderer.finish(Usage(3, 2, reasoning_tokens=1))])
    told = [json.loads(data) for data in data_of(stream)]
    names = [event.name.decode() for event in sse.EventDecoder().feed(stream)]
    assert names == [event.pop("event_type") for event in told]
    assert list(zip(names, told, strict=True))[2:-1] == [
        ("step.start", {"index": 0, "step": {"type": "thought"}}),
        (
            "step.delta",
            {"index": 0, "delta": {"type": "thought_summary", "content": sdk.text("Hm.")}},
        ),
        (
            "step.delta",
            {"index": 0, "delta": {"type": "thought_signature", "signature": "c2VhbA=="}},
        ),
        ("step.stop", {"index": 0}),
        ("step.start", {"index": 1, "step": {"type": "model_output"}}),
        ("step.delta", {"index": 1, "delta": sdk.text("I look.")}),
        ("step.stop", {"index": 1}),
        ("step.start", {"index": 2, "step": sdk.function_call("call_1", "f", {})}),
        ("step.delta", {"index": 2, "delta": {"type": "arguments_delta", "arguments": '{"a":1}'}}),
        ("step.stop", {"index": 2}),
    ]
    assert names[:2] == ["interaction.created", "interaction.status_update"]
    assert names[-1] == "interaction.completed"
    assert told[0]["interaction"] == {
        "id": "int_abc",
        "object": "interaction",
        "status": "in_progress",
        "model": "public",
        "created": "2026-09-21T14:13:20Z",
        "updated": told[0]["interaction"]["updated"],
    }
    assert told[-1]["interaction"]["status"] == "requires_action"
    assert told[-1]["interaction"]["usage"] == {
        "total_input_tokens": 3,
        "total_cached_tokens": 0,
        "total_output_tokens": 1,
        "total_thought_tokens": 1,
        "total_tool_use_tokens": 0,
        "total_tokens": 5,
    }


# --------------------------------------------------------------------------------------------------
# What is asked
# --------------------------------------------------------------------------------------------------


def config(**members: Any) -> dict[str, Any]:
    return {"generation_config": members}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({}, {}),
        ({"system_instruction": "x", "labels": {"a": "b"}, "service_tier": "flex"}, {}),
        ({"safety_settings": [{}], "store": False, "stream": True, "background": False}, {}),
        ({"cached_content": "cachedContents/x"}, {"cached_content": ""}),
        ({"webhook_config": {"uri": "https://x"}}, {"webhook_config": ""}),
        ({"continuation_token": "x"}, {"continuation_token": ""}),
        ({"agent": "deep-research"}, {"agent": ""}),
        ({"novelty": 1, "nothing": None}, {"novelty": ""}),
        (config(), {}),
        (config(stop_sequences=[], thinking_summaries="auto", tool_choice="any"), {}),
        (
            config(temperature=1, top_p=0.9, max_output_tokens=5, seed=1, stop_sequences=["x"]),
            {
                "generation_config.temperature": "temperature",
                "generation_config.top_p": "top_p",
                "generation_config.max_output_tokens": "max_tokens",
                "generation_config.seed": "seed",
                "generation_config.stop_sequences": "stop",
            },
        ),
        (config(thinking_level="low"), {"generation_config.thinking_level": "reasoning_effort"}),
        (config(top_k=3), {"generation_config.top_k": ""}),
        (config(speech_config={}), {"generation_config.speech_config": ""}),
        ({"response_format": {"type": "text"}}, {}),
        ({"response_format": []}, {}),
        (
            {"response_format": {"type": "text", "mime_type": "application/json"}},
            {"response_format": "response_format"},
        ),
        ({"response_format": SCHEMA}, {"response_format": "response_format"}),
        ({"response_format": [{"type": "text"}, {"type": "image"}]}, {"response_format": ""}),
        ({"response_mime_type": "application/json"}, {"response_mime_type": "response_format"}),
        ({"response_mime_type": "text/x.enum"}, {"response_mime_type": ""}),
        ({"response_modalities": ["TEXT"]}, {}),
        ({"response_modalities": ["text", "audio"]}, {"response_modalities": ""}),
        ({"tools": FUNCTIONS}, {"tools": "tools"}),
        ({"tools": []}, {}),
        (
            {"tools": [{"type": "google_search"}, {"type": "mcp_server", "url": "https://x"}]},
            {"tools.google_search": "hosted_tools", "tools.mcp_server": "hosted_tools"},
        ),
        (
            {"tools": [{**FUNCTIONS[0], "defer_loading": True}]},
            {"tools": "tools", "tools.defer_loading": ""},
        ),
        (
            {"tools": FUNCTIONS, **config(tool_choice="any")},
            {"tools": "tools", "generation_config.tool_choice": "tool_choice"},
        ),
        ({"tools": FUNCTIONS, **config(tool_choice="auto")}, {"tools": "tools"}),
        (
            {"tools": FUNCTIONS, **config(tool_choice="validated")},
            {"tools": "tools", "generation_config.tool_choice": ""},
        ),
        (
            {"input": [{"type": "user_input"}, {"type": "google_search_call", "id": "x"}]},
            {"input[1].google_search_call": ""},
        ),
        ({"input": [{"type": "code_execution_call", "id": "x"}]}, {"input[0]": ""}),
    ],
)
def test_what_is_asked_of_the_provider(body: dict[str, Any], expected: dict[str, str]) -> None:
    assert asked(**body) == expected


@pytest.mark.parametrize(
    ("choice", "names", "expected"),
    [
        (None, ["f", "g"], None),
        ("auto", ["f", "g"], None),
        ("validated", ["f", "g"], None),
        ("any", ["f", "g"], ToolChoice("required")),
        ("none", ["f", "g"], ToolChoice("none")),
        ({"allowed_tools": {"mode": "any", "tools": ["g"]}}, ["g"], ToolChoice("required", "g")),
        ({"allowed_tools": {"tools": ["f"]}}, ["f"], None),
        ({"allowed_tools": {"mode": "any"}}, ["f", "g"], ToolChoice("required")),
    ],
)
def test_which_tools_may_be_called(
    choice: Any, names: list[str], expected: ToolChoice | None
) -> None:
    request = parse(tools=FUNCTIONS, generation_config={"tool_choice": choice}).request
    assert [tool.tool_name for tool in request.tools] == names
    assert request.tool_choice == expected


@pytest.mark.parametrize(
    ("value", "messages"),
    [
        ("Hi", [UserMessage("Hi")]),
        ({"type": "text", "text": "Hi"}, [UserMessage("Hi")]),
        (
            [
                {"type": "text", "text": "Look"},
                {"type": "image", "data": "ZG-_", "mime_type": "image/png"},
            ],
            [UserMessage((TextContent("Look"), ImageContent("data:image/png;base64,ZG+/")))],
        ),
        (
            [
                {"type": "user_input", "content": [{"type": "image", "uri": "https://x/y.png"}]},
                {"type": "model_output", "content": [{"type": "text", "text": "A dot."}]},
                {"type": "user_input", "content": "And now?"},
            ],
            [
                UserMessage((ImageContent("https://x/y.png"),)),
                CompletionMessage((TextContent("A dot."),)),
                UserMessage("And now?"),
            ],
        ),
        (
            [
                {"type": "function_result", "call_id": "a", "result": {"b": 1}},
                {"type": "function_result", "call_id": "c", "result": [1, 2], "is_error": True},
                {
                    "type": "function_result",
                    "call_id": "d",
                    "result": [sdk.text("x"), {"type": "image", "uri": "https://x/y.png"}],
                },
            ],
            [
                ToolResponseMessage("a", '{"b":1}'),
                ToolResponseMessage("c", "[1,2]", is_error=True),
                ToolResponseMessage("d", (TextContent("x"), ImageContent("https://x/y.png"))),
            ],
        ),
        (
            [
                {"type": "thought", "summary": [sdk.text("Hm.")]},
                {"type": "thought"},
                {"type": "function_call", "id": "a", "name": "f", "arguments": {}},
                {"type": "url_context_call", "id": "z"},
                sdk.text("Go on"),
            ],
            [
                CompletionMessage((ReasoningContent("Hm."), ToolCall("a", "f", {}, "{}"))),
                UserMessage("Go on"),
            ],
        ),
    ],
)
def test_the_input_in_all_its_forms(value: Any, messages: list[Message]) -> None:
    assert list(parse_input(value)) == messages
    assert list(parse_input("More", as_steps(value))) == [*messages, UserMessage("More")]


def test_a_kept_conversation_goes_before_the_input() -> None:
    earlier = [{"type": "user_input", "content": "Hi"}, sdk.output(sdk.text("Yes?"))]
    keeping = Keeping("int_1", store=True, earlier=earlier)
    body = {"model": "m", "input": "Go on", "previous_interaction_id": "int_0"}
    read: Any = kept(INTERACTIONS, keeping).parse(body, "own")
    assert read.request.messages == (
        UserMessage("Hi"),
        CompletionMessage((TextContent("Yes?"),)),
        UserMessage("Go on"),
    )
    shown = json.loads(
        read.render_reply(
            [ChatCompletionResponse(CompletionMessage((TextContent("Ok."),)))], Usage(), LABELS
        )
    )
    assert (shown["id"], shown["previous_interaction_id"]) == ("int_1", "int_0")


def test_sampling_and_shape() -> None:
    request = parse(
        system_instruction="Be brief.",
        generation_config={"max_output_tokens": 9, "stop_sequences": ["x"], "seed": 3},
        response_format=[{"type": "text", "mime_type": "application/json", "schema": SCHEMA}],
    ).request
    assert request.messages == (SystemMessage("Be brief."), UserMessage("Hi"))
    assert request.sampling == SamplingParams(max_tokens=9, stop=("x",), seed=3)
    assert request.response_format == ResponseFormat(
        "json_schema", "response", SCHEMA, path="response_format.schema"
    )


# --------------------------------------------------------------------------------------------------
# What is refused
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": 3}, "input"),
        ({"input": ["Hi"]}, "input[0]"),
        ({"input": [{"text": "Hi"}]}, "input[0].type"),
        ({"input": [{"type": "text"}]}, "input[0].text"),
        ({"input": [{"type": "video", "data": "x"}]}, "input[0].type"),
        ({"input": [{"type": "audio", "data": "x"}]}, "input[0].mime_type"),
        ({"input": [{"type": "audio", "mime_type": "audio/wav"}]}, "input[0].data"),
        ({"input": [{"type": "image", "data": "x"}]}, "input[0].mime_type"),
        ({"input": [{"type": "image", "data": ""}]}, "input[0].data"),
        ({"input": [{"type": "image"}]}, "input[0].uri"),
        ({"input": [{"type": "image", "uri": "files/abc"}]}, "input[0].uri"),
        ({"input": [{"type": "user_input", "content": 3}]}, "input[0].content"),
        ({"input": [{"type": "user_input", "content": [3]}]}, "input[0].content[0]"),
        ({"input": [{"type": "function_call", "name": "f"}]}, "input[0].id"),
        (
            {"input": [{"type": "function_call", "id": "a", "name": "f", "arguments": 3}]},
            "input[0].arguments",
        ),
        ({"input": [{"type": "function_result", "result": "x"}]}, "input[0].call_id"),
        ({"input": [{"type": "function_result", "call_id": "x"}]}, "input[0].result"),
        ({"input": [{"type": "thought", "signature": 3}]}, "input[0].signature"),
        ({"system_instruction": {"parts": []}}, "system_instruction"),
        ({"generation_config": 3}, "generation_config"),
        ({"generation_config": {"temperature": 3}}, "generation_config.temperature"),
        ({"generation_config": {"max_output_tokens": 0}}, "generation_config.max_output_tokens"),
        ({"generation_config": {"stop_sequences": [""]}}, "generation_config.stop_sequences"),
        ({"generation_config": {"thinking_level": "odd"}}, "generation_config.thinking_level"),
        (
            {"generation_config": {"thinking_summaries": "all"}},
            "generation_config.thinking_summaries",
        ),
        ({"generation_config": {"tool_choice": "maybe"}}, "generation_config.tool_choice"),
        (
            {"tools": FUNCTIONS, **config(tool_choice={"allowed_tools": {"tools": ["h"]}})},
            "generation_config.tool_choice.allowed_tools.tools",
        ),
        ({"tools": {}}, "tools"),
        ({"tools": [3]}, "tools[0]"),
        ({"tools": [{"type": "function"}]}, "tools[0].name"),
        ({"tools": [{**FUNCTIONS[0], "parameters": []}]}, "tools[0].parameters"),
        ({"response_format": 3}, "response_format"),
        ({"response_format": [3]}, "response_format[0]"),
        ({"response_format": {"type": "text", "schema": 3}}, "response_format.schema"),
        ({"previous_interaction_id": "int_1"}, "previous_interaction_id"),
        ({"previous_interaction_id": ""}, "previous_interaction_id"),
        ({"background": True}, "background"),
        ({"model": None, "agent": "deep-research"}, "agent"),
    ],
)
def test_what_is_malformed_is_named(body: dict[str, Any], param: str) -> None:
    with pytest.raises(APIError) as refused:
        asked_and_parsed(body)
    assert (refused.value.status, refused.value.param) == (400, param)


def test_an_agent_is_left_to_google() -> None:
    with pytest.raises(UnsupportedHere, match="Agents are Google's"):
        parse(model=None, agent="deep-research")


def asked_and_parsed(body: dict[str, Any]) -> None:
    asked(**body)
    parse(**body)


members = st.sampled_from(
    [
        "type",
        "content",
        "text",
        "data",
        "uri",
        "mime_type",
        "id",
        "name",
        "call_id",
        "arguments",
        "result",
        "is_error",
        "signature",
        "summary",
        "schema",
        "allowed_tools",
        "mode",
        "tools",
        "id",
        "server_name",
        "url",
        "headers",
        "file_search_store_names",
        "top_k",
        "search_types",
        "metadata_filter",
    ]
)
kinds = st.sampled_from(
    [
        "text",
        "image",
        "user_input",
        "model_output",
        "thought",
        "function_call",
        "function_result",
        "function",
        "google_search_call",
        "google_search",
        "url_context",
        "file_search",
        "mcp_server",
        "mcp_server_tool_call",
        "mcp_server_tool_result",
        "none",
        "any",
    ]
)
odd: st.SearchStrategy[Any] = st.recursive(
    vocabulary.json_values | kinds,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(members, inner, max_size=4),
    max_leaves=12,
)
names_of_members = st.sampled_from(
    [
        "input",
        "system_instruction",
        "generation_config",
        "tools",
        "response_format",
        "response_mime_type",
        "agent",
        "response_modalities",
        "previous_interaction_id",
        "background",
        "temperature",
        "store",
        "stream",
    ]
)


@given(st.dictionaries(names_of_members, odd), odd)
def test_whatever_is_asked_is_read_or_refused_with_400(body: dict[str, Any], input: Any) -> None:
    body = {"input": input, "model": "m", **body}
    fields = parse_fields(json.dumps(body).encode())
    try:
        INTERACTIONS.look(fields, {})
        INTERACTIONS.parameters(body)
        INTERACTIONS.parse(body, "own")
    except APIError as error:
        refused = (error.status, bool(error.param))
    else:
        refused = (400, True)
    assert refused == (400, True)


@given(odd)
def test_a_store_takes_whatever_is_asked(value: Any) -> None:
    assert all(isinstance(step, dict) for step in as_steps(value))


def test_what_is_looked_at_first() -> None:
    def look(**body: Any) -> Any:
        return INTERACTIONS.look(parse_fields(json.dumps(body).encode()), {})

    asked = look(model="m", input="Hello", stream=True, generation_config={"max_output_tokens": 5})
    assert (asked.model, asked.stream, asked.extent.max_tokens) == ("m", True, 5)
    assert asked.extent.prompt.tokens == 2
    assert look(agent="deep-research", input="x").model == "deep-research"
    for body in ({}, {"model": 3}, {"model": "m", "stream": 1}, {"model": "m", "store": "no"}):
        with pytest.raises(APIError):
            look(**body)


# --------------------------------------------------------------------------------------------------
# Errors
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (APIError(400, "No."), "invalid_request"),
        (APIError(400, "No.", code="unsupported_parameter"), "parameter_unknown"),
        (APIError(400, "No.", code="content_filter"), "content_blocked"),
        (APIError(401, "No."), "authentication"),
        (APIError(403, "No."), "permission_denied"),
        (model_not_found("m"), "model_not_found"),
        (APIError(404, "No.", code="interaction_not_found"), "not_found"),
        (APIError(429, "No."), "rate_limit_exceeded"),
        (APIError(429, "No.", code="insufficient_quota"), "quota_exceeded"),
        (APIError(500, "No."), "internal_server_error"),
        (APIError(502, "No."), "bad_gateway"),
        (APIError(503, "No."), "service_unavailable"),
        (APIError(529, "No."), "internal_server_error"),
    ],
)
def test_errors_have_googles_words(error: APIError, code: str) -> None:
    assert code_of(error) == code
    body = json.loads(render_error(error, "req_1"))
    assert body == {"error": {"code": code, "message": error.message}}


def test_an_error_of_googles_own_stays_as_it_is() -> None:
    error = APIError(400, "No.")
    error.vendor_body = ("gemini_interactions", b'{"error":{"code":"odd"}}')
    assert render_error(error, "") == b'{"error":{"code":"odd"}}'
    placed = APIError(400, "Invalid value: 'x'.", param="input[0].type")
    assert json.loads(render_error(placed, ""))["error"]["message"].startswith("input[0].type: ")
    error.vendor_body = ("gemini", b'{"error":{"code":400}}')
    assert json.loads(render_error(error, ""))["error"]["code"] == "invalid_request"


def test_a_stream_that_fails_says_so() -> None:
    error, done = data_of(render_stream_error(APIError(503, "Busy.")))
    assert sdk.check_event(error).error.code == "service_unavailable"
    assert done == b"[DONE]"
    keeping = Keeping("int_1", store=True)
    renderer = structs.replace(parse(), keeping=keeping).stream_renderer(LABELS)
    started = ChatCompletionResponse(CompletionMessage((TextContent("Hi"),)))
    for event in list(reply_events(started))[:2]:
        renderer.render(0, event)
    failed = data_of(renderer.fail(APIError(502, "Broke.")))
    assert json.loads(failed[0])["error"]["code"] == "bad_gateway"
    assert keeping.response is not None
    assert keeping.response["status"] == "failed"
    assert keeping.response["steps"] == []
    assert keeping.response["errors"] == [{"code": "bad_gateway", "message": "Broke."}]
