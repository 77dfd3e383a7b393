"""The Responses API, vocabulary -> wire: streams, and the whole replies that they come to."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llama_compat.dialects.base import Labels
from llama_compat.dialects.openai_responses.input.items import parse_input
from llama_compat.dialects.openai_responses.input.requests import ResponsesCall, parse_request
from llama_compat.dialects.openai_responses.output.events import OBFUSCATED_SIZE
from llama_compat.errors import APIError, context_length_exceeded, upstream_error
from llama_compat.events import Collector, ReplyParts
from llama_compat.tools.calls import ToolCallAssembler
from llama_compat.tools.custom_tools import wrap
from llama_compat.types import (
    CompletionMessage,
    ReasoningContent,
    ReasoningDelta,
    RefusalDelta,
    StopReason,
    StreamComplete,
    StreamEvent,
    StreamStart,
    TextDelta,
    TokenLogProb,
    TokenLogProbs,
    ToolCall,
    ToolCallDelta,
    Usage,
)
from llama_compat.wire import sse
from tests.examples import examples
from tests.sdk_responses import check_events, check_response, parse_stream
from tests.unit.vocabulary import cuts

LABELS = Labels("public", unique="0" * 24, created=1)
USAGE = Usage(11, 7, cached_tokens=3, reasoning_tokens=2, cache_write_tokens=1)
USAGE_SHOWN = {
    "input_tokens": 11,
    "input_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 1},
    "output_tokens": 7,
    "output_tokens_details": {"reasoning_tokens": 2},
    "total_tokens": 18,
}

TOOLS: list[Any] = [
    {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}},
    {"type": "custom", "name": "patch", "description": "Changes files."},
    {
        "type": "namespace",
        "name": "team",
        "description": "People.",
        "tools": [{"type": "function", "name": "ask"}, {"type": "custom", "name": "tell"}],
    },
]


def call_for(**members: Any) -> ResponsesCall:
    body = {"model": "public", "input": "Hello?", "tools": TOOLS, "stream": True, **members}
    return parse_request(body, "own")


def stream_of(events: Sequence[StreamEvent], call: ResponsesCall | None = None) -> bytes:
    renderer = (call or call_for()).stream_renderer(LABELS)
    rendered = b"".join(renderer.render(0, event) for event in events)
    return rendered + renderer.finish(USAGE) + sse.DONE


def whole_of(events: Sequence[StreamEvent], call: ResponsesCall | None = None) -> dict[str, Any]:
    collector = Collector()
    for event in events:
        collector.add(event)
    reply = (call or call_for()).render_reply([collector.chat_completion()], USAGE, LABELS)
    response = json.loads(reply)
    assert isinstance(response, dict)
    return response


def says(*deltas: Any, stop: StopReason = StopReason.end_of_turn) -> list[StreamEvent]:
    parts = ReplyParts()
    return [StreamStart(), *map(parts.progress, deltas), StreamComplete(stop, USAGE)]


def called(
    name: str, *pieces: str, call_id: str = "call_1", signature: str | None = None
) -> list[ToolCallDelta]:
    assembler = ToolCallAssembler()
    deltas = assembler.push(call_id=call_id, tool_name=name, thought_signature=signature)
    for piece in pieces:
        deltas += assembler.push(call_id=call_id, arguments=piece)
    return deltas + assembler.finish()


def output(events: Sequence[StreamEvent], **members: Any) -> list[dict[str, Any]]:
    """The items of the stream's last event, which the whole reply has too."""
    call = call_for(**members)
    response = check_events(parse_stream(stream_of(events, call)))
    assert response["output"] == whole_of(events, call)["output"]
    items: list[dict[str, Any]] = response["output"]
    return items


def kinds(events: Sequence[StreamEvent], **members: Any) -> list[str]:
    stream = parse_stream(stream_of(events, call_for(**members)))
    return [event["type"].removeprefix("response.") for event in stream]


# --------------------------------------------------------------------------------------------------
# What there is to say
# --------------------------------------------------------------------------------------------------


def test_a_text_comes_in_the_order_of_the_specification() -> None:
    assert kinds(says(TextDelta("Hel"), TextDelta("lo"))) == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]


def test_a_text_is_a_message() -> None:
    (item,) = output(says(TextDelta("Hel"), TextDelta("lo")))
    part = {"type": "output_text", "text": "Hello", "annotations": [], "logprobs": []}
    assert item == {
        "id": f"msg_{'0' * 24}0000",
        "type": "message",
        "status": "completed",
        "role": "assistant",
        "content": [part],
    }


def test_a_refusal_after_a_text_is_another_part_of_the_same_message() -> None:
    (item,) = output(says(TextDelta("Hm. "), RefusalDelta("I "), RefusalDelta("won't.")))
    assert [part["type"] for part in item["content"]] == ["output_text", "refusal"]
    assert item["content"][1]["refusal"] == "I won't."


def test_a_call_ends_the_message_before_it() -> None:
    events = says(TextDelta("Look:"), *called("look", '{"a"', ": 1}"), TextDelta("Done."))
    first, call, last = output(events)
    assert (first["type"], last["type"]) == ("message", "message")
    assert call == {
        "id": f"fc_{'0' * 24}0001",
        "type": "function_call",
        "status": "completed",
        "call_id": "call_1",
        "name": "look",
        "arguments": '{"a": 1}',
    }
    stream = parse_stream(stream_of(events))
    done = next(e for e in stream if e["type"] == "response.function_call_arguments.done")
    assert (done["name"], done["arguments"]) == ("look", '{"a": 1}')


def test_a_call_without_arguments_has_an_empty_object() -> None:
    (call,) = output(says(*called("look")))
    assert call["arguments"] == "{}"


def test_a_function_of_a_namespace_gets_its_own_name_back() -> None:
    (call,) = output(says(*called("team__ask", "{}")))
    assert (call["namespace"], call["name"], call["type"]) == ("team", "ask", "function_call")


def test_a_custom_tool_gets_its_text() -> None:
    events = says(*called("patch", '{"inp', 'ut": "a\\', "n\\u00", "e4", '"}'))
    (call,) = output(events)
    assert call == {
        "id": f"ctc_{'0' * 24}0000",
        "type": "custom_tool_call",
        "call_id": "call_1",
        "name": "patch",
        "input": "a\nä",
    }
    stream = parse_stream(stream_of(events))
    deltas = [e["delta"] for e in stream if e["type"] == "response.custom_tool_call_input.delta"]
    assert deltas == ["a", "\n", "ä"]


def test_a_custom_tool_of_a_namespace_gets_both() -> None:
    (call,) = output(says(*called("team__tell", '{"input":"x"}')))
    assert (call["namespace"], call["name"], call["input"]) == ("team", "tell", "x")


def test_a_tool_that_nobody_offered_is_a_function() -> None:
    (call,) = output(says(*called("other", "{}")))
    assert (call["type"], call["name"]) == ("function_call", "other")


SIGNED = ReasoningDelta("", "c2VhbA==", "anthropic")


@pytest.mark.parametrize("summary", [None, "auto"])
def test_reasoning_goes_where_the_client_looks_for_it(summary: str | None) -> None:
    reasoning = {} if summary is None else {"reasoning": {"summary": summary}}
    events = says(ReasoningDelta("I th"), ReasoningDelta("ink"), SIGNED, TextDelta("So."))
    thought, _ = output(events, **reasoning)
    shown, kind = ("content", "reasoning_text") if summary is None else ("summary", "summary_text")
    assert thought["type"] == "reasoning"
    assert thought[shown] == [{"type": kind, "text": "I think"}]
    assert thought.get("summary" if summary is None else "content", []) == []
    begun = kinds(events, **reasoning)[2:6]
    if summary is None:
        wanted = ["output_item.added", "content_part.added", *["reasoning_text.delta"] * 2]
    else:
        wanted = ["output_item.added", "reasoning_summary_part.added"]
        wanted += ["reasoning_summary_text.delta"] * 2
    assert begun == wanted


@pytest.mark.parametrize(
    ("deltas", "part"),
    [
        ([ReasoningDelta("I think"), SIGNED], ("I think", "c2VhbA==", "anthropic", False)),
        ([ReasoningDelta("I think")], ("I think", None, "", False)),
        ([ReasoningDelta("", "c2VhbA==", "anthropic", True)], ("", "c2VhbA==", "anthropic", True)),
    ],
)
@pytest.mark.parametrize("summary", [None, "auto"])
def test_reasoning_comes_back_as_it_was(
    deltas: list[Any], part: tuple[Any, ...], summary: str | None
) -> None:
    thought, _ = output(says(*deltas, TextDelta("So.")), reasoning={"summary": summary})
    (message,) = parse_input([thought])
    assert message == CompletionMessage((ReasoningContent(*part),))


def test_a_calls_signature_comes_back_with_it() -> None:
    items = output(says(*called("look", "{}", signature="c2VhbA==")))
    assert [item["type"] for item in items] == ["function_call", "reasoning"]
    (message,) = parse_input(items)
    expected = ToolCall("call_1", "look", {}, "{}", "c2VhbA==")
    assert message == CompletionMessage((expected,))


def test_calls_at_the_same_time_have_places_of_their_own() -> None:
    assembler = ToolCallAssembler()
    deltas: list[Any] = []
    for index, name in enumerate(["look", "patch"]):
        deltas += assembler.push(index=index, call_id=f"call_{index}", tool_name=name)
    for index, piece in [(0, '{"a":'), (1, '{"input":"x'), (0, "1}"), (1, 'y"}')]:
        deltas += assembler.push(index=index, arguments=piece)
    first, second = output(says(*deltas, *assembler.finish()))
    assert (first["arguments"], second["input"]) == ('{"a":1}', "xy")


@pytest.mark.parametrize(
    ("stop", "status", "details"),
    [
        (StopReason.end_of_turn, "completed", None),
        (StopReason.end_of_message, "completed", None),
        (StopReason.out_of_tokens, "incomplete", {"reason": "max_output_tokens"}),
        (StopReason.content_filter, "incomplete", {"reason": "content_filter"}),
    ],
)
def test_the_end_says_how_it_ended(stop: StopReason, status: str, details: Any) -> None:
    events = says(ReasoningDelta("Hm"), TextDelta("Hel"), stop=stop)
    response = check_events(parse_stream(stream_of(events)))
    assert (response["status"], response["incomplete_details"]) == (status, details)
    assert response["output"][-1]["status"] == status
    assert (response["completed_at"] is None) == (status == "incomplete")
    assert response["usage"] == USAGE_SHOWN
    assert parse_stream(stream_of(events))[-1]["type"] == f"response.{status}"


def test_a_call_that_was_cut_off_is_incomplete() -> None:
    assembler = ToolCallAssembler()
    deltas = assembler.push(call_id="call_1", tool_name="look", arguments='{"a": ')
    events = says(*deltas, *assembler.finish(cut=True), stop=StopReason.out_of_tokens)
    (call,) = output(events)
    assert (call["status"], call["arguments"]) == ("incomplete", '{"a": ')


def test_arguments_that_are_no_json_reach_the_client() -> None:
    (call,) = output(says(*called("look", "{oops")))
    assert (call["status"], call["arguments"]) == ("completed", "{oops")


def test_nothing_said_is_an_empty_output() -> None:
    assert output(says()) == []
    assert kinds(says()) == ["created", "in_progress", "completed"]


def test_nothing_is_sent_before_there_is_something_to_say() -> None:
    assert call_for().stream_renderer(LABELS).render(0, StreamStart(5)) == b""


# --------------------------------------------------------------------------------------------------
# Log probabilities, obfuscation, errors
# --------------------------------------------------------------------------------------------------

HI = TokenLogProb("Hi", b"Hi", -0.5)
TOKEN = TokenLogProbs(HI, (HI, TokenLogProb("Ho", b"Ho", -1.5)))
TOKEN_SHOWN = {
    "token": "Hi",
    "logprob": -0.5,
    "bytes": [72, 105],
    "top_logprobs": [
        {"token": "Hi", "logprob": -0.5, "bytes": [72, 105]},
        {"token": "Ho", "logprob": -1.5, "bytes": [72, 111]},
    ],
}


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ({"include": ["message.output_text.logprobs"]}, [TOKEN_SHOWN, TOKEN_SHOWN]),
        ({"top_logprobs": 2}, [TOKEN_SHOWN, TOKEN_SHOWN]),
        ({}, []),
    ],
)
def test_log_probabilities_are_shown_where_they_are_wanted(
    members: dict[str, Any], expected: list[Any]
) -> None:
    parts = ReplyParts()
    held = parts.progress(TextDelta(""), (TOKEN,))
    said = parts.progress(TextDelta("HiHi"), (TOKEN,))
    events = [StreamStart(), held, said, StreamComplete(StopReason.end_of_turn)]
    (item,) = output(events, **members)
    assert item["content"][0]["logprobs"] == expected
    stream = parse_stream(stream_of(events, call_for(**members)))
    (delta,) = (event for event in stream if event["type"] == "response.output_text.delta")
    assert delta["logprobs"] == expected


def test_obfuscated_deltas_hide_their_length() -> None:
    call = call_for(stream_options={"include_obfuscation": True})
    events = says(TextDelta("a"), TextDelta("b" * 40), ReasoningDelta("c"), *called("look", "{}"))
    stream = parse_stream(stream_of(events, call))
    deltas = [event for event in stream if event["type"].endswith(".delta")]
    assert len(deltas) == 4
    for event in deltas:
        assert (len(event["delta"]) + len(event["obfuscation"])) % OBFUSCATED_SIZE == 0
    assert not any("obfuscation" in event for event in parse_stream(stream_of(events)))


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (upstream_error("p", "broke off."), "server_error"),
        (context_length_exceeded(10, 20, 1), "context_length_exceeded"),
        (APIError(429, "Slowly."), "rate_limit_exceeded"),
        (APIError(429, "Pay.", code="insufficient_quota"), "insufficient_quota"),
        (APIError(400, "No."), "invalid_prompt"),
        (APIError(503, "Later."), "server_is_overloaded"),
    ],
)
def test_an_error_is_told_in_both_shapes_and_fails_the_response(error: APIError, code: str) -> None:
    renderer = call_for().stream_renderer(LABELS)
    begun = b"".join(renderer.render(0, event) for event in says(TextDelta("Hel"))[:-1])
    *_, told, failed = events = parse_stream(begun + renderer.fail(error))
    assert told["type"] == "error"
    assert told["error"] == error.body()["error"]
    assert (told["message"], told["code"]) == (error.message, error.code)
    assert failed["type"] == "response.failed"
    assert failed["response"]["error"] == {"code": code, "message": error.message}
    assert failed["response"]["status"] == "failed"
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert renderer.whole == failed["response"]


# --------------------------------------------------------------------------------------------------
# Whatever is said
# --------------------------------------------------------------------------------------------------

pieces = st.lists(st.text(min_size=1, max_size=6), min_size=1, max_size=4)


@st.composite
def call_texts(draw: st.DrawFn) -> tuple[str, str]:
    """A tool's name, and the text of its arguments, which need not make sense."""
    name = draw(st.sampled_from(["look", "patch", "team__ask", "team__tell", "other"]))
    sensible = draw(st.text(max_size=12))
    given = st.sampled_from(
        [wrap(sensible), json.dumps({"input": sensible, "b": 1}), '{"b": {}}', "", "{oops", "[1]"]
    )
    return name, draw(given)


@st.composite
def deltas(draw: st.DrawFn) -> list[Any]:
    said: list[Any] = []
    assembler = ToolCallAssembler(whole=draw(st.booleans()))
    count = 0
    for kind in draw(st.lists(st.sampled_from(["text", "reasoning", "refusal", "calls"]))):
        if kind == "calls":
            made = draw(st.lists(call_texts(), min_size=1, max_size=3))
            waiting: list[tuple[int, str]] = []
            for offset, (name, text) in enumerate(made):
                index = count + offset
                signature = draw(st.sampled_from([None, "c2VhbA=="]))
                said += assembler.push(
                    index=index, call_id=f"c{index}", tool_name=name, thought_signature=signature
                )
                cut = [
                    part.decode("latin-1") for part in draw(cuts(text.encode("latin-1", "replace")))
                ]
                waiting += [(index, piece) for piece in cut]
            # Pieces of one call keep their order; those of several are mixed.
            order = draw(st.permutations([index for index, _ in waiting]))
            queues = {i: [piece for j, piece in waiting if i == j] for i, _ in waiting}
            for index in order:
                said += assembler.push(index=index, arguments=queues[index].pop(0))
            if draw(st.booleans()):
                for index in draw(st.permutations(range(count, count + len(made)))):
                    said += assembler.end(index)
            count += len(made)
        else:
            delta = {"text": TextDelta, "reasoning": ReasoningDelta, "refusal": RefusalDelta}[kind]
            said += [delta(piece) for piece in draw(pieces)]
            if kind == "reasoning" and draw(st.booleans()):
                said.append(SIGNED)
    return said + assembler.finish(cut=draw(st.booleans()))


@settings(max_examples=examples(150), deadline=None)
@given(deltas(), st.sampled_from(StopReason), st.sampled_from([None, "auto"]))
def test_every_stream_is_one_that_the_sdk_takes_and_comes_to_the_whole_reply(
    said: list[Any], stop: StopReason, summary: str | None
) -> None:
    call = call_for(reasoning={"summary": summary})
    events = says(*said, stop=stop)
    response = check_events(parse_stream(stream_of(events, call)))
    whole = whole_of(events, call)
    check_response(whole)
    assert response | {"completed_at": 0} == whole | {"completed_at": 0}
    parse_input([*response["output"], {"role": "user", "content": "And?"}])
