"""Anthropic's dialect: what is sent, what comes back, and that nothing is lost on the way."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from anthropic import types
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from llama_compat.dialects import anthropic_messages
from llama_compat.dialects.anthropic_messages import StreamParser, Thinking, render_request
from llama_compat.errors import APIError
from llama_compat.events import Collector, reply_events
from llama_compat.types import (
    AnyToolCall,
    ChatCompletionRequest,
    ChatCompletionResponse,
    CompletionMessage,
    Content,
    ContentPart,
    GreedySamplingStrategy,
    ImageContent,
    Message,
    MessagePart,
    ReasoningContent,
    RefusalContent,
    ResponseFormat,
    SamplingParams,
    StopReason,
    StreamEvent,
    StreamProgress,
    SystemMessage,
    TextContent,
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
from providers.remote.relaying.json_events import JSONEvents
from tests import sdk_anthropic as sdk
from tests.unit import vocabulary

# --------------------------------------------------------------------------------------------------
# The other direction: what Anthropic reads and writes
# --------------------------------------------------------------------------------------------------


def read_request(body: dict[str, Any]) -> ChatCompletionRequest:
    config = body.get("output_config", {})
    disabled = body.get("thinking") == {"type": "disabled"}
    schema = config.get("format", {}).get("schema")
    choice = body.get("tool_choice", {})
    modes: dict[str, Any] = {"auto": "auto", "any": "required", "none": "none", "tool": "required"}
    return ChatCompletionRequest(
        model=body["model"],
        messages=(
            *(SystemMessage(block["text"]) for block in body.get("system", ())),
            *(message for turn in body["messages"] for message in read_turn(turn)),
        ),
        sampling=read_sampling(body),
        tools=tuple(
            ToolDefinition(
                tool["name"], tool.get("description"), tool["input_schema"], tool.get("strict")
            )
            for tool in body.get("tools", ())
        ),
        tool_choice=ToolChoice(modes[choice["type"]], choice.get("name")) if choice else None,
        parallel_tool_calls=False if choice.get("disable_parallel_tool_use") else None,
        response_format=ResponseFormat("json_schema", schema=schema) if schema else None,
        reasoning_effort="none" if disabled else config.get("effort"),
        stream=body.get("stream", False),
    )


def read_turn(turn: dict[str, Any]) -> list[Message]:
    if turn["role"] == "assistant":
        text = "".join(block["text"] for block in turn["content"] if block["type"] == "text")
        calls = [read_call(block) for block in turn["content"] if block["type"] == "tool_use"]
        return [CompletionMessage.of(text, tuple(calls))]
    results = [block for block in turn["content"] if block["type"] == "tool_result"]
    others = turn["content"][len(results) :]
    messages: list[Message] = [
        ToolResponseMessage(block["tool_use_id"], read_content(block.get("content", ())))
        for block in results
    ]
    return [*messages, UserMessage(read_content(others))] if others else messages


def read_content(blocks: Sequence[dict[str, Any]]) -> Content:
    parts = tuple(read_part(block) for block in blocks)
    if not parts:
        return ""
    if len(parts) == 1 and isinstance(parts[0], TextContent):
        return parts[0].text
    return parts


def read_part(block: dict[str, Any]) -> ContentPart:
    if block["type"] == "text":
        return TextContent(block["text"])
    source = block["source"]
    if source["type"] == "url":
        return ImageContent(source["url"])
    return ImageContent(f"data:{source['media_type']};base64,{source['data']}")


def read_call(block: dict[str, Any]) -> AnyToolCall:
    given = block["input"]
    if "INVALID_JSON" in given:
        return UnparseableToolCall(block["id"], block["name"], given["INVALID_JSON"])
    return ToolCall(block["id"], block["name"], given, msgspec.json.encode(given).decode())


def read_sampling(body: dict[str, Any]) -> SamplingParams:
    temperature, top_p = body.get("temperature", 1.0), body.get("top_p", 1.0)
    strategy: Any = TopPSamplingStrategy(temperature, top_p)
    if temperature == 0:
        strategy = GreedySamplingStrategy()
    elif "top_k" in body:
        strategy = TopKSamplingStrategy(body["top_k"], temperature, top_p)
    return SamplingParams(strategy, body["max_tokens"], tuple(body.get("stop_sequences", ())))


def write_part(part: MessagePart) -> Any:
    match part:
        case TextContent(text):
            return sdk.text(text)
        case ReasoningContent(redacted=True):
            return types.RedactedThinkingBlock(type="redacted_thinking", data=part.signature or "")
        case ReasoningContent(text, signature):
            return types.ThinkingBlock(type="thinking", thinking=text, signature=signature or "")
        case ToolCall():
            return sdk.tool_use(part.call_id, part.tool_name, part.arguments)
    raise AssertionError(part)


def write_reply(response: ChatCompletionResponse) -> types.Message:
    said = response.completion_message
    blocks = [write_part(part) for part in said.parts]
    reasons: dict[Any, types.StopReason] = {
        StopReason.end_of_turn: "end_turn",
        StopReason.end_of_message: "tool_use",
        StopReason.content_filter: "refusal",
    }
    usage = response.usage
    cached, written, thoughts = (
        usage.cached_tokens,
        usage.cache_write_tokens,
        usage.reasoning_tokens,
    )
    return sdk.message(
        blocks,
        "stop_sequence" if said.stop_string is not None else reasons[said.stop_reason],
        types.Usage(
            input_tokens=usage.prompt_tokens - (cached or 0) - (written or 0),
            cache_creation_input_tokens=written,
            cache_read_input_tokens=cached,
            output_tokens=usage.completion_tokens,
            output_tokens_details=types.OutputTokensDetails(thinking_tokens=thoughts or 0),
        ),
        stop_sequence=said.stop_string,
    )


# --------------------------------------------------------------------------------------------------
# Requests
# --------------------------------------------------------------------------------------------------

tools = st.builds(
    ToolDefinition,
    vocabulary.names,
    st.none() | vocabulary.texts,
    st.just(
        {
            "type": "object",
            "properties": {"a": {"type": "integer"}},
            "additionalProperties": False,
        }
    ),
    st.sampled_from([None, True]),
)


def ended_in_no_space(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """`messages`, of whose last words nothing is left out."""
    last = messages[-1]
    match last:
        case CompletionMessage(parts=(*others, TextContent(text))):
            parts = (*others, TextContent(text.rstrip()))
            return (*messages[:-1], structs.replace(last, parts=parts))
    return messages


@st.composite
def requests(draw: st.DrawFn) -> ChatCompletionRequest:
    offered = tuple(draw(st.lists(tools, max_size=2)))
    choices: list[ToolChoice | None] = [None]
    if offered:
        choices += [ToolChoice("auto"), ToolChoice("required"), ToolChoice("none")]
        choices.append(ToolChoice("required", offered[0].tool_name))
    choice = draw(st.sampled_from(choices))
    limited = choice is not None and choice.mode != "none" and draw(st.booleans())
    shape = ResponseFormat("json_schema", schema={"type": "object", "properties": {}})
    return ChatCompletionRequest(
        model="claude",
        messages=ended_in_no_space(draw(vocabulary.conversations())),
        sampling=draw(vocabulary.samplings()),
        tools=offered,
        tool_choice=choice,
        parallel_tool_calls=False if limited else None,
        response_format=draw(st.sampled_from([None, shape])),
        reasoning_effort=draw(st.sampled_from([None, "none", "low", "high", "xhigh", "max"])),
        stream=draw(st.booleans()),
    )


@given(requests())
def test_a_request_comes_back_as_it_was(request: ChatCompletionRequest) -> None:
    body = json.loads(msgspec.json.encode(render_request(request, default_max_tokens=1)))
    sdk.check_request(body)
    names = [call.tool_name for each in request.messages for call in calls_said(each)]
    if names and not request.tools:
        assert [tool["name"] for tool in body.pop("tools")] == list(dict.fromkeys(names))
        assert body.pop("tool_choice") == {"type": "none"}
    assert read_request(body) == request


def calls_said(message: Message) -> Sequence[Any]:
    return message.tool_calls if isinstance(message, CompletionMessage) else ()


def test_the_sdk_does_not_take_everything() -> None:
    body = rendered(UserMessage("Hi"))
    for wrong in ({"max_tokens": "many"}, {"seed": 5}, {"tool_choice": {"type": "all"}}):
        with pytest.raises((AssertionError, ValueError)):
            sdk.check_request({**body, **wrong})


def rendered(*messages: Message, thinking: Thinking | None = None, **members: Any) -> Any:
    request = ChatCompletionRequest("claude", messages, **members)
    body = render_request(request, default_max_tokens=4096, thinking=thinking or Thinking())
    sdk.check_request(body)
    return body


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def test_instructions_alone_are_what_the_user_says() -> None:
    body = rendered(SystemMessage("Be brief."), SystemMessage("Name a colour.", "developer"))
    assert body["system"] == [text("Be brief.")]
    assert body["messages"] == [{"role": "user", "content": [text("Name a colour.")]}]
    assert "system" not in rendered(SystemMessage("Name a colour."))


def test_every_system_message_goes_to_the_system_prompt() -> None:
    body = rendered(
        SystemMessage("One"),
        UserMessage("Hi"),
        SystemMessage((TextContent("Two"), TextContent("Three")), role="developer"),
    )
    assert body["system"] == [text("One"), text("Two"), text("Three")]
    assert body["messages"] == [{"role": "user", "content": [text("Hi")]}]


def test_turns_alternate_and_answers_to_calls_come_first_in_theirs() -> None:
    call = ToolCall("a.b:1", "f", {}, "{}")
    body = rendered(
        UserMessage("One", name="Ada"),
        UserMessage("Two"),
        CompletionMessage.of("Three", reasoning="not sent back"),
        CompletionMessage.of("", (call,)),
        CompletionMessage.of(""),
        UserMessage("Four"),
        ToolResponseMessage("a.b:1", "Five"),
    )
    assert body["messages"] == [
        {"role": "user", "content": [text("One"), text("Two")]},
        {
            "role": "assistant",
            "content": [
                text("Three"),
                {"type": "tool_use", "id": "a_b_1", "name": "f", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "a_b_1", "content": [text("Five")]},
                text("Four"),
            ],
        },
    ]


def test_thoughts_go_back_to_who_sealed_them_in_their_place() -> None:
    call = ToolCall("1", "f", {}, "{}")
    body = rendered(
        UserMessage("Hi"),
        CompletionMessage(
            (
                ReasoningContent("Hm", "c2VhbA==", "anthropic"),
                ReasoningContent("", "b3Bhcw==", "anthropic", redacted=True),
                ReasoningContent("nobody's"),
                ReasoningContent("theirs", "c2VhbA==", "openai"),
                TextContent("Let me see."),
                RefusalContent("Not that."),
                ReasoningContent("Aha", "c2Vjb25k", "anthropic"),
                call,
            )
        ),
        ToolResponseMessage("1", "It broke.", is_error=True),
    )
    assert body["messages"][1]["content"] == [
        {"type": "thinking", "thinking": "Hm", "signature": "c2VhbA=="},
        {"type": "redacted_thinking", "data": "b3Bhcw=="},
        text("Let me see."),
        text("Not that."),
        {"type": "thinking", "thinking": "Aha", "signature": "c2Vjb25k"},
        {"type": "tool_use", "id": "1", "name": "f", "input": {}},
    ]
    (result,) = body["messages"][2]["content"]
    assert result["is_error"] is True


@pytest.mark.parametrize(
    ("thought", "goes_on_thinking"),
    [
        (ReasoningContent("Hm", "c2VhbA==", "anthropic"), True),
        (ReasoningContent("Hm"), False),
        (TextContent("Hm"), False),
    ],
)
def test_a_sealed_thought_lets_thinking_go_on_while_a_call_is_answered(
    thought: MessagePart, goes_on_thinking: bool
) -> None:
    body = rendered(
        UserMessage("Hi"),
        CompletionMessage((thought, ToolCall("1", "f", {}, "{}"))),
        ToolResponseMessage("1", "Yes"),
        thinking=Thinking("budget"),
        reasoning_effort="high",
    )
    assert ("thinking" in body) == goes_on_thinking


def test_tools_have_a_schema_that_is_an_object() -> None:
    offered = (ToolDefinition("f"), ToolDefinition("g", parameters={"properties": {"a": {}}}))
    assert rendered(UserMessage("Hi"), tools=offered)["tools"] == [
        {"name": "f", "input_schema": {"type": "object", "properties": {}}},
        {"name": "g", "input_schema": {"type": "object", "properties": {"a": {}}}},
    ]


def test_calls_are_limited_to_one_without_another_choice() -> None:
    offered = (ToolDefinition("f"),)
    body = rendered(UserMessage("Hi"), tools=offered, parallel_tool_calls=False)
    assert body["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": True}
    none = ToolChoice("none")
    body = rendered(UserMessage("Hi"), tools=offered, tool_choice=none, parallel_tool_calls=False)
    assert body["tool_choice"] == {"type": "none"}
    assert "tool_choice" not in rendered(UserMessage("Hi"), tool_choice=none)


def test_tools_that_were_called_are_defined_where_none_is_offered_any_more() -> None:
    """ "Requests which include `tool_use` or `tool_result` blocks must define tools"."""
    called = CompletionMessage((ToolCall("1", "f", {}, "{}"), ToolCall("2", "f", {}, "{}")))
    answers = ToolResponseMessage("1", "Yes"), ToolResponseMessage("2", "No")
    talk = (UserMessage("Hi"), called, *answers)
    body = rendered(*talk)
    defined = [{"name": "f", "input_schema": {"type": "object", "properties": {}}}]
    assert (body["tools"], body["tool_choice"]) == (defined, {"type": "none"})
    body = rendered(*talk, tools=(ToolDefinition("g"),))
    assert [tool["name"] for tool in body["tools"]] == ["g"]
    assert "tool_choice" not in body


def test_a_limit_of_tokens_is_always_there() -> None:
    assert rendered(UserMessage("Hi"))["max_tokens"] == 4096
    assert rendered(UserMessage("Hi"), sampling=SamplingParams(max_tokens=5))["max_tokens"] == 5


def test_thinking_as_an_effort() -> None:
    body = rendered(
        UserMessage("Hi"),
        thinking=Thinking(display="summarized"),
        reasoning_effort="minimal",
    )
    assert body["thinking"] == {"type": "adaptive", "display": "summarized"}
    assert body["output_config"] == {"effort": "low"}


@pytest.mark.parametrize(
    ("effort", "max_tokens", "limit", "budget"),
    [
        ("low", None, 4096 + 1024, 1024),
        ("high", None, 4096 + 24576, 24576),
        ("high", 30_000, 30_000, 24576),
        ("high", 2000, 2000, 1999),
    ],
)
def test_thinking_as_a_budget(effort: str, max_tokens: int | None, limit: int, budget: int) -> None:
    body = rendered(
        UserMessage("Hi"),
        thinking=Thinking("budget"),
        reasoning_effort=effort,
        sampling=SamplingParams(max_tokens=max_tokens),
    )
    assert body["max_tokens"] == limit
    assert body["thinking"] == {"type": "enabled", "budget_tokens": budget}
    assert "output_config" not in body


def test_a_budget_is_left_off_while_a_call_is_answered() -> None:
    body = rendered(
        UserMessage("Hi"),
        CompletionMessage.of("", (ToolCall("1", "f", {}, "{}"),)),
        ToolResponseMessage("1", "Yes"),
        thinking=Thinking("budget"),
        reasoning_effort="high",
    )
    assert "thinking" not in body
    assert body["max_tokens"] == 4096


@pytest.mark.parametrize("blank", ["\n\n", (TextContent(" "), TextContent("\t"))])
def test_blank_text_which_the_vendor_refuses_is_left_out(blank: Content) -> None:
    call = ToolCall("1", "f", {}, "{}")
    body = rendered(
        SystemMessage(blank),
        UserMessage("Hi"),
        CompletionMessage((TextContent("\n\n"), call)),
        ToolResponseMessage("1", blank),
    )
    assert "system" not in body
    assert [block["type"] for block in body["messages"][1]["content"]] == ["tool_use"]
    assert body["messages"][2]["content"] == [{"type": "tool_result", "tool_use_id": "1"}]
    with pytest.raises(APIError, match="empty"):
        rendered(UserMessage(blank))


def test_schemas_are_closed_and_their_limits_are_words() -> None:
    # "For 'object' type, 'additionalProperties' must be explicitly set to false", and "property
    # 'minimum' is not supported": which clients of other APIs can't know.
    schema = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 0}}}
    sent = {
        "type": "object",
        "properties": {"a": {"type": "integer", "description": "minimum: 0"}},
        "additionalProperties": False,
    }
    request = ChatCompletionRequest(
        "m",
        (UserMessage("Hi"),),
        tools=(ToolDefinition("f", None, schema, True), ToolDefinition("g", None, schema)),
        response_format=ResponseFormat("json_schema", "it", schema),
    )
    body = render_request(request, default_max_tokens=9)
    assert body["output_config"]["format"]["schema"] == sent
    assert [tool["input_schema"] for tool in body["tools"]] == [sent, schema]


def test_calls_with_one_id_are_told_apart() -> None:
    # "`tool_use` ids must be unique", but there are vendors that number those of each reply anew.
    turn = (
        CompletionMessage((ToolCall("call.0", "f", {}, "{}"),)),
        ToolResponseMessage("call.0", "x"),
    )
    request = ChatCompletionRequest("m", (UserMessage("Hi"), *turn, *turn))
    blocks = [
        block
        for message in render_request(request, default_max_tokens=9)["messages"][1:]
        for block in message["content"]
    ]
    assert [block.get("id") or block["tool_use_id"] for block in blocks] == [
        *["call_0", "call_0"],
        *["call_0-2", "call_0-2"],
    ]


IMAGE = ImageContent("https://example.com/a.png")


def test_what_the_model_goes_on_with_ends_in_no_white_space() -> None:
    begun = CompletionMessage.of("Well,\n ")
    messages = (UserMessage("Hi\n"), begun, UserMessage("So? "), begun)
    said = render_request(ChatCompletionRequest("m", messages), default_max_tokens=9)["messages"]
    texts = [turn["content"][0]["text"] for turn in said]
    assert texts == ["Hi\n", "Well,\n ", "So? ", "Well,"]


def test_an_image_with_a_url_is_left_to_the_vendor() -> None:
    body = rendered(UserMessage((IMAGE,)))
    (block,) = body["messages"][0]["content"]
    assert block == {"type": "image", "source": {"type": "url", "url": IMAGE.url}}


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ([SystemMessage("Hi"), CompletionMessage()], "messages"),
        ([UserMessage("")], "messages[0].content"),
        ([UserMessage("Hi"), UserMessage((TextContent(""),))], "messages[1].content"),
        ([SystemMessage((IMAGE,)), UserMessage("Hi")], "messages[0].content"),
        ([UserMessage("Hi"), CompletionMessage.of((IMAGE,))], "messages[1].content"),
        ([UserMessage((ImageContent("data:image/bmp;base64,aGk="),))], "messages[0].content"),
        ([UserMessage((ImageContent("file:///etc/passwd"),))], "messages[0].content"),
    ],
)
def test_what_has_no_form_is_refused_by_name(messages: list[Message], param: str) -> None:
    with pytest.raises(APIError) as refused:
        rendered(*messages)
    assert (refused.value.status, refused.value.param) == (400, param)


@pytest.mark.parametrize(
    ("effort", "max_tokens"), [("enormous", None), ("high", 1024)], ids=["unknown", "no room"]
)
def test_an_effort_that_can_not_be_made_is_refused(effort: str, max_tokens: int | None) -> None:
    with pytest.raises(APIError) as refused:
        rendered(
            UserMessage("Hi"),
            thinking=Thinking("budget"),
            reasoning_effort=effort,
            sampling=SamplingParams(max_tokens=max_tokens),
        )
    assert refused.value.param == "reasoning_effort"


# --------------------------------------------------------------------------------------------------
# Replies and streams
# --------------------------------------------------------------------------------------------------


def parse(whole: types.Message) -> ChatCompletionResponse:
    return anthropic_messages.parse_reply(sdk.dump(whole))


def parse_events(events: Sequence[dict[str, Any]]) -> list[StreamEvent]:
    parser = StreamParser()
    parsed = [each for event in events for each in parser.push(event)]
    return [*parsed, *parser.finish()]


def collect(events: Sequence[StreamEvent]) -> ChatCompletionResponse:
    collector = Collector()
    for event in events:
        collector.add(event)
    return collector.chat_completion()


@given(vocabulary.responses() | vocabulary.ordered_responses())
def test_a_reply_comes_back_as_it_was(response: ChatCompletionResponse) -> None:
    assert parse(write_reply(response)) == response
    assert collect(list(reply_events(response))) == response


@given(st.data(), vocabulary.responses() | vocabulary.ordered_responses(), st.integers(1, 5))
def test_a_stream_cut_anywhere_comes_back_as_it_was(
    data: st.DataObject, response: ChatCompletionResponse, pieces: int
) -> None:
    arguments = {
        call.call_id: call.arguments_json if call.arguments_json != "{}" else ""
        for call in response.completion_message.tool_calls
    }
    events = sdk.stream_events(write_reply(response), pieces=pieces, arguments=arguments)
    decoder, parser, collector = JSONEvents("vendor"), StreamParser(), Collector()
    for piece in data.draw(vocabulary.cuts(sdk.stream_bytes(events))):
        for value in decoder.feed(piece):
            for event in parser.push(value):
                collector.add(event)
    assert [*decoder.flush(), *parser.finish()] == []
    assert collector.chat_completion() == response


def test_a_whole_message_in_place_of_a_stream_is_all_of_it() -> None:
    content = [{"type": "text", "text": "Hi"}]
    message = {"type": "message", "content": content, "stop_reason": "end_turn", "usage": {}}
    parser, collector = StreamParser(), Collector()
    for event in (*parser.push(message), *parser.finish()):
        collector.add(event)
    assert collector.chat_completion().completion_message.content == "Hi"


STOP_REASONS: dict[types.StopReason, StopReason] = {
    "end_turn": StopReason.end_of_turn,
    "stop_sequence": StopReason.end_of_turn,
    "pause_turn": StopReason.end_of_turn,
    "tool_use": StopReason.end_of_message,
    "max_tokens": StopReason.out_of_tokens,
    "model_context_window_exceeded": StopReason.out_of_tokens,
    "refusal": StopReason.content_filter,
}


@pytest.mark.parametrize("reason", types.StopReason.__args__)  # type: ignore[attr-defined]
def test_every_stop_reason(reason: types.StopReason) -> None:
    whole = sdk.message([sdk.text("Hi")], reason)
    assert parse(whole).completion_message.stop_reason is STOP_REASONS[reason]
    assert collect(parse_events(sdk.stream_events(whole))) == parse(whole)


def test_counts_that_are_not_told() -> None:
    usage = types.Usage(input_tokens=3, output_tokens=4)
    whole = sdk.message([sdk.text("Hi")], usage=usage)
    assert parse(whole).usage == Usage(3, 4)
    assert collect(parse_events(sdk.stream_events(whole))).usage == Usage(3, 4)


def test_a_refusal_says_why() -> None:
    why = types.RefusalStopDetails(type="refusal", explanation="Not that.")
    whole = sdk.message([], "refusal", stop_details=why)
    assert parse(whole).completion_message.refusal == "Not that."
    assert collect(parse_events(sdk.stream_events(whole))) == parse(whole)


def test_what_is_not_known_is_passed_over() -> None:
    blocks = [
        types.ServerToolUseBlock(type="server_tool_use", id="1", name="code_execution", input={}),
        sdk.text("Hi"),
    ]
    whole = sdk.message(blocks)
    events = sdk.stream_events(whole)
    events.insert(2, {"type": "something_new", "index": 0})
    assert parse(whole).completion_message == CompletionMessage.of(
        "Hi", stop_reason=StopReason.end_of_turn
    )
    assert collect(parse_events(events)) == parse(whole)


def test_blocks_of_one_kind_stay_apart_and_in_order() -> None:
    redacted = types.RedactedThinkingBlock(type="redacted_thinking", data="b3Bhcw==")
    thoughts = [
        types.ThinkingBlock(type="thinking", thinking="", signature="YQ=="),
        types.ThinkingBlock(type="thinking", thinking="Hm", signature="Yg=="),
    ]
    call = sdk.tool_use("1", "f", {"a": 1})
    whole = sdk.message(
        [thoughts[0], redacted, thoughts[1], sdk.text("One"), sdk.text("Two"), call, thoughts[1]],
        "tool_use",
    )
    sealed = ReasoningContent("Hm", "Yg==", "anthropic")
    assert parse(whole).completion_message.parts == (
        ReasoningContent("", "YQ==", "anthropic"),
        ReasoningContent("", "b3Bhcw==", "anthropic", redacted=True),
        sealed,
        TextContent("One"),
        TextContent("Two"),
        ToolCall("1", "f", {"a": 1}, '{"a":1}'),
        sealed,
    )
    streamed = collect(parse_events(sdk.stream_events(whole, arguments={"1": '{"a":1}'})))
    assert streamed == parse(whole)


def test_the_stop_string_that_matched_is_told() -> None:
    whole = sdk.message([sdk.text("Hi")], "stop_sequence", stop_sequence="END")
    assert parse(whole).completion_message.stop_string == "END"
    assert collect(parse_events(sdk.stream_events(whole))) == parse(whole)


def test_a_count_of_tokens() -> None:
    assert anthropic_messages.parse_token_reply({"input_tokens": 5}) == 5
    for nonsense in ({}, {"input_tokens": "5"}, {"input_tokens": True}, {"input_tokens": -1}):
        with pytest.raises(ValueError, match="no 'input_tokens'"):
            anthropic_messages.parse_token_reply(nonsense)


def calls_of(events: Sequence[StreamEvent]) -> list[ToolCallDelta]:
    return [
        event.delta
        for event in events
        if isinstance(event, StreamProgress) and isinstance(event.delta, ToolCallDelta)
    ]


def test_a_call_comes_piece_by_piece() -> None:
    whole = sdk.message([sdk.tool_use("1", "f", {"a": 1})], "tool_use")
    events = sdk.stream_events(whole, pieces=2, arguments={"1": '{"a": 1}'})
    started, one, two, ended = calls_of(parse_events(events))
    status = ToolCallParseStatus
    assert (started.parse_status, started.call_id, started.tool_name) == (status.started, "1", "f")
    assert (one.arguments, two.arguments) == ('{"a"', ": 1}")
    assert ended.parse_status is status.succeeded
    assert ended.tool_call == ToolCall("1", "f", {"a": 1}, '{"a": 1}')


@pytest.mark.parametrize("arguments", ["", '{"a": "b'])
def test_a_call_in_which_the_tokens_run_out_fails(arguments: str) -> None:
    done, cut = sdk.tool_use("1", "f", {}), sdk.tool_use("2", "f", {})
    whole = sdk.message([done, cut], "max_tokens")
    reply = collect(parse_events(sdk.stream_events(whole, arguments={"2": arguments})))
    assert reply.completion_message.tool_calls == (
        ToolCall("1", "f", {}, "{}"),
        UnparseableToolCall("2", "f", arguments),
    )
    assert parse(whole).completion_message.tool_calls[1] == UnparseableToolCall("2", "f", "")


def test_calls_may_interleave() -> None:
    blocks = [sdk.tool_use("1", "f", {"a": 1}), sdk.tool_use("2", "g", {"b": 2})]
    whole = sdk.message(blocks, "tool_use")
    events = sdk.stream_events(whole)
    begin = next(at for at, event in enumerate(events) if event.get("index") == 1)
    first, second = events[2:begin], events[begin:-2]
    mixed = [event for pair in zip(first, second, strict=True) for event in pair]
    assert collect(parse_events([*events[:2], *mixed, *events[-2:]])) == collect(
        parse_events(events)
    )


def test_arguments_may_all_come_where_the_call_begins() -> None:
    whole = sdk.message([sdk.tool_use("1", "f", {"a": 1})], "tool_use")
    events = sdk.stream_events(whole, arguments={"1": ""})
    for event in events:
        if event["type"] == "content_block_start":
            event["content_block"]["input"] = {"a": 1}
    assert collect(parse_events(events)) == parse(whole)


def test_a_character_cut_in_two_is_one() -> None:
    events = sdk.stream_events(sdk.message([sdk.text("ab")]), pieces=2)
    halves = iter("\ud83c\udf1e")
    for event in events:
        if event["type"] == "content_block_delta":
            event["delta"]["text"] = next(halves)
    assert collect(parse_events(events)).completion_message.content == "🌞"


WHOLE = sdk.message([sdk.text("Hi"), sdk.tool_use("1", "f", {"a": 1})], "tool_use")


@pytest.mark.parametrize("length", range(len(sdk.stream_events(WHOLE))))
def test_a_stream_that_breaks_off_is_no_reply(length: int) -> None:
    parser = StreamParser()
    events = [each for event in sdk.stream_events(WHOLE)[:length] for each in parser.push(event)]
    begun = any(delta.parse_status is ToolCallParseStatus.started for delta in calls_of(events))
    ending = parser.finish()
    late: list[StreamEvent] = []
    with pytest.raises(ValueError, match="broke off"):  # noqa: PT012
        for event in ending:
            late.append(event)
    ended = [delta for delta in calls_of([*events, *late]) if delta.tool_call is not None]
    assert len(ended) == begun


def test_the_end_of_a_message_that_never_began_is_no_reply() -> None:
    with pytest.raises(ValueError, match="no message_start"):
        StreamParser().push({"type": "message_stop"})


@pytest.mark.parametrize(
    "event",
    [
        {},
        {"type": "message_start"},
        {"type": "content_block_start", "index": 0},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": 5}},
        {"type": "message_delta", "delta": None},
    ],
)
def test_nonsense_in_a_stream_is_said_to_be_nonsense(event: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="not one of a message"):
        StreamParser().push(event)


@pytest.mark.parametrize(
    "body",
    [{}, {"content": None}, {"content": [{}]}, {"content": [{"type": "text"}]}, {"content": 5}],
)
def test_nonsense_is_said_to_be_nonsense(body: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="not a message"):
        anthropic_messages.parse_reply(body)


def test_models() -> None:
    assert anthropic_messages.parse_models({"data": [{"id": "claude"}]}) == ["claude"]
    odd = [{"id": "a"}, {"id": 5}, {"id": ""}, {"id": "b\n"}, {"id": None}, {"id": "a"}]
    assert anthropic_messages.parse_models({"data": odd}) == ["a"]
    with pytest.raises(ValueError, match="no list"):
        anthropic_messages.parse_models({"data": [{}]})


def test_what_the_caller_set_is_sent_even_if_it_is_the_usual_default() -> None:
    body = rendered(UserMessage("Hi"), sampling=SamplingParams(stated=frozenset({"temperature"})))
    assert body["temperature"] == 1.0
    assert "top_p" not in body
