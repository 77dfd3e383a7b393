"""`run` and a model that is not on this machine: a question in a terminal, `--pull` elsewhere."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from llama_compat.distribution import Distribution
from routing.cli.pulling import wanted_models
from tests.conftest import needs_torch
from tests.integration.server_process import write_template
from tests.local_server import serving
from tests.unit.providers.local.models.test_store import Hub
from tests.unit.routing.cli.terminals import COMMAND, Terminal


@pytest.fixture
def template(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LLAMA_COMPAT_HOME", str(tmp_path / "home"))
    return write_template(
        tmp_path / "torch.yaml",
        providers=[{"id": "torch", "type": "local::torch"}],
        models=[{"id": "m", "provider": "torch", "provider_model": "hf:org/name"}],
    )


def test_what_engines_are_to_run() -> None:
    distribution = Distribution.model_validate(
        {
            "providers": [
                {"id": "torch", "type": "local::torch"},
                {"id": "echo", "type": "local::echo"},
                {"id": "up", "type": "remote::vllm"},
            ],
            "models": [
                {"id": "starter", "provider": "torch"},
                {"id": "again", "provider": "torch", "provider_model": "starter"},
                {"id": "other", "provider": "torch", "provider_model": "hf:a/b"},
                {"id": "echo", "provider": "echo"},
                {"id": "remote", "provider": "up"},
            ],
        }
    )
    assert wanted_models(distribution) == ["starter", "hf:a/b"]


@needs_torch
@pytest.mark.engine
def test_with_pull_it_is_fetched_first(
    template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("huggingface_hub")
    with serving(Hub().answer) as url:
        monkeypatch.setenv("HF_ENDPOINT", url)
        ended = subprocess.run(
            [COMMAND, "run", str(template), "--pull", "--port", "0"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert "hf:org/name is ready in" in ended.stdout
    assert list((tmp_path / "home").rglob("config.json"))
    # What was fetched is no model of which anybody could make anything.
    assert ended.returncode == 1


@needs_torch
@pytest.mark.engine
def test_without_a_terminal_nobody_is_asked(template: Path) -> None:
    ended = subprocess.run(
        [COMMAND, "run", str(template), "--port", "0"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.returncode == 1
    assert "llama-compat pull hf:org/name" in ended.stderr
    assert "Pull it?" not in ended.stdout


@needs_torch
@pytest.mark.engine
def test_on_a_terminal_it_is_offered(template: Path) -> None:
    terminal = Terminal("run", str(template), "--port", "0")
    terminal.read_until("The model 'hf:org/name' is not on this machine. Pull it? [Y/n]")
    terminal.type("n\n")
    terminal.read_until("Later: llama-compat pull hf:org/name")
    assert terminal.wait() == 1
