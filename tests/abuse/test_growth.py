"""Twice the bytes are no more than twice the work, whatever they are made of; nor do they, on a
machine that has nothing else to do, take more than two and a half times as long."""

from __future__ import annotations

import gc
import importlib
import random
import time
from collections.abc import Callable
from functools import cache, partial

import pytest

from tests.abuse.parsers import PARSERS, Parser
from tests.work import CountedCode, processor_bound

TEXTS, TEXTS_OF_ABUSE = 4, 40
"""Generated for each parser."""

LARGEST_GROWTH_OF_WORK = 2.1
COUNTED_SIZE = 1 << 12

LARGEST_GROWTH = 2.5
DOUBLINGS = 3
"""Of these the mean is taken, as the allocator and the caches have steps of their own."""

ATTEMPTS = 4
MEASURABLE_SECONDS = 0.001
SMALLEST_TEXT = 1 << 12


def made_text(parser: Parser, chosen: random.Random) -> Callable[[int], bytes]:
    """A text of any length, that repeats what a few of the parser's words make up."""
    unit = b"".join(chosen.choices(parser.words, k=chosen.choice((1, 1, 2, 3, 5))))
    begins = chosen.choice((parser.begins, parser.begins, b""))
    ends = chosen.choice((b"", b"", chosen.choice(parser.words)))
    return lambda size: begins + unit * max(1, size // len(unit)) + ends


def seconds(parser: Parser, data: bytes) -> float:
    """CPU time of the quickest of some runs, of fewer where they are long."""
    gc.collect()
    gc.disable()
    try:
        best = float("inf")
        for _ in range(3):
            begun = time.thread_time()
            parser.run(data)
            best = min(best, time.thread_time() - begun)
            if best > 20 * MEASURABLE_SECONDS:
                break
        return best
    finally:
        gc.enable()


def growth(parser: Parser, text: Callable[[int], bytes]) -> float:
    """How many times as long twice the text takes: the mean of doublings, from a size on at which
    that can be measured. Where there is none below the largest text, it is 1."""
    size = SMALLEST_TEXT
    while seconds(parser, text(size)) < MEASURABLE_SECONDS:
        size *= 2
        if size << DOUBLINGS > parser.largest:
            return 1.0
    found = float("inf")
    for _ in range(ATTEMPTS):
        small, large = (seconds(parser, text(size << times)) for times in (0, DOUBLINGS))
        found = min(found, (large / small) ** (1 / DOUBLINGS))
        if found <= LARGEST_GROWTH:
            break
    return found


@cache
def counted() -> CountedCode:
    return CountedCode(__name__, "tests.abuse.parsers")


@pytest.mark.parametrize("name", PARSERS)
def test_work_grows_as_the_text_does(name: str, pytestconfig: pytest.Config) -> None:
    chosen = random.Random(name)
    with counted().in_place() as work, processor_bound(600):
        parser = importlib.import_module("tests.abuse.parsers").PARSERS[name]
        for _ in range(TEXTS_OF_ABUSE if pytestconfig.getoption("--abuse") else TEXTS):
            text = made_text(parser, chosen)
            parser.run(text(60))  # what is made once, such as expressions
            small, large = (
                work.of(partial(parser.run, text(size)))
                for size in (COUNTED_SIZE, COUNTED_SIZE << DOUBLINGS)
            )
            found = (large / small) ** (1 / DOUBLINGS)
            assert found <= LARGEST_GROWTH_OF_WORK, f"{found:.2f} times, for {text(60)!r} and so on"


@pytest.mark.lengthy
@pytest.mark.parametrize("name", PARSERS)
def test_time_grows_as_the_text_does(name: str) -> None:
    parser, chosen = PARSERS[name], random.Random(name)
    for _ in range(TEXTS_OF_ABUSE):
        text = made_text(parser, chosen)
        found = growth(parser, text)
        assert found <= LARGEST_GROWTH, f"{found:.2f} times as long, for {text(60)!r} and so on"


@pytest.mark.lengthy
def test_what_is_quadratic_is_seen() -> None:
    def quadratic(data: bytes) -> object:
        return [data.count(b"b", at) for at in range(0, len(data), 50)]

    assert growth(Parser(quadratic, (b"a",)), lambda size: b"a" * size) > LARGEST_GROWTH
