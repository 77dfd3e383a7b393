"""What a template says wrongly of the torch engine is told of what was meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from llama_compat.distribution.problems import TemplateError
from llama_compat.distribution.template import load_distribution
from providers.registry import config_model

KINDS = "expected 'ngram', 'none', or one of the keys 'draft', 'eagle' and 'mtp'"


def problem_with(tmp_path: Path, setting: str) -> str:
    file = tmp_path / "template.yaml"
    file.write_text(
        "version: 1\nproviders:\n  - id: p\n    type: local::torch\n    config:\n"
        f"      {setting}\nmodels:\n  - {{id: m, provider: p}}\n"
    )
    with pytest.raises(TemplateError) as raised:
        load_distribution(str(file), config_model)
    [problem] = raised.value.problems
    return f"{problem.path}: {problem.message}"


@pytest.mark.parametrize(
    ("speculation", "words"),
    [
        (
            "{drafft: starter, tokens: 4}",
            f"speculation: this says nothing of what guesses: {KINDS}",
        ),
        ("{tokens: 4}", KINDS),
        ("ngramm", "expected 'ngram' or 'none', got 'ngramm'; did you mean 'ngram'?"),
        ("3", "expected 'ngram' or 'none', got 3"),
        ("{eagle: x, token: 4}", "speculation.token: unknown key 'token'; did you mean 'tokens'?"),
        ("{draft: x, tokens: 9}", "speculation.tokens: expected a whole number from 1 to 7, got 9"),
        (
            "{mtp: true, quantization: int8}",
            "unknown key 'quantization'; the keys here are tokens, mtp",
        ),
        (
            "{mtp: false}",
            "speculation.mtp: write 'mtp: true' for the head in the model's own files; without it"
            " 'speculation' is 'ngram' or 'none'",
        ),
        ("{mtp: layers.61}", "speculation.mtp: write 'mtp: true'"),
    ],
)
def test_a_mistake_in_speculation_is_told_once_and_of_its_kind(
    tmp_path: Path, speculation: str, words: str
) -> None:
    assert words in problem_with(tmp_path, f"speculation: {speculation}")


def test_a_setting_of_earlier_versions_is_told_from_a_mistake(tmp_path: Path) -> None:
    assert problem_with(tmp_path, "prompt_attention: flashinfer") == (
        "providers[0].config.prompt_attention: 'prompt_attention' is no setting any more: leave it"
        " out, as 'kernels' chooses what computes prompts too"
    )
