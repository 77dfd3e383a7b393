"""What a head says is what the paper says that it should, however its tokens come."""
# ruff: noqa: E402 (what follows needs packages that may not be there)

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'torch'")

from llama_compat.types import GreedySamplingStrategy, SamplingParams
from providers.local.engine import Generation
from providers.local.torch_engine.config import TorchConfig
from providers.local.torch_engine.loading.loader import LoadedModel, load
from providers.local.torch_engine.scheduling.sequence import TorchSequence
from providers.local.torch_engine.scheduling.step import Chunk
from tests.tiny_models import make_model
from tests.unit.providers.local.torch_engine.heads.eagle_heads import (
    LAYERS,
    config_in,
    expected_logits,
    head_config,
    random_weights,
    write_head,
)
from tests.unit.providers.local.torch_engine.test_engine import random_prompt

TOKENS = random_prompt(41, 3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("models") / "tiny", num_hidden_layers=4)


def loaded_with(folder: Path, head: Path, **settings: Any) -> LoadedModel:
    speculation = {"eagle": str(head), "quantization": "none"}
    usual = {"device": "cpu", "quantization": "none", "kernels": "sdpa", "kv_cache": 1e6}
    config = TorchConfig.model_validate({**usual, "speculation": speculation, **settings})
    return load("tiny", folder, config, None)


def sequence_of(blocks: list[int]) -> TorchSequence:
    sampling = SamplingParams(strategy=GreedySamplingStrategy())
    made = TorchSequence(Generation(TOKENS[:40], sampling, 100), lambda _: None)
    made.blocks = blocks
    return made


def computed(loaded: LoadedModel, *chunks: Chunk) -> None:
    """The model computes a step."""
    loaded.runner.forward(chunks)
    for chunk in chunks:
        chunk.sequence.computed += chunk.tokens


def said(loaded: LoadedModel, sequence: TorchSequence, guesses: tuple[int, ...]) -> Any:
    """What the head says, and goes on to say if it is told what it guessed."""
    assert loaded.head is not None
    with torch.inference_mode():
        [ahead] = loaded.head.begin([sequence])
        found = [loaded.head.forward([ahead], loaded.model.vocab_size)]
        for guess in guesses:
            ahead.own.token_ids.append(guess)
            found.append(loaded.head.forward([ahead], loaded.model.vocab_size))
    return torch.cat(found)


def assert_same(found: Any, expected: Any, weights: dict[str, Any]) -> None:
    known = weights.get("d2t", torch.zeros(expected.shape[1])) + torch.arange(expected.shape[1])
    torch.testing.assert_close(found[:, known.long()], expected, atol=2e-4, rtol=1e-4)
    others = torch.ones(found.shape[1], dtype=torch.bool)
    others[known.long()] = False
    assert bool((found[:, others] == -torch.inf).all())


KINDS: dict[str, dict[str, Any]] = {
    "as SafeAILab writes it": {},
    "normed before it is added to": {"norm_before_residual": True, "num_key_value_heads": 4},
    "with layers as SpecForge counts": {
        "eagle_aux_hidden_state_layer_ids": None,
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": [each - 1 for each in LAYERS]},
    },
    "that knows all tokens, with the model's embeddings": {"draft_vocab_size": 400},
}


@pytest.mark.parametrize("name", KINDS)
def test_its_logits_are_those_of_the_paper(folder: Path, tmp_path: Path, name: str) -> None:
    config = head_config(config_in(folder), **KINDS[name])
    weights = random_weights(config, own_table="model's" not in name)
    loaded = loaded_with(folder, write_head(tmp_path, config, weights))
    sequence = sequence_of([5, 2, 9])
    computed(loaded, Chunk(sequence, 40))
    sequence.token_ids.append(TOKENS[40])
    guesses = (17, 230, 8)
    found = said(loaded, sequence, guesses)
    assert_same(found, expected_logits(folder, config, weights, TOKENS, guesses), weights)


def test_it_does_not_matter_how_the_tokens_came(folder: Path, tmp_path: Path) -> None:
    """In pieces, beside others, some guessed rightly, and the first found in the cache."""
    config = head_config(config_in(folder))
    weights = random_weights(config)
    loaded = loaded_with(folder, write_head(tmp_path, config, weights))
    first, other = sequence_of([5, 2, 9, 11]), sequence_of([7, 3, 12])
    for tokens in (7, 9, 24):
        computed(loaded, Chunk(first, tokens), Chunk(other, 3))
    more = (*TOKENS[40:], 60, 61, 62, 63, 64, 65, 66, 67, 68)
    first.token_ids.append(more[0])
    said(loaded, first, (17, 230, 8))  # wrong ones, which are overwritten
    computed(loaded, Chunk(first, 1, (*more[1:3], 9)))
    first.token_ids += more[1:4]
    first.computed += 2  # two were right
    computed(loaded, Chunk(first, 1))  # a step without guesses
    first.token_ids.append(more[4])
    computed(loaded, Chunk(first, 1, more[5:9]))
    first.token_ids += more[5:10]
    first.computed += 4
    guesses = (30, 31, 32, 33, 34, 35)  # beyond its blocks
    everything = (*TOKENS[:40], *more)
    assert first.token_ids == list(everything)
    expected = expected_logits(folder, config, weights, everything, guesses)
    assert_same(said(loaded, first, guesses), expected, weights)
    # Another sequence goes on from two of its blocks.
    second = sequence_of([5, 2, 12])
    second.computed = 32
    computed(loaded, Chunk(second, 8))
    second.token_ids.append(TOKENS[40])
    expected = expected_logits(folder, config, weights, TOKENS, guesses)
    assert_same(said(loaded, second, guesses), expected, weights)


def test_a_prompt_shorter_than_a_block_that_goes_on_beyond_it(folder: Path, tmp_path: Path) -> None:
    config = head_config(config_in(folder))
    weights = random_weights(config)
    loaded = loaded_with(folder, write_head(tmp_path, config, weights))
    sequence = TorchSequence(Generation(TOKENS[:9], SamplingParams(), 30), lambda _: None)
    sequence.blocks = [5, 2]
    computed(loaded, Chunk(sequence, 9))
    for place in range(9, 19):
        sequence.token_ids.append(TOKENS[place])
        computed(loaded, Chunk(sequence, 1))
    sequence.token_ids.append(TOKENS[19])
    expected = expected_logits(folder, config, weights, TOKENS[:20], (7,))
    assert_same(said(loaded, sequence, (7,)), expected, weights)


def test_the_last_token_of_a_full_block_is_there_for_others(folder: Path, tmp_path: Path) -> None:
    """Whose prompts begin with all of it, though what follows it is not known yet."""
    config = head_config(config_in(folder))
    loaded = loaded_with(folder, write_head(tmp_path, config, random_weights(config)))
    assert loaded.head is not None
    layer = loaded.head._cache.layers[0]
    layer.fill_(torch.nan)
    whole = TorchSequence(Generation(TOKENS[:32], SamplingParams(), 1), lambda _: None)
    whole.blocks = [4, 6]
    computed(loaded, Chunk(whole, 32))
    assert not layer[6 * 16 : 7 * 16].isnan().any()


def test_a_sequence_that_was_sent_back_is_not_guessed_for_from_old_states(
    folder: Path, tmp_path: Path
) -> None:
    config = head_config(config_in(folder))
    loaded = loaded_with(folder, write_head(tmp_path, config, random_weights(config)))
    assert loaded.head is not None
    sequence = sequence_of([5, 2, 9])
    computed(loaded, Chunk(sequence, 40))
    sequence.computed = 16
    assert loaded.head.begin([sequence]) == []


def test_in_8_bits_of_cache_it_says_nearly_the_same(folder: Path, tmp_path: Path) -> None:
    config = head_config(config_in(folder))
    weights = random_weights(config)
    loaded = loaded_with(folder, write_head(tmp_path, config, weights), kv_cache_dtype="int8")
    sequence = sequence_of([5, 2, 9])
    computed(loaded, Chunk(sequence, 40))
    sequence.token_ids.append(TOKENS[40])
    found = said(loaded, sequence, ())
    expected = expected_logits(folder, config, weights, TOKENS, ())
    known = weights["d2t"] + torch.arange(expected.shape[1])
    assert torch.cosine_similarity(found[0, known], expected[0], 0) > 0.98
