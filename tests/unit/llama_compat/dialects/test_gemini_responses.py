"""Responses of Gemini's API to its clients: what was said, in its order, sealed and counted."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from google.genai import types
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from llama_compat.dialects import gemini
from llama_compat.dialects.base import Operation
from llama_compat.dialects.gemini.input.contents import parse_contents
from llama_compat.dialects.gemini.operations import (
    STREAM_ARRAY,
    STREAM_EVENTS,
)
from llama_compat.errors import invalid_parameter
from llama_compat.events import Collector, reply_events
from llama_compat.types import (
    ChatCompletionRequest,
    ChatCompletionResponse,
    CompletionMessage,
    MessagePart,
    ReasoningContent,
    ReasoningDelta,
    RefusalDelta,
    StopReason,
    StreamComplete,
    StreamProgress,
    TextContent,
    TextDelta,
    TokenLogProb,
    TokenLogProbs,
    ToolCallDelta,
    ToolCallParseStatus,
    UnparseableToolCall,
    Usage,
    UserMessage,
)
from tests.unit import vocabulary
from tests.unit.llama_compat.dialects.test_gemini_clients import LABELS, THINKING, data_of, parse
from tests.unit.vocabulary import texts

tokens = st.builds(
    lambda text, logprob: TokenLogProb(text, text.encode(), logprob), texts, st.floats(-50, 0)
)
logprobs = st.none() | st.lists(
    st.builds(TokenLogProbs, tokens, st.lists(tokens, max_size=2).map(tuple)), min_size=1
).map(tuple)


@st.composite
def responses(draw: st.DrawFn) -> ChatCompletionResponse:
    response = draw(vocabulary.responses(signed=True))
    return structs.replace(response, logprobs=draw(logprobs))


def check_with_the_sdk(encoded: bytes) -> types.GenerateContentResponse:
    response = types.GenerateContentResponse.model_validate_json(encoded)
    assert (response.model_version, response.response_id) == ("public", "abc")
    return response


def collected(encoded: list[bytes]) -> ChatCompletionResponse:
    parser, collector = gemini.StreamParser(), Collector()
    for each in encoded:
        for event in parser.push(json.loads(each)):
            collector.add(event)
    for event in parser.finish():
        collector.add(event)
    return collector.chat_completion()


def streamed(operation: Operation, response: ChatCompletionResponse, **config: Any) -> bytes:
    renderer = parse(operation, generationConfig={**THINKING, **config}).stream_renderer(LABELS)
    rendered = [renderer.render(0, event) for event in reply_events(response)]
    end = operation.dialect.stream_end
    return b"".join([*rendered, renderer.finish(response.usage), end])


@given(responses())
def test_a_reply_is_what_was_said(response: ChatCompletionResponse) -> None:
    call = parse(generationConfig=THINKING)
    whole = call.render_reply([response], response.usage, LABELS)
    check_with_the_sdk(whole)
    assert collected([whole]) == response


@given(responses())
def test_a_stream_folds_to_the_reply(response: ChatCompletionResponse) -> None:
    events = data_of(streamed(STREAM_EVENTS, response))
    for event in events:
        check_with_the_sdk(event)
    assert collected(events) == response


@given(responses())
def test_an_array_holds_what_the_events_hold(response: ChatCompletionResponse) -> None:
    items = json.loads(streamed(STREAM_ARRAY, response))
    assert items == [json.loads(data) for data in data_of(streamed(STREAM_EVENTS, response))]


seals = st.binary(min_size=1, max_size=6).map(lambda seal: base64.b64encode(seal).decode())
thoughts = st.one_of(
    st.builds(ReasoningContent, texts),
    st.builds(ReasoningContent, texts, seals, st.sampled_from(["gemini", "anthropic"])),
    st.builds(
        ReasoningContent, st.just(""), seals, st.sampled_from(["gemini", "x"]), st.just(True)
    ),
)


@st.composite
def messages(draw: st.DrawFn) -> CompletionMessage:
    calls = draw(vocabulary.call_lists(unparseable=False, signed=True))
    parts: list[MessagePart] = [*draw(st.lists(st.builds(TextContent, texts) | thoughts)), *calls]
    return CompletionMessage(tuple(draw(st.permutations(parts))))


@given(messages())
def test_what_was_said_comes_back_in_its_order_and_sealed(message: CompletionMessage) -> None:
    call = parse(generationConfig=THINKING)
    whole = json.loads(call.render_reply([ChatCompletionResponse(message)], Usage(), LABELS))
    content = whole["candidates"][0]["content"]
    types.Content.model_validate_json(json.dumps(content))
    assert parse_contents([content]) == (message,)


def test_gemini_gets_its_own_seals_back_and_no_others() -> None:
    said = CompletionMessage(
        (
            ReasoningContent("secret", "c2Vj", "anthropic"),
            ReasoningContent("mine", "bWluZQ==", "gemini"),
            TextContent("Hi"),
            ReasoningContent("", "c2VhbA==", "gemini", redacted=True),
            ReasoningContent("", "bG9uZQ==", "gemini", redacted=True),
            ReasoningContent("unsealed"),
            TextContent("Ho"),
        )
    )
    request = ChatCompletionRequest("gemini-3-pro", (UserMessage("x"), said, UserMessage("y")))
    assert gemini.render_request(request)["contents"][1]["parts"] == [
        {"text": "mine", "thought": True, "thoughtSignature": "bWluZQ=="},
        {"text": "Hi", "thoughtSignature": "c2VhbA=="},
        {"text": "", "thoughtSignature": "bG9uZQ=="},
        {"text": "Ho"},
    ]


def test_a_vendors_seals_are_parts_of_the_reply() -> None:
    parts = [
        {"text": "mine", "thought": True, "thoughtSignature": "bWluZQ=="},
        {"text": "more", "thought": True},
        {"text": "Hi"},
        {"text": "", "thoughtSignature": "c2VhbA=="},
    ]
    events = [{"candidates": [{"content": {"parts": [part]}}]} for part in parts] + [
        {"candidates": [{"content": {"parts": []}, "finishReason": "STOP"}]}
    ]
    said = collected([json.dumps(event).encode() for event in events]).completion_message.parts
    assert said == (
        ReasoningContent("mine", "bWluZQ==", "gemini"),
        ReasoningContent("more"),
        TextContent("Hi"),
        ReasoningContent("", "c2VhbA==", "gemini", redacted=True),
    )


def test_thoughts_are_for_those_who_want_them_but_geminis_seals_for_all() -> None:
    message = CompletionMessage(
        (
            ReasoningContent("Hm", "aGlu", "anthropic"),
            ReasoningContent("Ha", "aGEh", "gemini"),
            ReasoningContent("Ho"),
            TextContent("Hi"),
        )
    )
    response = ChatCompletionResponse(message)
    whole = json.loads(parse().render_reply([response], Usage(), LABELS))
    expected = [{"text": "", "thoughtSignature": "aGEh"}, {"text": "Hi"}]
    assert whole["candidates"][0]["content"]["parts"] == expected
    renderer = parse(STREAM_EVENTS).stream_renderer(LABELS)
    rendered = b"".join(renderer.render(0, event) for event in reply_events(response))
    parts = [
        part
        for data in data_of(rendered)
        for part in json.loads(data)["candidates"][0]["content"]["parts"]
    ]
    assert parts == expected


def test_candidates_and_what_they_cost() -> None:
    call = parse(generationConfig={"candidateCount": 2, "seed": 5})
    assert [request.sampling.seed for request in call.requests] == [5, 6]
    assert call.choices_per_prompt == 2
    said = [ChatCompletionResponse(CompletionMessage.of(text)) for text in ("a", "b")]
    usage = Usage(10, 7, cached_tokens=4, reasoning_tokens=3)
    whole = check_with_the_sdk(call.render_reply(said, usage, LABELS))
    assert [each.content.parts[0].text for each in whole.candidates or ()] == ["a", "b"]  # type: ignore[union-attr, index]
    assert [each.index for each in whole.candidates or ()] == [0, 1]
    counted = json.loads(call.render_reply(said, usage, LABELS))["usageMetadata"]
    assert counted == {
        "promptTokenCount": 10,
        "candidatesTokenCount": 4,
        "thoughtsTokenCount": 3,
        "cachedContentTokenCount": 4,
        "totalTokenCount": 17,
    }
    renderer = parse(STREAM_EVENTS, generationConfig={"candidateCount": 2}).stream_renderer(LABELS)
    renderer.render(1, StreamComplete(StopReason.out_of_tokens))
    renderer.render(0, StreamComplete(StopReason.end_of_turn))
    (last,) = (json.loads(data) for data in data_of(renderer.finish(usage)))
    reasons = [(each["index"], each["finishReason"]) for each in last["candidates"]]
    assert reasons == [(0, "STOP"), (1, "MAX_TOKENS")]
    assert last["usageMetadata"] == counted


@pytest.mark.parametrize(
    ("reason", "word"),
    [
        (StopReason.end_of_turn, "STOP"),
        (StopReason.end_of_message, "STOP"),
        (StopReason.out_of_tokens, "MAX_TOKENS"),
        (StopReason.content_filter, "SAFETY"),
    ],
)
def test_why_it_ended(reason: StopReason, word: str) -> None:
    response = ChatCompletionResponse(CompletionMessage.of("x", stop_reason=reason))
    whole = json.loads(parse().render_reply([response], Usage(), LABELS))
    assert whole["candidates"][0]["finishReason"] == word


@pytest.mark.parametrize(
    ("reason", "word"),
    [(StopReason.end_of_message, "STOP"), (StopReason.out_of_tokens, "MAX_TOKENS")],
)
def test_arguments_that_are_no_object_are_inside_of_one(reason: StopReason, word: str) -> None:
    failed = UnparseableToolCall("c", "f", '{"a": ')
    response = ChatCompletionResponse(CompletionMessage((failed,), reason))
    whole = json.loads(parse().render_reply([response], Usage(), LABELS))["candidates"][0]
    renderer = parse(STREAM_EVENTS).stream_renderer(LABELS)
    delta = ToolCallDelta(0, ToolCallParseStatus.failed, tool_call=failed)
    (streamed,) = map(json.loads, data_of(renderer.render(0, StreamProgress(delta))))
    renderer.render(0, StreamComplete(reason))
    last = json.loads(data_of(renderer.finish(Usage()))[0])["candidates"][0]
    args = {"INVALID_JSON": '{"a": '}
    part = {"functionCall": {"id": "c", "name": "f", "args": args}}
    assert whole["content"]["parts"] == [part]
    assert streamed["candidates"][0]["content"]["parts"] == [part]
    assert (whole["finishReason"], last["finishReason"]) == (word, word)


def test_what_makes_no_event() -> None:
    renderer = parse(STREAM_EVENTS).stream_renderer(LABELS)
    started = ToolCallDelta(0, ToolCallParseStatus.started, "c", "f")
    for delta in (TextDelta(""), ReasoningDelta("Hm"), started):
        assert renderer.render(0, StreamProgress(delta)) == b""
    assert b'"No."' in renderer.render(0, StreamProgress(RefusalDelta("No.")))
    token = TokenLogProbs(TokenLogProb("x", b"x", -1.0))
    event = json.loads(data_of(renderer.render(0, StreamProgress(TextDelta(""), (token,))))[0])
    assert event["candidates"][0]["logprobsResult"]["chosenCandidates"] == [
        {"token": "x", "logProbability": -1.0}
    ]


@given(responses())
def test_a_stream_sent_back_response_by_response_is_what_was_said(
    response: ChatCompletionResponse,
) -> None:
    contents = []
    for event in cut_events(response):
        contents.extend(json.loads(event)["candidates"][0]["content"] for event in data_of(event))
    (message,) = parse_contents(contents)
    assert isinstance(message, CompletionMessage)
    assert message.parts == response.completion_message.parts


def cut_events(response: ChatCompletionResponse) -> list[bytes]:
    """The events of a stream in which each text and thought comes in two pieces."""
    renderer = parse(STREAM_EVENTS, generationConfig=THINKING).stream_renderer(LABELS)
    events = []
    for event in reply_events(response):
        delta = event.delta if isinstance(event, StreamProgress) else None
        if isinstance(delta, TextDelta | ReasoningDelta) and delta.text:
            half = structs.replace(delta, text=delta.text[: len(delta.text) // 2])
            rest = structs.replace(delta, text=delta.text[len(delta.text) // 2 :])
            pieces = [StreamProgress(half), StreamProgress(rest)]
            events += [renderer.render(0, piece) for piece in pieces]
        else:
            events.append(renderer.render(0, event))
    return [*events, renderer.finish(response.usage)]


def test_a_thought_that_goes_on_is_sealed_as_one() -> None:
    contents = [
        {"role": "model", "parts": [{"text": text, "thought": True, **seal}]}
        for text, seal in [("a", {}), ("b", {"thoughtSignature": "c2VhbA=="}), ("c", {})]
    ]
    assert parse_contents(contents) == (
        CompletionMessage((ReasoningContent("ab", "c2VhbA==", "gemini"), ReasoningContent("c"))),
    )


def test_a_seal_that_comes_alone_is_of_the_thought_before_it() -> None:
    parts = [
        {"text": "Hi"},
        *({"text": text, "thought": True} for text in "ab"),
        {"text": "", "thought": True, "thoughtSignature": "c2VhbA=="},
        {"text": "Ho"},
    ]
    assert parse_contents([{"role": "model", "parts": parts}]) == (
        CompletionMessage(
            (TextContent("Hi"), ReasoningContent("ab", "c2VhbA==", "gemini"), TextContent("Ho"))
        ),
    )


def test_an_array_that_fails_is_still_one() -> None:
    renderer = parse(STREAM_ARRAY).stream_renderer(LABELS)
    begun = renderer.render(0, StreamProgress(TextDelta("Hi")))
    items = json.loads(begun + renderer.fail(invalid_parameter("x", "wrong")))
    assert items[0]["candidates"][0]["content"]["parts"] == [{"text": "Hi"}]
    assert items[1]["error"]["message"] == "wrong"
    assert len(items) == 2
