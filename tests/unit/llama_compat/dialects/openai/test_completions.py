"""OpenAI's text completions: requests, replies and streams, in both directions."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from openai.types import Completion
from openai.types.completion_create_params import CompletionCreateParamsNonStreaming
from pydantic import TypeAdapter

from llama_compat.dialects.openai.completions import (
    DEFAULT_MAX_TOKENS,
    StreamParser,
    StreamRenderer,
    parse_reply,
    parse_request,
    render_reply,
    render_request,
)
from llama_compat.errors import APIError
from llama_compat.events import Collector
from llama_compat.text.end_of_turn import END_OF_TURN_MARKERS, EndOfTurnCutter
from llama_compat.types import (
    CompletionRequest,
    CompletionResponse,
    ReasoningDelta,
    SamplingParams,
    StopReason,
    StreamComplete,
    StreamEvent,
    StreamProgress,
    StreamStart,
    TextDelta,
    TokenLogProb,
    TokenLogProbs,
    Usage,
)
from llama_compat.wire import sse
from tests.examples import examples
from tests.unit import vocabulary

LABELS: dict[str, Any] = {"reply_id": "cmpl-1", "model": "m", "created": 1}


def token(text: str, logprob: float | None = -1.0) -> TokenLogProb:
    return TokenLogProb(text, text.encode(), logprob)


def chosen(*texts: str) -> tuple[TokenLogProbs, ...]:
    return tuple(TokenLogProbs(token(text)) for text in texts)


# Requests -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "prompts"),
    [
        ("Hi", ("Hi",)),
        ("", ("",)),
        (["a", "b"], ("a", "b")),
        ([1, 2], ((1, 2),)),
        ([[1, 2], [3]], ((1, 2), (3,))),
    ],
)
def test_all_four_kinds_of_prompts_are_taken(value, prompts):
    assert parse_request({"prompt": value}, "m").prompts == prompts


@pytest.mark.parametrize(
    "value",
    [[], [[]], [1, "a"], ["a", 1], [[1], "a"], [[1], []], 3, {"a": 1}, [1.5], [True], [None], [-1]],
)
def test_other_prompts_are_refused(value):
    with pytest.raises(APIError) as raised:
        parse_request({"prompt": value}, "m")
    assert (raised.value.status, raised.value.param) == (400, "prompt")


def test_a_prompt_is_required():
    with pytest.raises(APIError) as raised:
        parse_request({}, "m")
    assert raised.value.code == "missing_required_parameter"


def test_the_rest_of_a_request_is_parsed():
    call = parse_request(
        {
            "prompt": "Hi",
            "max_tokens": 0,
            "logprobs": 0,
            "echo": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        },
        "m",
    )
    assert call.request == CompletionRequest(
        "m", "Hi", SamplingParams(max_tokens=0), logprobs=0, echo=True, stream=True
    )
    assert (call.stream, call.include_usage, call.n) == (True, True, 1)


def test_sixteen_tokens_are_the_default():
    assert parse_request({"prompt": "Hi"}, "m").request.sampling.max_tokens == DEFAULT_MAX_TOKENS


def test_every_choice_of_every_prompt_is_a_request():
    call = parse_request({"prompt": ["a", "b"], "n": 2, "seed": 5}, "m")
    assert [(request.prompt, request.sampling.seed) for request in call.requests] == [
        ("a", 5),
        ("a", 6),
        ("b", 5),
        ("b", 6),
    ]


requests = st.builds(
    CompletionRequest,
    st.just("m"),
    st.text(max_size=9) | st.lists(st.integers(0, 99), min_size=1, max_size=3).map(tuple),
    vocabulary.samplings(2.0),
    st.none() | st.integers(0, 20),
    st.booleans(),
    st.booleans(),
)


@given(requests)
def test_a_rendered_request_is_parsed_as_the_same(request):
    body = json.loads(json.dumps(render_request(request)))
    again = parse_request(body, "m").request
    sampling = structs.replace(again.sampling, stated=frozenset())
    assert structs.replace(again, sampling=sampling) == request


@given(requests)
def test_a_rendered_request_is_one_by_openais_own_types(request):
    body = render_request(request)
    body.pop("top_k", None)  # an extension that others take
    TypeAdapter(CompletionCreateParamsNonStreaming).validate_python({**body, "stream": False})
    assert None not in body.values()


def test_a_bare_request_is_bare():
    request = CompletionRequest("m", "Hi", stream=False)
    assert render_request(request) == {"model": "m", "prompt": "Hi"}


# Whole replies ------------------------------------------------------------------------------------

WITHOUT_MARKERS = st.text(st.characters(exclude_characters="<", codec="utf-8"), max_size=20)
logprob_lists = st.lists(
    st.builds(
        lambda text, logprob, top: TokenLogProbs(token(text, logprob), top),
        st.text(st.sampled_from("abé "), min_size=1, max_size=3),
        st.floats(-20, 0) | st.none(),
        st.lists(
            st.builds(token, st.text(max_size=3), st.floats(-20, 0)),
            max_size=3,
            unique_by=lambda alternative: alternative.token,
        ).map(lambda top: tuple(sorted(top, key=lambda alternative: -(alternative.logprob or 0)))),
    ),
    min_size=1,
    max_size=3,
).map(tuple)
reasons = st.sampled_from(
    [StopReason.end_of_turn, StopReason.out_of_tokens, StopReason.content_filter]
)
usages = st.builds(Usage, st.integers(0, 9), st.integers(0, 9))
responses = st.builds(
    CompletionResponse, WITHOUT_MARKERS, reasons, st.none() | logprob_lists, usages
)


@given(st.lists(responses, min_size=1, max_size=3))
def test_a_rendered_reply_is_parsed_as_the_same(replies):
    usage = replies[0].usage
    replies = [structs.replace(reply, usage=usage) for reply in replies]
    body = json.loads(json.dumps(render_reply(replies, usage, **LABELS)))
    assert parse_reply(body) == replies
    assert parse_reply(body, echo=True) == replies


def test_a_rendered_reply_is_one_by_openais_own_types():
    logprobs = (TokenLogProbs(token("a"), (token("a"), token("b", -2.0))),)
    replies = [CompletionResponse("a", StopReason.out_of_tokens, logprobs) for _ in range(2)]
    body = json.loads(json.dumps(render_reply(replies, Usage(1, 2), **LABELS)))
    completion = Completion.model_validate(body, strict=True)
    assert [choice.index for choice in completion.choices] == [0, 1]
    assert completion.choices[0].finish_reason == "length"


def reply(text: str, **members: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "text": text, **members}]}


@pytest.mark.parametrize(
    ("logprobs", "expected"),
    [
        (None, None),
        ({}, None),
        ({"tokens": ["a", "b"], "token_logprobs": [-1.0, -1.0]}, chosen("a", "b")),
        (
            {"tokens": ["a"], "token_logprobs": [-1.0], "top_logprobs": None, "text_offset": [0]},
            chosen("a"),
        ),
        (
            {
                "tokens": ["a", "b"],
                "token_logprobs": [None, -1.0],
                "top_logprobs": [None, {"c": -2.0, "b": -1.0}],
            },
            (
                TokenLogProbs(token("a", None)),
                TokenLogProbs(token("b"), (token("b"), token("c", -2.0))),
            ),
        ),
        (
            {"content": [{"token": "é", "logprob": -1.0, "bytes": [195, 169], "top_logprobs": []}]},
            chosen("é"),
        ),
        ({"content": None}, None),
    ],
)
def test_logprobs_of_either_style_are_understood(logprobs, expected):
    [response] = parse_reply(reply("ab", logprobs=logprobs))
    assert response.logprobs == expected


def test_offsets_count_characters():
    rendered = render_reply(
        [CompletionResponse("aéb", StopReason.end_of_turn, chosen("aé", "b"))], Usage(), **LABELS
    )
    assert rendered["choices"][0]["logprobs"] == {
        "tokens": ["aé", "b"],
        "token_logprobs": [-1.0, -1.0],
        "top_logprobs": None,
        "text_offset": [0, 2],
    }


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"choices": []},
        {"choices": [{}]},
        {"choices": ["text"]},
        {"choices": [{"text": None}]},
        {"choices": [{"text": "", "logprobs": {"tokens": ["a"], "token_logprobs": []}}]},
        {"choices": [{"text": 3}]},
    ],
)
def test_what_is_no_reply_is_a_value_error(body):
    with pytest.raises(ValueError, match=r"reply|zip"):
        parse_reply(body)


# End-of-turn markers ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("marker", "reason"),
    [
        ("<|eot_id|>", StopReason.end_of_turn),
        ("<|eom_id|>", StopReason.end_of_message),
        ("<|im_end|>", StopReason.end_of_turn),
    ],
)
@pytest.mark.parametrize("word", ["stop", "length", None])
def test_a_marker_is_cut_and_says_why_the_model_stopped(marker, reason, word):
    logprobs = {"tokens": ["Hi", marker, "x"], "token_logprobs": [-1.0, -2.0, -3.0]}
    body = reply(f"Hi{marker}x<|eot_id|>", finish_reason=word, logprobs=logprobs)
    assert parse_reply(body) == [CompletionResponse("Hi", reason, chosen("Hi"))]


def test_an_echoed_prompt_keeps_its_markers():
    text = "user<|eot_id|>Hi<|im_end|>"
    logprobs = {"tokens": ["user", "<|eot_id|>", "Hi", "<|im_end|>"], "token_logprobs": [-1.0] * 4}
    body = reply(text, finish_reason="length", logprobs=logprobs)
    assert parse_reply(body, echo=True) == [
        CompletionResponse(
            "user<|eot_id|>Hi", StopReason.end_of_turn, chosen("user", "<|eot_id|>", "Hi")
        )
    ]


@given(
    st.lists(st.sampled_from([*END_OF_TURN_MARKERS, "<|e", "<|", "<", "o", "t_id|>", "im_", "x"])),
    st.booleans(),
    st.data(),
)
def test_any_cut_of_a_text_is_cut_off_at_the_same_marker(parts, only_at_end, data):
    text = "".join(parts)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)))))
    cutter = EndOfTurnCutter(only_at_end=only_at_end)
    shown = [
        cutter.push(text[a:b]) for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)
    ] + [cutter.flush()]
    found = [at for marker in END_OF_TURN_MARKERS if (at := text.find(marker)) >= 0]
    if only_at_end:
        ending = next((marker for marker in END_OF_TURN_MARKERS if text.endswith(marker)), "")
        expected = text.removesuffix(ending)
    else:
        ending = "found" if found else ""
        expected = text[: min(found, default=len(text))]
    assert "".join(shown) == expected
    assert (cutter.stop_reason is not None) == bool(ending)


# Streams ------------------------------------------------------------------------------------------


def rendered(*events: StreamEvent, include_usage: bool = True) -> list[dict[str, Any]]:
    renderer = StreamRenderer(**LABELS, include_usage=include_usage)
    chunks = [chunk for event in events for chunk in renderer.render(0, event)]
    usage = next((event.usage for event in events if isinstance(event, StreamComplete)), Usage())
    return [*chunks, *renderer.finish(usage)]


def parsed(chunks: Iterable[dict[str, Any]], *, done: bool = False, **options: Any) -> Any:
    parser = StreamParser(**options)
    events = [event for chunk in chunks for event in parser.push(chunk)]
    return [*events, *parser.finish(done=done)]


def collected(events: Iterable[StreamEvent]) -> CompletionResponse:
    collector = Collector()
    for event in events:
        collector.add(event)
    return collector.completion()


def pieces(text: str, **members: Any) -> list[dict[str, Any]]:
    return [reply(character, **members) for character in text]


@settings(max_examples=examples(50))
@given(
    st.lists(st.tuples(WITHOUT_MARKERS, st.none() | logprob_lists), max_size=4),
    reasons,
    usages,
    st.data(),
)
def test_a_rendered_stream_cut_anywhere_is_parsed_as_the_same_reply(deltas, reason, usage, data):
    events = [
        StreamStart(),
        *(StreamProgress(TextDelta(text), logprobs) for text, logprobs in deltas),
        StreamComplete(reason, usage),
    ]
    chunks = rendered(*events)
    content = b"".join(sse.encode_data(msgspec.json.encode(chunk)) for chunk in chunks)
    decoder = sse.EventDecoder()
    decoded = [
        json.loads(event.data)
        for piece in data.draw(vocabulary.cuts(content))
        for event in decoder.feed(piece)
        if event.data is not None
    ]
    assert collected(parsed(decoded)) == collected(events)
    assert collected(parsed(decoded, echo=True)) == collected(events)


@given(responses)
def test_a_stream_gives_the_same_as_a_whole_reply(response):
    events = [
        StreamProgress(TextDelta(response.content), response.logprobs),
        StreamComplete(response.stop_reason, response.usage),
    ]
    whole = parse_reply(render_reply([response], response.usage, **LABELS))
    assert [collected(parsed(rendered(*events)))] == whole


def test_chunks_are_such_by_openais_own_types():
    *chunks, last = rendered(
        StreamProgress(TextDelta("a"), chosen("a")), StreamComplete(StopReason.end_of_turn)
    )
    for chunk in chunks:
        # its types say that a chunk has a reason, which only the last one has
        [choice] = chunk["choices"]
        finished = {**choice, "finish_reason": choice["finish_reason"] or "stop"}
        Completion.model_validate({**chunk, "choices": [finished]}, strict=True)
    Completion.model_validate(last, strict=True)


def test_chunks_are_rendered():
    chunks = rendered(
        StreamStart(1),
        StreamProgress(ReasoningDelta("not shown")),
        StreamProgress(TextDelta("aé"), chosen("aé")),
        StreamProgress(TextDelta("b"), chosen("b")),
        StreamComplete(StopReason.out_of_tokens, Usage(1, 2)),
    )
    assert [choice["text"] for chunk in chunks for choice in chunk["choices"]] == ["aé", "b", ""]
    assert chunks[1]["choices"][0]["logprobs"]["text_offset"] == [2]
    assert chunks[2]["choices"][0]["finish_reason"] == "length"
    assert [chunk["usage"] for chunk in chunks[:-1]] == [None] * 3
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["total_tokens"] == 3


def test_usage_is_not_sent_unasked():
    chunks = rendered(StreamComplete(StopReason.end_of_turn), include_usage=False)
    assert len(chunks) == 1
    assert "usage" not in chunks[0]


def test_a_streamed_marker_is_never_shown():
    chunks = [*pieces("Hi<|eom_id|>more"), reply("", finish_reason="length")]
    events = parsed(chunks)
    assert events == [
        StreamStart(),
        StreamProgress(TextDelta("H")),
        StreamProgress(TextDelta("i")),
        StreamComplete(StopReason.end_of_message),
    ]


def test_what_only_began_like_a_marker_is_shown():
    response = collected(parsed([*pieces("a <|e"), reply("", finish_reason="stop")]))
    assert response.content == "a <|e"


def test_a_streamed_echo_keeps_its_markers():
    chunks = [*pieces("u<|eot_id|>Hi<|im_end|>"), reply("", finish_reason="length")]
    response = collected(parsed(chunks, echo=True))
    assert (response.content, response.stop_reason) == ("u<|eot_id|>Hi", StopReason.end_of_turn)


def test_logprobs_of_what_is_not_shown_are_left_out():
    def chunk(text: str) -> dict[str, Any]:
        return reply(text, logprobs={"tokens": [text], "token_logprobs": [-1.0]})

    chunks = [chunk("Hi"), chunk("<|eot_id|>"), chunk("x"), reply("", finish_reason="stop")]
    assert collected(parsed(chunks)).logprobs == chosen("Hi")
    echoed = collected(parsed([chunk("<|eot_id|>"), *chunks], echo=True))
    assert echoed.logprobs == chosen("<|eot_id|>", "Hi", "<|eot_id|>", "x")
    assert collected(parsed([*chunks[:2], chunks[3]], echo=True)).logprobs == chosen("Hi")


def test_text_cut_inside_a_character_is_joined():
    chunks = [reply("a\ud83d"), reply("\ude00"), reply("\ud83d", finish_reason="stop")]
    assert collected(parsed(chunks)).content == "a😀\N{REPLACEMENT CHARACTER}"


def test_half_a_character_in_a_whole_reply_is_replaced():
    [whole] = parse_reply(reply("a\ud83d", finish_reason="stop"))
    assert whole.content == "a\N{REPLACEMENT CHARACTER}"


def test_only_the_wanted_choice_is_read():
    chunks = [
        {"choices": [{"index": index, "text": str(index), "finish_reason": "stop"}]}
        for index in (0, 1)
    ]
    assert collected(parsed(chunks)).content == "0"


def test_a_stream_that_breaks_off_says_so():
    parser = StreamParser()
    parser.push(reply("Hi <|"))
    due: list[StreamEvent] = []
    with pytest.raises(ValueError, match="broke off"):
        due.extend(parser.finish())
    assert due == [StreamProgress(TextDelta("<|"))]


@pytest.mark.parametrize("ending", [[reply("<|eot_id|>")], []])
def test_a_marker_or_done_makes_up_for_a_missing_reason(ending):
    events = parsed([reply("Hi"), *ending], done=not ending)
    assert events[-1] == StreamComplete(StopReason.end_of_turn)


@pytest.mark.parametrize(
    "chunk", [{"choices": ["text"]}, {"choices": 3}, {"choices": [{"text": 3}]}]
)
def test_what_is_no_chunk_is_a_value_error(chunk):
    with pytest.raises(ValueError, match="not a text completion chunk"):
        StreamParser().push(chunk)
