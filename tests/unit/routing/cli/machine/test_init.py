"""`init`: what is found on a machine, what is asked, and the template that comes of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest

from llama_compat.distribution import load_distribution
from providers.registry import config_model
from providers.remote.openai.vendors import VENDORS
from routing.cli.machine import discovery
from routing.cli.machine.discovery import Source, local_servers, vendors_in
from routing.cli.machine.init import template_of
from tests.conftest import needs_torch
from tests.integration.server_process import free_port
from tests.local_server import Handler, send, serving
from tests.unit.routing.cli.test_commands import llama_compat

init = import_module("routing.cli.machine.init")
"""The module, whose name the command has too."""

MODELS = {"data": [{"id": f"model-{number}", "owned_by": "sglang"} for number in range(5)]}


def answer(handler: Handler) -> None:
    body = json.dumps(MODELS).encode() if handler.path == "/v1/models" else b"{}"
    send(handler, 200, body)


@pytest.fixture
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for vendor in VENDORS.values():
        if vendor.key_variable:
            monkeypatch.delenv(vendor.key_variable, raising=False)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """One that is where a vLLM usually is; nobody is where others are."""
    nobody = f"http://127.0.0.1:{free_port()}/v1"
    with serving(answer) as url:
        for type in discovery.LOCAL_TYPES:
            base_url = f"{url}/v1" if type == "remote::vllm" else nobody
            monkeypatch.setitem(VENDORS, type, replace(VENDORS[type], base_url=base_url))
        yield url


def test_vendors_are_found_by_their_keys() -> None:
    found = vendors_in({"GROQ_API_KEY": "x", "OPENAI_API_KEY": " ", "VLLM_API_KEY": "x"})
    assert [(each.id, each.type, each.key_variable) for each in found] == [
        ("groq", "remote::groq", "GROQ_API_KEY")
    ]
    # An Azure resource has an address of its own, which a key does not tell.
    assert vendors_in({"AZURE_OPENAI_API_KEY": "x"}) == []


def test_servers_are_found_at_their_ports_and_known_by_what_they_say(server: str) -> None:
    (found,) = local_servers()
    assert (found.id, found.type) == ("sglang", "remote::sglang")
    assert found.base_url == f"{server}/v1"
    assert found.models == tuple(f"model-{number}" for number in range(5))
    assert found.why == f"answers at {server}/v1 with model-0, model-1, model-2 and 2 more"


@pytest.mark.parametrize(
    "body", [b"<html>", b"{}", b'{"data": 7}', b'{"data": [7]}', b'{"data": [{"name": 1}]}', b""]
)
def test_what_answers_something_else_is_no_such_server(body: bytes) -> None:
    with serving(lambda handler: send(handler, 200, body)) as url:
        assert local_servers({"remote::vllm": f"{url}/v1"}) == []
    with serving(lambda handler: send(handler, 401, b"{}")) as url:
        assert local_servers({"remote::vllm": f"{url}/v1"}) == []


def test_two_servers_of_a_kind_have_names_of_their_own() -> None:
    with serving(answer) as one, serving(answer) as other:
        found = local_servers({"remote::vllm": f"{one}/v1", "remote::sglang": f"{other}/v1"})
    assert [each.id for each in found] == ["sglang", "sglang-2"]


def test_a_server_without_models_is_found_too() -> None:
    with serving(lambda handler: send(handler, 200, b'{"data": null}')) as url:
        (found,) = local_servers({"remote::ollama": f"{url}/v1"})
    assert (found.type, found.models) == ("remote::ollama", ())
    assert found.why.endswith("no models")


GROQ = Source("groq", "remote::groq", "Groq", "", "GROQ_API_KEY")
OLLAMA = Source("ollama", "remote::ollama", "Ollama", "", "", "http://h:1/v1", ('a"b', "c"))


@pytest.mark.parametrize("admin_key", [None, "sk-admin-x"])
@pytest.mark.parametrize("starter", [True, False])
@pytest.mark.parametrize("sources", [[], [GROQ], [OLLAMA], [OLLAMA, GROQ]])
def test_whatever_is_chosen_makes_a_template_that_is_right(
    sources: list[Source],
    starter: bool,
    admin_key: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GROQ_API_KEY", "gsk")
    path = tmp_path / "made.yaml"
    text = template_of(sources, starter=starter, admin_key=admin_key)
    path.write_text(text)
    made = load_distribution(str(path), config_model)
    told = made.server.admin_key
    assert (told.get_secret_value() if told else None) == admin_key
    assert (made.server.records is not None) is (admin_key is not None)
    expected = [each.type for each in sources] + ["local::torch"] * starter
    assert [each.type for each in made.providers] == (expected or ["local::echo"])
    assert [each.id for each in made.models] == (
        ["SmolLM2-135M-Instruct"] if starter else [] if sources else ["echo"]
    )
    assert text.count("#") >= 3
    # What is commented out is right too.
    path.write_text(text.replace("# models:", "models:").replace("\n#  ", "\n  "))
    short = [
        each for each in load_distribution(str(path), config_model).models if each.id == "fast"
    ]
    assert [each.provider_model for each in short] == ['a"b'] * (OLLAMA in sources)


@pytest.mark.usefixtures("no_keys")
def test_all_that_is_found_with_yes(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "mine.yaml"
    result = llama_compat("init", str(path), "--yes", env={"GROQ_API_KEY": "gsk-secret"})
    assert result.exit_code == 0, result.output
    monkeypatch.setenv("GROQ_API_KEY", "gsk-secret")
    assert "gsk-secret" not in path.read_text() + result.output
    assert "sglang: SGLang (answers at" in result.stdout
    # What opens the page's rooms is told, and nobody else may read it.
    told = load_distribution(str(path), config_model).server.admin_key
    assert told is not None
    assert result.stdout.endswith(f"with this key:\n\n  {told.get_secret_value()}\n\n")
    assert path.stat().st_mode & 0o777 == 0o600
    monkeypatch.delenv("GROQ_API_KEY")
    checked = llama_compat("check", str(path), env={"GROQ_API_KEY": "gsk-secret"})
    assert checked.exit_code == 0
    assert "groq" in checked.stdout
    again = llama_compat("init", str(path), "--yes")
    assert again.exit_code == 1
    assert "--force" in again.stderr
    forced = llama_compat("init", str(path), "--yes", "--force")
    assert forced.exit_code == 0
    assert "groq" not in path.read_text()


@pytest.mark.usefixtures("no_keys")
def test_without_a_terminal_nobody_can_be_asked(tmp_path: Path) -> None:
    result = llama_compat("init", str(tmp_path / "mine.yaml"))
    assert result.exit_code == 1
    assert "--yes" in result.stderr
    assert not (tmp_path / "mine.yaml").exists()


@pytest.mark.usefixtures("no_keys", "server")
def test_a_file_that_can_t_be_written(tmp_path: Path) -> None:
    result = llama_compat("init", str(tmp_path / "nowhere" / "mine.yaml"), "--yes")
    assert result.exit_code == 1
    assert "can't be written" in result.stderr


@needs_torch
@pytest.mark.usefixtures("no_keys", "server")
@pytest.mark.parametrize("wanted", [True, False])
def test_the_keys_room_is_offered_with_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: bool
) -> None:
    path = tmp_path / "mine.yaml"
    monkeypatch.setattr(init, "sys", SimpleNamespace(stdin=SimpleNamespace(isatty=lambda: True)))
    stdin = f"n\nn\ny\n{'y' if wanted else ''}\n"
    result = llama_compat("init", str(path), stdin=stdin)
    assert result.exit_code == 0, result.output
    assert "Use keys that you make for people" in result.stdout
    made = load_distribution(str(path), config_model).server
    assert made.admin_key is not None
    assert made.records is not None
    assert made.stored_keys is wanted
    assert ("llama-compat keys create NAME" in result.stdout) is wanted
    assert path.stat().st_mode & 0o077 == 0


@needs_torch
@pytest.mark.usefixtures("no_keys", "server")
def test_on_a_terminal_it_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "mine.yaml"
    # Not in a terminal of its own: what else answers on this machine would be asked about too.
    monkeypatch.setattr(init, "sys", SimpleNamespace(stdin=SimpleNamespace(isatty=lambda: True)))
    result = llama_compat(
        "init",
        str(path),
        stdin="n\nn\n\nn\nn\n",
        env={"GROQ_API_KEY": "gsk", "MISTRAL_API_KEY": "key"},
    )
    assert result.exit_code == 0, result.output
    questions = ["Use SGLang (answers at", "Use Mistral", "Use Groq (GROQ_API_KEY is set)?"]
    places = [
        result.stdout.index(each) for each in [*questions, "Use a small model", "Use records"]
    ]
    assert places == sorted(places)
    assert "admin_key" not in path.read_text()
    monkeypatch.setenv("GROQ_API_KEY", "gsk")
    providers = load_distribution(str(path), config_model).providers
    assert [each.type for each in providers] == ["remote::groq"]
