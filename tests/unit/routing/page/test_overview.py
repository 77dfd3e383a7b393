"""What the page is told, and who is told it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from routing.app import Application
from tests.unit.routing.ingress.test_apis import application, shape

ADMIN_KEY = "the-admin-key"
ADMIN = {"authorization": f"Bearer {ADMIN_KEY}"}
CHAT = json.dumps({"model": "echo", "messages": [{"role": "user", "content": "a b"}]}).encode()


def client_of(app: Application) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app=app)  # type: ignore[arg-type]
    return httpx.AsyncClient(transport=transport, base_url="http://server")


async def told(app: Application, path: str, **headers: str) -> httpx.Response:
    async with client_of(app) as client:
        return await client.get(f"/admin/{path}", headers={**ADMIN, **headers})


def held(app: Application) -> tuple[asyncio.Event, asyncio.Event]:
    """Have chats wait: the first is set when one has come, and the second lets it go on."""
    begun, go = asyncio.Event(), asyncio.Event()
    provider: Any = app.runtime.providers["echo"]
    whole = provider.openai_chat_completion

    async def waiting(*arguments: Any) -> Any:
        begun.set()
        await go.wait()
        return await whole(*arguments)

    provider.openai_chat_completion = waiting
    return begun, go


@pytest.mark.parametrize("path", ["overview", "errors", "live"])
async def test_nobody_else_is_told(path: str) -> None:
    app = application(admin_key=ADMIN_KEY, api_keys=["sk-anybody"])
    refused = await told(app, path, authorization="Bearer sk-anybody")
    assert (refused.status_code, refused.json()["error"]["code"]) == (401, "invalid_admin_key")
    nobody = await told(application(), path)
    assert (nobody.status_code, nobody.json()["error"]["code"]) == (403, "admin_disabled")


@pytest.mark.parametrize("path", ["overview", "errors"])
async def test_without_records_it_is_said_how_to_have_them(path: str) -> None:
    reply = await told(application(admin_key=ADMIN_KEY), path)
    assert (reply.status_code, shape(reply.json())) == (409, "openai")
    assert reply.json()["error"]["code"] == "no_records"
    assert "server.records" in reply.json()["error"]["message"]


async def test_a_storage_that_fails_is_a_503(tmp_path: Path) -> None:
    storage = tmp_path / "folder.sqlite"
    storage.mkdir()
    app = application(admin_key=ADMIN_KEY, records={}, storage=f"sqlite:{storage}")
    for path in ("overview", "errors"):
        reply = await told(app, path)
        assert reply.status_code == 503
        assert str(tmp_path) not in reply.text


async def test_what_is_no_span_is_refused() -> None:
    reply = await told(application(admin_key=ADMIN_KEY, records={}), "overview?span=2h")
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == "span"


async def test_what_was_recorded_is_told(tmp_path: Path) -> None:
    settings = {
        "admin_key": ADMIN_KEY,
        "records": {},
        "storage": f"sqlite:{tmp_path / 'operations.sqlite'}",
    }
    before = application(**settings)
    await before.start()
    async with client_of(before) as client:
        for model in ("echo", "echo", "none"):
            body = CHAT.replace(b'"echo"', json.dumps(model).encode())
            await client.post("/v1/chat/completions", content=body)
    # All is written when it stops.
    await before.stop()
    app = application(**settings)
    await app.start()
    found: dict[str, Any] = (await told(app, "overview?span=1h")).json()
    [error] = (await told(app, "errors")).json()["data"]
    await app.stop()
    assert sum(point["requests"] for point in found["points"]) == 3
    assert sum(point["output_tokens"] for point in found["points"]) == 4
    assert {each["name"]: each["requests"] for each in found["by"]["model"]} == {"echo": 2, "": 1}
    assert (error["status"], error["model"]) == (404, "none")
    assert error["request_id"]


async def test_what_runs_is_told_until_it_ends() -> None:
    app = application(admin_key=ADMIN_KEY)
    # Nobody counts, so vendors are not asked for a stream's usage.
    assert not app.runtime.counts_usage
    begun, go = held(app)
    await app.start()
    async with client_of(app) as client:
        headers = {"x-request-id": "mine"}
        asking = asyncio.create_task(
            client.post("/v1/chat/completions", content=CHAT, headers=headers)
        )
        await begun.wait()
        live = (await told(app, "live")).json()
        go.set()
        assert (await asking).status_code == 200
    after = (await told(app, "live")).json()
    await app.stop()
    [request] = live["requests"]
    assert request.pop("seconds") >= 0
    assert request == {
        "request_id": "mine",
        "key": "anybody",
        "api": "openai",
        "operation": "chat",
        "model": "echo",
        "stream": False,
        "target": "echo/echo",
        "attempts": 1,
        "sent_bytes": 0,
        "guardrails": "",
    }
    [target] = live["targets"]
    assert (target["id"], target["in_flight"]) == ("echo/echo", 1)
    assert (live["records"], live["stored_keys"], live["engines"]) == (False, False, [])
    assert (after["requests"], after["targets"][0]["in_flight"]) == ([], 0)


async def test_what_runs_is_told_when_a_reload_has_replaced_what_it_runs_on() -> None:
    app = application(admin_key=ADMIN_KEY)
    begun, go = held(app)
    await app.start()
    async with client_of(app) as client:
        asking = asyncio.create_task(client.post("/v1/chat/completions", content=CHAT))
        await begun.wait()
        before = app.runtime
        await app.reload(app.runtime.distribution)
        assert app.runtime is not before
        live = (await told(app, "live")).json()
        go.set()
        await asking
    await app.stop()
    assert [each["model"] for each in live["requests"]] == ["echo"]
