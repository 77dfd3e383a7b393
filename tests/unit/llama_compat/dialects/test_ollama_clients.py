"""Ollama's API as a way in: what its clients ask, and what they are answered."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import replace
from typing import Any

import ollama as sdk
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from llama_compat.dialects import ollama
from llama_compat.dialects.base import Asked, Labels, Operation
from llama_compat.dialects.ollama import models
from llama_compat.dialects.ollama.operations import (
    CHAT,
    EMBED,
    EMBEDDINGS,
    GENERATE,
    OLLAMA,
    RAW_GENERATE,
)
from llama_compat.errors import APIError, invalid_parameter, model_not_found
from llama_compat.events import Collector, reply_events
from llama_compat.types import (
    ChatCompletionRequest,
    ChatCompletionResponse,
    CompletionMessage,
    CompletionRequest,
    CompletionResponse,
    EmbeddingRequest,
    EmbeddingResponse,
    ImageContent,
    Message,
    ModelInfo,
    ResponseFormat,
    SamplingParams,
    StopReason,
    StreamComplete,
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
    ToolDefinition,
    ToolResponseMessage,
    TopPSamplingStrategy,
    UnparseableToolCall,
    Usage,
    UserMessage,
)
from llama_compat.wire.json_fields import parse_fields
from tests.unit import vocabulary
from tests.unit.vocabulary import names, texts

LABELS = Labels("public", "req_1")

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n and more").decode()


def parse(operation: Operation, **body: Any) -> Any:
    return operation.parse(body, "own")


def asked(operation: Operation, **body: Any) -> dict[str, str]:
    return dict(operation.parameters(body))


def look(operation: Operation, **body: Any) -> Asked:
    return operation.look(parse_fields(json.dumps(body).encode()), {})


# --------------------------------------------------------------------------------------------------
# Round trips: what this server asks Ollama is what Ollama's clients ask this server
# --------------------------------------------------------------------------------------------------

FIRST_BYTES = {
    "png": b"\x89PNG",
    "jpeg": b"\xff\xd8\xff",
    "gif": b"GIF8",
    "webp": b"RIFF\0\0\0\0WEBP",
    "bmp": b"BM",
}
images = st.builds(
    lambda kind, rest: ImageContent(
        f"data:image/{kind};base64,{base64.b64encode(FIRST_BYTES[kind] + rest).decode()}"
    ),
    st.sampled_from(sorted(FIRST_BYTES)),
    st.binary(max_size=30),
)
contents = texts | st.builds(
    lambda text, shown: (*shown, TextContent(text)), texts, st.lists(images, min_size=1, max_size=2)
)


@st.composite
def conversations(draw: st.DrawFn) -> tuple[Message, ...]:
    messages: list[Message] = [SystemMessage(text) for text in draw(st.lists(texts, max_size=1))]
    for _ in range(draw(st.integers(1, 3))):
        messages.append(UserMessage(draw(contents)))
        calls = draw(vocabulary.call_lists(unparseable=False))
        thoughts = draw(st.none() | texts)
        messages.append(CompletionMessage.of(draw(st.text(max_size=9)), calls, reasoning=thoughts))
        messages.extend(ToolResponseMessage(call.call_id, draw(contents)) for call in calls)
    return tuple(messages)


schemas = st.fixed_dictionaries(
    {"type": st.just("object"), "properties": st.dictionaries(names, st.just({"type": "string"}))}
)
requests = st.builds(
    ChatCompletionRequest,
    model=st.just("own"),
    messages=conversations(),
    sampling=vocabulary.samplings(max_temperature=2.0),
    tools=st.lists(st.builds(ToolDefinition, names, st.none() | texts, schemas), max_size=2).map(
        tuple
    ),
    response_format=st.sampled_from([None, ResponseFormat("json_object")])
    | st.builds(
        lambda schema: ResponseFormat("json_schema", "response", schema, path="format"), schemas
    ),
    reasoning_effort=st.sampled_from([None, "none", "low", "medium", "high", "xhigh"]),
    logprobs=st.sampled_from([None, 0, 20]),
    stream=st.booleans(),
)


@given(requests)
def test_a_chat_survives_the_round_trip(request: ChatCompletionRequest) -> None:
    body = json.loads(json.dumps(ollama.render_request(request)))
    assert CHAT.parse(body, "own").requests == [request]  # type: ignore[union-attr]


@given(texts, vocabulary.samplings(), st.sampled_from([None, 0, 3]), st.booleans())
def test_a_raw_prompt_survives_the_round_trip(
    prompt: str, sampling: SamplingParams, logprobs: int | None, stream: bool
) -> None:
    request = CompletionRequest("own", prompt, sampling, logprobs, stream=stream)
    body = json.loads(json.dumps(ollama.render_request(request)))
    asked = GENERATE.look(parse_fields(json.dumps({**body, "model": "own"}).encode()), {})
    assert asked.operation is RAW_GENERATE
    assert RAW_GENERATE.parse(body, "own").requests == [request]  # type: ignore[union-attr]


# --------------------------------------------------------------------------------------------------
# Replies, which the official client's types take, and whose lines fold to the whole
# --------------------------------------------------------------------------------------------------

tokens = st.builds(TokenLogProb, texts, st.binary(max_size=4), st.floats(-50, 0))
logprobs = st.none() | st.lists(
    st.builds(TokenLogProbs, tokens, st.lists(tokens, max_size=2).map(tuple)), min_size=1
).map(tuple)


@st.composite
def responses(draw: st.DrawFn) -> ChatCompletionResponse:
    response = draw(vocabulary.responses())
    usage = Usage(response.usage.prompt_tokens, response.usage.completion_tokens)
    return structs.replace(response, usage=usage, logprobs=draw(logprobs))


def collected(lines: bytes) -> Collector:
    parser, collector = ollama.StreamParser(), Collector()
    for line in lines.splitlines():
        for event in parser.push(json.loads(line)):
            collector.add(event)
    assert parser.finish() == []
    return collector


def streamed(operation: Operation, response: ChatCompletionResponse) -> bytes:
    body = {"messages": [{"role": "user", "content": "Hi"}], "prompt": "Hi"}
    renderer = operation.parse(body, "own").stream_renderer(LABELS)  # type: ignore[union-attr]
    lines = [renderer.render(0, event) for event in reply_events(response)]
    return b"".join([*lines, renderer.finish(response.usage)])


@given(responses())
def test_a_reply_is_what_was_said(response: ChatCompletionResponse) -> None:
    call = parse(CHAT, messages=[{"role": "user", "content": "Hi"}])
    whole = call.render_reply([response], response.usage, LABELS)
    assert b"\n" not in whole
    sdk.ChatResponse.model_validate_json(whole)
    assert collected(whole).chat_completion() == response


@given(responses())
def test_a_stream_folds_to_the_reply(response: ChatCompletionResponse) -> None:
    lines = streamed(CHAT, response)
    for line in lines.splitlines():
        parsed = sdk.ChatResponse.model_validate_json(line)
        assert (parsed.model, parsed.message.role) == ("public", "assistant")
    assert [json.loads(line)["done"] for line in lines.splitlines()][-1] is True
    assert collected(lines).chat_completion() == response


@given(st.text(), st.sampled_from(list(StopReason)), logprobs)
def test_a_raw_reply_is_what_was_said(
    said: str, reason: StopReason, logprobs: tuple[TokenLogProbs, ...] | None
) -> None:
    response = CompletionResponse(said, reason, logprobs, Usage(3, 4))
    whole = parse(RAW_GENERATE, prompt="x").render_reply([response], response.usage, LABELS)
    assert sdk.GenerateResponse.model_validate_json(whole).response == said
    if reason is StopReason.end_of_message:
        response = structs.replace(response, stop_reason=StopReason.end_of_turn)
    assert collected(whole).completion() == response


def test_a_generated_reply_has_its_thinking_beside_it() -> None:
    message = CompletionMessage.of("Hi", reasoning="Hm", stop_reason=StopReason.end_of_turn)
    response = ChatCompletionResponse(message)
    whole = json.loads(parse(GENERATE, prompt="x").render_reply([response], Usage(), LABELS))
    assert (whole["response"], whole["thinking"]) == ("Hi", "Hm")
    assert "message" not in whole
    first, second, last = (json.loads(line) for line in streamed(GENERATE, response).splitlines())
    assert (first["response"], first["thinking"], first["done"]) == ("", "Hm", False)
    assert (second["response"], "thinking" in second) == ("Hi", False)
    assert (last["response"], last["done"], last["done_reason"]) == ("", True, "stop")


def test_the_durations_are_there_and_none_is_zero_by_which_clients_divide() -> None:
    response = ChatCompletionResponse(CompletionMessage.of("Hi"), usage=Usage(2, 1))
    for reply in (
        streamed(CHAT, response).splitlines()[-1],
        parse(GENERATE, prompt="x").render_reply([response], response.usage, LABELS),
    ):
        last = json.loads(reply)
        assert (last["prompt_eval_count"], last["eval_count"]) == (2, 1)
        assert last["prompt_eval_duration"] >= 1
        assert last["eval_duration"] >= 1
        apart = last["prompt_eval_duration"] + last["eval_duration"]
        assert last["load_duration"] == 0
        assert abs(last["total_duration"] - apart) <= 2


def test_the_time_in_which_a_model_came_into_memory_is_told_apart() -> None:
    response = ChatCompletionResponse(CompletionMessage.of("Hi"), usage=Usage(2, 1))
    labels = replace(LABELS, loading=2.5)
    last = json.loads(parse(GENERATE, prompt="x").render_reply([response], response.usage, labels))
    apart = last["prompt_eval_duration"] + last["eval_duration"]
    assert last["load_duration"] == 2_500_000_000
    assert abs(last["total_duration"] - 2_500_000_000 - apart) <= 2
    embedded = EmbeddingResponse(((1.0,),), 1)
    told = json.loads(parse(EMBED, input="x").render_reply(embedded, labels))
    assert told["total_duration"] > told["load_duration"] == 2_500_000_000


def test_a_call_goes_out_once_and_whole() -> None:
    renderer = parse(CHAT, messages=[{"role": "user", "content": "Hi"}]).stream_renderer(LABELS)
    call = ToolCall("c", "f", {"x": 1}, '{"x": 1}')

    deltas = [
        ToolCallDelta(0, ToolCallParseStatus.started, "c", "f"),
        ToolCallDelta(0, ToolCallParseStatus.in_progress, arguments='{"x": 1}'),
        ToolCallDelta(0, ToolCallParseStatus.succeeded, tool_call=call),
    ]
    begun, more, whole = (renderer.render(0, StreamProgress(delta)) for delta in deltas)
    assert (begun, more) == (b"", b"")
    assert json.loads(whole)["message"]["tool_calls"] == [
        {"id": "c", "function": {"index": 0, "name": "f", "arguments": {"x": 1}}}
    ]


def test_arguments_that_are_no_object_are_kept() -> None:
    message = CompletionMessage((UnparseableToolCall("c", "f", "[1]"),))
    call = parse(CHAT, messages=[{"role": "user", "content": "Hi"}])
    reply = json.loads(call.render_reply([ChatCompletionResponse(message)], Usage(), LABELS))
    (made,) = reply["message"]["tool_calls"]
    assert made["function"]["arguments"] == {"INVALID_JSON": "[1]"}


def test_a_refusal_is_said_as_text() -> None:
    refused = CompletionMessage.of(refusal="No.", stop_reason=StopReason.content_filter)
    response = ChatCompletionResponse(refused)
    call = parse(CHAT, messages=[{"role": "user", "content": "Hi"}])
    reply = json.loads(call.render_reply([response], Usage(), LABELS))
    assert (reply["message"]["content"], reply["done_reason"]) == ("No.", "content_filter")
    lines = [json.loads(line) for line in streamed(CHAT, response).splitlines()]
    assert [line["message"]["content"] for line in lines] == ["No.", ""]


def test_only_words_and_probabilities_make_lines() -> None:
    renderer = parse(CHAT, messages=[{"role": "user", "content": "Hi"}]).stream_renderer(LABELS)

    token = TokenLogProbs(TokenLogProb("x", b"x", -1.0))
    assert renderer.render(0, StreamStart(3)) == b""
    assert renderer.render(0, StreamProgress(TextDelta(""))) == b""
    assert renderer.render(0, StreamComplete(StopReason.end_of_turn)) == b""
    line = json.loads(renderer.render(0, StreamProgress(TextDelta(""), (token,))))
    assert line["logprobs"] == [{"token": "x", "logprob": -1.0, "bytes": [120], "top_logprobs": []}]


# --------------------------------------------------------------------------------------------------
# Requests
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "stream", "max_tokens"),
    [
        ({}, True, None),
        ({"stream": None}, True, None),
        ({"stream": False}, False, None),
        ({"options": {"num_predict": 7}}, True, 7),
        ({"options": {"num_predict": -1}}, True, None),
        ({"options": None}, True, None),
    ],
)
def test_the_look(body: dict[str, Any], stream: bool, max_tokens: int | None) -> None:
    asked = look(CHAT, model="m", **body)
    assert (asked.model, asked.stream, asked.extent.max_tokens) == ("m", stream, max_tokens)
    asked = look(EMBED, model="m", **body)
    assert (asked.model, asked.stream, asked.extent.made) == ("m", False, 0)
    assert asked.other_names == ("m:latest",)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "model"),
        ({"model": None}, "model"),
        ({"model": ""}, "model"),
        ({"model": 5}, "model"),
        ({"model": "m", "stream": "yes"}, "stream"),
    ],
)
def test_the_look_refuses(body: dict[str, Any], param: str) -> None:
    with pytest.raises(APIError) as refused:
        look(CHAT, **body)
    assert (refused.value.status, refused.value.param) == (400, param)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"model": "m", "messages": [], "stream": False, "keep_alive": "5m"}, {}),
        ({"truncate": True, "shift": True, "raw": False, "system": "s", "images": ["x"]}, {}),
        ({"think": False, "format": "", "tools": [], "logprobs": False, "suffix": ""}, {}),
        ({"template": None, "context": []}, {}),
        ({"think": True}, {"think": "reasoning_effort"}),
        ({"think": "low"}, {"think": "reasoning_effort"}),
        ({"format": "json"}, {"format": "response_format"}),
        ({"format": {"type": "object"}}, {"format": "response_format"}),
        ({"tools": [{}]}, {"tools": "tools"}),
        (
            {"logprobs": True, "top_logprobs": 2},
            {"logprobs": "logprobs", "top_logprobs": "top_logprobs"},
        ),
        ({"top_logprobs": 2}, {}),
        ({"suffix": "}"}, {"suffix": "suffix"}),
        ({"context": [1]}, {"context": "context"}),
        ({"novelty": 1}, {"novelty": "novelty"}),
        ({"options": None}, {}),
        ({"options": {"num_ctx": 4096, "num_gpu": 1, "numa": True, "num_keep": 4}}, {}),
        (
            {"options": {"temperature": 1, "num_predict": 5, "repeat_penalty": 1.2, "min_p": 0.1}},
            {
                "options.temperature": "temperature",
                "options.num_predict": "max_tokens",
                "options.repeat_penalty": "repetition_penalty",
                "options.min_p": "min_p",
            },
        ),
        (
            {"options": {"num_predict": -1, "top_k": 0, "seed": -1, "stop": [], "min_p": 0.0}},
            {},
        ),
        ({"options": {"typical_p": 1.0, "tfs_z": 1, "mirostat": 0, "mirostat_tau": 5.0}}, {}),
        (
            {"options": {"mirostat": 1, "mirostat_tau": 5.0}},
            {"options.mirostat": "mirostat", "options.mirostat_tau": "mirostat_tau"},
        ),
        ({"options": {"repeat_last_n": 64, "repeat_penalty": 1.0}}, {}),
        (
            {"options": {"repeat_last_n": 64, "repeat_penalty": 1.1}},
            {
                "options.repeat_last_n": "repeat_last_n",
                "options.repeat_penalty": "repetition_penalty",
            },
        ),
        ({"options": {"typical_p": 0.5}}, {"options.typical_p": "typical_p"}),
        ({"options": {"novelty": 0.5}}, {"options.novelty": "novelty"}),
    ],
)
def test_what_is_asked_of_the_provider(body: dict[str, Any], expected: dict[str, str]) -> None:
    assert asked(CHAT, **body) == expected


def test_a_raw_prompt_has_nothing_that_only_chats_have() -> None:
    body = {"prompt": "Hi", "format": "json", "think": True, "images": [PNG], "logprobs": True}
    expected = {name: name for name in ("format", "think", "images", "logprobs")}
    assert asked(RAW_GENERATE, **body) == expected
    assert asked(RAW_GENERATE, prompt="Hi", format="", think=False, images=[]) == {}


def test_what_is_asked_of_one_that_embeds() -> None:
    body = {"model": "m", "input": "a", "truncate": False, "options": {"num_ctx": 4}}
    assert asked(EMBED, **body, dimensions=3) == {"dimensions": "dimensions"}
    assert asked(EMBEDDINGS, **body, prompt="a") == {}


def test_options_mean_what_they_mean_to_ollama() -> None:
    options = {
        "temperature": 0.5,
        "top_p": 0.9,
        "seed": 7.0,
        "num_predict": 40.0,
        "stop": "END",
        "repeat_penalty": 1.0,
        "presence_penalty": 0.5,
        "num_ctx": 4096,
    }
    request = parse(CHAT, messages=[{"role": "user", "content": "Hi"}], options=options).request
    assert request.sampling == SamplingParams(
        strategy=TopPSamplingStrategy(0.5, 0.9),
        max_tokens=40,
        stop=("END",),
        seed=7,
        presence_penalty=0.5,
        stated=frozenset({"repetition_penalty"}),
    )
    for nothing in ({"num_predict": -2}, {"num_predict": 0}, {"seed": -1}, {"top_k": 0}, {}, None):
        body = {"messages": [{"role": "user", "content": "Hi"}], "options": nothing}
        assert CHAT.parse(body, "own").request.sampling == SamplingParams()  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"messages": "Hi"}, "messages"),
        ({"messages": [5]}, "messages[0]"),
        ({"messages": [{"content": "Hi"}]}, "messages[0].role"),
        ({"messages": [{"role": "wizard"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "images": "x"}]}, "messages[0].images"),
        ({"messages": [{"role": "user", "images": ["dGV4dA=="]}]}, "messages[0].images[0]"),
        ({"messages": [{"role": "user", "images": ["é"]}]}, "messages[0].images[0]"),
        ({"messages": [{"role": "user", "images": [5]}]}, "messages[0].images[0]"),
        ({"messages": [{"role": "assistant", "tool_calls": {}}]}, "messages[0].tool_calls"),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"function": {}}]}]},
            "messages[0].tool_calls[0].function.name",
        ),
        ({"format": "yaml"}, "format"),
        ({"think": "a lot"}, "think"),
        ({"think": 1}, "think"),
        ({"options": []}, "options"),
        ({"options": {"temperature": 3}}, "options.temperature"),
        ({"options": {"num_predict": "7"}}, "options.num_predict"),
        ({"options": {"stop": [""]}}, "options.stop"),
        ({"options": {"stop": ["x"] * 65}}, "options.stop"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"tools": [{"function": {}}]}, "tools[0].function.name"),
    ],
)
def test_what_is_malformed_is_named(body: dict[str, Any], param: str) -> None:
    with pytest.raises(APIError) as refused:
        CHAT.parse({"messages": [{"role": "user", "content": "Hi"}], **body}, "own")
    assert (refused.value.status, refused.value.param) == (400, param)


def test_roles_in_any_case_and_tools_without_a_type() -> None:
    request = parse(
        CHAT,
        messages=[{"role": "User", "content": "Hi"}, {"role": "ASSISTANT", "content": "Yo"}],
        tools=[{"function": {"name": "f"}}],
    ).request
    assert request.messages == (UserMessage("Hi"), CompletionMessage.of("Yo"))
    assert request.tools == (ToolDefinition("f"),)


def test_answers_find_their_calls_by_id_by_tool_or_in_turn() -> None:
    def called(*names: str) -> dict[str, Any]:
        calls = [{"function": {"name": name, "arguments": {}}} for name in names]
        return {"role": "assistant", "content": "", "tool_calls": calls}

    request = parse(
        CHAT,
        messages=[
            called("f", "g", "f"),
            {"role": "tool", "content": "1", "tool_name": "g"},
            {"role": "tool", "content": "2", "tool_name": "f"},
            {"role": "tool", "content": "3"},
            {"role": "tool", "content": "4", "tool_name": "h"},
            {"role": "tool", "content": "5", "tool_call_id": "mine", "tool_name": "f"},
        ],
    ).request
    first, second, third = (call.call_id for call in request.messages[0].tool_calls)
    answers = {message.content: message.call_id for message in request.messages[1:]}
    assert len({first, second, third}) == 3
    assert (answers["1"], answers["2"], answers["3"]) == (second, first, third)
    assert answers["4"] not in (first, second, third)
    assert answers["5"] == "mine"


def test_a_prompt_with_a_system_message_and_images_is_a_chat() -> None:
    request = parse(GENERATE, prompt="Look:", system="Be brief.", images=[PNG]).request
    image = ImageContent(f"data:image/png;base64,{PNG}")
    assert request.messages == (
        SystemMessage("Be brief."),
        UserMessage((image, TextContent("Look:"))),
    )
    assert parse(GENERATE, prompt="", images=[PNG]).request.messages == (UserMessage((image,)),)


@pytest.mark.parametrize("name", ["system", "template", "context"])
def test_a_raw_prompt_stands_alone(name: str) -> None:
    with pytest.raises(APIError) as refused:
        parse(RAW_GENERATE, prompt="Hi", raw=True, **{name: "x"})
    assert (refused.value.status, refused.value.param) == (400, name)


# --------------------------------------------------------------------------------------------------
# Requests for nothing
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operation", "body", "said"),
    [
        (CHAT, {}, {"message": {"role": "assistant", "content": ""}, "done_reason": "load"}),
        (CHAT, {"messages": []}, {"done_reason": "load"}),
        (CHAT, {"messages": [], "keep_alive": 0}, {"done_reason": "unload"}),
        (CHAT, {"messages": [], "keep_alive": "0s"}, {"done_reason": "unload"}),
        (CHAT, {"messages": [], "keep_alive": "10s"}, {"done_reason": "load"}),
        (CHAT, {"messages": [], "keep_alive": -1}, {"done_reason": "load"}),
        (CHAT, {"messages": [{"role": "user"}], "keep_alive": 0}, None),
        (GENERATE, {}, {"response": "", "done_reason": "load"}),
        (GENERATE, {"prompt": "", "keep_alive": 0.0}, {"response": "", "done_reason": "unload"}),
        (GENERATE, {"prompt": "Hi", "keep_alive": 0}, None),
        (EMBED, {"input": []}, {"embeddings": [], "model": "m"}),
        (EMBED, {"input": ""}, {"embeddings": []}),
        (EMBED, {"input": [""]}, {"embeddings": []}),
        (EMBED, {"input": ["", "a"]}, None),
        (EMBEDDINGS, {}, {"embedding": []}),
        (EMBEDDINGS, {"prompt": "a"}, None),
    ],
)
def test_requests_that_ask_for_nothing(
    operation: Operation, body: dict[str, Any], said: dict[str, Any] | None
) -> None:
    fields = parse_fields(json.dumps(body).encode())
    rendered = operation.nothing(fields, "m")
    if said is None:
        assert rendered is None
        return
    assert rendered is not None
    reply = json.loads(rendered)
    assert reply | said == reply
    assert reply.get("done", True) is True


# --------------------------------------------------------------------------------------------------
# Embeddings, models and errors
# --------------------------------------------------------------------------------------------------


def test_embeddings() -> None:
    call = parse(EMBED, input=["a", "b"], dimensions=2)
    assert call.request == EmbeddingRequest("own", ("a", "b"), 2)
    assert parse(EMBED, input="a", dimensions=0).request == EmbeddingRequest("own", ("a",))
    whole = call.render_reply(EmbeddingResponse(((1.0, 2.5), (3.0, 4.0)), 6), LABELS)
    parsed = sdk.EmbedResponse.model_validate_json(whole)
    assert (parsed.model, parsed.embeddings) == ("public", [[1.0, 2.5], [3.0, 4.0]])
    assert parsed.prompt_eval_count == 6
    older = parse(EMBEDDINGS, prompt="a")
    assert older.request == EmbeddingRequest("own", ("a",))
    assert json.loads(older.render_reply(EmbeddingResponse(((1.0, 2.5),)), LABELS)) == {
        "embedding": [1.0, 2.5]
    }


@pytest.mark.parametrize(
    ("operation", "body", "param"),
    [
        (EMBED, {}, "input"),
        (EMBED, {"input": 5}, "input"),
        (EMBED, {"input": [5]}, "input"),
        (EMBED, {"input": ["a", ""]}, "input"),
        (EMBED, {"input": "a", "dimensions": 1.5}, "dimensions"),
        (EMBEDDINGS, {}, "prompt"),
        (EMBEDDINGS, {"prompt": ["a"]}, "prompt"),
    ],
)
def test_what_can_t_be_embedded(operation: Operation, body: dict[str, Any], param: str) -> None:
    with pytest.raises(APIError) as refused:
        operation.parse(body, "own")
    assert (refused.value.status, refused.value.param) == (400, param)


@pytest.mark.parametrize(
    ("asked", "others"),
    [
        ("llama3", ("llama3:latest",)),
        ("llama3:latest", ("llama3",)),
        ("llama3:8b", ()),
        ("host:80/llama3", ("host:80/llama3:latest",)),
    ],
)
def test_the_tag_that_goes_without_saying(asked: str, others: tuple[str, ...]) -> None:
    assert models.other_names(asked) == others


def test_models_as_the_official_client_reads_them() -> None:
    info = ModelInfo("llama3", 1_700_000_000, "torch", 8192)
    tags = {"models": [models.render_tag(info)]}
    (listed,) = sdk.ListResponse.model_validate_json(json.dumps(tags)).models
    assert listed.model == "llama3"
    assert ollama.parse_models(tags) == ["llama3"]
    shown = models.render_show(info, {"tools", "reasoning_effort", "seed"})
    parsed = sdk.ShowResponse.model_validate_json(json.dumps(shown))
    assert parsed.capabilities == ["completion", "tools", "thinking"]
    assert parsed.modelinfo is not None
    assert parsed.modelinfo["torch.context_length"] == 8192
    for gives, can in (("embeddings", ["embedding"]), ("rerank", [])):
        embedder = ModelInfo("e", 1, "torch", input=("text",), output=(gives,))
        assert models.render_show(embedder, {"tools"})["capabilities"] == can
    running = {"models": [models.render_running(info)]}
    (one,) = sdk.ProcessResponse.model_validate_json(json.dumps(running)).models
    assert (one.name, one.context_length) == ("llama3", 8192)


def test_errors() -> None:
    error = model_not_found("x", ["y"])
    body = {"error": "The model 'x' does not exist. Available: y."}
    assert json.loads(OLLAMA.render_error(error, "req_1")) == body
    assert OLLAMA.status(error) == 404
    line = OLLAMA.render_stream_error(error, "req_1")
    assert line.endswith(b"\n")
    assert json.loads(line) == body
    error.vendor_body = ("gemini", b'{"error": {}}')
    assert json.loads(OLLAMA.render_error(error, "req_1")) == body
    error.vendor_body = ("ollama", b'{"error":\n "own words"}')
    assert OLLAMA.render_error(error, "req_1") == b'{"error":\n "own words"}'
    assert OLLAMA.render_stream_error(error, "req_1") == b'{"error":  "own words"}\n'
    renderer = parse(CHAT, messages=[{"role": "user", "content": "Hi"}]).stream_renderer(LABELS)
    failed = renderer.fail(invalid_parameter("x", "wrong"))
    assert failed == b'{"error":"wrong"}\n'


LEAST_VERSIONS = {
    # https://github.com/openai/codex/pull/8798
    "Codex with --oss": (0, 13, 4),
    # https://github.com/ggml-org/llama.cpp/pull/16733
    "Copilot in VS Code": (0, 6, 4),
    # https://github.com/continuedev/continue/pull/5118
    "Granite's setup in VS Code": (0, 6, 5),
}
"""Clients that ask for `/api/version` before anything else, and what each wants at the least."""


@pytest.mark.parametrize("client", LEAST_VERSIONS)
def test_the_version_is_new_enough_for(client: str) -> None:
    assert re.fullmatch(r"[0-9]+\.[0-9]+\.[0-9]+", models.API_VERSION)
    assert tuple(map(int, models.API_VERSION.split("."))) >= LEAST_VERSIONS[client]
