"""Replies that were relayed, read back in every client's API."""

from __future__ import annotations

import json
from typing import Any

import pytest

from llama_compat.dialects.gemini_interactions.operations import INTERACTIONS
from llama_compat.dialects.ollama.operations import CHAT as OLLAMA_CHAT
from llama_compat.dialects.openai.operations import COMPLETIONS
from llama_compat.dialects.openai_responses.operations import RESPONSES
from llama_compat.types import ReasoningContent, StopReason, TextContent, ToolCall
from llama_compat.wire.json_fields import parse_fields
from llama_compat.wire.sse import last_data


def encoded(value: Any) -> bytes:
    return json.dumps(value).encode()


def event(value: Any) -> bytes:
    return b"data: " + encoded(value) + b"\n\n"


CALL = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": "{}"}
THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}]}


def said_item(text: str, **more: Any) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": [], **more}
    return {"type": "message", "id": "msg_1", "role": "assistant", "content": [part]}


def response(*output: dict[str, Any], status: str = "completed") -> dict[str, Any]:
    usage = {"input_tokens": 3, "output_tokens": 2}
    return {"id": "resp_1", "status": status, "output": list(output), "usage": usage}


@pytest.mark.parametrize("streamed", [False, True])
def test_a_response_says_text_thoughts_and_calls(streamed: bool) -> None:
    whole = response(THOUGHT, said_item("Let me see."), CALL)
    created = {"type": "response.created", "response": {**whole, "status": "in_progress"}}
    ended = {"type": "response.completed", "response": whole}
    body = event(created) + event(ended) if streamed else encoded(whole)
    replies = RESPONSES.replies
    assert replies is not None
    assert replies.finished(body, streamed, 1)
    said = replies.said(body, streamed)
    assert said is not None
    message = said.completion_message
    assert message.stop_reason is StopReason.end_of_message
    thought, text, call = message.parts
    assert (thought, text) == (ReasoningContent("Hm."), TextContent("Let me see."))
    assert isinstance(call, ToolCall)
    assert (call.call_id, call.tool_name) == ("c1", "f")
    assert (said.usage.prompt_tokens, said.usage.completion_tokens) == (3, 2)


@pytest.mark.parametrize(
    "item",
    [
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        said_item("a", annotations=[{"type": "url_citation"}]),
        said_item("a", logprobs=[{"token": "a"}]),
    ],
)
def test_what_there_are_no_words_for_is_not_said(item: dict[str, Any]) -> None:
    replies = RESPONSES.replies
    assert replies is not None
    body = encoded(response(item))
    assert replies.finished(body, False, 1)
    assert replies.said(body, False) is None


@pytest.mark.parametrize(
    "body",
    [
        encoded(response(status="incomplete")),
        encoded(response(status="queued")),
        encoded({**response(), "error": {"code": "server_error"}}),
    ],
)
def test_a_response_that_did_not_end_is_none(body: bytes) -> None:
    replies = RESPONSES.replies
    assert replies is not None
    assert not replies.finished(body, False, 1)


@pytest.mark.parametrize(
    "last",
    [
        {"type": "response.incomplete", "response": response(status="incomplete")},
        {"type": "response.failed", "response": response(status="failed")},
        {"type": "error", "message": "no"},
        {"type": "response.output_text.delta", "delta": '"type":"response.completed"'},
    ],
)
def test_a_stream_of_a_response_ends_with_it(last: dict[str, Any]) -> None:
    replies = RESPONSES.replies
    assert replies is not None
    body = event({"type": "response.completed", "response": response()}) + event(last)
    assert not replies.finished(body, True, 1)


@pytest.mark.parametrize("member", [{"background": True}, {"conversation": {"id": "c"}}])
def test_what_a_vendor_goes_on_with_lasts(member: dict[str, Any]) -> None:
    assert RESPONSES.lasts(parse_fields(encoded({"model": "m", "input": "a", **member})))
    plain = {"model": "m", "input": "a", "background": False, "conversation": None}
    assert not RESPONSES.lasts(parse_fields(encoded(plain)))
    assert not INTERACTIONS.lasts(parse_fields(encoded(plain)))
    assert INTERACTIONS.lasts(parse_fields(encoded({"agent": "a", "input": "a"})))


@pytest.mark.parametrize("status", ["completed", "requires_action", "incomplete", "failed"])
@pytest.mark.parametrize("streamed", [False, True])
def test_an_interaction_says_how_it_ended(status: str, streamed: bool) -> None:
    replies = INTERACTIONS.replies
    assert replies is not None
    whole = {"id": "v1_1", "status": status, "steps": []}
    ended = {"event_type": "interaction.completed", "interaction": whole}
    done = b"event: done\ndata: [DONE]\n\n"
    body = event(ended) + done if streamed else encoded(whole)
    assert replies.finished(body, streamed, 1) is (status in ("completed", "requires_action"))
    blocked = encoded({**whole, "errors": [{"code": "content_blocked"}]})
    assert not replies.finished(blocked, False, 1)


@pytest.mark.parametrize(("reason", "own"), [("stop", True), ("length", False), ("load", False)])
def test_ollama_says_why_it_is_done(reason: str, own: bool) -> None:
    replies = OLLAMA_CHAT.replies
    assert replies is not None
    first = {"message": {"role": "assistant", "content": "a"}, "done": False}
    counts = {"prompt_eval_count": 3, "eval_count": 2}
    last = {"message": {"role": "assistant", "content": ""}, "done": True, "done_reason": reason}
    stream = encoded(first) + b"\n" + encoded({**last, **counts}) + b"\n"
    assert replies.finished(stream, True, 1) is own
    if own:
        said = replies.said(stream, True)
        assert said is not None
        assert said.completion_message.parts == (TextContent("a"),)
        assert said.usage.completion_tokens == 2


def test_a_continuation_of_which_there_are_two_needs_two_ends() -> None:
    replies = COMPLETIONS.replies
    assert replies is not None
    choice = {"index": 0, "text": "a", "finish_reason": "stop"}
    one, two = ({"choices": [choice] * count} for count in (1, 2))
    assert replies.finished(encoded(one), False, 1)
    assert not replies.finished(encoded(one), False, 2)
    assert replies.finished(encoded(two), False, 2)
    said = replies.said(encoded(one), False)
    assert said is not None
    assert said.completion_message.parts == (TextContent("a"),)


@pytest.mark.parametrize(
    ("body", "data"),
    [
        (b"", b""),
        (b"data: a\n\n", b"a"),
        (b"data: a\r\n\r\ndata: b\r\n\r\n", b"b"),
        (b"event: x\ndata:b\n\ndata: [DONE]\n\n", b"b"),
        (b": data: c\n\n", b""),
        (b'data: {"a": "data: c"}\n\n', b'{"a": "data: c"}'),
        (b"data: a\n\ndata:", b"a"),
    ],
)
def test_the_last_data_of_a_stream(body: bytes, data: bytes) -> None:
    assert last_data(body) == data
