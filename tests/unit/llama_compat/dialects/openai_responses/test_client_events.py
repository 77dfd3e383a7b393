"""What a client sends over a WebSocket, before it goes anywhere."""

from __future__ import annotations

import json
from typing import Any

import pytest

from llama_compat.dialects.base import Asked, Labels
from llama_compat.dialects.openai_responses.client_events import (
    MAX_STREAM_ID,
    RESPONSE_CREATE,
    WARM_UP,
    Envelope,
    envelope,
    warmed_up,
)
from llama_compat.dialects.openai_responses.keeping import Keeping
from llama_compat.dialects.openai_responses.operations import RESPONSES
from llama_compat.errors import APIError
from llama_compat.wire import sse
from llama_compat.wire.json_fields import encode_fields, parse_fields
from tests.sdk_responses import check_response


def look(**members: Any) -> Asked:
    event = {"type": "response.create", "model": "m", "input": "Hi", **members}
    return RESPONSE_CREATE.look(parse_fields(json.dumps(event).encode()), {})


def test_an_event_is_a_request_with_a_stream() -> None:
    asked = look(stream_id="a", store=False, background=False, stream=True, generate=True)
    assert asked.stream
    assert asked.operation is RESPONSES
    assert asked.fields is not None
    assert json.loads(encode_fields(asked.fields)) == {
        "model": "m",
        "input": "Hi",
        "store": False,
        "stream": True,
    }


def test_nothing_may_be_generated() -> None:
    assert look(generate=False).operation is WARM_UP


@pytest.mark.parametrize(
    ("members", "param", "code"),
    [
        ({"type": "response.steer"}, "type", "unknown_event_type"),
        ({"type": None}, "type", "unknown_event_type"),
        ({"type": ["response.create"] * 1000}, "type", "unknown_event_type"),
        ({"stream_id": ""}, "stream_id", "invalid_value"),
        ({"stream_id": 1}, "stream_id", "invalid_value"),
        ({"stream_id": "x" * (MAX_STREAM_ID + 1)}, "stream_id", "invalid_value"),
        ({"stream_id": "x" * 100_000}, "stream_id", "invalid_value"),
        ({"generate": "no"}, "generate", "invalid_type"),
        ({"stream": False}, "stream", "invalid_value"),
        ({"background": True}, "background", "unsupported_parameter"),
        ({"temperature": "hot"}, "temperature", "invalid_type"),
        ({"model": None}, "model", "invalid_type"),
    ],
)
def test_what_is_wrong_is_named(members: dict[str, Any], param: str, code: str) -> None:
    with pytest.raises(APIError) as refused:
        look(**members)
    error = refused.value
    assert (error.status, error.param, error.code) == (400, param, code)


def test_the_type_has_to_be_there() -> None:
    with pytest.raises(APIError) as refused:
        RESPONSE_CREATE.look(parse_fields(b'{"model": "m"}'), {})
    assert refused.value.code == "unknown_event_type"


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ({}, Envelope()),
        ({"stream_id": "a"}, Envelope("a", None)),
        ({"stream_id": "a", "previous_response_id": "r"}, Envelope("a", "r")),
        ({"stream_id": 3, "previous_response_id": []}, Envelope()),
        ({"stream_id": "x" * 2000, "previous_response_id": "y" * 2000}, Envelope()),
        ({"stream_id": None, "previous_response_id": None}, Envelope()),
    ],
)
def test_what_has_to_be_known_before(members: dict[str, Any], expected: Envelope) -> None:
    assert envelope(parse_fields(json.dumps(members).encode())) == expected


def test_a_response_without_output_is_whole() -> None:
    keeping = Keeping("resp_1", store=False)
    body = {"model": "own", "input": "Hi", "tools": [], "previous_response_id": "resp_0"}
    events = warmed_up(body, Labels("public"), keeping)
    told = [json.loads(event.data or b"") for event in sse.EventDecoder().feed(events)]
    assert [event["type"] for event in told] == [
        "response.created",
        "response.in_progress",
        "response.completed",
    ]
    assert [event["sequence_number"] for event in told] == [0, 1, 2]
    response = told[-1]["response"]
    check_response(response)
    assert (response["id"], response["model"], response["output"]) == ("resp_1", "public", [])
    assert response["previous_response_id"] == "resp_0"
    assert response["usage"]["total_tokens"] == 0
    assert keeping.response == response


def test_a_response_without_output_has_to_be_asked_for_rightly() -> None:
    with pytest.raises(APIError, match="text"):
        warmed_up({"text": "plain"}, Labels("m"), Keeping("r", store=False))
