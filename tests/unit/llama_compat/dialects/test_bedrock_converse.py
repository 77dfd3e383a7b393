"""Converse's dialect: what is sent, what comes back, and that nothing is lost on the way."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_compat.dialects import bedrock_converse
from llama_compat.dialects.bedrock_converse import Extras, StreamParser
from llama_compat.errors import APIError
from llama_compat.events import Collector
from llama_compat.types import (
    ChatCompletionRequest,
    ChatCompletionResponse,
    CompletionMessage,
    GreedySamplingStrategy,
    ImageContent,
    Message,
    ReasoningContent,
    RefusalContent,
    ResponseFormat,
    SamplingParams,
    StopReason,
    SystemMessage,
    TextContent,
    ThinkingForm,
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
from tests import bedrock

CLAUDE = "eu.anthropic.claude-opus-4-7"
NOVA = "us.amazon.nova-2-lite-v1:0"
GPT = "openai.gpt-oss-120b-1:0"
LLAMA = "meta.llama4-maverick-17b-instruct-v1:0"
PIXEL = "iVBORw0KGgo="
HI = (UserMessage("Hi"),)
WEATHER = ToolDefinition("get_weather", "In a city", {"properties": {"city": {}}}, strict=True)
CALL = ToolCall("call_1", "get_weather", {"city": "Bern"}, '{"city": "Bern"}')


def render(
    model: str = CLAUDE,
    messages: tuple[Message, ...] = HI,
    extras: Extras | None = None,
    **asked: Any,
) -> dict[str, Any]:
    request = ChatCompletionRequest(model, messages, **asked)
    body = bedrock_converse.render_request(request, extras or Extras()).body
    assert bedrock.complaint("converse", body) is None
    counted = bedrock_converse.render_count_request(request, extras or Extras())
    assert bedrock.complaint("count-tokens", counted) is None
    return body


def refused(model: str, messages: tuple[Message, ...] = HI, **asked: Any) -> set[str]:
    return set(bedrock_converse.unsupported_values(ChatCompletionRequest(model, messages, **asked)))


# What is sent -------------------------------------------------------------------------------------


def test_nothing_is_sent_that_nobody_asked_for() -> None:
    assert render() == {"messages": [{"role": "user", "content": [{"text": "Hi"}]}]}


def test_a_user_comes_first() -> None:
    alone = render(messages=(SystemMessage("Be brief."), SystemMessage("Name a colour.")))
    assert alone["system"] == [{"text": "Be brief."}]
    assert alone["messages"] == [{"role": "user", "content": [{"text": "Name a colour."}]}]
    greeted = render(messages=(SystemMessage("x"), CompletionMessage.of("Hello!"), *HI))
    assert [turn["role"] for turn in greeted["messages"]] == ["user", "assistant", "user"]
    assert greeted["messages"][1]["content"] == [{"text": "Hello!"}]
    assert greeted["system"] == [{"text": "x"}]


def test_a_conversation() -> None:
    image = ImageContent(f"data:image/jpg;base64,{PIXEL}")
    messages = (
        SystemMessage("Be brief."),
        UserMessage((TextContent("Look"), image, TextContent(" "))),
        SystemMessage("Really.", "developer"),
        CompletionMessage(
            (
                ReasoningContent("Hm", "seal", "anthropic"),
                ReasoningContent("", "Ynl0ZXM=", "bedrock", redacted=True),
                ReasoningContent("of another", "x", "gemini"),
                ReasoningContent("", "x", "anthropic", redacted=True),
                ReasoningContent("nobody's"),
                TextContent("Let me see."),
                CALL,
                UnparseableToolCall("call_2", "get_time", "{oh"),
            )
        ),
        ToolResponseMessage("call_2", "no", is_error=True),
        ToolResponseMessage("call_1", (TextContent("sunny"), image)),
        UserMessage("So?"),
        CompletionMessage((RefusalContent("No."),)),
        UserMessage("Well?"),
    )
    picture = {"image": {"format": "jpeg", "source": {"bytes": PIXEL}}}
    assert render(messages=messages) == {
        "system": [{"text": "Be brief."}, {"text": "Really."}],
        "messages": [
            {"role": "user", "content": [{"text": "Look"}, picture]},
            {
                "role": "assistant",
                "content": [
                    {"reasoningContent": {"reasoningText": {"text": "Hm", "signature": "seal"}}},
                    {"reasoningContent": {"redactedContent": "Ynl0ZXM="}},
                    {"text": "Let me see."},
                    {
                        "toolUse": {
                            "toolUseId": "call_1",
                            "name": "get_weather",
                            "input": {"city": "Bern"},
                        }
                    },
                    {
                        "toolUse": {
                            "toolUseId": "call_2",
                            "name": "get_time",
                            "input": {"INVALID_JSON": "{oh"},
                        }
                    },
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "toolResult": {
                            "toolUseId": "call_2",
                            "content": [{"text": "no"}],
                            "status": "error",
                        }
                    },
                    {
                        "toolResult": {
                            "toolUseId": "call_1",
                            "content": [{"text": "sunny"}, picture],
                        }
                    },
                    {"text": "So?"},
                ],
            },
            {"role": "assistant", "content": [{"text": "No."}]},
            {"role": "user", "content": [{"text": "Well?"}]},
        ],
        "toolConfig": {
            "tools": [
                {
                    "toolSpec": {
                        "name": name,
                        "inputSchema": {"json": {"type": "object", "properties": {}}},
                    }
                }
                for name in ("get_weather", "get_time")
            ]
        },
        "additionalModelRequestFields": {"tool_choice": {"type": "none"}},
    }


def test_thoughts_are_for_those_who_had_them() -> None:
    thought = ReasoningContent("Hm", "seal", "anthropic")
    messages = (*HI, CompletionMessage((thought, TextContent("Yes."))), *HI)
    for model, blocks in ((CLAUDE, 2), (NOVA, 1), (LLAMA, 2), (GPT, 1)):
        assert len(render(model, messages)["messages"][1]["content"]) == blocks


BOUND = ThinkingForm("adaptive", bound=True)
DROPPING = {"prefix_mismatch_behavior": "drop_block"}
BINDING = "thinking-binding-controls-2026-08-01"
THOUGHT = ReasoningContent("Hm", "seal", "anthropic")
THOUGHTFUL = (*HI, CompletionMessage((THOUGHT, TextContent("Yes."))), *HI)


def test_thoughts_that_are_bound_may_be_dropped_by_the_vendor() -> None:
    body = render(messages=THOUGHTFUL, thinking=BOUND)
    assert "reasoningContent" in body["messages"][1]["content"][0]
    assert body["additionalModelRequestFields"] == {
        "thinking": {"type": "adaptive", "block_binding": DROPPING},
        "anthropic_beta": [BINDING],
    }
    extras = Extras(for_model={"anthropic_beta": ["x"], "thinking": {"type": "enabled"}})
    body = render(messages=THOUGHTFUL, extras=extras, thinking=BOUND)
    assert body["additionalModelRequestFields"] == {
        "thinking": {"type": "enabled", "block_binding": DROPPING},
        "anthropic_beta": ["x", BINDING],
    }
    for messages, form in ((HI, BOUND), (THOUGHTFUL, None)):
        assert "additionalModelRequestFields" not in render(messages=messages, thinking=form)


def test_later_instructions_stay_where_they_are_before_bound_thoughts() -> None:
    messages = (SystemMessage("Be brief."), *THOUGHTFUL, SystemMessage("It is late."))
    body = render(messages=messages, thinking=BOUND)
    assert body["system"] == [{"text": "Be brief."}]
    assert [turn["role"] for turn in body["messages"]] == ["user", "assistant", "user", "system"]
    assert len(render(messages=messages)["system"]) == 2


def test_thoughts_that_are_bound_stay_here_where_the_model_must_not_think() -> None:
    request = ChatCompletionRequest(CLAUDE, THOUGHTFUL, thinking=BOUND, reasoning_effort="none")
    rendered = bedrock_converse.render_request(request)
    assert rendered.dropped == ("messages.thinking",)
    assert rendered.body["messages"][1]["content"] == [{"text": "Yes."}]
    assert rendered.body["additionalModelRequestFields"] == {"thinking": {"type": "disabled"}}


POINT = {"cachePoint": {"type": "default"}}


@pytest.mark.parametrize(("model", "places"), [(CLAUDE, 4), (NOVA, 3), (LLAMA, 0), (GPT, 0)])
def test_the_prompt_is_marked_for_the_cache_where_models_take_marks(
    model: str, places: int
) -> None:
    messages = (SystemMessage("Be brief."), *HI, CompletionMessage((CALL,)))
    messages += (ToolResponseMessage("call_1", "22"), CompletionMessage((TextContent("22."),)), *HI)
    body = render(model, messages, tools=(WEATHER,), marks_prompt=True)
    assert json.dumps(body).count("cachePoint") == places
    turns = [turn["content"][-1] == POINT for turn in body["messages"]]
    assert turns == ([False, False, True, False, True] if places else [False] * 5)
    assert (body["system"][-1] == POINT) is bool(places)
    assert (body["toolConfig"]["tools"][-1] == POINT) is (places == 4)
    assert "cachePoint" not in json.dumps(render(model, messages, tools=(WEATHER,)))


@given(st.text(min_size=1), st.text(min_size=1))
def test_ids_of_others_are_made_fit_and_stay_different(one: str, other: str) -> None:
    calls = [ToolCall(each, "f", {}, "{}") for each in ("a" * 64 + one, "a" * 64 + other)]
    answers = [ToolResponseMessage(each.call_id, "x") for each in calls]
    body = render(messages=(*HI, CompletionMessage(tuple(calls)), *answers))
    ids = {each["toolUse"]["toolUseId"] for each in body["messages"][1]["content"]}
    assert len(ids) == len(calls)
    assert {each["toolResult"]["toolUseId"] for each in body["messages"][2]["content"]} == ids


def test_how_tokens_are_drawn() -> None:
    sampling = SamplingParams(TopPSamplingStrategy(0.5, 0.9), max_tokens=7, stop=("END",))
    body = render(LLAMA, sampling=sampling)
    assert body["inferenceConfig"] == {
        "temperature": 0.5,
        "topP": 0.9,
        "maxTokens": 7,
        "stopSequences": ["END"],
    }
    assert "additionalModelResponseFieldPaths" not in body
    assert render(sampling=sampling)["additionalModelResponseFieldPaths"] == ["/stop_sequence"]
    greedy = SamplingParams(GreedySamplingStrategy())
    assert render(sampling=greedy)["inferenceConfig"] == {"temperature": 0.0}
    stated = SamplingParams(stated=frozenset({"temperature", "top_p"}))
    assert render(sampling=stated)["inferenceConfig"] == {"temperature": 1.0, "topP": 1.0}
    hot = SamplingParams(TopPSamplingStrategy(1.5))
    assert refused(CLAUDE, sampling=hot) == {"temperature"}


def test_top_k_in_the_words_of_each_maker() -> None:
    sampling = SamplingParams(TopKSamplingStrategy(5))
    assert render(sampling=sampling)["additionalModelRequestFields"] == {"top_k": 5}
    nova = {"inferenceConfig": {"topK": 5}}
    assert render(NOVA, sampling=sampling)["additionalModelRequestFields"] == nova
    assert refused(LLAMA, sampling=sampling) == refused(GPT, sampling=sampling) == {"top_k"}
    assert refused(NOVA, sampling=sampling) == set()


@pytest.mark.parametrize(
    ("model", "asked", "for_model", "effort"),
    [
        (CLAUDE, {"reasoning_effort": "xhigh"}, {"thinking": {"type": "adaptive"}}, "xhigh"),
        (CLAUDE, {"reasoning_effort": "none"}, {"thinking": {"type": "disabled"}}, None),
        (CLAUDE, {"adaptive_thinking": True}, {"thinking": {"type": "adaptive"}}, None),
        (
            CLAUDE,
            {"adaptive_thinking": True, "reasoning_effort": "low"},
            {"thinking": {"type": "adaptive"}},
            "low",
        ),
        (
            CLAUDE,
            {"adaptive_thinking": True, "thinking": ThinkingForm("budget")},
            {"thinking": {"type": "enabled", "budget_tokens": 24576}},
            None,
        ),
        (
            CLAUDE,
            {
                "adaptive_thinking": True,
                "thinking": ThinkingForm("budget"),
                "sampling": SamplingParams(max_tokens=1024),
            },
            {},
            None,
        ),
        (NOVA, {"adaptive_thinking": True}, {}, None),
        (GPT, {"adaptive_thinking": True}, {}, None),
        (
            CLAUDE,
            {"reasoning_effort": "medium", "thinking": ThinkingForm("budget")},
            {"thinking": {"type": "enabled", "budget_tokens": 8192}},
            None,
        ),
        (CLAUDE, {"reasoning_effort": "none", "thinking": ThinkingForm(off="omitted")}, {}, None),
        (
            NOVA,
            {"reasoning_effort": "xhigh"},
            {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": "high"}},
            None,
        ),
        (NOVA, {"reasoning_effort": "none"}, {"reasoningConfig": {"type": "disabled"}}, None),
        (GPT, {"reasoning_effort": "minimal"}, {"reasoning_effort": "low"}, None),
    ],
)
def test_effort_in_the_words_of_each_maker(
    model: str, asked: dict[str, Any], for_model: dict[str, Any], effort: str | None
) -> None:
    body = render(model, **asked)
    assert body.get("additionalModelRequestFields", {}) == for_model
    assert body.get("outputConfig", {}).get("effort") == effort
    assert refused(model, **asked) == set()


def test_effort_where_nothing_says_how() -> None:
    assert refused(LLAMA, reasoning_effort="low") == {"reasoning_effort"}
    assert refused("amazon.nova-pro-v1:0", reasoning_effort="low") == {"reasoning_effort"}
    assert refused(GPT, reasoning_effort="none") == {"reasoning_effort"}
    with pytest.raises(APIError) as raised:
        render(NOVA, reasoning_effort="much")
    assert raised.value.param == "reasoning_effort"


def test_a_family_is_named_for_profiles_of_ones_own() -> None:
    arn = "arn:aws:bedrock:us-east-1:123456789012:application-inference-profile/abc"
    assert refused(arn, reasoning_effort="low") == {"reasoning_effort"}
    body = render(arn, extras=Extras(family="nova"), reasoning_effort="low")
    assert "reasoningConfig" in body["additionalModelRequestFields"]


def test_only_claude_refuses_to_think_before_a_forced_call() -> None:
    forced = {"tools": (WEATHER,), "tool_choice": ToolChoice("required"), "reasoning_effort": "low"}
    assert refused(CLAUDE, **forced) == {"reasoning_effort"}
    assert refused(NOVA, **forced) == set()


def test_what_the_template_sends_besides() -> None:
    extras = Extras(for_model={"anthropic_beta": ["x"]}, members={"requestMetadata": {"a": "b"}})
    body = render(extras=extras, reasoning_effort="low")
    assert body["requestMetadata"] == {"a": "b"}
    assert body["additionalModelRequestFields"] == {
        "anthropic_beta": ["x"],
        "thinking": {"type": "adaptive"},
    }


def test_tools() -> None:
    body = render(tools=(WEATHER, ToolDefinition("get_time")))
    schema = {"type": "object", "properties": {"city": {}}, "additionalProperties": False}
    weather = {
        "name": "get_weather",
        "description": "In a city",
        "inputSchema": {"json": schema},
        "strict": True,
    }
    time = {"name": "get_time", "inputSchema": {"json": {"type": "object", "properties": {}}}}
    assert body["toolConfig"] == {"tools": [{"toolSpec": weather}, {"toolSpec": time}]}


@pytest.mark.parametrize(
    ("choice", "rendered"),
    [
        (ToolChoice("auto"), {"auto": {}}),
        (ToolChoice("required"), {"any": {}}),
        (ToolChoice("required", "get_weather"), {"tool": {"name": "get_weather"}}),
    ],
)
def test_which_tool(choice: ToolChoice, rendered: dict[str, Any]) -> None:
    body = render(tools=(WEATHER,), tool_choice=choice)
    assert body["toolConfig"]["toolChoice"] == rendered


def test_no_tool() -> None:
    none, called = (
        ToolChoice("none"),
        (*HI, CompletionMessage((CALL,)), ToolResponseMessage("call_1", "x")),
    )
    assert "toolConfig" not in render(tools=(WEATHER,), tool_choice=none)
    body = render(messages=called, tools=(WEATHER,), tool_choice=none)
    assert "toolChoice" not in body["toolConfig"]
    assert body["additionalModelRequestFields"] == {"tool_choice": {"type": "none"}}
    # Nor may one be called that is offered no more, and has to be defined.
    body = render(messages=called)
    assert [each["toolSpec"]["name"] for each in body["toolConfig"]["tools"]] == [CALL.tool_name]
    assert body["additionalModelRequestFields"] == {"tool_choice": {"type": "none"}}


@pytest.mark.parametrize(
    "asked",
    [{}, {"tools": (WEATHER,), "tool_choice": ToolChoice("none")}],
    ids=["not offered", "forbidden"],
)
def test_others_than_claude_are_told_in_words_what_was_called(asked: dict[str, Any]) -> None:
    image = ImageContent(f"data:image/png;base64,{PIXEL}")
    said = (TextContent("Let me see."), CALL, UnparseableToolCall("call_2", "get_time", ""))
    messages = (
        *HI,
        CompletionMessage(said),
        ToolResponseMessage("call_1", (TextContent("sunny"), image)),
        ToolResponseMessage("call_2", "no clock", is_error=True),
        UserMessage("So?"),
    )
    assert refused(LLAMA, messages, **asked) == set()
    body = render(LLAMA, messages, **asked)
    assert body.keys() == {"messages"}
    assert [turn["role"] for turn in body["messages"]] == ["user", "assistant", "user"]
    assert body["messages"][1]["content"] == [
        {"text": "Let me see."},
        {"text": '(I have called get_weather with {"city": "Bern"})'},
        {"text": "(I have called get_time with {})"},
    ]
    assert body["messages"][2]["content"] == [
        {"text": "(get_weather gave:"},
        {"text": "sunny"},
        {"image": {"format": "png", "source": {"bytes": PIXEL}}},
        {"text": ")"},
        {"text": "(get_time failed:"},
        {"text": "no clock"},
        {"text": ")"},
        {"text": "So?"},
    ]
    rendered = bedrock_converse.render_request(ChatCompletionRequest(LLAMA, messages, **asked))
    assert rendered.adapted == ("messages.tool_calls=text",)
    # One that may call goes on as it did, and where nothing was called there is nothing to tell.
    on = bedrock_converse.render_request(ChatCompletionRequest(LLAMA, messages, tools=(WEATHER,)))
    assert "toolConfig" in on.body
    new = bedrock_converse.render_request(ChatCompletionRequest(LLAMA, HI, **asked))
    assert (on.adapted, new.adapted) == ((), ())


def test_there_has_to_be_room_to_think() -> None:
    def told(limit: int, how: Any = "budget", effort: str = "low") -> set[str]:
        sampling = SamplingParams(max_tokens=limit)
        thinking = ThinkingForm(how)
        return refused(CLAUDE, sampling=sampling, thinking=thinking, reasoning_effort=effort)

    assert told(1024) == {"reasoning_effort"}
    assert told(1025) == told(1024, "adaptive") == told(1024, effort="none") == set()


def test_the_shape_of_the_text() -> None:
    schema = {"type": "object", "properties": {"ü": {"type": "string"}}}
    body = render(response_format=ResponseFormat("json_schema", "it", schema, True))
    wanted = body["outputConfig"]["textFormat"]["structure"]["jsonSchema"]
    assert wanted["name"] == "it"
    assert json.loads(wanted["schema"]) == {**schema, "additionalProperties": False}


@pytest.mark.parametrize(
    "messages",
    [
        (),
        (SystemMessage("x"), CompletionMessage()),
        (UserMessage(""),),
        (UserMessage(" \n"),),
        (UserMessage((ImageContent("data:image/bmp;base64,AAAA"),)),),
        (UserMessage((ImageContent("https://example.com/x.png"),)),),
        (SystemMessage((ImageContent(f"data:image/png;base64,{PIXEL}"),)), *HI),
        (*HI, CompletionMessage((ImageContent(f"data:image/png;base64,{PIXEL}"),))),
    ],
)
def test_what_has_no_form_is_refused(messages: tuple[Message, ...]) -> None:
    with pytest.raises(APIError) as raised:
        render(messages=messages)
    assert raised.value.status == 400


# What comes back ----------------------------------------------------------------------------------


def whole(body: dict[str, Any]) -> ChatCompletionResponse:
    return bedrock_converse.parse_reply(body)


def streamed(body: dict[str, Any], size: int = 5) -> ChatCompletionResponse:
    parser, collector = StreamParser(), Collector()
    for event in bedrock.stream_events(body, size):
        for each in parser.push(event):
            collector.add(each)
    for each in parser.finish():
        collector.add(each)
    return collector.chat_completion()


THOUGHT = {
    "reasoningContent": {"reasoningText": {"text": "Look outside. 🌞", "signature": "c2Vhb"}}
}
BARE = {"reasoningContent": {"reasoningText": {"text": "Hm."}}}
REDACTED = {"reasoningContent": {"redactedContent": "Ynl0ZXM="}}
SAID = {"text": "It is 20 °C. 🌞"}
USED = {"toolUse": {"toolUseId": "t1", "name": "get_weather", "input": {"city": "Zürich"}}}
TIMED = {"toolUse": {"toolUseId": "t2", "name": "get_time", "input": {}}}
USAGE = Usage(30, 25, cached_tokens=10, cache_write_tokens=5)


@pytest.mark.parametrize("size", [1, 3, 100])
@pytest.mark.parametrize(
    ("content", "stop"),
    [
        ([SAID], "end_turn"),
        ([THOUGHT, SAID, USED, TIMED], "tool_use"),
        ([BARE, SAID, THOUGHT, REDACTED, SAID], "end_turn"),
        ([USED, SAID, USED | {"toolUse": USED["toolUse"] | {"toolUseId": "t3"}}], "tool_use"),
        ([TIMED], "max_tokens"),
        ([], "guardrail_intervened"),
    ],
)
def test_a_stream_says_what_the_whole_reply_does(
    content: list[dict[str, Any]], stop: str, size: int
) -> None:
    body = bedrock.reply(content, stop)
    one, other = whole(body), streamed(body, size)

    def meant(part: Any) -> Any:
        return (
            (part.call_id, part.tool_name, part.arguments) if isinstance(part, ToolCall) else part
        )

    assert list(map(meant, one.completion_message.parts)) == list(
        map(meant, other.completion_message.parts)
    )
    assert one.completion_message.stop_reason == other.completion_message.stop_reason
    assert one.usage == other.usage == USAGE


def test_parts() -> None:
    reply = whole(bedrock.reply([THOUGHT, BARE, REDACTED, SAID, USED], "tool_use"))
    message = reply.completion_message
    assert message.parts[:4] == (
        ReasoningContent("Look outside. 🌞", "c2Vhb", "anthropic"),
        ReasoningContent("Hm."),
        ReasoningContent("", "Ynl0ZXM=", "bedrock", redacted=True),
        TextContent("It is 20 °C. 🌞"),
    )
    assert message.stop_reason is StopReason.end_of_message


def test_thoughts_go_back_as_they_came() -> None:
    said = whole(bedrock.reply([THOUGHT, REDACTED, SAID])).completion_message
    assert render(messages=(*HI, said, *HI))["messages"][1]["content"] == [THOUGHT, REDACTED, SAID]


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("end_turn", StopReason.end_of_turn),
        ("stop_sequence", StopReason.end_of_turn),
        ("max_tokens", StopReason.out_of_tokens),
        ("model_context_window_exceeded", StopReason.out_of_tokens),
        ("guardrail_intervened", StopReason.content_filter),
        ("content_filtered", StopReason.content_filter),
        ("something_new", StopReason.end_of_turn),
    ],
)
def test_why_it_ended(word: str, reason: StopReason) -> None:
    body = bedrock.reply([SAID], word)
    assert whole(body).completion_message.stop_reason is reason
    assert streamed(body).completion_message.stop_reason is reason


@pytest.mark.parametrize("word", ["malformed_model_output", "malformed_tool_use"])
def test_a_model_that_failed_has_not_replied(word: str) -> None:
    for parse in (whole, streamed):
        with pytest.raises(ValueError, match=f"failed with {word}"):
            parse(bedrock.reply([SAID], word))


def test_which_stop_string_it_was() -> None:
    fields = {"additionalModelResponseFields": {"stop_sequence": "END"}}
    body = bedrock.reply([SAID], "stop_sequence", **fields)
    assert whole(body).completion_message.stop_string == "END"
    assert streamed(body).completion_message.stop_string == "END"


def test_a_stream_that_breaks_off() -> None:
    events = bedrock.stream_events(bedrock.reply([SAID, USED], "tool_use"))
    for end in range(len(events) - 2):
        parser = StreamParser()
        for event in events[:end]:
            parser.push(event)
        with pytest.raises(ValueError, match="broke off"):
            list(parser.finish())
    parser = StreamParser()
    for event in events[:-1]:
        parser.push(event)
    (complete,) = parser.finish()
    assert complete.usage == Usage()  # type: ignore[union-attr]


def test_what_bedrocks_own_servers_do_is_not_the_clients() -> None:
    search = {"toolUse": {**USED["toolUse"], "type": "server_tool_use"}}
    result = {"toolResult": {"toolUseId": "t1", "content": [{"text": "x"}]}}
    body = bedrock.reply([search, result, SAID])
    assert whole(body).completion_message.parts == (TextContent(SAID["text"]),)
    assert streamed(body).completion_message.parts == (TextContent(SAID["text"]),)


def test_text_with_sources() -> None:
    cited = {"citationsContent": {"content": [{"text": "As "}, {"text": "said."}], "citations": []}}
    assert whole(bedrock.reply([cited])).completion_message.content == "As said."


def test_an_image() -> None:
    image = {"image": {"format": "png", "source": {"bytes": PIXEL}}}
    expected = (ImageContent(f"data:image/png;base64,{PIXEL}"),)
    assert whole(bedrock.reply([image])).completion_message.parts == expected
    parser, collector = StreamParser(), Collector()
    for event in (
        {"contentBlockStart": {"contentBlockIndex": 0, "start": {"image": {"format": "png"}}}},
        {"contentBlockDelta": {"contentBlockIndex": 0, "delta": image}},
        {"contentBlockStop": {"contentBlockIndex": 0}},
        {"messageStop": {"stopReason": "end_turn"}},
    ):
        for each in parser.push(event):
            collector.add(each)
    assert collector.chat_completion().completion_message.parts == expected


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"output": {}},
        {"output": {"message": {"content": [{"toolUse": {"name": "x"}}]}}},
        {"output": {"message": {"content": [{"reasoningContent": {}}]}}},
        {"output": {"message": {"content": ["x"]}}},
        {"output": {"message": {"content": 5}}},
    ],
)
def test_nonsense_is_no_reply(body: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="not one of Converse"):
        whole(body)


@pytest.mark.parametrize(
    "event",
    [
        {"contentBlockDelta": {}},
        {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"text": 5}}},
        {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"reasoningContent": {"text": 5}}}},
        {"contentBlockStart": {"contentBlockIndex": 0, "start": {"toolUse": {}}}},
        {"messageStop": {}},
        {"messageStop": []},
    ],
)
def test_nonsense_is_no_event(event: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="not one of ConverseStream"):
        StreamParser().push(event)


def test_tokens_are_counted() -> None:
    assert bedrock_converse.parse_token_count({"inputTokens": 5}) == 5
    for wrong in ({}, {"inputTokens": True}, {"inputTokens": -1}):
        with pytest.raises(ValueError, match="inputTokens"):
            bedrock_converse.parse_token_count(wrong)


def test_models_and_profiles() -> None:
    listed = {
        "modelSummaries": [
            {"modelId": "a.b", "modelLifecycle": {"status": "ACTIVE"}},
            {"modelId": "a.old", "modelLifecycle": {"status": "LEGACY"}},
            {"modelId": "a.c"},
        ]
    }
    assert bedrock_converse.parse_models(listed) == ["a.b", "a.c"]
    profiles = {"inferenceProfileSummaries": [{"inferenceProfileId": "us.a.b"}]}
    assert bedrock_converse.parse_profiles(profiles) == ["us.a.b"]
    for parse in (bedrock_converse.parse_models, bedrock_converse.parse_profiles):
        with pytest.raises(ValueError, match="no list"):
            parse({"models": []})
