"""The command that shows the catalogue, and what `check` says by it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from llama_compat.catalog.vendors import VENDORS
from routing.cli import app
from tests.conftest import needs_torch
from tests.unit.routing.cli.terminals import terminal_of, widest


def llama_compat(*arguments: str, columns: int = 200) -> Result:
    return CliRunner().invoke(app, arguments, env={"COLUMNS": str(columns)})


def listed(*arguments: str) -> list[dict[str, object]]:
    result = llama_compat("models", *arguments, "--json")
    assert result.exit_code == 0, result.output
    found: list[dict[str, object]] = json.loads(result.stdout)
    return found


def names(*arguments: str) -> set[str]:
    return {f"{each['vendor']}/{each['model']}" for each in listed(*arguments)}


def test_a_pattern_is_of_a_model_s_name_or_of_all_of_it() -> None:
    assert names("anthropic/claude-*-5-5") == {
        f"anthropic/claude-{name}-5-5" for name in ("haiku", "opus", "sonnet")
    }
    assert names("openai/gpt-6.1") == {"openai/gpt-6.1-sol", "openai/gpt-6.1-terra"}
    assert names("gpt-6.1-s*") == {"openai/gpt-6.1-sol"}


def test_without_one_every_model_of_a_vendor_that_there_is_a_provider_for() -> None:
    vendors = {each["vendor"] for each in listed()}
    assert vendors == {each.listed for each in VENDORS.values()}


def test_another_vendor_of_the_list_is_shown_if_it_is_named() -> None:
    assert names("perplexity/")
    assert {each.partition("/")[0] for each in names("perplexity/")} == {"perplexity"}


def test_all_facts_are_in_the_json() -> None:
    (facts,) = (each for each in listed("openai/gpt-4o-mini") if each["model"] == "gpt-4o-mini")
    assert facts["shutdown"] == "2027-01-14"
    assert facts["successor"] == "gpt-6-luna"
    assert facts["input"] == ["text", "image", "document"]


def test_the_table_says_what_tells_models_apart() -> None:
    result = llama_compat("models", "anthropic/claude-opus-4-7")
    assert result.exit_code == 0
    row = " ".join(result.stdout.splitlines()[3].split())
    assert row == (
        "anthropic/claude-opus-4-7 1M 128K 5, 25 image, document, no sampling, thinking"
        " (adaptive), tools, schemas"
    )


def test_the_table_fits_a_terminal() -> None:
    result = CliRunner().invoke(app, ["models", "openai/gpt-4"], env=terminal_of(100))
    assert widest(result.stdout) <= 100
    assert "2027-01-14" in result.stdout
    assert "successor: gpt-6-luna" in " ".join(result.stdout.split())


def test_what_nobody_knows_is_an_error() -> None:
    result = llama_compat("models", "no-such-model")
    assert result.exit_code == 1
    assert "no model that is known fits 'no-such-model'" in result.stderr
    assert listed("no-such-model") == []


def test_check_warns_and_does_not_fail(tmp_path: Path) -> None:
    template = tmp_path / "t.yaml"
    template.write_text(
        "providers: [{id: openai, type: 'remote::openai', config: {api_key: k}}]\n"
        "models: [{id: old, provider: openai, provider_model: o1-mini}]\n"
    )
    result = llama_compat("check", str(template))
    assert result.exit_code == 0
    assert "Warning: openai/o1-mini was shut down on 2025-10-27." in result.stdout


def test_those_on_this_machine_and_how_one_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLAMA_COMPAT_HOME", str(tmp_path))
    result = llama_compat("models", "--local")
    assert (result.exit_code, "llama-compat pull starter" in result.stderr) == (1, True)
    folder = tmp_path / "models" / "starter.gguf"
    folder.mkdir(parents=True)
    (folder / "model.gguf").write_bytes(b"GGUF" * 500_000)
    shown = llama_compat("models", "--local").stdout
    assert "starter.gguf" in shown
    assert "2 MB" in shown
    assert "local::llama_cpp" in shown
    assert [each["name"] for each in listed("--local")] == ["starter.gguf"]
    assert llama_compat("models", "nothing", "--local").exit_code == 1
    assert llama_compat("rm", "starter.gguf").stdout == (
        "starter.gguf is removed: 2 MB are free again\n"
    )
    assert not folder.exists()
    result = llama_compat("rm", "starter.gguf")
    assert (result.exit_code, "There are none." in result.stderr) == (1, True)


@needs_torch
@pytest.mark.engine
def test_how_those_on_this_machine_are_quantized(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLAMA_COMPAT_HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "200")
    for name, settings in {
        "gemv": {"quant_method": "awq", "version": "gemv"},
        "gptq": {"quant_method": "gptq"},
        "hqq": {"quant_method": "hqq"},
        "nvfp4": {"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized"},
    }.items():
        local_model(tmp_path, name, model_type="llama", quantization_config=settings)
    found = listed("--local")
    methods = ["awq", "gptq", "hqq", "compressed-tensors"]
    assert [each["quantized_by"] for each in found] == methods
    assert [each["engine"] for each in found] == [None, "local::torch", None, None]
    assert found[0]["how"] == "its AWQ weights are packed for 'gemv', and not for 'gemm'"
    assert "in the format 'nvfp4-pack-quantized', which is none of" in found[3]["how"]
    shown = llama_compat("models", "--local").stdout.splitlines()
    [read] = [line for line in shown if "org/gptq" in line]
    [other] = [line for line in shown if "org/hqq" in line]
    assert "local::torch" in read
    assert "its weights are quantized by 'hqq', which is none of" in other


@needs_torch
@pytest.mark.engine
def test_which_of_those_on_this_machine_run_one_request_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLAMA_COMPAT_HOME", str(tmp_path))
    local_model(tmp_path, "shares", model_type="llama")
    local_model(tmp_path, "alone", model_type="gpt2")
    alone, shares = listed("--local")
    assert (shares["engine"], shares["how"]) == ("local::torch", "in batches")
    assert (alone["engine"], alone["how"]) == (
        "local::torch",
        "one request at a time, since its architecture 'gpt2' is none of those that share steps"
        " here",
    )
    [row] = [
        line for line in llama_compat("models", "--local").stdout.splitlines() if "alone" in line
    ]
    assert "one request at a time" in row


def local_model(home: Path, name: str, **config: object) -> None:
    """Lay the settings of a model where `pull` would, with no weights."""
    folder = home / "models" / "hf" / "org" / name
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
