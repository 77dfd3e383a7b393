"""The command line: what it prints, where, and with which exit code."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from llama_compat import __version__
from llama_compat.distribution import list_templates
from providers.local.echo import EchoProvider
from routing.cli import app
from tests.conftest import needs_torch
from tests.local_server import Handler, send, serving
from tests.unit.routing.cli.terminals import COMMAND, terminal_of, widest


def llama_compat(*arguments: str, stdin: str = "", env: dict[str, str] | None = None) -> Result:
    environment = {"COLUMNS": "80", "OPENAI_API_KEY": None, **(env or {})}
    return CliRunner().invoke(app, arguments, input=stdin, env=environment)


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    path = tmp_path / "broken.yaml"
    path.write_text(
        "version: 1\n"
        "server:\n"
        "  prot: 8321\n"
        "providers:\n"
        "  - id: echo\n"
        "    type: local::ecco\n"
        "models:\n"
        "  - id: echo\n"
        "    provider: echo\n"
    )
    return path


def test_version() -> None:
    result = llama_compat("--version")
    assert (result.exit_code, result.stdout) == (0, f"llama-compat {__version__}\n")


def test_list_shows_every_template_that_ships() -> None:
    piped = llama_compat("list")
    assert piped.exit_code == 0
    rows = [line.strip().partition(" ") for line in piped.stdout.splitlines()]
    assert {name: text.strip() for name, _, text in rows}.items() >= dict(list_templates()).items()
    shown = llama_compat("list", env=terminal_of(80)).stdout
    assert all(name in shown for name, _ in list_templates())
    assert widest(shown) <= 80


# check and run -----------------------------------------------------------------------------------


def test_check_shows_what_a_template_offers() -> None:
    result = llama_compat("check", "echo")
    assert result.exit_code == 0
    assert "local::echo" in result.stdout
    assert "echo is fine. Serve it:  llama-compat run echo" in result.stdout


@pytest.mark.parametrize("command", ["check", "run"])
def test_every_problem_of_a_template_is_told(command: str, broken: Path) -> None:
    result = llama_compat(command, str(broken))
    assert result.exit_code == 2
    assert result.stdout == ""
    key, type = result.stderr.splitlines()
    assert key.startswith(f"{broken}:3: server.prot: ")
    assert "'port'" in key
    assert type.startswith(f"{broken}:6: providers[0].type: ")
    assert "'local::echo'" in type


def test_a_template_that_is_not_there_is_told() -> None:
    result = llama_compat("run", "no-such-template")
    assert result.exit_code == 2
    assert result.stderr.startswith("no-such-template: ")
    assert len(result.stderr.splitlines()) == 1


def test_a_port_in_use_is_one_sentence_with_what_mends_it() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = llama_compat("run", "echo", "--host", "127.0.0.1", "--port", str(port))
    assert result.exit_code == 1
    [sentence] = result.stderr.splitlines()
    assert f"Can't listen on 127.0.0.1 port {port}: address already in use." in sentence
    assert "llama-compat run echo --port " in sentence


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid"])
def test_a_host_that_is_not_this_machine_is_told_so(host: str) -> None:
    result = llama_compat("run", "echo", "--host", host, "--port", "8321")
    assert result.exit_code == 1
    [sentence] = result.stderr.splitlines()
    assert sentence.startswith(f"Can't listen on {host} port 8321: ")
    assert sentence.endswith("an address of this machine: llama-compat run echo --host 0.0.0.0")


ONE = "version: 1\nproviders:\n  - id: echo\n    type: local::echo\n"
OFFERED = "models:\n  - id: echo\n    provider: echo\n"


@pytest.mark.parametrize(
    ("template", "workers", "times"),
    [
        (ONE + OFFERED, 1, 1),
        # They are forked, and no thread may be about anything then.
        (ONE + OFFERED, 2, 0),
        # What it would load is loaded elsewhere.
        (ONE + "    replicas: {min: 2}\n" + OFFERED, 1, 0),
    ],
)
def test_what_takes_long_is_loaded_ahead_where_it_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, template: str, workers: int, times: int
) -> None:
    loaded = []
    monkeypatch.setattr(EchoProvider, "load_ahead", lambda: loaded.append(1))
    path = tmp_path / "template.yaml"
    path.write_text(template)
    # So that it ends before it serves.
    host = ("--host", "192.0.2.1", "--port", "8321")
    result = llama_compat("run", str(path), *host, "--workers", str(workers))
    assert "Can't listen on" in result.stderr
    assert len(loaded) == times


@needs_torch
@pytest.mark.engine
def test_a_model_that_is_not_there_is_one_sentence_with_what_mends_it(tmp_path: Path) -> None:
    ended = subprocess.run(
        [COMMAND, "run", "starter", "--port", "0"],
        env={**os.environ, "LLAMA_COMPAT_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert ended.returncode != 0
    assert "llama-compat pull starter" in ended.stderr
    assert "Traceback" not in ended.stderr


def template_of_remotes(path: Path, **base_urls: str) -> str:
    providers = [
        {"id": name, "type": "remote::vllm", "config": {"base_url": url, "models": "discover"}}
        for name, url in base_urls.items()
    ]
    path.write_text(json.dumps({"version": 1, "providers": providers}))
    return str(path)


def two_models(handler: Handler) -> None:
    models = [{"id": name, "object": "model"} for name in ("one", "two")]
    send(handler, 200, json.dumps({"object": "list", "data": models}).encode())


def test_check_live_counts_the_models_of_remotes_that_answer(tmp_path: Path) -> None:
    with serving(two_models) as url:
        result = llama_compat(
            "check", "--live", template_of_remotes(tmp_path / "t.yaml", a=f"{url}/v1")
        )
    assert result.exit_code == 0
    assert ["a", "yes", "2"] in [line.split() for line in result.stdout.splitlines()]


def test_check_live_fails_if_one_remote_does_not_answer(tmp_path: Path) -> None:
    with socket.socket() as closed, serving(two_models) as url:
        closed.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        gone = f"http://127.0.0.1:{closed.getsockname()[1]}/v1"
        template = template_of_remotes(tmp_path / "t.yaml", here=f"{url}/v1", gone=gone)
        result = llama_compat("check", "--live", template)
    assert result.exit_code == 1
    rows = [line.split() for line in result.stdout.splitlines()]
    assert ["here", "yes", "2"] in rows
    assert any(row[:2] == ["gone", "no"] for row in rows)
    assert "refused" in result.stdout


# pull --------------------------------------------------------------------------------------------


def test_pulling_what_is_there_says_so(tmp_path: Path) -> None:
    (tmp_path / "models" / "starter").mkdir(parents=True)
    result = llama_compat("pull", "starter", env={"LLAMA_COMPAT_HOME": str(tmp_path)})
    assert result.exit_code == 0
    assert result.stdout.startswith("starter is there already, in ")


def test_pulling_what_has_no_source_is_refused(tmp_path: Path) -> None:
    result = llama_compat("pull", "startr", env={"LLAMA_COMPAT_HOME": str(tmp_path)})
    assert result.exit_code == 1
    assert result.stderr.startswith("'startr' can't be pulled: give 'starter'")
