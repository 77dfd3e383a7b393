"""Targets are drained, opened and tried; and it is known who did it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from llama_compat.errors import APIError
from routing.app import Application
from tests.unit.routing.page.test_models import KEYS, application
from tests.unit.routing.page.test_overview import ADMIN, client_of, told

TARGET = "targets/echo/e/one"


async def post(app: Application, path: str, body: Any = None, **headers: str) -> httpx.Response:
    async with client_of(app) as client:
        return await client.post(f"/admin/{path}", json=body, headers={**ADMIN, **headers})


async def ask(app: Application, model: str = "both") -> httpx.Response:
    body = {"model": model, "messages": [{"role": "user", "content": "a b"}]}
    headers = {"authorization": "Bearer sk-for-all-models"}
    async with client_of(app) as client:
        return await client.post("/v1/chat/completions", json=body, headers=headers)


def settings(folder: Path, **more: Any) -> dict[str, Any]:
    return {"storage": f"sqlite:{folder / 'operations.sqlite'}", **more}


async def test_one_that_is_drained_is_asked_nothing_until_it_is_opened(tmp_path: Path) -> None:
    app = application(server=settings(tmp_path), keys=KEYS)
    await app.start()
    drained = await post(app, f"{TARGET}/drain", **{"x-llama-compat-operator": "Ann"})
    assert drained.status_code == 200
    assert (drained.json()["drained"], drained.json()["shared"]) == (True, False)
    reply = await ask(app)
    assert reply.headers["x-llama-compat-target"] == "other/two"
    assert (await told(app, "models")).json()["data"][0]["targets"][0]["drained"]
    # A reload of the same keeps it.
    await app.reload(application(server=settings(tmp_path), keys=KEYS).runtime.distribution)
    assert (await ask(app)).headers["x-llama-compat-target"] == "other/two"
    await post(app, "targets/other/two/drain")
    refused = await ask(app)
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "targets_drained")
    assert refused.headers["retry-after"] == "5"
    assert (await post(app, f"{TARGET}/open")).json()["drained"] is False
    assert (await ask(app)).headers["x-llama-compat-target"] == "echo/e/one"
    deeds = (await told(app, "audit")).json()["data"]
    await app.stop()
    assert [(each["action"], each["subject"], each["operator"]) for each in deeds] == [
        ("target.open", "echo/e/one", ""),
        ("target.drain", "other/two", ""),
        ("target.drain", "echo/e/one", "Ann"),
    ]
    assert deeds[-1]["request_id"] == drained.headers["x-request-id"]
    assert deeds[-1]["client"] == "127.0.0.1"


async def test_one_is_tried_however_it_is(tmp_path: Path) -> None:
    app = application(server=settings(tmp_path, records={}), keys=KEYS)
    await app.start()
    await post(app, f"{TARGET}/drain")
    tried = (await post(app, f"{TARGET}/try", {"prompt": "how are you"})).json()
    assert (tried["ok"], tried["status"], tried["text"]) == (True, 200, "how are you")
    assert tried["seconds"] >= 0
    plain = (await post(app, f"{TARGET}/try")).json()
    assert plain["text"] == "Say hello in one sentence."
    state = app.runtime.models.look_up("both").targets[0].state
    assert (state.attempts, state.in_flight, state.cooldown.is_drained) == (2, 0, True)
    numbers = (await post(app, f"{TARGET}/try", {"kind": "embedding"})).json()
    assert numbers["text"].endswith(" numbers") or not numbers["ok"]
    await app.stop()
    again = application(server=settings(tmp_path, records={}), keys=KEYS)
    await again.start()
    used = (await told(again, "usage?by=key")).json()["data"]
    await again.stop()
    assert [(each["key"], each["requests"]) for each in used] == [("admin", 3)]


async def test_what_it_fails_with_is_told(tmp_path: Path) -> None:
    app = application(server=settings(tmp_path))
    await app.start()
    provider: Any = app.runtime.providers["echo"]

    async def fails(*arguments: Any) -> Any:
        raise APIError(529, "<b>Overloaded</b>", code="overloaded")

    async def has_a_bug(*arguments: Any) -> Any:
        raise ZeroDivisionError

    provider.openai_chat_completion = fails
    tried = (await post(app, f"{TARGET}/try")).json()
    provider.openai_chat_completion = has_a_bug
    broken = (await post(app, f"{TARGET}/try")).json()
    await app.stop()
    assert (tried["ok"], tried["status"], tried["code"]) == (False, 529, "overloaded")
    assert tried["text"] == "<b>Overloaded</b>"
    assert (broken["ok"], broken["status"]) == (False, 500)


@pytest.mark.parametrize("deed", ["drain", "open", "try"])
async def test_what_is_no_target_is_a_404(deed: str, tmp_path: Path) -> None:
    app = application(server=settings(tmp_path), keys=KEYS)
    reply = await post(app, f"targets/echo/none/{deed}")
    assert (reply.status_code, reply.json()["error"]["code"]) == (404, "target_not_found")
    assert "echo/e/one" in reply.json()["error"]["message"]
    refused = await post(app, f"{TARGET}/{deed}", authorization="Bearer sk-for-all-models")
    assert refused.status_code == 401
    assert not app.runtime.models.look_up("both").targets[0].state.cooldown.is_drained


async def test_what_makes_no_sense_is_refused(tmp_path: Path) -> None:
    app = application(server=settings(tmp_path))
    for body in ({"prompt": ""}, {"kind": "dance"}, {"max_tokens": 0}, {"colour": "red"}):
        assert (await post(app, f"{TARGET}/try", body)).status_code in (400, 422)
