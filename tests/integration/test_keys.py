"""Keys: made by command and in `/admin/`, given in a template; what they open, and when no more."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from routing.access.keys.secret import digest_of
from tests import forked, postgres
from tests.integration import wire
from tests.integration.server_process import ServerProcess, running, write_template

ADMIN = {"authorization": "Bearer the-admin-key"}
GIVEN, HASHED, LATE = "sk-given", "sk-hashed", "sk-late"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("keys")


@pytest.fixture(scope="module")
def template(folder: Path) -> Path:
    return write_template(
        folder / "keys.yaml",
        server={
            "admin_key": "${env.ADMIN_KEY}",
            "storage": f"sqlite:{folder / 'keys.sqlite'}",
            "stored_keys": True,
        },
        teams=[{"id": "t"}],
        keys=[
            {"name": "given", "key": "${env.GIVEN_KEY}"},
            {"name": "hashed", "hash": f"sha256:{digest_of(HASHED.encode())}", "models": ["a*"]},
            {"name": "late", "key": LATE, "expires": "2020-01-01"},
        ],
        providers=[{"id": "echo", "type": "local::echo"}],
        models=[{"id": name, "provider": "echo"} for name in ("apple", "avocado", "banana")],
    )


@pytest.fixture(scope="module")
def server(template: Path) -> Iterator[ServerProcess]:
    with running(template, env={"ADMIN_KEY": "the-admin-key", "GIVEN_KEY": GIVEN}) as process:
        yield process
        assert not any(key in process.log for key in (GIVEN, HASHED, LATE, "the-admin-key"))


def ask(server: ServerProcess, key: str, model: str = "apple") -> wire.Reply:
    return wire.request(
        "POST",
        f"{server.base_url}/chat/completions",
        {"model": model, "messages": [{"role": "user", "content": "Hi"}]},
        headers={"authorization": f"Bearer {key}"},
    )


def admin(server: ServerProcess, method: str, path: str, body: Any = None) -> wire.Reply:
    return wire.request(method, f"{server.url}/admin/{path}", body, headers=ADMIN)


def command(template: Path, *arguments: str) -> str:
    keys = {"ADMIN_KEY": "another-admin-key", "GIVEN_KEY": "sk-other-key"}
    return forked.run(["keys", *arguments, "--template", str(template)], keys)


@pytest.mark.parametrize("key", [GIVEN, HASHED])
def test_keys_of_the_template_open(server: ServerProcess, key: str) -> None:
    assert ask(server, key).status == 200


@pytest.mark.parametrize("key", [LATE, "sk-none", "the-admin-key", digest_of(HASHED.encode())])
def test_what_is_no_good_key_does_not(server: ServerProcess, key: str) -> None:
    reply = ask(server, key)
    assert (reply.status, reply.error()["code"]) == (401, "invalid_api_key")


def test_a_key_opens_its_models_alone(server: ServerProcess) -> None:
    assert ask(server, HASHED, "avocado").status == 200
    refused = ask(server, HASHED, "banana")
    assert (refused.status, refused.error()["code"]) == (403, "model_not_allowed")
    headers = {"authorization": f"Bearer {HASHED}"}
    listed = wire.request("GET", f"{server.base_url}/models", headers=headers).json()
    assert [each["id"] for each in listed["data"]] == ["apple", "avocado"]
    one = wire.request("GET", f"{server.base_url}/models/banana", headers=headers)
    assert one.status == 404
    tags = wire.request("GET", f"{server.url}/api/tags", headers=headers).json()
    assert len(tags["models"]) == 2
    shown = wire.request("POST", f"{server.url}/api/show", {"model": "banana"}, headers=headers)
    assert shown.status == 404
    gemini = wire.request("GET", f"{server.url}/v1beta/models", headers=headers).json()
    assert len(gemini["models"]) == 2
    claude = {**headers, "anthropic-version": "2023-06-01"}
    assert len(wire.request("GET", f"{server.url}/v1/models", headers=claude).json()["data"]) == 2


def test_a_key_by_command_is_good_at_once_and_until_it_is_revoked(
    server: ServerProcess, template: Path, folder: Path
) -> None:
    key = command(template, "create", "mine").strip()
    assert key.startswith("sk-lc-")
    # The storage may have been looked at a moment ago, for a key that another test made up.
    wire.eventually(lambda: ask(server, key).status == 200)
    # It is kept as a hash alone.
    kept = b"".join(each.read_bytes() for each in folder.glob("keys.sqlite*"))
    assert key.encode() not in kept
    assert key.split("-")[2].encode() in kept
    second = command(template, "rotate", "mine").strip()
    # The storage was looked at a moment ago, for the first of them.
    wire.eventually(lambda: ask(server, second).status == 200)
    assert ask(server, key).status == 401
    command(template, "revoke", "mine")
    wire.eventually(lambda: ask(server, second).status == 401)
    listed = json.loads(command(template, "list", "--json"))
    assert [each["revoked"] is None for each in listed if each["name"] == "mine"] == [False]


def test_the_admin_s_routes(server: ServerProcess) -> None:
    made = admin(server, "POST", "keys", {"name": "page", "models": ["banana"], "team": "t"}).json()
    key, key_id = made["key"], made["id"]
    assert made["prefix"] == key[: len(made["prefix"])]
    assert ask(server, key, "banana").status == 200
    assert ask(server, key, "apple").status == 403
    listed = admin(server, "GET", "keys").json()["data"]
    assert [each for each in listed if each["id"] == key_id] == [
        {name: value for name, value in made.items() if name != "key"}
    ]
    changed = admin(server, "PATCH", f"keys/{key_id}", {"models": ["apple"], "team": None}).json()
    assert (changed["models"], changed["team"], changed["name"]) == (["apple"], None, "page")
    assert ask(server, key, "apple").status == 200
    assert ask(server, key, "banana").status == 403
    limited = admin(server, "PATCH", f"keys/{key_id}", {"limits": {"requests_per_minute": 1}})
    assert limited.json()["models"] == ["apple"]
    assert [ask(server, key).status for _ in range(2)] == [200, 429]
    admin(server, "PATCH", f"keys/{key_id}", {"limits": None})
    assert ask(server, key).status == 200
    second = admin(server, "POST", f"keys/{key_id}/rotate").json()["key"]
    assert [ask(server, each).status for each in (key, second)] == [401, 200]
    assert admin(server, "DELETE", f"keys/{key_id}").json()["revoked"]
    assert ask(server, second).status == 401


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "keys", {}, 400),
        ("POST", "keys", {"name": "x", "limit": 1}, 400),
        ("POST", "keys", {"name": "x", "budget": {"amount": -1}}, 400),
        ("POST", "keys", {"name": "x", "team": "gone"}, 400),
        ("POST", "keys", {"name": "x", "expires": "2020-01-01"}, 400),
        ("PATCH", "keys/nobody", {"name": "x"}, 404),
        ("PATCH", "keys/nobody", {"nam": "x"}, 400),
        ("DELETE", "keys/nobody", None, 404),
        ("GET", "nothing", None, 404),
    ],
)
def test_what_the_admin_gets_wrong(
    server: ServerProcess, method: str, path: str, body: Any, status: int
) -> None:
    reply = admin(server, method, path, body)
    assert reply.status == status
    assert reply.error()["message"]


@pytest.mark.parametrize("wrong", [{"team": "gone"}, {"expires": "2020-01-01"}])
def test_a_key_is_changed_by_the_rule_by_which_it_is_made(
    server: ServerProcess, template: Path, wrong: dict[str, str]
) -> None:
    ((name, value),) = wrong.items()
    key_id = admin(server, "POST", "keys", {"name": f"wrong-{name}"}).json()["id"]
    reply = admin(server, "PATCH", f"keys/{key_id}", wrong)
    assert (reply.status, reply.error()["param"]) == (400, name)
    with pytest.raises(subprocess.CalledProcessError) as failed:
        command(template, "create", "wrong", f"--{name}", value)
    said = " ".join(failed.value.stderr.split())
    assert reply.error()["message"] in said
    admin(server, "DELETE", f"keys/{key_id}")


def test_keys_of_a_team_that_is_taken_away_open_nothing(folder: Path) -> None:
    def written(*teams: str) -> Path:
        return write_template(
            folder / "teams.yaml",
            server={"storage": f"sqlite:{folder / 'teams.sqlite'}", "stored_keys": True},
            teams=[{"id": each} for each in teams],
            providers=[{"id": "echo", "type": "local::echo"}],
            models=[{"id": "apple", "provider": "echo"}],
        )

    key = command(written("tools", "research"), "create", "mine", "--team", "tools").strip()
    other = command(written("tools", "research"), "create", "free").strip()
    with running(written("tools")) as process:
        assert ask(process, key).status == 200
        assert "opens nothing" not in process.log
    with running(written("research")) as process:
        refused = ask(process, key)
        assert (refused.status, refused.error()["code"]) == (403, "team_not_found")
        assert "the team 'tools'" in refused.error()["message"]
        headers = {"authorization": f"Bearer {key}"}
        assert wire.request("GET", f"{process.url}/v1/models", headers=headers).status == 403
        assert ask(process, other).status == 200
        process.wait_for_log("(mine) opens nothing: the template has no team 'tools'")


@pytest.mark.parametrize("key", [GIVEN, "x", ""])
def test_the_admin_s_routes_are_the_admin_s(server: ServerProcess, key: str) -> None:
    headers = {"authorization": f"Bearer {key}"}
    for path in ("keys", "nothing"):
        reply = wire.request("GET", f"{server.url}/admin/{path}", headers=headers)
        assert (reply.status, reply.error()["code"]) == (401, "invalid_admin_key")


def test_without_an_admin_key_there_are_no_admin_routes(tmp_path: Path) -> None:
    template = write_template(
        tmp_path / "plain.yaml",
        providers=[{"id": "echo", "type": "local::echo"}],
        models=[{"id": "echo", "provider": "echo"}],
    )
    with running(template) as process:
        reply = wire.request("GET", f"{process.url}/admin/keys", headers=ADMIN)
        assert (reply.status, reply.error()["code"]) == (403, "admin_disabled")


def test_a_server_whose_database_is_away_or_hangs(tmp_path: Path) -> None:
    pytest.importorskip("asyncpg")
    if reason := postgres.missing():
        pytest.skip(reason)
    with postgres.postgres() as database:
        template = write_template(
            tmp_path / "keys.yaml",
            server={
                "storage": database.address,
                "stored_keys": True,
                "records": {},
                "metrics_key": "sk-sees-all",
            },
            keys=[{"name": "given", "key": GIVEN}],
            providers=[{"id": "echo", "type": "local::echo"}],
            models=[{"id": "apple", "provider": "echo"}],
        )
        stored = command(template, "create", "stored").strip()
        database.stop()
        with running(template) as process:
            try:
                # Who is in the template is let in; of others nobody knows.
                assert ask(process, GIVEN).status == 200
                assert "can't be read" in process.health("sk-sees-all")["warnings"][0]
                reply = ask(process, stored)
                assert (reply.status, reply.error()["code"]) == (503, "keys_unavailable")
                assert reply.headers["retry-after"] == "2"
                assert ask(process, "").status == 401
                process.wait_for_log("stored keys stay as they are known: postgres://")
            finally:
                database.start()
            wire.eventually(lambda: ask(process, stored).status == 200)
            assert ask(process, "sk-unknown").status == 401
            assert "warnings" not in process.health()
            process.wait_for_log("stored keys are read again, after ")
            database.pause()
            try:
                assert [ask(process, each).status for each in (GIVEN, stored)] == [200, 200]
                # But for what was looked for just before.
                wire.eventually(lambda: ask(process, "sk-unknown").status == 503)
                assert ask(process, "sk-unknown").error()["code"] == "keys_unavailable"
            finally:
                database.resume()
            wire.eventually(lambda: ask(process, "sk-unknown").status == 401)


@pytest.mark.parametrize(
    ("expires", "said"),
    [("999999w", "is after the year 9999"), ("tomorrow", "is no date such as 2027-01-31")],
)
def test_a_time_that_can_not_be_is_refused(template: Path, expires: str, said: str) -> None:
    with pytest.raises(subprocess.CalledProcessError) as failed:
        command(template, "create", "wrong", "--expires", expires)
    assert said in " ".join(failed.value.stderr.split())
    assert "Traceback" not in failed.value.stderr


def said(server: ServerProcess, key: str, text: str) -> wire.Reply:
    return wire.request(
        "POST",
        f"{server.base_url}/chat/completions",
        {"model": "apple", "messages": [{"role": "user", "content": text}]},
        headers={"authorization": f"Bearer {key}"},
    )


def test_a_stored_key_has_guardrails_of_its_own(
    server: ServerProcess, template: Path, folder: Path
) -> None:
    mail = "Write to alice@example.com."
    checks = folder / "checks.yaml"
    checks.write_text("guardrails:\n- {name: pii, scan: input, patterns: [emails], mode: redact}\n")
    made = json.loads(command(template, "create", "checked", "--guardrails", str(checks), "--json"))
    plain = command(template, "create", "unchecked").strip()
    assert made["guardrails"][0]["name"] == "pii"
    reply = said(server, made["key"], mail)
    assert reply.headers["x-llama-compat-guardrails"] == "redacted=pii"
    assert "alice" not in reply.json()["choices"][0]["message"]["content"]
    assert "alice" in said(server, plain, mail).json()["choices"][0]["message"]["content"]
    block = [{"name": "pii", "scan": "input", "patterns": ["emails"]}]
    assert admin(server, "PATCH", "keys/checked", {"guardrails": block}).status == 200
    assert said(server, made["key"], mail).status == 400
    assert admin(server, "PATCH", "keys/checked", {"guardrails": None}).status == 200
    assert said(server, made["key"], mail).status == 200
    wrong = admin(server, "PATCH", "keys/checked", {"guardrails": [{"name": "none"}]})
    assert wrong.status in (400, 422)


def test_a_stored_key_has_tools_of_its_own(server: ServerProcess, template: Path) -> None:
    made = json.loads(command(template, "create", "searcher", "--tool", "web_*", "--json"))
    assert made["tools"] == ["web_*"]
    none = json.loads(command(template, "create", "toolless", "--no-tools", "--json"))
    assert none["tools"] == []
    other = json.loads(command(template, "change", "searcher", "--tool", "none", "--json"))
    assert (other["tools"], other["name"]) == (None, "searcher")
    changed = admin(server, "PATCH", "keys/toolless", {"tools": None}).json()
    assert changed["tools"] is None
