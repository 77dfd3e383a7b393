"""How a model wants to be sampled, and what of that a request's own word takes the place of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from llama_compat.dialects.ollama.options import parse_options
from llama_compat.dialects.openai.parameters import parse_sampling
from llama_compat.types import SamplingParams, TopPSamplingStrategy
from providers.base import ProviderStartError
from providers.local.models.defaults import context_beside, defaults_beside, with_defaults


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "model.gguf"


def says(file: Path, **params: Any) -> SamplingParams:
    file.with_name("params.json").write_text(json.dumps(params))
    return defaults_beside(file)


def test_without_parameters_nothing_changes(file: Path) -> None:
    asked = parse_sampling({"temperature": 0.3, "stop": "a"})
    assert defaults_beside(file) == SamplingParams()
    assert with_defaults(asked, defaults_beside(file)) == asked
    assert context_beside(file) is None


def test_what_a_request_does_not_say_the_model_does(file: Path) -> None:
    defaults = says(file, temperature=0.6, top_p=0.9, stop=["<a>", "<b>"], num_ctx=4096, num_gpu=3)
    found = with_defaults(parse_sampling({}), defaults)
    assert found.strategy == TopPSamplingStrategy(0.6, 0.9)
    assert found.stop == ("<a>", "<b>")
    assert context_beside(file) == 4096


@pytest.mark.parametrize(
    ("asked", "options"),
    [
        ({"temperature": 0.2}, {"temperature": 0.2, "top_p": 0.9, "top_k": 20}),
        # What is OpenAI's default too is still the request's own word.
        ({"temperature": 1}, {"temperature": 1, "top_p": 0.9, "top_k": 20}),
        ({"top_p": 1.0}, {"temperature": 0.6, "top_p": 1.0, "top_k": 20}),
        ({"top_k": 5}, {"temperature": 0.6, "top_p": 0.9, "top_k": 5}),
        ({"temperature": 0}, {"temperature": 0}),
    ],
    ids=str,
)
def test_a_request_s_own_word_is_kept(
    file: Path, asked: dict[str, Any], options: dict[str, Any]
) -> None:
    defaults = says(file, temperature=0.6, top_p=0.9, top_k=20, stop=["<a>"])
    found = with_defaults(parse_sampling(asked), defaults)
    assert found.strategy == parse_options(options).strategy
    assert found.stop == ("<a>",)


def test_stop_strings_of_a_request_take_the_place_of_the_model_s(file: Path) -> None:
    defaults = says(file, stop=["<a>"], repeat_penalty=1.1)
    found = with_defaults(parse_sampling({"stop": ["x"], "repetition_penalty": 1.0}), defaults)
    assert (found.stop, found.repetition_penalty) == (("x",), 1.0)
    assert with_defaults(parse_sampling({}), defaults).repetition_penalty == 1.1


def test_a_model_that_is_greedy_is_sampled_where_a_request_says_so(file: Path) -> None:
    defaults = says(file, temperature=0)
    assert with_defaults(parse_sampling({}), defaults).strategy == defaults.strategy
    asked = parse_sampling({"temperature": 0.5})
    assert with_defaults(asked, defaults).strategy == asked.strategy


@pytest.mark.parametrize(
    "text", ["[]", "{", '{"temperature": "hot"}', '{"num_ctx": "4096"}', '{"num_ctx": 0}']
)
def test_parameters_that_make_no_sense_are_told(file: Path, text: str) -> None:
    file.with_name("params.json").write_text(text)
    read = context_beside if "num_ctx" in text else defaults_beside
    with pytest.raises(ProviderStartError, match=r"params\.json can't be read: .* pull it again"):
        read(file)
