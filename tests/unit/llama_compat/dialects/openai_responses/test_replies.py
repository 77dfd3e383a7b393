"""What a vendor answers who was asked for a response, whole and streamed: the same either way."""

from __future__ import annotations

from typing import Any

import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from llama_compat.dialects.openai_responses.output.response_object import (
    repeated,
    response_object,
    response_usage,
)
from llama_compat.dialects.openai_responses.output.whole import whole_as_events
from llama_compat.dialects.openai_responses.replies import StreamParser, parse_reply
from llama_compat.events import Collector
from llama_compat.hosted.vocabulary import Citation, HostedCall, WebSource
from llama_compat.types import (
    ChatCompletionResponse,
    ReasoningContent,
    RefusalContent,
    StopReason,
    StreamProgress,
    TextContent,
    ToolCall,
    ToolCallDelta,
    ToolCallParseStatus,
    Units,
    UnparseableToolCall,
    Usage,
)
from llama_compat.wire import sse
from llama_compat.wire.json_lines import decode_object

_EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)

TEXT = "It is 6,650 km (rivers.example)."
CITED = {
    "type": "url_citation",
    "start_index": 15,
    "end_index": 31,
    "url": "https://rivers.example/nile",
    "title": "The Nile",
}


def search(action: dict[str, Any], status: str = "completed", number: int = 1) -> dict[str, Any]:
    return {"type": "web_search_call", "id": f"ws_{number}", "status": status, "action": action}


SEARCHED = search(
    {
        "type": "search",
        "query": "nile",
        "sources": [{"type": "url", "url": "https://rivers.example/nile"}],
    }
)
OPENED = search({"type": "open_page", "url": "https://rivers.example/nile"}, number=2)


def said(*content: dict[str, Any], status: str = "completed") -> dict[str, Any]:
    return {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": status,
        "content": list(content),
    }


def text(value: str = TEXT, *annotations: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "output_text",
        "text": value,
        "annotations": list(annotations),
        "logprobs": [],
    }


def called(arguments: str, status: str = "completed") -> dict[str, Any]:
    return {
        "type": "function_call",
        "id": "fc_1",
        "call_id": "call_1",
        "name": "see",
        "arguments": arguments,
        "status": status,
    }


def response(*items: dict[str, Any], **more: Any) -> dict[str, Any]:
    counted = Usage(70, 9, 5, 3)
    whole = response_object(
        repeated({}),
        response_id="resp_1",
        created=1,
        model="gpt",
        status=more.pop("status", "completed"),
        output=items,
        usage=counted,
        service_tier="flex",
        **more,
    )
    Response.model_validate(whole)
    return whole


def events_of(whole: dict[str, Any]) -> list[dict[str, Any]]:
    """Those of OpenAI's stream: what our own renderer makes of it, which its SDK understands."""
    frames = sse.EventDecoder().feed(whole_as_events(whole))
    events = [decode_object(each.data) for each in frames if each.data and not each.is_done]
    for event in events:
        _EVENT.validate_python(event)
    return events


def streamed(whole: dict[str, Any]) -> ChatCompletionResponse:
    return collected(*events_of(whole))


def read(*items: dict[str, Any], **more: Any) -> ChatCompletionResponse:
    whole = response(*items, **more)
    reply = parse_reply(whole)
    assert streamed(whole) == reply
    return reply


def test_a_search_and_what_is_cited() -> None:
    reply = read(SEARCHED, OPENED, said(text(TEXT, CITED)))
    source = WebSource("https://rivers.example/nile", "The Nile")
    assert reply.completion_message.parts == (
        HostedCall(
            "ws_1",
            "web_search",
            "web_search",
            '{"query":"nile"}',
            status="completed",
            sources=(WebSource("https://rivers.example/nile"),),
            model_name="web_search",
        ),
        TextContent(TEXT, (Citation(15, 31, source, "(rivers.example)"),)),
    )
    assert reply.completion_message.stop_reason is StopReason.end_of_turn
    # The page that was opened is not paid for.
    assert reply.usage == Usage(70, 9, 5, 3, 0, units=Units(searches=1))
    assert reply.service_tier == "flex"


def test_several_texts_have_places_of_their_own() -> None:
    reply = read(said(text("One. "), text(TEXT, CITED), {"type": "refusal", "refusal": "No."}))
    first, second, refusal = reply.completion_message.parts
    assert first == TextContent("One. ")
    assert isinstance(second, TextContent)
    assert [(each.start, each.text) for each in second.citations] == [(15, "(rivers.example)")]
    assert refusal == RefusalContent("No.")
    assert reply.usage.units is None


def test_thoughts() -> None:
    thought = {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "Hm."}],
        "encrypted_content": "x",
    }
    assert read(thought, said(text())).completion_message.parts[0] == ReasoningContent("Hm.")


def test_a_call_of_a_function() -> None:
    message = read(said(text("Wait.")), called('{"a":1}')).completion_message
    assert message.tool_calls == (ToolCall("call_1", "see", {"a": 1}, '{"a":1}'),)
    assert message.stop_reason is StopReason.end_of_message


def test_a_call_in_which_the_tokens_ran_out() -> None:
    cut = {"status": "incomplete", "incomplete": "max_output_tokens"}
    message = read(called('{"a', "incomplete"), **cut).completion_message
    assert message.tool_calls == (UnparseableToolCall("call_1", "see", '{"a'),)
    assert message.stop_reason is StopReason.out_of_tokens


@pytest.mark.parametrize(
    ("why", "reason"),
    [
        ("max_output_tokens", StopReason.out_of_tokens),
        ("content_filter", StopReason.content_filter),
    ],
)
def test_what_was_cut_short(why: str, reason: StopReason) -> None:
    reply = read(said(text("It"), status="incomplete"), status="incomplete", incomplete=why)
    assert reply.completion_message.stop_reason is reason


def test_a_search_that_failed_or_says_little() -> None:
    failed, several = read(
        search({"type": "search", "query": "a"}, "failed"),
        search({"type": "search", "queries": ["b", "c"]}, number=3),
    ).completion_message.parts
    assert isinstance(failed, HostedCall)
    assert isinstance(several, HostedCall)
    assert (failed.status, several.arguments_json) == ("failed", '{"query":"b"}')


def test_halves_of_a_character_come_together() -> None:
    parser = StreamParser()
    at = {"output_index": 0, "content_index": 0, "item_id": "m"}
    events: list[dict[str, Any]] = [
        {"type": "response.output_text.delta", "delta": half, **at}
        for half in ("\ud83d", "\ude00", "\ud83d")
    ]
    events.append({"type": "response.content_part.done", "part": text("all of it"), **at})
    parts = [each for event in events for each in parser.push(event)]
    texts = [each.delta.text for each in parts if isinstance(each, StreamProgress)]  # type: ignore[union-attr]
    assert "".join(texts) == "\N{GRINNING FACE}\N{REPLACEMENT CHARACTER}"


def collected(*events: dict[str, Any]) -> ChatCompletionResponse:
    parser, collector = StreamParser(), Collector()
    for event in events:
        for each in parser.push(event):
            collector.add(each)
    for each in parser.finish():
        collector.add(each)
    return collector.chat_completion()


def completed(whole: dict[str, Any]) -> dict[str, Any]:
    return {"type": "response.completed", "response": whole}


def item_done(index: int, item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "response.output_item.done", "output_index": index, "item": item}


def test_halves_of_a_character_come_together_in_thoughts_and_refusals() -> None:
    halves = ("\ud83d", "\ude00", "\ud83d")
    at = {"output_index": 0}
    message = collected(
        *(
            {"type": "response.reasoning_summary_text.delta", "delta": each, **at}
            for each in halves
        ),
        {"type": "response.output_item.done", "item": {"type": "reasoning"}, **at},
        *({"type": "response.refusal.delta", "delta": each, **at} for each in halves),
        {"type": "response.content_part.done", "part": {"type": "refusal", "refusal": "x"}, **at},
        completed(response()),
    ).completion_message
    whole = "\N{GRINNING FACE}\N{REPLACEMENT CHARACTER}"
    assert message.parts == (ReasoningContent(whole), RefusalContent(whole))


@pytest.mark.parametrize("alone", [True, False], ids=["in-the-last-event", "item-by-item"])
def test_what_comes_in_no_piece_is_taken_from_what_has_all_of_it(alone: bool) -> None:
    thought = {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "Hm."}]}
    items = [
        thought,
        SEARCHED,
        said(text("One."), text(TEXT, CITED), {"type": "refusal", "refusal": "No."}),
        said(text("Two.")),
        called('{"a":1}'),
    ]
    whole = response(*items)
    done = [] if alone else [item_done(index, item) for index, item in enumerate(items)]
    assert collected(*done, completed(whole)) == parse_reply(whole)


def test_a_place_may_be_told_before_its_text() -> None:
    at = {"output_index": 0, "content_index": 0, "item_id": "m"}
    named = {"type": "response.output_text.annotation.added", "annotation": CITED, **at}
    spoken = {"type": "response.output_text.delta", "delta": TEXT, **at}
    ends = {"type": "response.content_part.done", "part": text(TEXT, CITED), **at}
    whole = response(said(text(TEXT, CITED)))
    assert collected(named, spoken, ends, completed(whole)) == parse_reply(whole)
    assert collected(named, spoken, completed(whole)) == parse_reply(whole)


@pytest.mark.parametrize(
    ("place", "cited"),
    [((15, 9999), [(15, 32)]), ((40, 50), [(32, 32)]), ((9, 3), [(9, 9)]), ((-1, 5), [])],
)
def test_a_place_is_in_the_text(place: tuple[int, int], cited: list[tuple[int, int]]) -> None:
    start, end = place
    (part,) = read(
        said(text(TEXT, {**CITED, "start_index": start, "end_index": end}))
    ).completion_message.parts
    assert isinstance(part, TextContent)
    assert [(each.start, each.end) for each in part.citations] == cited


def test_kinds_of_items_and_parts_that_are_not_known_are_left_out() -> None:
    whole = response(said(text()))
    whole["output"][0]["content"].append({"type": "output_video", "url": "x"})
    whole["output"].append({"type": "dream"})
    assert parse_reply(whole).completion_message.parts == (TextContent(TEXT),)


@pytest.mark.parametrize("status", ["failed", "cancelled", "queued", "in_progress"])
def test_a_response_that_is_none_is_no_reply(status: str) -> None:
    with pytest.raises(ValueError, match=f"the response is '{status}'"):
        parse_reply(response(status=status))


PIECES: list[dict[str, Any]] = [
    {"type": "response.created", "response": {}},
    {"type": "response.output_item.added", "output_index": 0, "item": {"type": "reasoning"}},
    *(
        {"type": "response.reasoning_summary_text.delta", "output_index": 0, "delta": each}
        for each in ("H", "m.")
    ),
    {
        "type": "response.output_item.done",
        "output_index": 0,
        "item": {"type": "reasoning", "summary": [{"text": "Hm."}]},
    },
    {"type": "response.output_item.added", "output_index": 1, "item": {"type": "message"}},
    {"type": "response.content_part.added", "output_index": 1, "part": text("")},
    {"type": "response.output_text.delta", "output_index": 1, "delta": TEXT[:9]},
    {"type": "response.output_text.delta", "output_index": 1, "delta": TEXT[9:]},
    {"type": "response.output_text.annotation.added", "output_index": 1, "annotation": CITED},
    {"type": "response.content_part.done", "output_index": 1, "part": text(TEXT, CITED)},
    {"type": "response.content_part.added", "output_index": 1, "part": {"type": "refusal"}},
    *({"type": "response.refusal.delta", "output_index": 1, "delta": each} for each in ("N", "o.")),
    {
        "type": "response.content_part.done",
        "output_index": 1,
        "part": {"type": "refusal", "refusal": "No."},
    },
]


def test_what_comes_in_pieces_comes_once() -> None:
    thought = {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "Hm."}]}
    whole = response(thought, said(text(TEXT, CITED), {"type": "refusal", "refusal": "No."}))
    assert collected(*PIECES, completed(whole)) == parse_reply(whole)


def test_a_stream_that_breaks_off_fails_its_calls() -> None:
    parser = StreamParser()
    added = {"type": "response.output_item.added", "output_index": 0, "item": called("")}
    parser.push(added)
    rest = parser.finish()
    failed = next(rest)
    assert isinstance(failed, StreamProgress)
    assert isinstance(failed.delta, ToolCallDelta)
    assert failed.delta.parse_status is ToolCallParseStatus.failed
    with pytest.raises(ValueError, match="broke off"):
        next(rest)


@pytest.mark.parametrize(
    "event",
    [
        {"type": "response.output_text.delta"},
        {"type": "response.output_text.delta", "delta": 5},
        {"type": "response.reasoning_text.delta", "delta": 5},
        {"type": "response.refusal.delta", "delta": ["x"]},
        {"type": "response.output_item.added", "output_index": 0, "item": {}},
        {"type": "response.completed", "response": None},
    ],
)
def test_what_is_no_event(event: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="not one of a response"):
        StreamParser().push(event)


def test_a_whole_reply_in_place_of_a_stream() -> None:
    whole = response(SEARCHED, said(text(TEXT, CITED)))
    collector = Collector()
    for each in StreamParser().push(whole):
        collector.add(each)
    assert collector.chat_completion() == parse_reply(whole)


@pytest.mark.parametrize("value", [{}, {"output": None}, {"output": [{}]}, {"output": [1]}])
def test_what_is_no_response(value: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="not a response"):
        parse_reply(value)


def test_searches_are_counted_with_tokens_alone() -> None:
    assert response_usage({"output": [SEARCHED]}) is None
    assert response_usage({"usage": "x", "output": [SEARCHED]}) is None
    told = {"usage": {"input_tokens": 1, "output_tokens": 2}}
    assert response_usage({**told, "output": "x"}) == Usage(1, 2)
    assert response_usage({**told, "output": [SEARCHED, SEARCHED, OPENED, 1]}) == Usage(
        1, 2, units=Units(searches=2)
    )
