"""What a server that takes WebSockets is told."""

from __future__ import annotations

from typing import Any

import pytest

from routing.ingress.websocket.offer import refuse_websocket


@pytest.mark.parametrize(
    ("extensions", "expected"),
    [
        ({}, ["websocket.close"]),
        (
            {"websocket.http.response": {}},
            ["websocket.http.response.start", "websocket.http.response.body"],
        ),
    ],
)
async def test_a_websocket_is_refused(extensions: dict[str, Any], expected: list[str]) -> None:
    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await refuse_websocket({"path": "/v1/responses", "extensions": extensions}, send)
    assert [message["type"] for message in sent] == expected
    if extensions:
        assert sent[0]["status"] == 426
        assert b"no WebSocket at /v1/responses" in sent[1]["body"]
