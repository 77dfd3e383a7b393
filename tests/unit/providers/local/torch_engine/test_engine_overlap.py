"""Steps that are launched before the tokens of the one before are read: the same tokens."""
# ruff: noqa: E402 (what follows needs packages that may not be there)

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'torch'")
transformers = pytest.importorskip("transformers", reason="needs the extra 'torch'")

from llama_compat.errors import APIError
from llama_compat.types import SamplingParams, StopReason
from providers.local.block_manager import BlockManager
from providers.local.engine import Generation
from providers.local.torch_engine.engine import TorchEngine
from providers.local.torch_engine.scheduling.sampler import NO_TOKEN
from providers.local.torch_engine.scheduling.scheduler import StepLimits, TorchScheduler
from providers.local.torch_engine.scheduling.sequence import TorchSequence
from tests.tiny_models import make_model
from tests.unit.providers.local.engines import generate, reference, running, until

VOCABULARY = 300
ENDLESS: dict[str, Any] = {"ignore_eos": True}
BLOCK_BYTES = 16 * 2 * 2 * 2 * 16 * 4
"""Of the tiny model: tokens, layers, keys and values, heads, dimensions, bytes."""


def random_prompt(length: int, seed: int) -> tuple[int, ...]:
    chosen = random.Random(seed)
    return tuple(chosen.randrange(3, VOCABULARY) for _ in range(length))


PROMPTS = [random_prompt(length, length) for length in (1, 5, 15, 16, 17, 31, 33, 48, 64, 90)]


class Likeliest:
    """A sampler for greedy requests that needs no GPU."""

    def sample(self, logits: Any, sequences: Sequence[Any]) -> Any:
        largest, likeliest = logits.max(-1)
        return torch.where(largest.isfinite(), likeliest, NO_TOKEN)


@asynccontextmanager
async def overlapping(folder: Path, **options: Any) -> AsyncGenerator[TorchEngine, None]:
    async with running(folder, **options) as engine:
        engine._fast = engine._sampler._fast = Likeliest()
        yield engine


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def expected(folder: Path) -> list[list[int]]:
    return reference(folder, PROMPTS, 24)


@pytest.mark.parametrize("max_step_tokens", [9, 40, 128])
async def test_the_tokens_of_generate(
    folder: Path, expected: list[list[int]], max_step_tokens: int
) -> None:
    async with overlapping(folder, max_sequences=6, max_step_tokens=max_step_tokens) as engine:
        cold = await asyncio.gather(*(generate(engine, prompt, 24) for prompt in PROMPTS))
        alone = [await generate(engine, prompt, 24) for prompt in PROMPTS]
        assert engine.stats.used_blocks == 0
        assert engine.stats.generated_tokens == 2 * sum(map(len, expected))
    assert [result.token_ids for result in cold] == expected
    assert [result.token_ids for result in alone] == expected
    assert [result.cached_tokens for result in alone] == [
        (len(prompt) - 1) // 16 * 16 for prompt in PROMPTS
    ]


async def test_a_step_is_launched_before_the_tokens_of_the_last_are_known(folder: Path) -> None:
    """The first token is read when the step for the second is under way."""
    async with overlapping(folder) as engine:
        events: list[str] = []
        forward, append = engine._runner.forward, engine._append

        def launch(*arguments: Any) -> Any:
            events.append("launch")
            return forward(*arguments)

        def read(*arguments: Any) -> None:
            events.append("read")
            append(*arguments)

        engine._runner.forward, engine._append = launch, read  # type: ignore[method-assign]
        await generate(engine, PROMPTS[0], 4, **ENDLESS)
    # The last needs no step after it.
    assert events == ["launch", *["launch", "read"] * 3, "read"]


async def test_after_preemption(folder: Path, expected: list[list[int]]) -> None:
    settings = {"max_sequences": 8, "kv_cache": 9 * BLOCK_BYTES}
    async with overlapping(folder, **settings) as engine:
        assert engine.stats.total_blocks == 9
        results = await asyncio.gather(*(generate(engine, prompt, 24) for prompt in PROMPTS))
        assert engine.stats.preempted > 0
        assert engine.stats.used_blocks == 0
    assert [result.token_ids for result in results] == expected


async def test_replies_are_found_again_as_part_of_prompts(folder: Path) -> None:
    prompt = random_prompt(20, 9)
    async with overlapping(folder) as engine:
        first = await generate(engine, prompt, 30, **ENDLESS)
        longer = (*prompt, *first.token_ids)
        again = await generate(engine, longer, 5, **ENDLESS)
    assert again.cached_tokens == 48
    assert again.token_ids == reference(folder, [longer], 5)[0]


async def test_with_others_whose_tokens_are_chosen_on_the_host(
    folder: Path, expected: list[list[int]]
) -> None:
    special = [{"logprobs": 1}, {"min_tokens": 3}, {"logit_bias": {5: 0.0}}, {}, {}]
    async with overlapping(folder, max_sequences=5, max_step_tokens=40) as engine:
        results = await asyncio.gather(
            *(
                generate(engine, prompt, 24, **special[place % 5])  # type: ignore[arg-type]
                for place, prompt in enumerate(PROMPTS)
            )
        )
    for place, (result, tokens) in enumerate(zip(results, expected, strict=True)):
        # One that ends in its first three tokens goes on instead.
        if place % 5 != 1 or len(tokens) > 3:
            assert result.token_ids == tokens


async def test_how_replies_end(folder: Path) -> None:
    prompt = PROMPTS[5]
    async with overlapping(folder) as engine:
        plain = await generate(engine, prompt, 8, **ENDLESS)
        assert plain.stop_reason is StopReason.out_of_tokens
        assert len(plain.token_ids) == 8
        third = plain.token_ids[2]
        stopped = await generate(engine, prompt, 8, stop_token_ids=(third,), **ENDLESS)
        assert stopped.token_ids == plain.token_ids[: plain.token_ids.index(third) + 1]
        assert (await generate(engine, prompt, 0)).token_ids == []
        scored = await generate(engine, prompt, 2, logprobs=0, prompt_logprobs=True, **ENDLESS)
        assert len(scored.prompt_scores) == len(prompt) - 1
        assert scored.token_ids == plain.token_ids[:2]
        context = engine.model.context_length
        whole = await generate(engine, prompt, context - len(prompt), **ENDLESS)
        assert len(whole.token_ids) == context - len(prompt)
        assert engine.stats.used_blocks == 0


async def test_a_failing_step_ends_what_was_in_it(
    folder: Path, expected: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with overlapping(folder) as engine:
        forward = engine.loaded.runner.forward
        steps = 0

        def fail_at_the_fifth(*arguments: Any) -> Any:
            nonlocal steps
            steps += 1
            if steps == 5:
                raise ValueError("broken")
            return forward(*arguments)

        monkeypatch.setattr(engine.loaded.runner, "forward", fail_at_the_fifth)
        done = await asyncio.gather(
            *(generate(engine, PROMPTS[-1], 24, **ENDLESS) for _ in range(3)),
            return_exceptions=True,
        )
        assert [getattr(error, "status", None) for error in done] == [500] * 3
        assert (engine.stats.failed, engine.stats.used_blocks) == (3, 0)
        assert (await generate(engine, PROMPTS[-1], 24)).token_ids == expected[-1]


async def test_too_little_memory_shrinks_the_batch(
    folder: Path, expected: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with overlapping(folder) as engine:
        forward = engine.loaded.runner.forward

        def of_three_at_most(chunks: Any, chosen: Any = None) -> Any:
            if len(chunks) > 3:
                raise torch.OutOfMemoryError("CUDA out of memory.")
            return forward(chunks, chosen)

        monkeypatch.setattr(engine.loaded.runner, "forward", of_three_at_most)
        # They come while the first is under way, so that its token is not read yet.
        first = asyncio.ensure_future(generate(engine, PROMPTS[0], 24))
        await until(lambda: engine.stats.generated_tokens > 2)
        results = await asyncio.gather(*(generate(engine, prompt, 24) for prompt in PROMPTS))
        assert (await first).token_ids == expected[0]
        assert engine.stats.failed == 0
        assert engine.loaded.limits.sequences <= 3
    assert [result.token_ids for result in results] == expected


async def test_a_soak_leaves_nothing_behind(folder: Path) -> None:
    chosen = random.Random(5)
    settings = {"max_sequences": 6, "kv_cache": 9 * BLOCK_BYTES, "max_step_tokens": 24}
    async with overlapping(folder, **settings) as engine:
        for _ in range(6):
            tasks = [
                asyncio.ensure_future(
                    generate(
                        engine,
                        random_prompt(chosen.randint(1, 60), chosen.randrange(9)),
                        chosen.randint(1, 40),
                        stop_token_ids=tuple(chosen.sample(range(VOCABULARY), 9)),
                        priority=chosen.randrange(3),
                        logprobs=chosen.choice([None, None, None, 1]),
                    )
                )
                for _ in range(25)
            ]
            steps = engine.stats.steps
            await until(lambda: engine.stats.steps > steps + 8)  # noqa: B023
            for task in chosen.sample(tasks, 8):
                task.cancel()
            done = await asyncio.gather(*tasks, return_exceptions=True)
            assert not [each for each in done if isinstance(each, APIError | AssertionError)]
        await until(lambda: engine.stats.running + engine.stats.waiting == 0)
        stats = engine.stats
        assert (stats.used_blocks, stats.failed) == (0, 0)
        # What the cache has is right.
        prompt = random_prompt(60, 3)
        assert (await generate(engine, prompt, 9)).token_ids == reference(folder, [prompt], 9)[0]


# The scheduler, when one was sent back whose last token is not known yet ------------------------


def scheduled(count: int) -> tuple[TorchScheduler, list[TorchSequence]]:
    limits = StepLimits(sequences=4, tokens=64, scored_tokens=8)
    scheduler = TorchScheduler(BlockManager(20, 4), limits, prefix_cache=True)
    sequences = [
        TorchSequence(Generation(random_prompt(6, place), SamplingParams(), 9), lambda _: None)
        for place in range(count)
    ]
    for each in sequences:
        scheduler.add(each)
    return scheduler, sequences


def test_it_waits_until_the_token_is_known() -> None:
    scheduler, [sequence] = scheduled(1)
    sequence.token_ids.append(-1)
    assert scheduler.schedule().chunks == []
    sequence.token_ids[-1] = 9
    assert [chunk.tokens for chunk in scheduler.schedule().chunks] == [7]


def test_it_may_have_ended_with_the_token() -> None:
    scheduler, [ended, other] = scheduled(2)
    assert scheduler.shrink(scheduler.schedule())
    scheduler.end(ended)
    assert scheduler.waiting == 1
    assert [chunk.sequence for chunk in scheduler.schedule().chunks] == [other]


async def test_logits_that_are_no_numbers_fail_their_request_alone(
    folder: Path, expected: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next step is launched before anybody sees that none was chosen."""
    bad = PROMPTS[-1]
    async with overlapping(folder) as engine:
        forward = engine.loaded.runner.forward

        def spoiled(chunks: Any, chosen: Any = None) -> Any:
            logits = forward(chunks, chosen)
            row = 0
            for chunk in chunks:
                row += chunk.logits
                sequence = chunk.sequence
                if sequence.generation.prompt_ids == bad and sequence.completion_tokens > 2:
                    logits[row - 1, 5] = float("nan")
            return logits

        with monkeypatch.context() as patch:
            patch.setattr(engine.loaded.runner, "forward", spoiled)
            *fine, failed = await asyncio.gather(
                *(generate(engine, prompt, 24) for prompt in PROMPTS[:5]),
                generate(engine, bad, 24, ignore_eos=True),
                return_exceptions=True,
            )
        assert getattr(failed, "code", None) == "invalid_model_output"
        assert [each.token_ids for each in fine] == expected[:5]  # type: ignore[union-attr]
        assert (engine.stats.failed, engine.stats.used_blocks) == (1, 0)
        again = await generate(engine, bad, 24)
    assert again.cached_tokens == 0
    assert again.token_ids == expected[len(PROMPTS) - 1]
