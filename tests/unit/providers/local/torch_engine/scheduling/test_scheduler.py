"""What nobody waits for gives way to all others, and comes to its end all the same."""

from __future__ import annotations

import random

import pytest

from llama_compat.types import CAN_WAIT, SamplingParams
from providers.local.block_manager import BlockManager
from providers.local.engine import Generation
from providers.local.torch_engine.scheduling.scheduler import StepLimits, TorchScheduler
from providers.local.torch_engine.scheduling.sequence import TorchSequence
from providers.local.torch_engine.scheduling.step import StepBatch


def scheduler(sequences: int = 4, blocks: int = 64) -> TorchScheduler:
    limits = StepLimits(sequences, 64, 64)
    return TorchScheduler(BlockManager(blocks, 4), limits, prefix_cache=False)


def sequence(prompt: int = 4, tokens: int = 8, *, patient: bool = False) -> TorchSequence:
    sampling = SamplingParams(priority=CAN_WAIT if patient else 0)
    return TorchSequence(Generation((1,) * prompt, sampling, tokens), lambda output: None)


def step(at: TorchScheduler) -> StepBatch:
    batch = at.schedule()
    for chunk in batch.chunks:
        samples = chunk.samples
        chunk.sequence.computed += chunk.tokens
        if samples:
            chunk.sequence.token_ids.append(7)
            if chunk.sequence.completion_tokens == chunk.sequence.generation.max_tokens:
                at.end(chunk.sequence)
    return batch


def of(batch: StepBatch) -> list[TorchSequence]:
    return [chunk.sequence for chunk in batch.chunks]


def test_it_has_no_part_in_a_step_that_computes_somebody_s_prompt() -> None:
    at = scheduler()
    patient = [sequence(patient=True) for _ in range(3)]
    for each in patient:
        at.add(each)
    assert of(step(at)) == patient
    somebody = sequence()
    at.add(somebody)
    assert of(step(at)) == [somebody]
    assert set(of(step(at))) == {somebody, *patient}
    assert at.preempted == 0


def test_it_gives_its_place_to_somebody() -> None:
    at = scheduler(sequences=3)
    patient = [sequence(patient=True) for _ in range(5)]
    for each in patient:
        at.add(each)
    step(at)
    somebody = [sequence() for _ in range(2)]
    for each in somebody:
        at.add(each)
    assert of(step(at)) == somebody
    # The newest went; the oldest kept what it has.
    assert set(at.running) == {patient[0], *somebody}
    assert at.preempted == 2


def test_it_gives_its_memory_to_somebody() -> None:
    at = scheduler(blocks=8)
    patient = [sequence(8, 4, patient=True) for _ in range(2)]
    for each in patient:
        at.add(each)
    step(at)
    somebody = sequence(20, 4)
    at.add(somebody)
    assert of(step(at)) == [somebody]


def test_it_does_not_give_way_to_its_like() -> None:
    at = scheduler(sequences=1)
    first, second = sequence(patient=True), sequence(patient=True)
    at.add(first)
    step(at)
    at.add(second)
    assert of(step(at)) == [first]


def test_those_that_can_t_wait_do_not_give_way_to_each_other() -> None:
    at = scheduler(sequences=1)
    first, second = sequence(), sequence()
    at.add(first)
    step(at)
    at.add(second)
    assert of(step(at)) == [first]
    assert at.preempted == 0


@pytest.mark.parametrize("seed", range(10))
def test_all_come_to_their_end(seed: int) -> None:
    draw = random.Random(seed)
    at = scheduler(sequences=draw.randint(1, 4), blocks=draw.randint(8, 24))
    left = [
        sequence(draw.randint(1, 9), draw.randint(1, 9), patient=draw.random() < 0.6)
        for _ in range(40)
    ]
    for _ in range(5000):
        while left and draw.random() < 0.5:
            at.add(left.pop())
        step(at)
        if not (left or at.running or at.waiting):
            return
    raise AssertionError((len(at.running), at.waiting))


def test_a_long_prompt_comes_in_by_pieces_beside_replies() -> None:
    at = scheduler(sequences=4, blocks=256)
    reply = sequence(tokens=200)
    at.add(reply)
    step(at)
    long, short = sequence(prompt=300), sequence(prompt=20)
    at.add(long)
    at.add(short)
    # What fits into a step comes in whole, and does not wait for what does not.
    first = {chunk.sequence: chunk.tokens for chunk in step(at).chunks}
    assert first[reply] == 1
    assert first[short] == 20
    assert 0 < first[long] < 20
    pieces = 0
    while long.uncomputed > 1:
        batch = {chunk.sequence: chunk.tokens for chunk in step(at).chunks}
        assert batch[reply] == 1
        pieces += 1
    assert pieces >= 300 // 64 * 2
    assert step(at).chunks


def test_a_long_prompt_comes_in_at_once_where_nobody_is_replied_to() -> None:
    at = scheduler(blocks=256)
    long = sequence(prompt=300)
    at.add(long)
    assert [step(at).chunks[0].tokens for _ in range(5)] == [64, 64, 64, 64, 44]


def test_replies_that_can_wait_do() -> None:
    at = scheduler(blocks=256)
    patient = sequence(tokens=200, patient=True)
    at.add(patient)
    step(at)
    long = sequence(prompt=300)
    at.add(long)
    assert [chunk.tokens for chunk in step(at).chunks] == [64]
