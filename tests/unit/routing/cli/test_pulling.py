"""`run` and a model that is not on this machine: a question in a terminal, `--pull` elsewhere."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from llama_compat.distribution import Distribution
from providers.local.models.forecast import ModelForecast, Need
from routing.cli import app
from routing.cli.pulling import show_forecast, wanted_models
from tests.conftest import needs_torch
from tests.forked import TORCH, run
from tests.integration.server_process import write_template
from tests.local_server import serving
from tests.tiny_models import make_model
from tests.unit.providers.local.models.test_store import Hub, hub
from tests.unit.routing.cli.terminals import Terminal

__all__ = ["hub"]


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
        with pytest.raises(subprocess.CalledProcessError) as ended:
            # None that has imported torch, as Hugging Face's library reads HF_ENDPOINT only then.
            run(["run", str(template), "--pull", "--port", "0"])
    assert "hf:org/name is ready in" in ended.value.stdout
    assert list((tmp_path / "home").rglob("config.json"))
    # What was fetched is no model of which anybody could make anything.
    assert ended.value.returncode == 1


@needs_torch
@pytest.mark.engine
def test_without_a_terminal_nobody_is_asked(template: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError) as ended:
        run(["run", str(template), "--port", "0"], imported=TORCH)
    assert ended.value.returncode == 1
    assert "llama-compat pull hf:org/name" in ended.value.stderr
    assert "Pull it?" not in ended.value.stdout


@needs_torch
@pytest.mark.engine
def test_on_a_terminal_it_is_offered(template: Path) -> None:
    terminal = Terminal("run", str(template), "--port", "0", imported=TORCH)
    terminal.read_until("The model 'hf:org/name' is not on this machine. Pull it? [Y/n]")
    terminal.type("n\n")
    terminal.read_until("Later: llama-compat pull hf:org/name")
    assert terminal.wait() == 1


@needs_torch
@pytest.mark.engine
def test_what_a_person_wants_to_know_first(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLAMA_COMPAT_HOME", str(tmp_path / "home"))
    folder = make_model(tmp_path / "made")
    hub.files = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    result = CliRunner().invoke(app, ["pull", "hf:org/name", "--dry-run"])
    assert result.exit_code == 0, result.output
    size = sum(map(len, hub.files.values()))
    said = result.stdout.splitlines()
    assert (
        f"hf:org/name: {size / 1e6:.0f} MB to fetch, 0.125M parameters, a context of 512 tokens"
        in said
    )
    assert "  local::torch: in batches" in said
    assert [line for line in said if line.startswith("  fits on ") and "are free" in line]
    assert not list((tmp_path / "home").rglob("*.safetensors*"))
    result = CliRunner().invoke(app, ["pull", "hf:org/name"])
    assert "  local::torch: in batches" in result.stdout
    assert "hf:org/name is ready in" in result.stdout
    result = CliRunner().invoke(app, ["pull", "starter", "--dry-run"])
    assert (result.exit_code, "135 million parameters" in result.stderr) == (1, True)


def test_a_file_whose_name_says_no_numbers_is_told_without(
    capsys: pytest.CaptureFixture[str],
) -> None:
    need = Need("cpu", None, 153_000_000, 2 * 10**9, usual=True)
    show_forecast(ModelForecast("x.gguf", 98_000_000, None, None, "local::llama_cpp", "", (need,)))
    assert capsys.readouterr().out.splitlines()[-1] == (
        "  fits on cpu: 153 MB of memory, 2.0 GB are free"
    )


@needs_torch
@pytest.mark.server
def test_on_a_terminal_it_stands_above_the_bars(tmp_path: Path) -> None:
    made = make_model(tmp_path / "made")
    stand_in = Hub()
    stand_in.files = {path.name: path.read_bytes() for path in made.iterdir() if path.is_file()}
    with serving(stand_in.answer) as url:
        terminal = Terminal(
            *("pull", "hf:org/name"),
            term="xterm",
            HF_ENDPOINT=url,
            LLAMA_COMPAT_HOME=str(tmp_path / "home"),
            COLUMNS="200",
        )
        try:
            shown = terminal.read_until("llama-compat bench hf:org/name")
            assert terminal.wait() == 0
        finally:
            terminal.end()
    # What bars stood in the line is erased first.
    for line in ("hf:org/name: ", "  local::torch: in batches", "  fits on "):
        assert re.search(rf"(\n|\x1b\[2K){line}", shown), shown
    assert "hf:org/name is ready in" in shown
    assert "Serve it:  llama-compat run hf:org/name" in shown
