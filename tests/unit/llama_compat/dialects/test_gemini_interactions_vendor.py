"""The Interactions API as a way out: what Google is asked, and what it answers."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from llama_compat.dialects.gemini_interactions import StreamParser, parse_reply, render_request
from llama_compat.errors import APIError
from llama_compat.events import Collector
from llama_compat.hosted.vocabulary import HostedCall
from llama_compat.types import (
    ChatCompletionRequest,
    ChatCompletionResponse,
    CompletionMessage,
    ImageContent,
    Message,
    ReasoningContent,
    RefusalContent,
    StopReason,
    SystemMessage,
    TextContent,
    ToolCall,
    ToolResponseMessage,
    Usage,
    UserMessage,
)
from providers.remote.relaying.json_events import JSONEvents
from tests import sdk_interactions as sdk
from tests.unit import vocabulary

IMAGE = ImageContent("data:image/png;base64,ZG90")
HI = UserMessage("Hi")


def rendered(*messages: Message, **members: Any) -> dict[str, Any]:
    body = render_request(ChatCompletionRequest("models/m", messages, **members))
    assert sdk.unknown_in_request(json.loads(json.dumps(body))) == []
    return body


def read_stream(pieces: list[bytes]) -> ChatCompletionResponse:
    decoder, parser, collector = JSONEvents("p"), StreamParser(), Collector()
    objects = [each for piece in pieces for each in decoder.feed(piece)]
    for each in (*objects, *decoder.flush()):
        for event in parser.push(each):
            collector.add(event)
    for event in parser.finish():
        collector.add(event)
    return collector.chat_completion()


# What is asked ------------------------------------------------------------------------------------


def test_asks_for_nothing_that_the_caller_did_not_set_and_has_nothing_kept() -> None:
    assert rendered(HI, stream=False) == {
        "model": "m",
        "input": [{"type": "user_input", "content": [sdk.text("Hi")]}],
        "store": False,
    }
    assert rendered(HI, stream=True)["stream"] is True


def test_a_conversation_becomes_steps() -> None:
    call = ToolCall("c1", "f", {"a": 1}, '{"a":1}')
    body = rendered(
        SystemMessage("Be brief."),
        SystemMessage("Be kind."),
        UserMessage((TextContent("Look"), IMAGE)),
        CompletionMessage(
            (
                ReasoningContent("Hm.", "c2VhbA==", "gemini"),
                ReasoningContent("Foreign.", "eA==", "anthropic"),
                ReasoningContent("Plain."),
                TextContent("I "),
                TextContent("look."),
                call,
            )
        ),
        ToolResponseMessage("c1", (TextContent("A dot."), IMAGE), is_error=True),
        CompletionMessage((RefusalContent("No."),)),
    )
    image = {"type": "image", "data": "ZG90", "mime_type": "image/png"}
    assert body["system_instruction"] == "Be brief.\n\nBe kind."
    assert body["input"] == [
        {"type": "user_input", "content": [sdk.text("Look"), image]},
        sdk.thought("Hm."),
        sdk.output(sdk.text("I "), sdk.text("look.")),
        sdk.function_call("c1", "f", {"a": 1}),
        {
            "type": "function_result",
            "call_id": "c1",
            "name": "f",
            "result": [sdk.text("A dot."), image],
            "is_error": True,
        },
        sdk.output(sdk.text("No.")),
    ]


def test_a_seal_that_another_api_has_on_the_call_stands_before_it() -> None:
    calls = (
        ToolCall("c1", "f", {}, "{}", "Zmlyc3Q="),
        ToolCall("c2", "f", {}, "{}"),
    )
    seal = ReasoningContent("", "Zmlyc3Q=", "gemini", redacted=True)
    for parts in (calls, (seal, *calls)):
        steps = rendered(HI, CompletionMessage(parts))["input"][1:]
        assert steps == [
            sdk.thought("", "Zmlyc3Q="),
            sdk.function_call("c1", "f", {}),
            sdk.function_call("c2", "f", {}),
        ]


def test_instructions_alone_are_what_the_user_says() -> None:
    body = rendered(SystemMessage("Be brief."), SystemMessage("Name a colour."))
    assert body["system_instruction"] == "Be brief."
    said = {"type": "user_input", "content": [{"type": "text", "text": "Name a colour."}]}
    assert body["input"] == [said]


@pytest.mark.parametrize(
    ("messages", "members", "param"),
    [
        ((SystemMessage("Hi"), CompletionMessage()), {}, "messages"),
        ((SystemMessage((IMAGE,)), HI), {}, "messages[0].content"),
        ((UserMessage(""),), {}, "messages[0].content"),
        ((ToolResponseMessage("c9", "x"),), {}, "messages[0].tool_call_id"),
        ((HI,), {"reasoning_effort": "none"}, "reasoning_effort"),
    ],
)
def test_what_the_api_has_no_form_for_is_refused(
    messages: tuple[Message, ...], members: dict[str, Any], param: str
) -> None:
    with pytest.raises(APIError) as refused:
        render_request(ChatCompletionRequest("m", messages, **members))
    assert (refused.value.status, refused.value.param) == (400, param)


# What is answered ---------------------------------------------------------------------------------

WHOLE = sdk.interaction(
    [
        sdk.thought("Look outside. "),
        sdk.output(sdk.text("It is 20 °C. 🌞")),
        {"type": "google_search_call", "id": "g1", "arguments": {"queries": ["x"]}},
        sdk.thought("", "c2Vjb25k"),
        sdk.function_call("c1", "get_weather", {"city": "Bern"}),
        sdk.function_call("c2", "get_time", {}),
    ],
    "requires_action",
)

SAID = ChatCompletionResponse(
    CompletionMessage(
        (
            ReasoningContent("Look outside. ", "c2VhbA==", "gemini"),
            TextContent("It is 20 °C. 🌞"),
            HostedCall(
                "g1_0",
                "web_search",
                "google_search",
                '{"query":"x"}',
                status="completed",
                model_name="google_search",
            ),
            ReasoningContent("", "c2Vjb25k", "gemini", redacted=True),
            ToolCall("c1", "get_weather", {"city": "Bern"}, '{"city":"Bern"}', "c2Vjb25k"),
            ToolCall("c2", "get_time", {}, "{}"),
        ),
        StopReason.end_of_message,
    ),
    usage=Usage(30, 25, cached_tokens=10, reasoning_tokens=5),
)


def as_written(response: ChatCompletionResponse) -> ChatCompletionResponse:
    """The same with the calls' arguments written as tightly as may be."""
    message = response.completion_message
    parts = [
        structs.replace(part, arguments_json=part.arguments_json.replace(": ", ":"))
        if isinstance(part, ToolCall)
        else part
        for part in message.parts
    ]
    return structs.replace(
        response, completion_message=structs.replace(message, parts=tuple(parts))
    )


def test_reads_a_whole_interaction() -> None:
    sdk.check_interaction(WHOLE)
    assert parse_reply(WHOLE) == SAID


@given(vocabulary.cuts(sdk.stream_bytes(sdk.stream_events(WHOLE))))
def test_reads_a_stream_cut_anywhere(pieces: list[bytes]) -> None:
    assert as_written(read_stream(pieces)) == as_written(SAID)


def test_reads_a_whole_interaction_where_a_stream_was_asked_for() -> None:
    parser, collector = StreamParser(), Collector()
    for event in parser.push(WHOLE):
        collector.add(event)
    assert collector.chat_completion() == SAID


def test_reads_steps_that_hold_something_where_they_begin() -> None:
    """As Google's guide to thinking shows them."""
    events: list[dict[str, Any]] = [
        {"event_type": "interaction.created", "interaction": {"id": "v1_x"}},
        {
            "event_type": "step.start",
            "index": 0,
            "step": {"signature": "", "summary": [sdk.text("**Clues**")], "type": "thought"},
        },
        {
            "event_type": "step.delta",
            "index": 0,
            "delta": {"type": "thought_signature", "signature": "c2VhbA=="},
        },
        {"event_type": "step.stop", "index": 0},
        {"event_type": "step.start", "index": 1, "step": sdk.output(sdk.text("Based on"))},
        {"event_type": "step.delta", "index": 1, "delta": sdk.text(" that")},
        {"event_type": "step.stop", "index": 1},
        {
            "event_type": "interaction.completed",
            "interaction": {"id": "v1_x", "status": "completed"},
        },
    ]
    said = read_stream([sdk.stream_bytes(events)])
    assert said.completion_message.parts == (
        ReasoningContent("**Clues**", "c2VhbA==", "gemini"),
        TextContent("Based on that"),
    )


@pytest.mark.parametrize(
    ("status", "errors", "reason"),
    [
        ("completed", [], StopReason.end_of_turn),
        ("incomplete", [], StopReason.out_of_tokens),
        ("requires_continuation", [], StopReason.out_of_tokens),
        ("incomplete", [{"code": "content_blocked"}], StopReason.content_filter),
        ("failed", [{"code": "content_blocked"}], StopReason.content_filter),
    ],
)
def test_why_it_ended(status: str, errors: list[dict[str, str]], reason: StopReason) -> None:
    whole = sdk.interaction([sdk.output(sdk.text("Hi"))], status, errors=errors)
    assert parse_reply(whole).completion_message.stop_reason == reason
    stream = read_stream([sdk.stream_bytes(sdk.stream_events(whole))])
    assert stream.completion_message.stop_reason == reason


@pytest.mark.parametrize("status", ["failed", "cancelled", "in_progress", "queued", "novel"])
def test_what_came_to_no_good_end_is_no_reply(status: str) -> None:
    whole = sdk.interaction([], status, errors=[{"code": "x", "message": "It broke."}])
    with pytest.raises(ValueError, match=f"ended as {status}: It broke"):
        parse_reply(whole)


def test_a_stream_that_breaks_off_is_no_reply() -> None:
    events = sdk.stream_events(WHOLE)
    for end in range(len(events)):
        with pytest.raises(ValueError, match="broke off"):
            read_stream([sdk.stream_bytes(events[:end])])


def test_arguments_that_are_cut_off_are_not_made_up() -> None:
    events = sdk.stream_events(sdk.interaction([sdk.function_call("c1", "f", {"a": 1})]))
    cut = [*events[:4], *events[-2:]]
    cut[-1]["interaction"]["status"] = "incomplete"
    (call,) = read_stream([sdk.stream_bytes(cut)]).completion_message.tool_calls
    assert not isinstance(call, ToolCall)
    assert call.arguments_json == '{"a'


@pytest.mark.parametrize(
    ("step", "why"),
    [
        (sdk.output({"type": "audio", "data": "x"}), "'audio', which is neither"),
        ({"type": "model_output", "error": {"message": "Internal."}}, "failed: Internal"),
        ({"type": "function_call", "id": 3, "name": "f"}, "is no text"),
        ({"type": "thought", "signature": "ü"}, "no text in ASCII"),
        ({"type": "thought", "summary": 3}, "not one of an interaction"),
        ({"type": "model_output", "content": [{"type": "image", "uri": 3}]}, "is no text"),
        ({}, "not one of an interaction"),
    ],
)
def test_what_makes_no_sense_is_no_reply(step: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_reply(sdk.interaction([step]))


@given(
    st.dictionaries(
        st.sampled_from(["event_type", "status", "steps", "index", "step", "delta", "interaction"]),
        vocabulary.json_values
        | st.sampled_from(["step.start", "step.delta", "step.stop", "interaction.completed"])
        | st.dictionaries(
            st.sampled_from(["type", "status", "usage", "errors", "text", "content", "summary"]),
            vocabulary.json_values | st.sampled_from(["thought", "model_output", "completed"]),
        ),
    )
)
def test_nonsense_is_a_value_error(event: dict[str, Any]) -> None:
    with suppress(ValueError):
        StreamParser().push(event)
