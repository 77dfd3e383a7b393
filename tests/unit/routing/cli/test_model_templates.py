"""A model that is served without a template of somebody's own."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from llama_compat.distribution import load_distribution
from providers.registry import config_model
from routing.cli.model_templates import file_of


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where such templates are kept."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "llama-compat" / "run"


@pytest.mark.parametrize(
    ("name", "engine", "model"),
    [
        ("hf:Qwen/Qwen3-0.6B", "local::torch", "Qwen3-0.6B"),
        ("hf:org/name:dir/some.Q4_K_M.gguf", "local::llama_cpp", "some.Q4_K_M"),
        ("ollama:llama3.2:1b", "local::llama_cpp", "llama3.2:1b"),
        ("starter.gguf", "local::llama_cpp", "starter"),
    ],
)
def test_a_name_is_served_by_a_template_of_its_own(name: str, engine: str, model: str) -> None:
    distribution = load_distribution(file_of(name), config_model)
    [provider], [served] = distribution.providers, distribution.models
    assert (provider.type, served.id) == (engine, model)
    assert distribution.targets_of(served)[0].model == name


def test_so_is_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "tiny: \"model\" # 'x'"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    file = tmp_path / "one.gguf"
    file.write_bytes(b"GGUF")
    monkeypatch.chdir(tmp_path)
    for path, engine in ((folder, "local::torch"), (file, "local::llama_cpp")):
        distribution = load_distribution(file_of(path.name), config_model)
        assert distribution.providers[0].type == engine
        # From wherever it is run the next time.
        assert distribution.targets_of(distribution.models[0])[0].model == str(path)


@pytest.mark.parametrize("name", ["starter", "echo", "nope", "nope.yaml", "."])
def test_what_is_no_model_is_what_it_was(
    name: str, state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert file_of(name) == name
    assert not state.exists()


def test_a_change_in_it_stays_and_names_are_told_apart(state: Path) -> None:
    path = Path(file_of("hf:org/name"))
    assert path.parent == state
    path.write_text("mine")
    assert file_of("hf:org/name") == str(path)
    assert path.read_text() == "mine"
    assert file_of("hf:org--name/x") != file_of("hf:org/name--x")


def test_a_name_that_is_none_is_an_error(capsys: pytest.CaptureFixture[str], state: Path) -> None:
    with pytest.raises(typer.Exit):
        file_of("hf:org")
    assert "'hf:org' is not the name of a Hugging Face model" in capsys.readouterr().err
    assert not state.exists()
