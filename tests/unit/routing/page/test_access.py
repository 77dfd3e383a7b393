"""What is told of keys and teams, and who is told it."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from llama_compat.distribution import Distribution
from providers.local.echo import EchoConfig
from routing.app import Application
from tests.unit.routing.page.test_overview import ADMIN, ADMIN_KEY, client_of, told

HOSTILE = "=HYPERLINK(1)<img src=x>"


def application(folder: Path, *, reachable: bool = True) -> Application:
    server: dict[str, Any] = {
        "admin_key": ADMIN_KEY,
        "records": {},
        "stored_keys": True,
        "storage": f"sqlite:{folder / 'operations.sqlite'}",
    }
    if not reachable:
        server["fleet"] = {"store": "redis://127.0.0.1:1/0"}
    distribution = Distribution.model_validate(
        {
            "version": 1,
            "server": server,
            "providers": [{"id": "echo", "type": "local::echo"}],
            "models": [
                {"id": "echo", "provider": "echo", "price": {"input": 1_000_000, "output": 0}}
            ],
            "keys": [
                {
                    "name": HOSTILE,
                    "key": "sk-given",
                    "team": "research",
                    "limits": {"requests_per_minute": 60, "concurrent": 4},
                    "budget": {"amount": 10, "period": "month"},
                },
                {"name": "late", "key": "sk-late", "expires": "2020-01-01"},
            ],
            "teams": [{"id": "research", "budget": {"amount": 100, "period": "ever"}}, {"id": "b"}],
        }
    )
    distribution.providers[0].__dict__["config"] = EchoConfig()
    return Application(distribution)


@asynccontextmanager
async def started(folder: Path, *, reachable: bool = True) -> AsyncIterator[Application]:
    app = application(folder, reachable=reachable)
    await app.start()
    try:
        yield app
    finally:
        await app.stop()


async def spend(app: Application, key: str, words: str) -> None:
    body = {"model": "echo", "messages": [{"role": "user", "content": words}]}
    async with client_of(app) as client:
        headers = {"authorization": f"Bearer {key}"}
        reply = await client.post("/v1/chat/completions", json=body, headers=headers)
        assert reply.status_code == 200


def named(found: dict[str, Any], name: str) -> dict[str, Any]:
    [key] = [each for each in found["data"] if each["name"] == name]
    return key


@pytest.mark.parametrize("path", ["access", "usage"])
async def test_nobody_else_is_told(path: str, tmp_path: Path) -> None:
    refused = await told(application(tmp_path), path, authorization="Bearer sk-given")
    assert (refused.status_code, refused.json()["error"]["code"]) == (401, "invalid_admin_key")


@pytest.mark.parametrize("path", ["access", "keys", "usage", "overview", "audit"])
async def test_what_cant_be_read_is_said_in_the_log_too(
    path: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with started(tmp_path) as app, client_of(app) as client:
        assert (await client.get("/admin/audit", headers=ADMIN)).status_code == 200
        (tmp_path / "operations.sqlite").unlink()
        (tmp_path / "operations.sqlite").mkdir()
        caplog.clear()
        refused = await client.get(f"/admin/{path}", headers=ADMIN)
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "store_unavailable")
    assert "can't be used now; the server's log says why" in refused.json()["error"]["message"]
    assert any("can't be used: sqlite:" in each for each in caplog.messages)


async def test_two_who_change_a_key_do_not_lose_what_the_other_did(tmp_path: Path) -> None:
    async with started(tmp_path) as app, client_of(app) as client:
        made = (await client.post("/admin/keys", json={"name": "made"}, headers=ADMIN)).json()
        read = named((await client.get("/admin/access", headers=ADMIN)).json(), "made")
        assert read["version"] == made["version"]

        async def change(version: str, **members: Any) -> Any:
            headers = {**ADMIN, "if-match": version}
            return await client.patch(f"/admin/keys/{made['id']}", json=members, headers=headers)

        first = await change(f'"{read["version"]}"', models=["a"])
        assert first.status_code == 200
        second = await change(f'"{read["version"]}"', name="other", models=[])
        assert (second.status_code, second.json()["error"]["code"]) == (412, "key_changed")
        assert "read it again" in second.json()["error"]["message"]
        odd = await change('"three"', models=[])
        assert (odd.status_code, odd.json()["error"]["param"]) == (400, "If-Match")
        for version in (str(first.json()["version"]), "*"):
            changed = await change(version, name="other")
            assert (changed.status_code, changed.json()["models"]) == (200, ["a"])
        given = named((await client.get("/admin/access", headers=ADMIN)).json(), HOSTILE)
        assert given["version"] is None


async def test_a_key_of_a_newer_version_is_told_of(tmp_path: Path) -> None:
    async with started(tmp_path) as app, client_of(app) as client:
        made = (await client.post("/admin/keys", json={"name": "made"}, headers=ADMIN)).json()
        database = sqlite3.connect(
            tmp_path / "operations.sqlite", isolation_level=None, check_same_thread=False
        )
        with closing(database):
            settings = json.dumps({"name": "newer", "nobody_knows": 1})
            # In a thread, as who writes just now may wait for this loop.
            change = "UPDATE keys SET settings = ? WHERE id = ?"
            await asyncio.to_thread(database.execute, change, (settings, made["id"]))
        newer = named((await client.get("/admin/access", headers=ADMIN)).json(), "newer")
        assert (newer["state"], newer["readable"]) == ("unreadable", False)
        path = f"/admin/keys/{made['id']}"
        refused = await client.patch(path, json={"models": ["a"]}, headers=ADMIN)
        assert refused.status_code == 400
        assert "newer version" in refused.json()["error"]["message"]
        assert (await client.delete(path, headers=ADMIN)).status_code == 200
        newer = named((await client.get("/admin/access", headers=ADMIN)).json(), "newer")
        assert newer["state"] == "revoked"


async def test_every_key_is_told_of_with_what_is_used(tmp_path: Path) -> None:
    async with started(tmp_path) as app:
        async with client_of(app) as client:
            grant = {"name": "made", "team": "research", "limits": {"tokens_per_minute": 500}}
            made = (await client.post("/admin/keys", json=grant, headers=ADMIN)).json()
        await spend(app, "sk-given", "one two")
        await spend(app, made["key"], "three")
        found = (await told(app, "access")).json()
        assert made["key"] not in json.dumps(found)
        assert "sk-given" not in json.dumps(found)
    given = named(found, HOSTILE)
    assert (given["source"], given["state"], given["prefix"]) == ("template", "good", None)
    assert named(found, "late")["state"] == "expired"
    assert named(found, "late")["expires"] == "2020-01-01T00:00:00Z"
    stored = named(found, "made")
    assert (stored["source"], stored["id"], stored["prefix"]) == (
        "stored",
        made["id"],
        made["prefix"],
    )
    requests, concurrent, budget = given["standing"]
    assert (requests["resource"], requests["limit"]) == ("requests", 60)
    assert 0 < requests["used"] <= 1
    assert (concurrent["used"], concurrent["reserved"]) == (0, 0)
    # A million dollars for a million input tokens: one for each word.
    assert (budget["resource"], budget["period"], budget["limit"]) == ("budget", "month", 10)
    assert budget["used"] >= 2
    assert budget["began"] < budget["ends"]
    team, other = found["teams"]
    assert (team["id"], team["keys"], other["keys"]) == ("research", 2, 0)
    [shared] = team["standing"]
    assert shared["used"] > budget["used"]
    assert (shared["period"], shared["ends"], shared["forecast"]) == ("ever", None, None)
    assert other["standing"] is None or other["standing"] == []


async def test_to_look_takes_nothing(tmp_path: Path) -> None:
    async with started(tmp_path) as app:
        for _ in range(3):
            key = named((await told(app, "access")).json(), HOSTILE)
        assert [each["used"] + each["reserved"] for each in key["standing"]] == [0, 0, 0]


async def test_nobody_knows_what_is_used_while_the_counters_are_away(tmp_path: Path) -> None:
    async with started(tmp_path, reachable=False) as app:
        found = (await told(app, "access")).json()
    assert named(found, HOSTILE)["standing"] is None


async def test_the_last_use_is_known_from_the_records(tmp_path: Path) -> None:
    async with started(tmp_path) as app:
        await spend(app, "sk-given", "one")
    # All is written when it stops.
    async with started(tmp_path) as app:
        found = (await told(app, "access")).json()
        rows = (await told(app, "usage?by=key&by=day&since=30d")).json()["data"]
        by_team = (await told(app, "usage?by=team")).json()["data"]
        none = (await told(app, "usage?by=team&team=b")).json()["data"]
    assert named(found, HOSTILE)["last_used"][:2] == "20"
    assert named(found, "late")["last_used"] is None
    [row] = rows
    assert (row["key_name"], row["requests"]) == (HOSTILE, 1)
    assert row["cost_usd"] >= 1
    assert [(each["team"], each["requests"]) for each in by_team] == [("research", 1)]
    assert none == []


async def test_what_is_exported_computes_nothing_in_a_spreadsheet(tmp_path: Path) -> None:
    async with started(tmp_path) as app:
        reply = await told(app, "access?format=csv")
        empty = await told(app, "usage?format=csv")
    assert reply.headers["content-type"] == "text/csv; charset=utf-8"
    assert "keys.csv" in reply.headers["content-disposition"]
    rows = list(csv.DictReader(io.StringIO(reply.text)))
    assert [each["name"] for each in rows] == [f"'{HOSTILE}", "late"]
    assert (rows[0]["budget_usd"], rows[0]["requests_per_minute"]) == ("10.0", "60")
    assert empty.text.strip() == '"model"'


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("by=colour", "by"),
        ("since=soon", "since"),
        ("until=never", "until"),
        ("since=2026-03-02&until=2026-03-01", "until"),
        ("format=x", "format"),
    ],
)
async def test_what_makes_no_sense_is_refused(query: str, name: str, tmp_path: Path) -> None:
    async with started(tmp_path) as app:
        reply = await told(app, f"usage?{query}")
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == name
