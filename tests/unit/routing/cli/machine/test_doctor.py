"""`llama-compat doctor`: what it looks at, and what it says to do."""

from __future__ import annotations

import json
import re
import socket
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from llama_compat.distribution import Distribution
from providers.remote.openai.vendors import VENDORS
from routing.cli import app
from routing.cli.machine import doctor
from routing.cli.machine.discovery import providers_of, vendors_in
from routing.cli.machine.doctor import Finding, Level
from tests.local_server import Handler, send, serving

STARTED = 1_800_000_000.0


def run(*arguments: str, **environment: str | None) -> Result:
    return CliRunner().invoke(app, ["doctor", *arguments], env={"COLUMNS": "80", **environment})


def template(folder: Path, port: int = 0, **sections: Any) -> Path:
    echo = {"id": "echo", "type": "local::echo"}
    written = {
        "version": 1,
        "server": {"port": port, "storage": f"sqlite:{folder / 'kept.sqlite'}"},
        "providers": [echo],
        "models": [{"id": "echo", "provider": "echo"}],
        **sections,
    }
    path = folder / "template.yaml"
    path.write_text(yaml.safe_dump(written))
    return path


def test_a_template_that_can_be_served(tmp_path: Path) -> None:
    result = run(str(template(tmp_path)))
    assert result.exit_code == 0, result.output
    lines = {line[8:].partition(":")[0]: line for line in result.output.splitlines()}
    # What the template does not need is not looked at.
    assert list(lines) == ["Python", "template", "port", "models", "storage", "open files", "clock"]
    assert "1 provider and 1 model" in lines["template"]
    assert lines["storage"].endswith(f"GiB free at {tmp_path}")
    assert {line[:7].strip() for name, line in lines.items() if name != "Python"} <= {
        "ok",
        "warning",
    }


def test_a_template_that_can_not(tmp_path: Path) -> None:
    path = template(tmp_path, providers=[{"id": "echo", "type": "local::eco"}])
    result = run(str(path))
    assert result.exit_code == 1
    (line,) = [each for each in result.output.splitlines() if each.startswith("problem")]
    assert f"->  llama-compat check {path}" in line


def test_as_json(tmp_path: Path) -> None:
    found = json.loads(run(str(template(tmp_path)), "--json").output)
    assert {tuple(each) for each in found} == {("level", "what", "said", "mend")}
    assert found[1]["what"] == "template"


def test_what_is_missing_is_a_problem_where_it_is_needed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda name: None)
    assert doctor.torch(needed=False).level is Level.note
    assert doctor.llama_cpp(needed=False).level is Level.note
    for finding in (doctor.torch(needed=True), doctor.llama_cpp(needed=True)):
        assert finding.level is Level.problem
        assert finding.mend.startswith("pip install 'llama-compat[")


def test_models_that_have_to_be_pulled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LLAMA_COMPAT_HOME", str(tmp_path / "models"))
    path = template(
        tmp_path,
        providers=[{"id": "torch", "type": "local::torch"}],
        models=[{"id": "m", "provider": "torch", "provider_model": "starter"}],
    )
    _, distribution = doctor.read(str(path))
    assert distribution is not None
    (finding,) = doctor.wanted(distribution)
    assert (finding.level, finding.mend) == (Level.problem, "llama-compat pull starter")


def test_a_port_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        number = listening.getsockname()[1]
        taken = doctor.port("127.0.0.1", number)
    assert (taken.level, taken.what) == (Level.warning, f"port {number}")
    assert "--port" in taken.mend
    assert doctor.port("127.0.0.1", number).level is Level.ok
    assert doctor.port("192.0.2.1", number).level is Level.problem
    assert doctor.port("::", 0).level is Level.ok


def test_a_folder_without_room(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "not" / "there"
    assert doctor.disk("models", folder, "move it").level is Level.ok
    monkeypatch.setattr(doctor, "MIN_FREE_BYTES", 1 << 60)
    full = doctor.disk("models", folder, "move it")
    assert (full.level, full.mend) == (Level.warning, "make room; move it")
    monkeypatch.setattr(doctor.os, "access", lambda path, mode: False)
    assert doctor.disk("models", folder, "move it").level is Level.problem


@pytest.mark.parametrize(
    ("limits", "level", "mend"),
    [
        ((1024, 1024), Level.warning, "LimitNOFILE"),
        ((1024, 8192), Level.warning, "ulimit -n 8192"),
        ((4096, 4096), Level.ok, ""),
        ((sys.maxsize, sys.maxsize), Level.ok, ""),
    ],
)
def test_how_many_files_may_be_open(limits: tuple[int, int], level: Level, mend: str) -> None:
    finding = doctor.open_files(lambda: limits)
    assert finding.level is level
    assert finding.mend.startswith(mend)


def test_a_clock_that_can_not_be_right() -> None:
    assert doctor.clock(0.0).level is Level.problem
    assert doctor.clock(STARTED) == Finding(Level.ok, "clock", "2027-01-15 08:00:00 UTC")


def test_keys_in_the_environment() -> None:
    (none,) = doctor.keys_in({})
    assert (none.level, "llama-compat init" in none.mend) == (Level.note, True)
    (one,) = doctor.keys_in({"OPENAI_API_KEY": "sk-x"})
    assert (one.level, "sk-x" in one.said) == (Level.ok, False)


@pytest.fixture
def vendor() -> Iterator[str]:
    def answer(handler: Handler) -> None:
        good = handler.headers["authorization"] == "Bearer sk-good"
        body = {"data": [{"id": "m"}]} if good else {"error": {"message": "Wrong key."}}
        send(handler, 200 if good else 401, json.dumps(body).encode())

    with serving(answer) as url:
        yield url


def test_what_does_not_answer_is_told_with_what_mends_it(vendor: str, tmp_path: Path) -> None:
    places = {"dead": "http://127.0.0.1:1/v1", "good": f"{vendor}/v1"}
    providers = [
        {"id": name, "type": "remote::openai", "config": {"base_url": url, "api_key": "sk-bad"}}
        for name, url in places.items()
    ]
    path = template(tmp_path, providers=providers, models=[{"id": "m", "provider": "good"}])
    lines = run(str(path), "--live").stdout.splitlines()
    [dead] = [line for line in lines if " dead: " in line]
    assert "connection refused.  ->  look at `base_url`" in dead
    [good] = [line for line in lines if " good: " in line]
    assert "Check `api_key` in the template" in good
    for line in lines:
        assert re.match(r"(ok|note|warning|problem) +[^:]+: .", line)


@pytest.mark.parametrize(("key", "level"), [("sk-good", "ok"), ("sk-bad", "problem")])
def test_without_a_template_those_are_asked_whose_keys_the_environment_has(
    vendor: str, monkeypatch: pytest.MonkeyPatch, key: str, level: str
) -> None:
    for each in VENDORS.values():
        if each.key_variable:
            monkeypatch.delenv(each.key_variable, raising=False)
    there = replace(VENDORS["remote::openai"], base_url=f"{vendor}/v1")
    monkeypatch.setitem(VENDORS, "remote::openai", there)
    monkeypatch.setenv(there.key_variable, key)
    lines = run("--live").output.splitlines()
    [answered] = [line for line in lines if line[8:].startswith("openai: ")]
    assert answered.startswith(level)
    assert ("answers, with 1 model" in answered) == (level == "ok")
    assert not [line for line in run().output.splitlines() if line[8:].startswith("openai: ")]


def test_any_vendor_can_be_asked_whose_key_is_all_that_it_needs() -> None:
    environment = {each.key_variable: "sk-x" for each in VENDORS.values() if each.key_variable}
    found = vendors_in(environment)
    asked = providers_of(found, environment)
    assert [each.id for each in asked] == [each.id for each in found]
    assert len(asked) > 20


def test_vendors_are_asked_with_their_keys(vendor: str, tmp_path: Path) -> None:
    def provider(key: str) -> dict[str, Any]:
        config = {"base_url": f"{vendor}/v1", "api_key": f"sk-{key}"}
        return {"id": key, "type": "remote::openai", "config": config}

    path = template(
        tmp_path,
        providers=[provider("good"), provider("bad")],
        models=[{"id": "m", "provider": "good"}],
    )
    _, distribution = doctor.read(str(path))
    assert isinstance(distribution, Distribution)
    good, bad = doctor.vendors(distribution.providers)
    assert good == Finding(Level.ok, "good", "answers, with 1 model")
    assert (bad.level, "401" in bad.said or "key" in bad.said) == (Level.problem, True)
    assert run(str(path), "--live").exit_code == 1
    assert "good" not in run(str(path)).output.replace("sk-good", "")
