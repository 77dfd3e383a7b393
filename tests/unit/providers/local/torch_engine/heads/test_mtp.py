"""What an MTP head says is what the paper says that it should, however its tokens come."""
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
from tests.unit.providers.local.torch_engine.heads.mtp_heads import (
    HYBRID,
    KINDS,
    expected_logits,
    publish,
)
from tests.unit.providers.local.torch_engine.heads.test_head_runner import computed, said
from tests.unit.providers.local.torch_engine.test_engine import random_prompt

TOKENS = random_prompt(41, 3)


def loaded_with(folder: Path, **settings: Any) -> LoadedModel:
    usual = {"device": "cpu", "quantization": "none", "kernels": "sdpa", "kv_cache": 1e6}
    config = TorchConfig.model_validate({**usual, "speculation": {"mtp": True}, **settings})
    return load("tiny", folder, config, None)


def sequence_of(loaded: LoadedModel, blocks: list[int]) -> TorchSequence:
    sampling = SamplingParams(strategy=GreedySamplingStrategy())
    made = TorchSequence(Generation(TOKENS[:40], sampling, 100), lambda _: None)
    made.blocks = blocks
    if loaded.states is not None:
        made.state = loaded.states.begin(None)
    return made


def assert_same(found: Any, expected: Any) -> None:
    torch.testing.assert_close(found, expected, atol=5e-4, rtol=1e-3)


@pytest.mark.parametrize("name", KINDS)
def test_its_logits_are_those_of_the_paper(tmp_path: Path, name: str) -> None:
    published = publish(tmp_path, name)
    loaded = loaded_with(published.folder)
    sequence = sequence_of(loaded, [5, 2, 9])
    for tokens in (7, 9, 24):
        computed(loaded, Chunk(sequence, tokens))
    sequence.token_ids.append(TOKENS[40])
    guesses = (17, 230, 8)
    expected = expected_logits(published, TOKENS, guesses)
    assert_same(said(loaded, sequence, guesses), expected)


def test_it_goes_on_behind_guesses_and_their_states(tmp_path: Path) -> None:
    """Of a model whose layers have states: some are right, some wrong, and none at all."""
    published = publish(tmp_path, HYBRID)
    loaded = loaded_with(published.folder)
    slots = loaded.states
    assert slots is not None
    sequence = sequence_of(loaded, [5, 2, 9, 11])
    computed(loaded, Chunk(sequence, 40))
    more = (*TOKENS[40:], 60, 61, 62, 63, 64, 65, 66, 67, 68)
    place = 0
    for guessed, right in (((more[1], more[2], 9), 2), ((), 0), ((more[5], more[6]), 2), ((3,), 0)):
        sequence.token_ids.append(more[place])
        tried = slots.tried(0, len(guessed))
        computed(loaded, Chunk(sequence, 1, guessed, tried))
        if right < len(guessed):
            assert sequence.state is not None
            slots.states.copy(tried[right], sequence.state)
        sequence.token_ids += more[place + 1 : place + 1 + right]
        sequence.computed += right
        place += 1 + right
    sequence.token_ids.append(more[place])
    guesses = (30, 31, 32)
    expected = expected_logits(published, sequence.token_ids, guesses)
    assert_same(said(loaded, sequence, guesses), expected)


@pytest.mark.parametrize("heads", [2, 3])
@pytest.mark.parametrize("name", ["deepseek_v3", HYBRID])
def test_of_several_each_guesses_its_own_token(tmp_path: Path, name: str, heads: int) -> None:
    """And the last of them all that are behind."""
    published = publish(tmp_path, name, heads=heads)
    loaded = loaded_with(published.folder)
    sequence = sequence_of(loaded, [5, 2, 9])
    for tokens in (7, 9, 24):
        computed(loaded, Chunk(sequence, tokens))
    sequence.token_ids.append(TOKENS[40])
    guesses = (17, 230, 8, 91)
    expected = expected_logits(published, TOKENS, guesses)
    assert_same(said(loaded, sequence, guesses), expected)


@pytest.mark.parametrize("heads", [2, 3])
def test_several_go_on_behind_guesses(tmp_path: Path, heads: int) -> None:
    """Right, wrong, none at all and fewer than there are heads, over the ends of blocks."""
    published = publish(tmp_path, "deepseek_v3", heads=heads)
    loaded = loaded_with(published.folder)
    sequence = sequence_of(loaded, [5, 2, 9, 11])
    computed(loaded, Chunk(sequence, 40))
    more = (*TOKENS[40:], *range(60, 75))
    place = 0
    for tried, right in (((9, 9, 9), 2), ((7,), 0), ((), 0), ((3, 4), 2), ((), 0), ((1, 2, 5), 3)):
        sequence.token_ids.append(more[place])
        if tried:
            expected = expected_logits(published, sequence.token_ids, tried[:-1])
            assert_same(said(loaded, sequence, tried[:-1]), expected)
        guessed = (*more[place + 1 : place + 1 + right], *tried[right:])
        computed(loaded, Chunk(sequence, 1, guessed))
        sequence.token_ids += more[place + 1 : place + 1 + right]
        sequence.computed += right
        place += 1 + right
    sequence.token_ids.append(more[place])
    guesses = (30, 31, 32)
    expected = expected_logits(published, sequence.token_ids, guesses)
    assert_same(said(loaded, sequence, guesses), expected)


def test_several_two_at_a_time_and_from_the_cache(tmp_path: Path) -> None:
    published = publish(tmp_path, "deepseek_v3", heads=2)
    loaded = loaded_with(published.folder)
    first, second = sequence_of(loaded, [5, 2, 9]), sequence_of(loaded, [5, 2, 12])
    computed(loaded, Chunk(first, 40))
    second.computed = 32
    computed(loaded, Chunk(second, 8))
    for each in (first, second):
        each.token_ids.append(TOKENS[40])
    guesses = (17, 230, 8)
    assert loaded.head is not None
    with torch.inference_mode():
        going = loaded.head.begin([first, second])
        found = [loaded.head.forward(going, loaded.model.vocab_size)]
        for guess in guesses:
            for ahead in going:
                ahead.own.token_ids.append(guess)
            found.append(loaded.head.forward(going, loaded.model.vocab_size))
    expected = expected_logits(published, TOKENS, guesses)
    for place in (0, 1):
        assert_same(torch.stack([each[place] for each in found]), expected)
