"""HTTP/1.1 by the standard library's client: the tests see a reply's very bytes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from email.message import Message
from http.client import HTTPConnection, HTTPResponse
from typing import Any
from urllib.parse import urlsplit

TIMEOUT_SECONDS = 60


@dataclass(frozen=True)
class Reply:
    """A whole reply: its status, its headers, and its body as it came."""

    status: int
    headers: Message
    body: bytes

    def json(self) -> Any:
        """The body, which has to be JSON."""
        return json.loads(self.body)

    def error(self) -> dict[str, Any]:
        """The error of an answer in OpenAI's shape, which this has to be."""
        body = self.json()
        assert set(body) == {"error"}, body
        assert {"message", "type", "param", "code"} <= set(body["error"]), body
        error = body["error"]
        assert isinstance(error, dict)
        assert isinstance(error["message"], str)
        assert error["message"]
        assert isinstance(error["type"], str)
        return error


def request(
    method: str,
    url: str,
    body: bytes | dict[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Reply:
    """Send a request, a dict as JSON, and read the whole reply."""
    with open_reply(method, url, body, headers) as reply:
        return Reply(reply.status, reply.headers, reply.read())


@contextmanager
def open_reply(
    method: str,
    url: str,
    body: bytes | dict[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Iterator[HTTPResponse]:
    """Send a request and hand over the reply as soon as its headers are there.

    Leaving the context closes the connection.
    """
    parts = urlsplit(url)
    assert parts.hostname is not None
    connection = HTTPConnection(parts.hostname, parts.port, timeout=TIMEOUT_SECONDS)
    try:
        content = json.dumps(body).encode() if isinstance(body, dict) else body
        sent = {"content-type": "application/json"} if content is not None else {}
        target = f"{parts.path}?{parts.query}" if parts.query else parts.path
        connection.request(method, target, content, {**sent, **(headers or {})})
        reply = connection.getresponse()
        try:
            yield reply
        finally:
            reply.close()
    finally:
        connection.close()


def events(reply: HTTPResponse) -> Iterator[bytes]:
    """The data of each event of a stream, as soon as it is there; comments are left out."""
    data: list[bytes] = []
    while line := reply.readline():
        line = line.rstrip(b"\r\n")
        if line.startswith(b"data:"):
            data.append(line[5:].removeprefix(b" "))
        elif not line and data:
            yield b"\n".join(data)
            data = []
    assert not data, "the stream ended inside an event"


def chunks(reply: HTTPResponse) -> list[dict[str, Any]]:
    """The JSON objects of a whole stream, which has to end with exactly one `[DONE]`."""
    *objects, last = events(reply)
    assert last == b"[DONE]"
    return [json.loads(data) for data in objects]


def next_text(events: Iterator[bytes]) -> str:
    """The next piece of text that the events of a chat stream bring."""
    for data in events:
        content = json.loads(data)["choices"][0]["delta"].get("content")
        if content:
            assert isinstance(content, str)
            return content
    raise AssertionError("the stream has no more text")


def eventually(true: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait until `true` says so."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"not so within {seconds} s"
        time.sleep(0.02)
