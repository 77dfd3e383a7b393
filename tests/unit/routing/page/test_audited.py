"""Whatever changes something under `/admin/` is in the audit, and no secret is."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from routing.app import Application
from tests.unit.routing.page.test_models import application
from tests.unit.routing.page.test_overview import ADMIN, client_of, told


def stored(folder: Path) -> Application:
    storage = f"sqlite:{folder / 'operations.sqlite'}"
    return application(server={"storage": storage, "stored_keys": True})


async def test_what_is_done_to_keys_is_known(tmp_path: Path) -> None:
    app = stored(tmp_path)
    await app.start()
    async with client_of(app) as client:
        made = (await client.post("/admin/keys", json={"name": "ci"}, headers=ADMIN)).json()
        path = f"/admin/keys/{made['id']}"
        await client.patch(path, json={"models": ["a"]}, headers=ADMIN)
        rotated = (await client.post(f"{path}/rotate", headers=ADMIN)).json()
        await client.delete(path, headers=ADMIN)
        assert (await client.delete("/admin/keys/none", headers=ADMIN)).status_code == 404
    everything = await told(app, "audit")
    newest = (await told(app, "audit?limit=1")).json()["data"]
    before = (await told(app, f"audit?limit=9&before={newest[0]['id']}")).json()["data"]
    await app.stop()
    deeds = everything.json()["data"]
    assert [each["action"] for each in deeds] == [
        "key.revoke",
        "key.rotate",
        "key.change",
        "key.create",
    ]
    assert {each["subject"] for each in deeds} == {made["id"]}
    assert deeds[2]["detail"] == "models"
    assert [*newest, *before] == deeds
    for secret in (made["key"], rotated["key"]):
        assert secret not in json.dumps(deeds)


@pytest.mark.parametrize(
    ("content", "headers"),
    [
        (b'{"name": "ci"}', {}),
        (b'{"name": "ci"}', {"content-type": "application/x-www-form-urlencoded"}),
        *((each, {"content-type": "application/json"}) for each in (b"", b"[]", b"null", b"{")),
    ],
)
async def test_who_sends_no_json_is_told_to(
    tmp_path: Path, content: bytes, headers: dict[str, str]
) -> None:
    app = stored(tmp_path)
    async with client_of(app) as client:
        sent = {"content": content, "headers": {**ADMIN, **headers}}
        reply = await client.post("/admin/keys", **sent)
    error = reply.json()["error"]
    assert (reply.status_code, error["param"]) == (400, "body")
    assert "a JSON object, with the header 'content-type: application/json'" in error["message"]


async def test_what_cannot_be_kept_is_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    storage = tmp_path / "folder.sqlite"
    storage.mkdir()
    app = application(server={"storage": f"sqlite:{storage}"})
    await app.start()
    hostile = {"x-llama-compat-operator": "Ann\x1b[31m"}
    with caplog.at_level(logging.INFO):
        async with client_of(app) as client:
            path = "/admin/targets/echo/e/one/drain"
            reply = await client.post(path, headers={**ADMIN, **hostile})
    failed = await told(app, "audit")
    await app.stop()
    assert reply.json()["drained"]
    assert "target.drain echo/e/one by 127.0.0.1 (Ann" in caplog.text
    assert "\x1b" not in caplog.text
    assert "that is in the log alone" in caplog.text
    assert failed.status_code == 503
    assert str(tmp_path) not in failed.text


async def test_a_server_of_which_nothing_is_asked_keeps_nothing(tmp_path: Path) -> None:
    app = stored(tmp_path)
    assert not (tmp_path / "operations.sqlite").exists()
    nobody = application(server={"admin_key": None})
    assert nobody.runtime.audit is None
    assert app.runtime.audit is not None
