"""The answer to a message, as the frames that its client gets."""

from __future__ import annotations

import json
from typing import Any

from routing.ingress.body import Bodies
from routing.ingress.websocket.frames import Frames
from routing.layers.keeping.recall import ConnectionMemory, Known, Recall

SSE = (b"content-type", b"text/event-stream; charset=utf-8")
JSON = (b"content-type", b"application/json")


class Client:
    """Who gets the frames of one answer."""

    def __init__(self, stream_id: str | None = None, previous: str | None = None) -> None:
        self.got: list[dict[str, Any]] = []
        self.memory = ConnectionMemory(1 << 20, Bodies(1 << 20).one())
        self.frames = Frames(self, stream_id, Recall(self.memory, None, previous))

    async def send(self, message: bytes) -> None:
        self.got.append(json.loads(message))

    async def stream(self, *parts: bytes, headers: Any = ()) -> None:
        await self.begin(200, SSE, *headers)
        for part in parts:
            await self.frames({"type": "http.response.body", "body": part, "more_body": True})
        await self.frames({"type": "http.response.body", "body": b"data: [DONE]\n\n"})

    async def begin(self, status: int, *headers: Any) -> None:
        start = {"type": "http.response.start", "status": status, "headers": list(headers)}
        await self.frames(start)

    @property
    def types(self) -> list[str]:
        return [event["type"] for event in self.got]


def event(kind: str, *, named: bool = True, **members: Any) -> bytes:
    data = json.dumps({"type": kind, **members}).encode()
    name = b"event: %b\n" % kind.encode() if named else b""
    return name + b"data: " + data + b"\n\n"


CREATED = event("response.created", response={"id": "1"})
DELTA = event("response.output_text.delta", delta="x")
COMPLETED = event("response.completed", response={"id": "1", "output": [{"id": "i"}]})
ERROR = event(
    "error",
    status=429,
    code="rate_limit_exceeded",
    message="Too fast.",
    param=None,
    error={"type": "rate_limit_error", "code": "rate_limit_exceeded", "message": "Too fast."},
)
FAILED = event("response.failed", response={"id": "1", "status": "failed"})


async def test_a_response_that_a_vendor_has_cancelled_has_its_end() -> None:
    client = Client()
    response = {"id": "1", "status": "cancelled", "output": []}
    await client.stream(CREATED, event("response.cancelled", response=response))
    assert client.types == ["response.created", "response.cancelled"]


async def test_each_event_is_a_frame() -> None:
    client = Client()
    whole = CREATED + b": keepalive\n\n" + DELTA + COMPLETED
    await client.stream(whole[:40], whole[40:])
    assert client.types == ["response.created", "response.output_text.delta", "response.completed"]
    assert all("stream_id" not in each and "headers" not in each for each in client.got)
    assert client.memory.find("1") is not None


async def test_each_event_names_the_lane() -> None:
    client = Client('the "main" one')
    await client.stream(CREATED + DELTA + COMPLETED)
    assert [each["stream_id"] for each in client.got] == ['the "main" one'] * 3


async def test_what_would_be_headers_comes_with_the_first_event() -> None:
    client = Client()
    more = [(b"x-request-id", b"r"), (b"x-llama-compat-dropped", b"top_k"), (b"server", b"s")]
    await client.stream(CREATED + COMPLETED, headers=more)
    assert client.got[0]["headers"] == {
        "x-request-id": "r",
        "x-llama-compat-dropped": "top_k",
        "server": "s",
    }
    assert "headers" not in client.got[1]


async def test_a_vendor_s_stream_need_not_name_its_events() -> None:
    client = Client()
    last = event("response.completed", named=False, response={"id": "9", "output": []})
    await client.stream(event("response.created", named=False), last)
    assert client.types == ["response.created", "response.completed"]
    assert client.memory.find("9") is not None


async def test_an_error_before_the_stream_is_an_event_with_its_status() -> None:
    client = Client("a", previous="0")
    client.memory.keep("0", Known(()))
    await client.begin(429, JSON, (b"retry-after", b"3"), (b"x-request-id", b"r"))
    error = {"message": "Too fast.", "type": "rate_limit_error", "param": None, "code": "slow"}
    body = json.dumps({"error": error}).encode()
    await client.frames({"type": "http.response.body", "body": body})
    (told,) = client.got
    headers = {"retry-after": "3", "x-request-id": "r"}
    assert told == {
        "stream_id": "a",
        "type": "error",
        "status": 429,
        "error": {**error, "headers": headers},
        "headers": headers,
    }
    assert client.memory.find("0") is None


async def test_a_response_that_breaks_off_fails_in_one_event() -> None:
    client = Client(previous="0")
    client.memory.keep("0", Known(()))
    await client.stream(CREATED, DELTA, ERROR + FAILED)
    assert client.types == ["response.created", "response.output_text.delta", "response.failed"]
    assert client.memory.find("0") is None


async def test_the_numbers_of_events_have_no_gap_where_an_error_is_not_sent() -> None:
    client = Client("a")
    said = [
        event(kind, sequence_number=number, response={"id": "1"})
        for number, kind in enumerate(["response.created", "error", "response.failed"])
    ]
    await client.stream(*said)
    assert client.types == ["response.created", "response.failed"]
    assert [each["sequence_number"] for each in client.got] == [0, 1]
    assert client.got[-1]["response"] == {"id": "1"}


async def test_an_error_before_a_response_is_the_one_event() -> None:
    client = Client()
    await client.stream(ERROR + FAILED)
    (told,) = client.got
    assert (told["type"], told["status"]) == ("error", 429)
    assert told["error"]["code"] == "rate_limit_exceeded"


async def test_a_vendor_s_error_without_an_end_is_told() -> None:
    client = Client()
    await client.stream(CREATED, event("error", code="server_error", message="Oh.", param=None))
    assert client.types == ["response.created", "error"]
    assert client.got[1]["status"] == 500
    assert client.got[1]["error"]["code"] == "server_error"
    assert client.got[1]["error"]["message"] == "Oh."


async def test_a_vendor_s_response_without_an_end_is_an_error() -> None:
    client = Client(previous="0")
    client.memory.keep("0", Known(()))
    await client.stream(CREATED, DELTA)
    assert client.types == ["response.created", "response.output_text.delta", "error"]
    assert client.got[-1]["status"] == 502
    assert client.memory.find("0") is None


async def test_nothing_comes_behind_the_end() -> None:
    client = Client()
    await client.stream(CREATED, COMPLETED, DELTA, FAILED)
    assert client.types == ["response.created", "response.completed"]


async def test_a_vendor_that_does_not_stream_is_one_event() -> None:
    client = Client()
    await client.begin(200, JSON)
    response = {"id": "1", "status": "completed", "output": []}
    await client.frames({"type": "http.response.body", "body": json.dumps(response).encode()})
    assert client.types == ["response.completed"]
    assert client.got[0]["response"] == response


async def test_a_last_event_without_its_blank_line_counts() -> None:
    client = Client()
    await client.begin(200, SSE)
    await client.frames({"type": "http.response.body", "body": CREATED + COMPLETED.rstrip()})
    assert client.types == ["response.created", "response.completed"]
