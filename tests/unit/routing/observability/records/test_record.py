"""What is recorded of requests that are refused: who was refused what, and nothing of nobody."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.unit.routing.applications import ask, serving

KEY = "sk-k"
MANY = 300


def template(folder: Path) -> dict[str, Any]:
    return {
        "server": {
            "metrics": True,
            "records": {"record_bodies": "all"},
            "storage": f"sqlite:{folder / 'records.sqlite'}",
        },
        "keys": [
            {
                "name": "k",
                "key": KEY,
                "models": ["echo", "limited", "dear"],
                "limits": {"tokens_per_minute": 5000},
                "budget": {"amount": 0.01},
            }
        ],
        "providers": [{"id": "echo", "type": "local::echo"}],
        "models": [
            {"id": "echo", "provider": "echo"},
            {"id": "other", "provider": "echo"},
            {
                "id": "limited",
                "provider": "echo",
                "aliases": ["echoes"],
                "limits": {"tokens_per_minute": 1},
            },
            {"id": "dear", "provider": "echo", "price": {"input": 10, "output": 1000}},
        ],
    }


def rows(folder: Path, statement: str) -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(folder / "records.sqlite")
    try:
        return connection.execute(statement).fetchall()
    finally:
        connection.close()


def asking(model: str, **members: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": "Hello"}], **members}


@pytest.mark.parametrize(
    ("body", "status", "model"),
    [
        (asking("echo", max_tokens=9000), 429, "echo"),
        (asking("limited", max_tokens=9), 429, "limited"),
        (asking("dear", max_tokens=100), 429, "dear"),
        (asking("dear", max_tokens=100, stream=True), 429, "dear"),
        (asking("other"), 403, "other"),
    ],
)
async def test_a_refused_request_has_its_model(
    tmp_path: Path, body: dict[str, Any], status: int, model: str
) -> None:
    async with serving(tmp_path, **template(tmp_path)) as app:
        assert await ask(app, body, KEY) == status
    ((*found, stream),) = rows(tmp_path, "SELECT status, model, route, stream FROM records")
    assert found == [status, model, model]
    assert bool(stream) == (status == 429 and body.get("stream", False))


async def test_what_nobody_asks_is_counted_and_not_kept(tmp_path: Path) -> None:
    async with serving(tmp_path, **template(tmp_path)) as app:
        assert await ask(app, asking("echo"), KEY) == 200
        for _ in range(MANY):
            assert await ask(app, asking("echo"), "sk-wrong") == 401
        # Somebody's mistake is his own.
        assert await ask(app, {}, KEY, method="GET") == 405
        observers = app.runtime.observers
        assert observers is not None
        assert observers.meter is not None
        observers.flush()
        counted = await observers.meter.text()
    assert rows(tmp_path, "SELECT status FROM records ORDER BY id") == [(200,), (405,)]
    assert rows(tmp_path, "SELECT count(*) FROM bodies") == [(2,)]
    assert rows(tmp_path, "SELECT sum(requests) FROM rollups") == [(2,)]
    lines = [each for each in counted.splitlines() if b'status="401"' in each]
    assert any(each.endswith(b" %d.0" % MANY) for each in lines), lines
