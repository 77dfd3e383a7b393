"""What a request leaves behind that fails: nothing, or large bodies would pile up."""

from __future__ import annotations

import json
from typing import Any

import pytest

from routing.request import Request
from tests.garbage import leaving_none
from tests.unit.routing.ingress.test_apis import application

HELLO = {"model": "echo", "messages": [{"role": "user", "content": "Hi"}]}


async def status_of(body: bytes, path: str = "/v1/chat/completions") -> int:
    app = application()
    await app.runtime.start()
    waiting = [{"type": "http.request", "body": body}, {"type": "http.disconnect"}]
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return waiting.pop(0)

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    headers = [(b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": path, "query_string": b""}
    with leaving_none(Request):
        await app({**scope, "headers": headers, "extensions": {}}, receive, send)
    await app.stop()
    return int(sent[0]["status"])


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (json.dumps(HELLO).encode()[:-1], 400),
        (json.dumps({**HELLO, "model": "other"}).encode(), 404),
        (json.dumps({**HELLO, "n": -1}).encode(), 400),
        (json.dumps({**HELLO, "messages": 5}).encode(), 400),
    ],
)
async def test_a_request_that_is_refused_leaves_nothing(body: bytes, status: int) -> None:
    assert await status_of(body) == status
