"""Ollama's dialect: what is sent, what comes back, and that nothing is lost on the way."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_compat.dialects import ollama
from llama_compat.dialects.openai.parameters import parse_sampling
from llama_compat.errors import APIError
from llama_compat.events import Collector
from llama_compat.types import (
    ChatCompletionRequest,
    ChatCompletionResponse,
    CompletionMessage,
    CompletionRequest,
    CompletionResponse,
    Content,
    EmbeddingRequest,
    EmbeddingResponse,
    GreedySamplingStrategy,
    ImageContent,
    Message,
    ReasoningDelta,
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
from llama_compat.wire.json_lines import JSONLines

# --------------------------------------------------------------------------------------------------
# The other direction: what an Ollama server reads and writes
# --------------------------------------------------------------------------------------------------


def read_request(body: dict[str, Any]) -> ChatCompletionRequest:
    options = body.get("options", {})
    return ChatCompletionRequest(
        model=body["model"],
        messages=tuple(map(read_message, body["messages"])),
        sampling=read_options(options),
        tools=tuple(read_tool(tool) for tool in body.get("tools", ())),
        response_format=read_format(body.get("format")),
        reasoning_effort={False: "none", None: None}.get(body.get("think"), body.get("think")),
        logprobs=body.get("top_logprobs", 0) if body.get("logprobs") else None,
        stream=body["stream"],
    )


def read_message(message: dict[str, Any]) -> Message:
    content: Content = message["content"]
    if "images" in message:
        images = [ImageContent(f"data:image/png;base64,{data}") for data in message["images"]]
        content = (TextContent(message["content"]), *images)
    match message["role"]:
        case "system":
            return SystemMessage(content)
        case "user":
            return UserMessage(content)
        case "tool":
            return ToolResponseMessage(message["tool_call_id"], content)
    return CompletionMessage.of(
        content,
        tool_calls=tuple(map(read_call, message.get("tool_calls", ()))),
        reasoning=message.get("thinking"),
    )


def read_call(call: dict[str, Any]) -> ToolCall | UnparseableToolCall:
    name, arguments = call["function"]["name"], call["function"]["arguments"]
    if set(arguments) == {"INVALID_JSON"}:
        return UnparseableToolCall(call["id"], name, arguments["INVALID_JSON"])
    return ToolCall(call["id"], name, arguments, compact(arguments))


def read_tool(tool: dict[str, Any]) -> ToolDefinition:
    function = tool["function"]
    return ToolDefinition(function["name"], function.get("description"), function["parameters"])


def read_format(wanted: str | dict[str, Any] | None) -> ResponseFormat | None:
    if wanted is None:
        return None
    if wanted == "json":
        return ResponseFormat("json_object")
    assert isinstance(wanted, dict)
    return ResponseFormat("json_schema", schema=wanted)


def read_options(options: dict[str, Any]) -> SamplingParams:
    temperature, top_p = options.get("temperature", 1.0), options.get("top_p", 1.0)
    strategy: Any = TopPSamplingStrategy(temperature, top_p)
    if temperature == 0:
        strategy = GreedySamplingStrategy()
    elif "top_k" in options:
        strategy = TopKSamplingStrategy(options["top_k"], temperature, top_p)
    return SamplingParams(
        strategy=strategy,
        max_tokens=options.get("num_predict"),
        stop=tuple(options.get("stop", ())),
        seed=options.get("seed"),
        frequency_penalty=options.get("frequency_penalty", 0.0),
        presence_penalty=options.get("presence_penalty", 0.0),
        repetition_penalty=options.get("repeat_penalty", 1.0),
    )


def write_reply(response: ChatCompletionResponse, done: bool = True) -> dict[str, Any]:
    """A reply's one object, or with `done` false the same words as a part of a stream."""
    message = response.completion_message
    said: dict[str, Any] = {"role": "assistant", "content": message.content}
    if message.reasoning:
        said["thinking"] = message.reasoning
    if message.tool_calls:
        said["tool_calls"] = [write_call(call) for call in message.tool_calls]
    written: dict[str, Any] = {"model": "m", "message": said, "done": done}
    if response.logprobs:
        written["logprobs"] = [write_logprob(token) for token in response.logprobs]
    return written | (write_end(response) if done else {})


def write_end(response: ChatCompletionResponse) -> dict[str, Any]:
    cut = response.completion_message.stop_reason is StopReason.out_of_tokens
    return {
        "done_reason": "length" if cut else "stop",
        "total_duration": 1,
        "prompt_eval_count": response.usage.prompt_tokens,
        "eval_count": response.usage.completion_tokens,
    }


def write_call(call: Any) -> dict[str, Any]:
    assert isinstance(call, ToolCall)
    return {"id": call.call_id, "function": {"name": call.tool_name, "arguments": call.arguments}}


def write_logprob(token: TokenLogProbs) -> dict[str, Any]:
    return {**write_token(token.chosen), "top_logprobs": [write_token(each) for each in token.top]}


def write_token(token: TokenLogProb) -> dict[str, Any]:
    return {"token": token.token, "logprob": token.logprob, "bytes": list(token.token_bytes)}


def write_stream(response: ChatCompletionResponse, cuts: list[int]) -> list[dict[str, Any]]:
    """The same reply in pieces, as a server streams it."""
    message = response.completion_message
    thoughts = pieces(message.reasoning or "", cuts)
    words = pieces(str(message.content), cuts)
    parts = [
        *(CompletionMessage.of("", reasoning=piece) for piece in thoughts),
        *(CompletionMessage.of(piece) for piece in words),
        *(CompletionMessage.of(tool_calls=(call,)) for call in message.tool_calls),
    ]
    lines = [write_reply(ChatCompletionResponse(part), done=False) for part in parts]
    last = write_reply(ChatCompletionResponse(CompletionMessage.of()), done=False)
    if response.logprobs:
        last["logprobs"] = [write_logprob(token) for token in response.logprobs]
    return [*lines, {**last, "done": True, **write_end(response)}]


def pieces(text: str, cuts: list[int]) -> list[str]:
    ends = sorted({cut % (len(text) + 1) for cut in cuts})
    return [text[a:b] for a, b in zip([0, *ends], [*ends, len(text)], strict=True) if text[a:b]]


def compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


# --------------------------------------------------------------------------------------------------
# Anything that can be said
# --------------------------------------------------------------------------------------------------

text = st.text(max_size=20)
names = st.from_regex(r"[a-z_]{1,8}", fullmatch=True)
json_objects = st.dictionaries(
    text, st.none() | st.booleans() | st.integers(-(2**50), 2**50) | text, max_size=3
)
schemas = st.fixed_dictionaries({"type": st.just("object"), "properties": json_objects})
images = st.builds(
    lambda data: ImageContent(f"data:image/png;base64,{data.hex()}"), st.binary(min_size=1)
)
contents = text | st.builds(
    lambda said, shown: (TextContent(said), *shown), text, st.lists(images, min_size=1, max_size=2)
)
call_ids = st.uuids().map(lambda one: f"call_{one.hex}")
calls = st.builds(
    lambda call_id, name, arguments: ToolCall(call_id, name, arguments, compact(arguments)),
    call_ids,
    names,
    json_objects,
)
broken_calls = st.builds(UnparseableToolCall, call_ids, names, text)
messages = st.one_of(
    st.builds(SystemMessage, text),
    st.builds(UserMessage, contents),
    st.builds(ToolResponseMessage, call_ids, text),
    st.builds(
        CompletionMessage.of,
        text,
        tool_calls=st.lists(calls | broken_calls, max_size=2).map(tuple),
        reasoning=st.none() | st.text(min_size=1, max_size=20),
    ),
)
temperatures = st.floats(0.01, 2)
strategies = st.one_of(
    st.builds(GreedySamplingStrategy),
    st.builds(TopPSamplingStrategy, temperatures, st.floats(0.01, 1)),
    st.builds(TopKSamplingStrategy, st.integers(1, 100), temperatures, st.floats(0.01, 1)),
)
samplings = st.builds(
    SamplingParams,
    strategy=strategies,
    max_tokens=st.none() | st.integers(1, 9999),
    stop=st.lists(st.text(min_size=1, max_size=5), max_size=4).map(tuple),
    seed=st.none() | st.integers(0, 2**31),
    frequency_penalty=st.floats(-2, 2),
    presence_penalty=st.floats(-2, 2),
    repetition_penalty=st.floats(0.1, 2),
)
formats = st.one_of(
    st.none(),
    st.just(ResponseFormat("json_object")),
    st.builds(lambda schema: ResponseFormat("json_schema", schema=schema), schemas),
)
requests = st.builds(
    ChatCompletionRequest,
    model=names,
    messages=st.lists(messages, min_size=1, max_size=4).map(tuple),
    sampling=samplings,
    tools=st.lists(st.builds(ToolDefinition, names, st.none() | text, schemas), max_size=2).map(
        tuple
    ),
    response_format=formats,
    reasoning_effort=st.sampled_from([None, "none", "low", "medium", "high"]),
    logprobs=st.sampled_from([None, 0, 1, 20]),
    stream=st.booleans(),
)

tokens = st.builds(TokenLogProb, text, st.binary(max_size=4), st.floats(-50, 0))
logprobs = st.none() | st.lists(
    st.builds(TokenLogProbs, tokens, st.lists(tokens, max_size=2).map(tuple)),
    min_size=1,
    max_size=3,
).map(tuple)
stop_reasons = st.sampled_from([StopReason.end_of_turn, StopReason.out_of_tokens])


@st.composite
def responses(draw: st.DrawFn) -> ChatCompletionResponse:
    called = tuple(draw(st.lists(calls, max_size=3, unique_by=lambda call: call.call_id)))
    reason = draw(stop_reasons)
    if called and reason is StopReason.end_of_turn:
        reason = StopReason.end_of_message
    return ChatCompletionResponse(
        CompletionMessage.of(
            draw(text),
            tool_calls=called,
            reasoning=draw(st.none() | st.text(min_size=1)),
            stop_reason=reason,
        ),
        logprobs=draw(logprobs),
        usage=Usage(draw(st.integers(0, 9999)), draw(st.integers(0, 9999))),
    )


def collect(lines: Iterable[dict[str, Any]]) -> Collector:
    parser, collector = ollama.StreamParser(), Collector()
    for line in lines:
        for event in parser.push(line):
            collector.add(event)
    assert parser.finish() == []
    return collector


def parse_stream(lines: Iterable[dict[str, Any]]) -> ChatCompletionResponse:
    return collect(lines).chat_completion()


# --------------------------------------------------------------------------------------------------
# Round trips
# --------------------------------------------------------------------------------------------------


@given(requests)
def test_a_request_survives_the_round_trip(request: ChatCompletionRequest) -> None:
    body = json.loads(json.dumps(ollama.render_request(request)))
    assert read_request(body) == request


@given(responses())
def test_a_reply_survives_the_round_trip(response: ChatCompletionResponse) -> None:
    assert parse_stream([write_reply(response)]) == response


@given(responses(), st.lists(st.integers(0, 999), max_size=4), st.lists(st.integers(0, 9999)))
def test_a_stream_in_any_pieces_gives_the_reply(
    response: ChatCompletionResponse, cuts: list[int], byte_cuts: list[int]
) -> None:
    data = b"".join(json.dumps(line).encode() + b"\n" for line in write_stream(response, cuts))
    ends = sorted({cut % (len(data) + 1) for cut in byte_cuts})
    decoder = JSONLines()
    lines = [
        line
        for a, b in zip([0, *ends], [*ends, len(data)], strict=True)
        for line in decoder.feed(data[a:b])
    ]
    assert parse_stream(lines) == response == parse_stream([write_reply(response)])


@given(st.text(), stop_reasons, logprobs)
def test_a_text_completion_survives_the_round_trip(
    said: str, reason: StopReason, logprobs: tuple[TokenLogProbs, ...] | None
) -> None:
    reply: dict[str, Any] = {
        "model": "m",
        "response": said,
        "done": True,
        "done_reason": "length" if reason is StopReason.out_of_tokens else "stop",
        "prompt_eval_count": 3,
        "eval_count": 4,
    }
    if logprobs is not None:
        reply["logprobs"] = [write_logprob(token) for token in logprobs]
    expected = CompletionResponse(said, reason, logprobs, Usage(3, 4))
    assert collect([reply]).completion() == expected


@pytest.mark.parametrize(
    ("told", "counted"), [("3", 3), (3.0, 3), (-3, 0), ([3], 0), (True, 0), (None, 0), (1 << 70, 0)]
)
def test_a_reply_is_not_lost_to_its_usage(told: Any, counted: int) -> None:
    reply = {"response": "Hi", "done": True, "prompt_eval_count": told, "eval_count": told}
    assert collect([reply]).completion().usage == Usage(counted, counted)
    vectors = {"embeddings": [[1.0]], "prompt_eval_count": told}
    assert ollama.parse_embeddings(vectors).prompt_tokens == counted


# --------------------------------------------------------------------------------------------------
# Requests
# --------------------------------------------------------------------------------------------------


def chat(*messages: Message, **members: Any) -> ChatCompletionRequest:
    return ChatCompletionRequest("llama3", messages or (UserMessage("Hi"),), **members)


def test_nothing_is_sent_that_was_not_asked_for() -> None:
    assert ollama.render_request(chat(stream=False)) == {
        "model": "llama3",
        "messages": [{"role": "user", "content": "Hi"}],
        "stream": False,
        "truncate": False,
        "shift": False,
    }


def test_a_temperature_of_1_is_sent_if_it_was_asked_for() -> None:
    """Ollama's own default is 0.8."""
    asked, unasked = parse_sampling({"temperature": 1, "top_p": 1.0}), parse_sampling({})
    assert ollama.render_request(chat(sampling=asked))["options"] == {
        "temperature": 1.0,
        "top_p": 1.0,
    }
    assert "options" not in ollama.render_request(chat(sampling=unasked))


def test_the_context_length_is_what_the_model_is_loaded_with() -> None:
    body = ollama.render_request(chat(), context_length=4096)
    assert body["options"] == {"num_ctx": 4096}


def test_a_text_prompt_goes_past_the_chat_template() -> None:
    request = CompletionRequest("llama3", "Once", SamplingParams(max_tokens=16), logprobs=2)
    assert ollama.render_request(request) == {
        "model": "llama3",
        "prompt": "Once",
        "raw": True,
        "think": False,
        "stream": True,
        "truncate": False,
        "shift": False,
        "options": {"num_predict": 16},
        "logprobs": True,
        "top_logprobs": 2,
    }


@pytest.mark.parametrize("prompt", [(1, 2, 3), ""])
def test_a_prompt_that_ollama_would_take_for_something_else_is_refused(prompt: Any) -> None:
    with pytest.raises(APIError) as refused:
        ollama.render_request(CompletionRequest("llama3", prompt))
    assert (refused.value.status, refused.value.param) == (400, "prompt")


def test_a_tool_s_answer_names_the_tool_that_was_called() -> None:
    call = ToolCall("call_1", "get_weather", {"city": "Paris"}, '{"city":"Paris"}')
    rendered = ollama.render_messages(
        [CompletionMessage.of(tool_calls=(call,)), ToolResponseMessage("call_1", "22 degrees")]
    )
    assert rendered[0]["tool_calls"] == [
        {"id": "call_1", "function": {"name": "get_weather", "arguments": {"city": "Paris"}}}
    ]
    assert rendered[1] == {
        "role": "tool",
        "content": "22 degrees",
        "tool_name": "get_weather",
        "tool_call_id": "call_1",
    }


def test_developer_is_system_to_ollama() -> None:
    (rendered,) = ollama.render_messages([SystemMessage("Be brief.", role="developer")])
    assert rendered == {"role": "system", "content": "Be brief."}


def test_tools_that_must_not_be_called_are_not_sent() -> None:
    tools = (ToolDefinition("f"),)
    forbidden = ollama.render_request(chat(tools=tools, tool_choice=ToolChoice("none")))
    allowed = ollama.render_request(chat(tools=tools, tool_choice=ToolChoice("auto")))
    assert "tools" not in forbidden
    assert allowed["tools"] == [
        {
            "type": "function",
            "function": {"name": "f", "parameters": {"type": "object", "properties": {}}},
        }
    ]


def test_an_image_that_was_not_fetched_is_refused_by_its_message() -> None:
    shown = UserMessage((ImageContent("https://example.com/cat.png"),))
    with pytest.raises(APIError) as refused:
        ollama.render_request(chat(UserMessage("Look:"), shown))
    assert (refused.value.status, refused.value.param) == (400, "messages[1].content")


def test_an_unknown_reasoning_effort_is_refused() -> None:
    with pytest.raises(APIError, match="minimal") as refused:
        ollama.render_request(chat(reasoning_effort="a lot"))
    assert refused.value.param == "reasoning_effort"


# --------------------------------------------------------------------------------------------------
# Streams
# --------------------------------------------------------------------------------------------------


def said(**message: Any) -> dict[str, Any]:
    return {"model": "m", "message": {"role": "assistant", **message}, "done": False}


END = {"model": "m", "message": {"role": "assistant", "content": ""}, "done": True}


def events_of(*lines: dict[str, Any]) -> list[StreamEvent]:
    parser = ollama.StreamParser()
    return [event for line in lines for event in parser.push(line)]


def test_thinking_comes_as_reasoning_and_before_the_text() -> None:
    assert events_of(
        said(content="", thinking="Hm"), said(content="Hi"), {**END, "done_reason": "stop"}
    ) == [
        StreamStart(),
        StreamProgress(ReasoningDelta("Hm")),
        StreamProgress(TextDelta("Hi"), part=1),
        StreamComplete(StopReason.end_of_turn),
    ]


def test_calls_get_an_id_and_an_index_each_even_if_ollama_gives_none() -> None:
    call = {"function": {"index": 0, "name": "f", "arguments": {"x": 1}}}
    events = events_of(
        said(content="", tool_calls=[call, call]), said(content="", tool_calls=[call]), END
    )
    deltas = [e.delta for e in events if isinstance(e, StreamProgress)]
    started = [
        delta
        for delta in deltas
        if isinstance(delta, ToolCallDelta) and delta.parse_status is ToolCallParseStatus.started
    ]
    assert [delta.index for delta in started] == [0, 1, 2]
    assert len({delta.call_id for delta in started}) == 3
    whole = [d.tool_call for d in deltas if isinstance(d, ToolCallDelta) and d.tool_call]
    assert [call.arguments_json for call in whole] == ['{"x":1}'] * 3
    assert events[-1] == StreamComplete(StopReason.end_of_message)


def test_arguments_that_are_no_object_make_a_failed_call_that_keeps_them() -> None:
    call = {"id": "c", "function": {"name": "f", "arguments": [1]}}
    last = events_of(said(content="", tool_calls=[call]))[-1]
    assert isinstance(last, StreamProgress)
    assert last.delta == ToolCallDelta(
        0, ToolCallParseStatus.failed, tool_call=UnparseableToolCall("c", "f", "[1]")
    )


def test_a_reply_that_ran_out_of_tokens_says_so_even_with_a_call() -> None:
    call = {"id": "c", "function": {"name": "f", "arguments": {}}}
    events = events_of(said(content="", tool_calls=[call]), {**END, "done_reason": "length"})
    assert events[-1] == StreamComplete(StopReason.out_of_tokens)


def test_halves_of_a_character_are_joined() -> None:
    events = events_of(said(content="\ud83d"), said(content="\ude42"), said(content="\ud83d"), END)
    texts = [e.delta.text for e in events if isinstance(e, StreamProgress)]
    assert "".join(texts) == "🙂\N{REPLACEMENT CHARACTER}"


def test_what_follows_the_end_is_passed_over() -> None:
    parser = ollama.StreamParser()
    parser.push(END)
    assert parser.push(said(content="more")) == []


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"error": "model runner has unexpectedly stopped"}, "unexpectedly stopped"),
        ({"message": "text"}, "message"),
        ({"message": {"content": 5}}, "content"),
        ({**END, "done_reason": "load"}, "nothing was generated"),
        ({**END, "done_reason": "unload"}, "nothing was generated"),
    ],
)
def test_an_error_or_nonsense_in_the_stream_is_an_error(line: Any, message: str) -> None:
    parser = ollama.StreamParser()
    parser.push(said(content="Hi"))
    with pytest.raises(ValueError, match=message):
        parser.push(line)


def test_a_stream_without_its_end_broke_off() -> None:
    parser = ollama.StreamParser()
    parser.push(said(content="Hi"))
    with pytest.raises(ValueError, match="broke off"):
        parser.finish()


def test_a_whole_reply_that_is_not_done_is_an_error() -> None:
    with pytest.raises(ValueError, match="broke off"):
        parse_stream([said(content="Hi")])


# --------------------------------------------------------------------------------------------------
# Embeddings and the list of models
# --------------------------------------------------------------------------------------------------


def test_embeddings() -> None:
    request = EmbeddingRequest("e", ("a", "b"), dimensions=2)
    assert ollama.render_embedding_request(request) == {
        "model": "e",
        "input": ["a", "b"],
        "truncate": False,
        "dimensions": 2,
    }
    reply = {"model": "e", "embeddings": [[1, 2.5], [3, 4]], "prompt_eval_count": 6}
    assert ollama.parse_embeddings(reply) == EmbeddingResponse(((1.0, 2.5), (3.0, 4.0)), 6)
    with pytest.raises(ValueError, match="embeddings"):
        ollama.parse_embeddings({"embedding": [1]})


def test_tags() -> None:
    assert ollama.parse_models({"models": [{"name": "a:latest", "size": 1}]}) == ["a:latest"]
    with pytest.raises(ValueError, match="models"):
        ollama.parse_models({"models": ["a"]})
