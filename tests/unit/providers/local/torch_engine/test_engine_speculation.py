"""Guessed tokens change nothing but how many steps there are."""
# ruff: noqa: E402 (what follows needs packages that may not be there)

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'torch'")
transformers = pytest.importorskip("transformers", reason="needs the extra 'torch'")

from llama_compat.types import StopReason, TopPSamplingStrategy
from providers.local.torch_engine.model import linear
from providers.local.torch_engine.scheduling import speculation
from tests.tiny_models import make_model
from tests.unit.providers.local.engines import generate, make_architecture, running
from tests.unit.providers.local.torch_engine.test_engine import (
    ENDLESS,
    PROMPTS,
    kv_bytes,
    random_prompt,
)

TWICE = (*random_prompt(40, 3), *random_prompt(40, 3)[:20])
"""A prompt that begins to repeat itself."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("models") / "tiny")


class Oracle:
    """Guesses what will be said, as a random model gives little to guess by; now and then wrongly.

    Attributes:
        said: what follows each prompt.
    """

    said: ClassVar[dict[tuple[int, ...], list[int]]] = {}

    def next(self, token_ids: list[int], most: int, sequences: int) -> tuple[int, ...]:
        """See `Guesses.next`."""
        for prompt, said in self.said.items():
            if tuple(token_ids[: len(prompt)]) == prompt:
                at = len(token_ids) - len(prompt)
                guessed = said[at : at + min(most, 1 + at % 7)]
                # Every fifth is another token.
                return tuple(
                    token + 1 if (at + place) % 5 == 4 else token
                    for place, token in enumerate(guessed)
                )
        return ()

    def settle(self, guessed: int, right: int, sequences: int) -> None:
        """See `Guesses.settle`."""
        assert 0 <= right <= guessed


@pytest.fixture(autouse=True)
def oracle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Oracle, "said", {})
    monkeypatch.setattr(speculation, "Guesses", Oracle)


SAMPLINGS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "drawn": {"strategy": TopPSamplingStrategy(temperature=0.6, top_p=0.9), "seed": 11},
    "drawn widely": {"strategy": TopPSamplingStrategy(temperature=1.5, top_p=1.0), "seed": 12},
    "penalised": {"frequency_penalty": 0.4, "presence_penalty": 0.1, "repetition_penalty": 1.1},
    "biased": {"logit_bias": {5: 2.0, 9: -3.0}},
    "some tokens alone": {"allowed_token_ids": tuple(range(3, 12))},
    "at least so many": {"min_tokens": 30, "ignore_eos": False},
}


async def both(folder: Path, *prompts: tuple[int, ...], **options: Any) -> list[Any]:
    """What is said without guesses and with them, together; and the figures of each engine."""
    settings = {"max_step_tokens": 64, **options.pop("settings", {})}
    found = []
    for guessing in ("none", "ngram"):
        async with running(folder, speculation=guessing, **settings) as engine:
            replies = await asyncio.gather(
                *(generate(engine, prompt, 60, **options) for prompt in prompts)
            )
            again = await generate(engine, (*prompts[0], *replies[0].token_ids), 5, **ENDLESS)
            Oracle.said = {
                prompt: each.token_ids for prompt, each in zip(prompts, replies, strict=True)
            }
            found.append((replies, engine.stats, again))
    return found


@pytest.mark.parametrize("name", SAMPLINGS)
async def test_the_reply_is_the_same(folder: Path, name: str) -> None:
    options = {**ENDLESS, **SAMPLINGS[name]}
    (plain, _, _), (guessed, stats, again) = await both(folder, TWICE, **options)
    assert [each.token_ids for each in guessed] == [each.token_ids for each in plain]
    assert guessed[0].stop_reason == plain[0].stop_reason
    assert 0 <= stats.guessed_right_tokens <= stats.guessed_tokens
    # What was guessed rightly is found in the cache as what was not.
    said = len(TWICE) + len(plain[0].token_ids)
    assert again.cached_tokens == (said - 1) // 16 * 16


@pytest.mark.parametrize("kernels", ["auto", "sdpa"])
async def test_there_are_fewer_steps(folder: Path, kernels: str) -> None:
    settings = {"kernels": kernels}
    (plain, before, _), (guessed, stats, _) = await both(
        folder, TWICE, settings=settings, **ENDLESS
    )
    assert guessed[0].token_ids == plain[0].token_ids
    assert stats.guessed_right_tokens > 10
    assert stats.steps == before.steps - stats.guessed_right_tokens
    assert stats.generated_tokens == before.generated_tokens
    assert before.guessed_tokens == 0


@pytest.mark.skipif(not linear.kernels_possible(), reason="needs x86 with AVX2")
async def test_in_8_bits(folder: Path) -> None:
    settings = {"quantization": "int8"}
    (plain, _, _), (guessed, stats, _) = await both(folder, TWICE, settings=settings, **ENDLESS)
    assert guessed[0].token_ids == plain[0].token_ids
    assert stats.guessed_right_tokens > 10


@pytest.mark.parametrize("name", ["gemma3_text", "gpt_oss", "qwen3_moe", "phi3 with longrope"])
async def test_architectures(tmp_path: Path, name: str) -> None:
    make_architecture(tmp_path, name)
    (plain, _, _), (guessed, stats, _) = await both(tmp_path, TWICE, **ENDLESS)
    assert guessed[0].token_ids == plain[0].token_ids
    assert (stats.guessed_tokens == 0) == (name == "phi3 with longrope")


async def test_beside_others(folder: Path) -> None:
    prompts = [TWICE, PROMPTS[12], PROMPTS[7]]
    (plain, _, _), (guessed, stats, _) = await both(folder, *prompts, **ENDLESS)
    assert [each.token_ids for each in guessed] == [each.token_ids for each in plain]
    assert stats.guessed_right_tokens > 10


async def test_beside_many_there_are_none_until_few_are_left(folder: Path) -> None:
    many = [TWICE[:length] for length in range(40, 58)]
    (plain, _, _), (guessed, stats, _) = await both(folder, *many, **ENDLESS)
    assert [each.token_ids for each in guessed] == [each.token_ids for each in plain]
    assert stats.guessed_tokens == 0


async def test_scores_are_the_same(folder: Path) -> None:
    (plain, _, _), (guessed, stats, _) = await both(folder, TWICE, logprobs=2, **ENDLESS)
    assert guessed[0].token_ids == plain[0].token_ids
    for found, expected in zip(guessed[0].scores, plain[0].scores, strict=True):
        assert found.logprob == pytest.approx(expected.logprob, abs=1e-4)
        assert [token for token, _ in found.top] == [token for token, _ in expected.top]
    assert stats.guessed_right_tokens > 0


@pytest.mark.parametrize("most", range(1, 9))
async def test_the_last_token_is_the_last(folder: Path, most: int) -> None:
    async with running(folder) as engine:
        whole = await generate(engine, TWICE, 60, **ENDLESS)
        Oracle.said = {TWICE: whole.token_ids}
        cut = await generate(engine, TWICE, 50 + most, **ENDLESS)
        assert engine.stats.used_blocks == 0
    assert cut.token_ids == whole.token_ids[: 50 + most]
    assert cut.stop_reason is StopReason.out_of_tokens


async def test_a_token_that_ends_the_reply_amid_guesses(folder: Path) -> None:
    async with running(folder) as engine:
        whole = (
            await generate(engine, TWICE, 60, **ENDLESS, allowed_token_ids=(5, 9, 2))
        ).token_ids
        for end in (5, 9, 2):
            options = {"allowed_token_ids": (5, 9, 2), "stop_token_ids": (end,)}
            cut = await generate(engine, TWICE, 60, **options, **ENDLESS)
            assert cut.token_ids == whole[: whole.index(end) + 1]
            assert cut.stop_reason is StopReason.end_of_turn
        assert engine.stats.used_blocks == 0


async def test_where_memory_is_short(folder: Path) -> None:
    prompts = [TWICE, PROMPTS[13], PROMPTS[14]]
    settings = {"kv_cache": kv_bytes(folder, 12)}
    (plain, _, _), (guessed, stats, _) = await both(folder, *prompts, settings=settings, **ENDLESS)
    assert [each.token_ids for each in guessed] == [each.token_ids for each in plain]
    assert stats.used_blocks == 0


class Alternating:
    """A grammar: even tokens and odd ones in turns."""

    def __init__(self) -> None:
        self.accepted: list[int] = []

    def allowed(self) -> Any:
        some = np.arange(400)
        return (some % 2 == len(self.accepted) % 2) & (some >= 40) & (some < 44)

    def accept(self, token_id: int) -> None:
        self.accepted.append(token_id)


async def test_a_grammar_is_asked_for_every_token(folder: Path) -> None:
    said = []
    for guessing in ("none", "ngram"):
        async with running(folder, speculation=guessing) as engine:
            constraint = Alternating()
            result = await generate(engine, TWICE, 60, constraint=constraint, ignore_eos=True)
            said.append(result.token_ids)
            Oracle.said = {TWICE: result.token_ids}
            assert constraint.accepted == result.token_ids
            guessed = engine.stats.guessed_right_tokens
    assert said[0] == said[1]
    assert [token % 2 for token in said[1]] == [place % 2 for place in range(len(said[1]))]
    assert guessed > 0
