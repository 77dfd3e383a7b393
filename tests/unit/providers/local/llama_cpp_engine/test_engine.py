"""The engine on llama.cpp: what it generates is the model's, whatever else runs beside it."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections import Counter
from collections.abc import AsyncGenerator, Hashable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the extra 'torch', to compare with")
pytest.importorskip("llama_cpp", reason="needs the extra 'llama-cpp'")

import torch
import transformers
from safetensors.numpy import load_file, save_file

from llama_compat.errors import APIError
from llama_compat.types import (
    SamplingParams,
    StopReason,
    TopKSamplingStrategy,
    TopPSamplingStrategy,
)
from providers.local.engine import Constraint, Generation
from providers.local.llama_cpp_engine import loader
from providers.local.llama_cpp_engine.bindings import context
from providers.local.llama_cpp_engine.config import LlamaCppConfig
from providers.local.llama_cpp_engine.engine import LlamaEngine
from providers.local.llama_cpp_engine.loader import load, open_model
from providers.local.llama_cpp_engine.sampling import log_softmax
from providers.local.threads.team_size import TeamSize
from tests.tiny_ggufs import gguf_of
from tests.tiny_models import make_model
from tests.unit.providers.local.engines import STOP_TOKENS, generate, reference, tried_once, until

ENDLESS = {"ignore_eos": True}


def random_prompt(length: int, seed: int) -> tuple[int, ...]:
    chosen = random.Random(seed)
    return tuple(chosen.randrange(3, 390) for _ in range(length))


PROMPTS = [random_prompt(length, length) for length in (1, 2, 3, 5, 9, 17, 33, 60, 120, 200)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def gguf(folder: Path) -> Path:
    return gguf_of(folder, folder.with_suffix(".gguf"))


@pytest.fixture(scope="module")
def expected(folder: Path) -> list[list[int]]:
    return reference(folder, PROMPTS, 24)


@pytest.fixture(scope="module", autouse=True)
def trials_are_remembered() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loader, "try_out", tried_once())
        yield


def opened(gguf: Path, **options: Any) -> LlamaEngine:
    context_length = options.pop("context_length", None)
    config = LlamaCppConfig(**{"threads": 1, **options})
    model = open_model(str(gguf), gguf, config)
    engine = LlamaEngine(load(str(gguf), model, gguf, config, context_length))
    engine.start()
    return engine


@asynccontextmanager
async def running(gguf: Path, **options: Any) -> AsyncGenerator[Any, None]:
    """An engine that is stopped in the end."""
    engine = await asyncio.to_thread(opened, gguf, **options)
    try:
        yield engine
    finally:
        await asyncio.to_thread(engine.stop)


def kv_bytes(gguf: Path, tokens: int) -> float:
    """A KV cache of so many tokens: two layers of two heads of 16 numbers, keys and values."""
    return float(tokens * 2 * 2 * (16 + 16) * 2)


# The text -----------------------------------------------------------------------------------------


async def test_alone_and_then_from_what_is_resident(gguf: Path, expected: list[list[int]]) -> None:
    async with running(gguf) as engine:
        for prompt, tokens in zip(PROMPTS, expected, strict=True):
            first = await generate(engine, prompt, 24)
            again = await generate(engine, prompt, 24)
            assert first.token_ids == again.token_ids == tokens
            assert again.cached_tokens == len(prompt) - 1


async def test_in_a_batch_with_prompts_cut_into_chunks(
    gguf: Path, expected: list[list[int]]
) -> None:
    async with running(gguf, max_step_tokens=16, max_sequences=8) as engine:
        made = await asyncio.gather(*(generate(engine, prompt, 24) for prompt in PROMPTS))
        assert [each.token_ids for each in made] == expected
        assert engine.stats.steps < 24 * len(PROMPTS)


@pytest.mark.parametrize("settings", [{}, {"threads": 1}, {"deterministic": True}], ids=str)
async def test_each_step_is_computed_with_what_its_team_says(
    gguf: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]
) -> None:
    """Unless the template says how many, or the number may change the reply."""
    taken: list[tuple[Hashable, int]] = []
    threads_of = context.lib.llama_n_threads

    class Watched(TeamSize):
        def took(self, work: Hashable, seconds: float) -> None:
            taken.append((work, threads_of(engine.loaded.context._context)))
            super().took(work, seconds)

        @property
        def threads(self) -> int:
            return super().threads if settings else 1 + len(taken) % 2

    monkeypatch.setattr(loader, "TeamSize", Watched)
    monkeypatch.setattr(loader, "cpu_cores", lambda: 2)
    async with running(gguf, **({"threads": None} | settings)) as engine:
        taken.clear()
        await generate(engine, [5, 6, 7], 4)
    assert [work for work, _ in taken] == [(1, 3), (1, 1), (1, 1), (1, 1)]
    wanted = {"": [1, 2, 1, 2], "threads": [1] * 4, "deterministic": [2] * 4}
    assert [each for _, each in taken] == wanted["".join(settings)]


async def test_after_giving_way(gguf: Path, expected: list[list[int]]) -> None:
    # Room for the longest of them, and so not for all at the same time.
    options = {"kv_cache": kv_bytes(gguf, 256), "context_length": 256, "max_sequences": 6}
    async with running(gguf, **options) as engine:
        assert engine.loaded.context.size == 256
        made = await asyncio.gather(*(generate(engine, prompt, 24) for prompt in PROMPTS))
        assert [each.token_ids for each in made] == expected
        assert engine.stats.preempted > 0
        assert engine.stats.used_blocks == 0


async def test_prompt_scores_and_log_probabilities(folder: Path, gguf: Path) -> None:
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    prompt = PROMPTS[7]
    async with running(gguf, max_step_tokens=48) as engine:
        made = await generate(engine, prompt, 4, logprobs=3, prompt_logprobs=True, **ENDLESS)
    ids = torch.tensor([[*prompt, *made.token_ids]])
    with torch.no_grad():
        logprobs = model(ids).logits[0].log_softmax(-1)
    scores = [*made.prompt_scores, *made.scores]
    assert len(made.prompt_scores) == len(prompt) - 1
    for place, score in enumerate(scores):
        assert score is not None
        best = logprobs[place].topk(3)
        assert score.logprob == pytest.approx(logprobs[place, ids[0, place + 1]].item(), abs=0.03)
        assert [id for id, _ in score.top] == best.indices.tolist()
        assert [value for _, value in score.top] == pytest.approx(best.values.tolist(), abs=0.03)


def test_log_softmax_is_exact() -> None:
    logits = np.array([1000.0, 1001.0, -np.inf, 999.0], np.float32)
    kept = logits.copy()
    found = log_softmax(logits)
    assert np.exp(found).sum() == pytest.approx(1, abs=1e-6)
    assert found[1] - found[0] == pytest.approx(1)
    assert found[2] == -np.inf
    assert (logits == kept).all()


async def test_what_is_not_a_number_is_an_error(folder: Path, tmp_path: Path) -> None:
    """One token's embedding is broken; who does not use it is answered as ever."""
    shutil.copytree(folder, tmp_path / "nan")
    weights = load_file(tmp_path / "nan/model.safetensors")
    weights["model.embed_tokens.weight"][300] = np.nan
    save_file(weights, tmp_path / "nan/model.safetensors")
    async with running(gguf_of(tmp_path / "nan", tmp_path / "nan.gguf")) as engine:
        well, broken = await asyncio.gather(
            generate(engine, [5, 6, 7], 8, **ENDLESS),
            generate(engine, [5, 6, 300], 8, strategy=TopKSamplingStrategy(5), **ENDLESS),
            return_exceptions=True,
        )
        assert len(well.token_ids) == 8
        assert isinstance(broken, APIError)
        assert broken.status == 500
        assert "computed no numbers" in broken.message
        assert (await generate(engine, [5, 6, 7], 8, **ENDLESS)).token_ids == well.token_ids


# What is resident ---------------------------------------------------------------------------------


async def test_choices_of_one_prompt_share_it(gguf: Path) -> None:
    prompt = random_prompt(150, 1)
    async with running(gguf, max_step_tokens=64) as engine:
        made = await asyncio.gather(*(generate(engine, prompt, 8, seed=n) for n in range(4)))
        assert sorted(each.cached_tokens for each in made) == [0, 149, 149, 149]
        assert engine.stats.prompt_tokens == 150 + 3


async def test_a_prefix_is_taken_from_who_still_runs(gguf: Path) -> None:
    prompt = random_prompt(100, 2)
    async with running(gguf) as engine:
        first = asyncio.ensure_future(generate(engine, prompt, 300, **ENDLESS))
        await until(lambda: engine.stats.generated_tokens > 0)
        second = await generate(engine, [*prompt[:90], 5, 6], 4, **ENDLESS)
        assert second.cached_tokens == 90
        assert not first.done() or engine.stats.running == 0
        await first


async def test_a_conversation_goes_on_in_its_slot(gguf: Path) -> None:
    async with running(gguf, max_sequences=2) as engine:
        prompt = list(random_prompt(40, 3))
        reply = await generate(engine, prompt, 10, **ENDLESS)
        other = random_prompt(40, 4)
        await generate(engine, other, 4, **ENDLESS)
        longer = [*prompt, *reply.token_ids, 7, 8]
        going_on = await generate(engine, longer, 4, **ENDLESS)
        # All but the last token of the reply, which nobody computed.
        assert going_on.cached_tokens == 49
        # The other slot still has what it had.
        assert (await generate(engine, other, 1)).cached_tokens == 39


async def test_another_ending_leaves_what_others_may_need(gguf: Path) -> None:
    async with running(gguf, max_sequences=2) as engine:
        prompt = random_prompt(60, 5)
        await generate(engine, prompt, 1)
        assert (await generate(engine, [*prompt[:30], 9, 9, 9], 1)).cached_tokens == 30
        assert (await generate(engine, prompt, 1)).cached_tokens == 59


async def test_more_prefixes_are_kept_than_can_run(gguf: Path) -> None:
    prompts = [random_prompt(20, seed) for seed in range(10, 25)]
    async with running(gguf, max_sequences=8) as engine:
        assert engine.sequences == 8
        for prompt in prompts:
            assert (await generate(engine, prompt, 1)).cached_tokens == 0
        for _ in range(2):
            made = [await generate(engine, prompt, 1) for prompt in prompts]
            assert [each.cached_tokens for each in made] == [19] * 15
        together = await asyncio.gather(*(generate(engine, prompt, 1) for prompt in prompts))
        assert [each.cached_tokens for each in together] == [19] * 15


async def test_no_more_run_than_may(gguf: Path) -> None:
    async with running(gguf, max_sequences=2) as engine:
        work = [
            asyncio.ensure_future(generate(engine, random_prompt(20, seed), 60, **ENDLESS))
            for seed in range(6)
        ]
        await until(lambda: engine.stats.generated_tokens > 0)
        while not all(each.done() for each in work):
            assert engine.stats.running <= 2
            assert engine.stats.used_blocks <= engine.stats.total_blocks == 2
            await asyncio.sleep(0.001)


async def test_who_was_used_longest_ago_gives_way(
    gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loader, "HELD_PREFIXES", 0)
    async with running(gguf, max_sequences=2) as engine:
        prompts = [random_prompt(20, seed) for seed in (10, 11, 12)]
        for prompt in prompts:
            await generate(engine, prompt, 1)
        cached = [(await generate(engine, prompt, 1)).cached_tokens for prompt in prompts[1:]]
        assert cached == [19, 19]
        assert (await generate(engine, prompts[0], 1)).cached_tokens == 0


async def test_what_is_kept_gives_way_where_there_is_no_room(gguf: Path) -> None:
    """256 cells: what was used longest ago goes, and only as much as has to."""
    options = {"kv_cache": kv_bytes(gguf, 256), "context_length": 256, "max_sequences": 2}
    prompts = [random_prompt(50, seed) for seed in range(30, 36)]
    async with running(gguf, **options) as engine:
        assert engine.loaded.context.size == 256
        for prompt in prompts:
            await generate(engine, prompt, 1)
        newest = [await generate(engine, prompt, 1) for prompt in prompts[-4:]]
        assert [each.cached_tokens for each in newest] == [49] * 4
        assert engine.stats.preempted == 0


async def test_a_salt_keeps_prompts_apart(gguf: Path) -> None:
    prompt = PROMPTS[7]
    async with running(gguf) as engine:
        for salt, cached in (("a", 0), ("b", 0), ("a", 59), (None, 0)):
            assert (await generate(engine, prompt, 2, cache_salt=salt)).cached_tokens == cached


async def test_without_a_prefix_cache(gguf: Path, expected: list[list[int]]) -> None:
    async with running(gguf, prefix_cache=False) as engine:
        for _ in range(2):
            made = await generate(engine, PROMPTS[7], 24)
            assert (made.cached_tokens, made.token_ids) == (0, expected[7])


# Sampling -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "strategy",
    [TopPSamplingStrategy(1.0, 1.0), TopPSamplingStrategy(0.7, 0.8), TopKSamplingStrategy(5)],
)
async def test_a_seed_repeats_whatever_else_runs(gguf: Path, strategy: Any) -> None:
    async with running(gguf) as engine:
        alone = await generate(engine, PROMPTS[5], 20, strategy=strategy, seed=7, **ENDLESS)
        crowd = [
            generate(engine, prompt, 20, strategy=strategy, seed=n, **ENDLESS)
            for n, prompt in enumerate(PROMPTS)
        ]
        again, *_ = await asyncio.gather(
            generate(engine, PROMPTS[5], 20, strategy=strategy, seed=7, **ENDLESS), *crowd
        )
        assert again.token_ids == alone.token_ids
        other = await generate(engine, PROMPTS[5], 20, strategy=strategy, seed=8, **ENDLESS)
        assert other.token_ids != alone.token_ids


@pytest.mark.parametrize(
    "sampling",
    [
        {},
        {"strategy": TopPSamplingStrategy()},
        {"logprobs": 2},
        {"logprobs": 2, "prompt_logprobs": True},
    ],
)
async def test_logits_that_are_no_numbers_fail_their_request_alone(
    gguf: Path,
    expected: list[list[int]],
    monkeypatch: pytest.MonkeyPatch,
    sampling: dict[str, Any],
) -> None:
    bad = PROMPTS[-1]
    async with running(gguf) as engine:
        context = engine.loaded.context
        logits = context.logits

        def spoiled(index: int) -> Any:
            slots = {
                each.slot.index
                for each in engine._scheduler.running
                if each.generation.prompt_ids == bad
            }
            if context.sequence_ids[index] in slots:
                return np.full_like(logits(index), np.nan)
            return logits(index)

        with monkeypatch.context() as patch:
            patch.setattr(context, "logits", spoiled)
            *fine, failed = await asyncio.gather(
                *(generate(engine, prompt, 24) for prompt in PROMPTS[:5]),
                generate(engine, bad, 24, **sampling, **ENDLESS),
                return_exceptions=True,
            )
        assert isinstance(failed, APIError)
        assert (failed.status, failed.code) == (500, "invalid_model_output")
        assert [each.token_ids for each in fine] == expected[:5]
        assert engine.stats.failed == 1
        again = await generate(engine, bad, 24)
        assert again.cached_tokens == 0
        assert again.token_ids == expected[-1]


@pytest.mark.parametrize("seed", [-1, 2**32 - 1, 2**64 - 1])
async def test_any_seed_repeats(gguf: Path, seed: int) -> None:
    async with running(gguf) as engine:
        params = {"strategy": TopPSamplingStrategy(2.0), "seed": seed, **ENDLESS}
        made = [(await generate(engine, PROMPTS[3], 12, **params)).token_ids for _ in range(2)]
        assert made[0] == made[1]


@pytest.mark.parametrize(
    ("strategy", "extra"),
    [
        (TopPSamplingStrategy(1.3, 1.0), {}),
        (TopPSamplingStrategy(0.6, 0.7), {}),
        (TopKSamplingStrategy(6, 1.5, 0.9), {}),
        (TopPSamplingStrategy(1.5), {"min_p": 0.1}),
    ],
)
async def test_draws_have_the_distribution_that_was_asked_for(
    gguf: Path, strategy: Any, extra: dict[str, float]
) -> None:
    draws = 1500
    async with running(gguf) as engine:
        vocab = engine.model.vocab_size
        scored = await generate(engine, PROMPTS[4], 1, logprobs=vocab, **ENDLESS)
        assert scored.scores[0] is not None
        logprobs = dict(scored.scores[0].top)
        made: Counter[int] = Counter()
        for start in range(0, draws, 250):
            batch = await asyncio.gather(
                *(
                    generate(
                        engine, PROMPTS[4], 1, strategy=strategy, seed=seed, **extra, **ENDLESS
                    )
                    for seed in range(start, start + 250)
                )
            )
            made.update(each.token_ids[0] for each in batch)
    wanted = distribution(logprobs, strategy, extra.get("min_p", 0.0))
    assert set(made) <= set(wanted)
    likely = {id: share for id, share in wanted.items() if share * draws >= 5}
    statistic = sum(
        (made[id] - share * draws) ** 2 / (share * draws) for id, share in likely.items()
    )
    # Far beyond what chance gives: mean + 6 standard deviations of chi-square.
    assert statistic < len(likely) + 6 * (2 * len(likely)) ** 0.5


def distribution(logprobs: dict[int, float], strategy: Any, min_p: float) -> dict[int, float]:
    """The shares of the tokens that are left: temperature, then min_p, top_k, top_p."""
    ids = sorted(logprobs, key=lambda id: -logprobs[id])
    weights = np.exp((np.array([logprobs[id] for id in ids])) / strategy.temperature)
    weights = np.where(weights >= min_p * weights[0], weights, 0)
    if isinstance(strategy, TopKSamplingStrategy):
        weights[strategy.top_k :] = 0
    shares = weights / weights.sum()
    shares[np.cumsum(shares) - shares >= strategy.top_p] = 0
    shares /= shares.sum()
    return {id: float(share) for id, share in zip(ids, shares, strict=True) if share}


async def test_penalties_and_biases(gguf: Path) -> None:
    prompt = PROMPTS[6]
    async with running(gguf) as engine:
        few = {"allowed_token_ids": (*prompt[:5], 30, 31, 32, 33, 34), **ENDLESS}
        plain = (await generate(engine, prompt, 10, **few)).token_ids
        assert len(set(plain)) < 10
        for penalty in ("frequency_penalty", "presence_penalty"):
            made = (await generate(engine, prompt, 10, **{penalty: 1000.0}, **few)).token_ids
            assert len(set(made)) == 10
            # What is in the prompt alone is not penalised.
            assert made[0] == plain[0]
        biased = await generate(engine, prompt, 3, logit_bias={77: 1e4}, **ENDLESS)
        assert biased.token_ids == [77] * 3
        only = await generate(engine, prompt, 9, allowed_token_ids=(30, 31), **ENDLESS)
        assert set(only.token_ids) <= {30, 31}


async def test_hugging_face_s_penalty_counts_the_prompt_too(folder: Path, gguf: Path) -> None:
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    ids = torch.tensor([PROMPTS[7]])
    expected = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=16,
        do_sample=False,
        repetition_penalty=1.7,
        eos_token_id=STOP_TOKENS,
    )[0, len(PROMPTS[7]) :].tolist()
    async with running(gguf) as engine:
        made = await generate(engine, PROMPTS[7], 16, repetition_penalty=1.7)
        assert made.token_ids == expected
        assert (await generate(engine, PROMPTS[7], 16)).token_ids != expected


async def test_log_probabilities_are_from_before_bias_and_masks(gguf: Path) -> None:
    async with running(gguf) as engine:
        plain = await generate(engine, PROMPTS[6], 1, logprobs=2, **ENDLESS)
        other = await generate(
            engine, PROMPTS[6], 1, logprobs=2, allowed_token_ids=(50,), logit_bias={3: 9}, **ENDLESS
        )
        assert plain.scores[0] is not None
        assert other.scores[0] is not None
        assert other.token_ids == [50]
        assert [id for id, _ in other.scores[0].top] == [id for id, _ in plain.scores[0].top]
        assert other.scores[0].top[0][1] == pytest.approx(plain.scores[0].top[0][1], abs=1e-3)
        assert other.scores[0].logprob < plain.scores[0].logprob


async def test_stop_reasons(gguf: Path) -> None:
    async with running(gguf) as engine:
        [end, *_] = engine.model.stop_tokens
        prompt = PROMPTS[5]
        plain = await generate(engine, prompt, 8, **ENDLESS)
        assert plain.stop_reason is StopReason.out_of_tokens
        assert len(plain.token_ids) == 8
        ended = await generate(engine, prompt, 8, logit_bias={end: 1e4})
        assert (ended.token_ids, ended.stop_reason) == ([end], StopReason.end_of_turn)
        ignored = await generate(engine, prompt, 8, logit_bias={end: 1e4}, ignore_eos=True)
        assert ignored.token_ids == [end] * 8
        kept_back = await generate(engine, prompt, 8, logit_bias={end: 1e4}, min_tokens=5)
        assert kept_back.token_ids.index(end) == 5
        third = plain.token_ids[2]
        stopped = await generate(engine, prompt, 8, stop_token_ids=(third,))
        assert stopped.token_ids == plain.token_ids[: plain.token_ids.index(third) + 1]
        nothing = await generate(engine, prompt, 0)
        assert (nothing.token_ids, nothing.stop_reason) == ([], StopReason.out_of_tokens)


async def test_a_request_that_excludes_every_token_ends_alone(
    gguf: Path, expected: list[list[int]]
) -> None:
    async with running(gguf) as engine:
        [end, *_] = engine.model.stop_tokens
        fine, impossible = await asyncio.gather(
            generate(engine, PROMPTS[8], 24),
            generate(engine, PROMPTS[8], 24, allowed_token_ids=(end,), min_tokens=4),
            return_exceptions=True,
        )
        assert engine.stats.used_blocks == 0
    assert isinstance(impossible, APIError)
    assert (impossible.status, impossible.param) == (400, "allowed_token_ids")
    assert not isinstance(fine, BaseException)
    assert fine.token_ids == expected[8]


# The queue ----------------------------------------------------------------------------------------


async def test_a_lower_priority_number_comes_first(gguf: Path) -> None:
    async with running(gguf, max_sequences=1) as engine:
        done: list[int] = []

        async def one(priority: int) -> None:
            tokens = 300 if priority == 9 else 2
            await generate(engine, PROMPTS[2], tokens, priority=priority, **ENDLESS)
            done.append(priority)

        first = asyncio.ensure_future(one(9))
        await until(lambda: engine.stats.running == 1)
        await asyncio.gather(first, *(one(priority) for priority in (3, 1, 2)))
        assert done == [9, 1, 2, 3]


async def test_a_full_queue_refuses(gguf: Path) -> None:
    async with running(gguf, max_sequences=1, max_waiting=2) as engine:
        made = await asyncio.gather(
            *(generate(engine, PROMPTS[2], 60, **ENDLESS) for _ in range(5)), return_exceptions=True
        )
        refused = [each for each in made if isinstance(each, APIError)]
        assert [each.status for each in refused] == [429, 429]
        assert int(refused[0].headers["retry-after"]) >= 1


async def test_a_long_prompt_does_not_hold_up_who_decodes(gguf: Path) -> None:
    async with running(gguf, max_step_tokens=16) as engine:
        decoding = asyncio.ensure_future(generate(engine, PROMPTS[2], 200, **ENDLESS))
        await until(lambda: engine.stats.generated_tokens > 0)
        steps, tokens = engine.stats.steps, engine.stats.generated_tokens
        await generate(engine, random_prompt(200, 99), 1, **ENDLESS)
        took = engine.stats.steps - steps
        assert took >= 200 // 16
        # It had a token of every step, as long as it ran.
        assert engine.stats.generated_tokens - tokens >= took
        await decoding


async def test_cancelling_frees_the_slot_before_the_next_step(gguf: Path) -> None:
    async with running(gguf, max_sequences=1) as engine:
        params = SamplingParams(ignore_eos=True)
        outputs = engine.generate(Generation(PROMPTS[3], params, 400))
        await anext(outputs)
        waiting = asyncio.ensure_future(generate(engine, PROMPTS[2], 1, **ENDLESS))
        await outputs.aclose()
        assert len((await waiting).token_ids) == 1
        assert (engine.stats.cancelled, engine.stats.used_blocks) == (1, 0)


class Broken(Constraint):
    """A grammar that fails."""

    def allowed(self) -> Any:
        raise KeyError("lost")

    def accept(self, token_id: int) -> None:
        pass


async def test_a_failed_step_fails_its_requests_only(gguf: Path, expected: list[list[int]]) -> None:
    async with running(gguf) as engine:
        broken = Generation(PROMPTS[4], SamplingParams(), 9, constraint=Broken())
        with pytest.raises(APIError) as caught:
            async for _ in engine.generate(broken):
                pass
        assert caught.value.status == 500
        assert engine.stats.used_blocks == 0
        assert (await generate(engine, PROMPTS[4], 24)).token_ids == expected[4]


async def test_a_failing_decode_fails_its_requests_only(
    gguf: Path, expected: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(gguf) as engine:
        with monkeypatch.context() as patch:
            patch.setattr(engine.loaded.context, "decode", lambda tokens: -3)
            with pytest.raises(APIError) as caught:
                await generate(engine, PROMPTS[8], 9)
        assert caught.value.status == 500
        made = await generate(engine, PROMPTS[8], 24)
        assert (made.cached_tokens, made.token_ids) == (0, expected[8])


async def test_stopping_breaks_off_what_runs_and_waits(gguf: Path) -> None:
    engine = await asyncio.to_thread(opened, gguf, max_sequences=1)
    running = [
        asyncio.ensure_future(generate(engine, PROMPTS[3], 450, **ENDLESS)) for _ in range(3)
    ]
    await until(lambda: engine.stats.generated_tokens > 0)
    await asyncio.to_thread(engine.stop)
    for each in running:
        with pytest.raises(APIError) as caught:
            await each
        assert caught.value.status == 503


async def test_a_soak_leaves_nothing_behind(gguf: Path) -> None:
    chosen = random.Random(5)

    async def one(engine: LlamaEngine) -> None:
        params = SamplingParams(
            TopPSamplingStrategy(1.0, chosen.choice([0.5, 1.0])),
            seed=chosen.choice([None, 3]),
            frequency_penalty=chosen.choice([0, 0.5]),
            ignore_eos=chosen.random() < 0.5,
        )
        prompt = random_prompt(chosen.randrange(1, 90), chosen.randrange(40))
        logprobs = chosen.choice([None, 0, 2])
        generation = Generation(
            prompt,
            params,
            chosen.randrange(0, 40),
            logprobs=logprobs,
            prompt_logprobs=logprobs == 2,
        )
        patience = chosen.choice([0, 3, 100, 100, 100])
        outputs = engine.generate(generation)
        async for _ in outputs:
            patience -= 1
            if patience < 0:
                break
        await outputs.aclose()

    options = {"context_length": 256, "kv_cache": kv_bytes(gguf, 512), "max_waiting": 1000}
    async with running(gguf, max_sequences=12, **options) as engine:
        for _ in range(10):
            tasks = [asyncio.ensure_future(one(engine)) for _ in range(50)]
            await asyncio.sleep(0.02)
            for task in chosen.sample(tasks, 8):
                task.cancel()
            done = await asyncio.gather(*tasks, return_exceptions=True)
            assert not [each for each in done if isinstance(each, Exception)]
        await until(lambda: engine.stats.running + engine.stats.waiting == 0)
        stats = engine.stats
        assert stats.used_blocks == 0
        assert stats.finished + stats.cancelled <= 500
        assert stats.finished > 200
        assert stats.failed == 0
        assert stats.preempted > 0
        # What the slots say that they hold is what is in the cache.
        slots, context = engine.loaded.slots, engine.loaded.context
        for slot in slots._slots:
            assert context.length(slot.index) == slot.length
