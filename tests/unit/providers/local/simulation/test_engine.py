"""The simulated engine: its times are arithmetic, its cache that of a real one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from providers.local.simulation.config import SimulationConfig
from providers.local.simulation.engine import SimulatedEngine, SimulatedSequence, block_hashes
from tests.examples import examples

CONFIG = SimulationConfig(
    prefill_tokens_per_second=1000,
    step_seconds=0.01,
    step_seconds_per_sequence=0.001,
    kv_blocks=8,
    block_tokens=4,
    step_tokens=16,
)


def sequence(prompt: str, reply: str = "a b", salt: str | None = None) -> SimulatedSequence:
    words, said = prompt.split(), reply.split()
    hashes = block_hashes([*words, *said], CONFIG.block_tokens, salt)
    return SimulatedSequence(hashes, len(words), len(said))


def run(engine: SimulatedEngine, *, leaps: bool = False) -> float:
    """Let it come to its end; the seconds that took."""
    seconds = 0.0
    while (step := engine.next_step()) is not None:
        times = step.repeats if leaps else 1
        seconds += step.seconds * times
        engine.done(step, times)
    return seconds


def numbered(count: int) -> str:
    return " ".join(map(str, range(count)))


def test_a_step_takes_what_its_prompts_and_its_sequences_take() -> None:
    engine = SimulatedEngine(CONFIG)
    first, second = sequence(numbered(10), "a b c"), sequence(numbered(5), "a b")
    engine.add(first)
    step = engine.next_step()
    assert step is not None
    assert step.seconds == pytest.approx(0.01 + 10 / 1000)
    engine.add(second)  # while the step runs
    assert engine.done(step) == [first]
    assert (first.said, first.cached_tokens) == (1, 0)
    step = engine.next_step()
    assert step is not None
    assert step.seconds == pytest.approx(0.01 + 0.001 + 1 / 1000)  # a block of four was there
    assert second.cached_tokens == 4
    assert engine.done(step) == [first, second]
    step = engine.next_step()
    assert step is not None
    assert (step.seconds, step.repeats) == (pytest.approx(0.012), 1)
    assert engine.done(step) == [first, second]
    assert engine.next_step() is None


def test_a_long_prompt_takes_several_steps() -> None:
    engine = SimulatedEngine(CONFIG)
    engine.add(sequence(numbered(20), "a"))
    assert run(engine) == pytest.approx(2 * 0.01 + 20 / 1000)


def test_what_was_computed_is_there_until_its_memory_is_needed() -> None:
    engine = SimulatedEngine(CONFIG)
    for prompt, cached in (
        ("s s s s s s s s u", 0),
        ("s s s s s s s s v", 8),
        ("s s s s s s s s", 4),  # the last token is always computed
        (numbered(26), 0),  # needs seven of the eight blocks; the last of a prompt go first
        ("s s s s s s s s v", 4),
    ):
        asked = sequence(prompt)
        engine.add(asked)
        run(engine)
        assert asked.cached_tokens == cached, prompt


def test_a_reply_is_cached_for_the_next_turn() -> None:
    engine = SimulatedEngine(CONFIG)
    engine.add(sequence("a b c", "d e f"))
    run(engine)
    engine.add(following := sequence("a b c d e f g"))
    run(engine)
    assert following.cached_tokens == 4


def test_a_salt_keeps_what_is_cached_apart() -> None:
    engine = SimulatedEngine(CONFIG)
    for salt, cached in ((None, 0), ("x", 0), ("y", 0), ("x", 4), (None, 4)):
        engine.add(asked := sequence("a b c d e", salt=salt))
        run(engine)
        assert asked.cached_tokens == cached


def test_who_does_not_fit_waits_for_those_before() -> None:
    engine = SimulatedEngine(CONFIG)
    first, second = sequence("a " * 17, "x y z"), sequence("b " * 10, "x y z")
    engine.add(first)
    engine.add(second)
    engine.next_step()
    assert (engine.running, engine.waiting) == (1, 1)
    run(engine)
    assert first.is_done
    assert second.is_done


def test_who_is_dropped_gives_back_what_it_has() -> None:
    engine = SimulatedEngine(CONFIG)
    first, second = sequence("a " * 17, "x y z"), sequence("b " * 10, "x y z")
    engine.add(first)
    engine.add(second)
    step = engine.next_step()
    assert step is not None
    engine.drop(first)
    engine.drop(first)
    assert engine.done(step) == []
    run(engine)
    assert (first.said, second.said) == (0, 3)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.tuples(st.integers(1, 20), st.integers(1, 12)), min_size=1, max_size=8))
def test_steps_that_are_the_same_may_be_taken_at_once(asked: list[tuple[int, int]]) -> None:
    ends = []
    for leaps in (False, True):
        engine = SimulatedEngine(CONFIG)
        every = [sequence(numbered(prompt), "r " * reply) for prompt, reply in asked]
        for each in every:
            engine.add(each)
        seconds = run(engine, leaps=leaps)
        assert all(each.is_done for each in every)
        assert (engine.running, engine.waiting) == (0, 0)
        ends.append((round(seconds, 9), [each.cached_tokens for each in every]))
    assert ends[0] == ends[1]
