"""What guessing tokens costs and gives, by the steps of one run of one engine.

    python -m bench.guessing_steps [--sizes 1 4] [--eagle random] [--rounds 4]

`bench.speculation` compares two engines by the clock, and on a machine that others use too its
ratios differ by a tenth where nothing is guessed at all. Here steps with guesses are held against
those without around them, in the same run: how long the reply took, in steps without, and so how
much X `bench/results/guessing-steps.json`, with a head
`guessing-steps-eagle.json`.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from bench.machine import write_results
from bench.speculation import TOKENS, guessing_head, opened, timed, workloads
from providers.local.torch_engine.engine import TorchEngine
from providers.local.torch_engine.scheduling.sequence import TorchSequence
from providers.local.torch_engine.scheduling.speculation import Guesser, GuessRoom

AROUND = 8
"""Steps without guesses on either side, whose median one with guesses is held against."""


class Step(NamedTuple):
    """A step of the model.

    Attributes:
        began: seconds, of no certain beginning.
        looked: seconds that whoever guesses took.
        guessed: tokens.
        sequences: how many it computed that could be guessed for.
        tokens: that these had before it.
    """

    began: float
    looked: float
    guessed: int
    sequences: int
    tokens: int


class WatchedGuesser:
    """Notes the steps of an engine; see `Guesser`.

    Args:
        guesser: says what may come.

    Attributes:
        steps: in their order.
    """

    def __init__(self, guesser: Guesser) -> None:
        self._guesser = guesser
        self.steps: list[Step] = []

    def begins(self, sequence: TorchSequence) -> None:
        """See `Guesser`."""
        self._guesser.begins(sequence)

    def guess(self, asked: Sequence[GuessRoom], sequences: int) -> Sequence[tuple[int, ...]]:
        """See `Guesser`."""
        began = time.perf_counter()
        found = self._guesser.guess(asked, sequences)
        looked = time.perf_counter() - began
        tokens = sum(len(each.token_ids) for each, _ in asked)
        self.steps.append(Step(began, looked, sum(map(len, found)), len(asked), tokens))
        return found

    def settle(self, sequence: TorchSequence, guessed: int, right: int, sequences: int) -> None:
        """See `Guesser`."""
        self._guesser.settle(sequence, guessed, right, sequences)


def in_steps(steps: Sequence[Step]) -> tuple[float, int]:
    """How long replies took, in steps without guesses, and in how many steps guesses were.

    Args:
        steps: of the same number of sequences; the last one only says when the one before ended.
    """
    took = [after.began - each.began for each, after in pairwise(steps)]
    plain = [place for place in range(len(took)) if not steps[place].guessed]
    total = 0.0
    for place, seconds in enumerate(took):
        if not steps[place].guessed:
            total += 1 + steps[place].looked / seconds
            continue
        near = sorted(plain, key=lambda other: abs(other - place))[: 2 * AROUND]
        total += seconds / statistics.median(took[other] for other in near)
    return total, len(took) - len(plain)


def measure(engine: TorchEngine, sizes: Sequence[int], rounds: int) -> dict[str, Any]:
    """All workloads, by an engine that runs."""
    scheduler = engine._scheduler
    assert scheduler._guesser is not None
    watched = scheduler._guesser = WatchedGuesser(scheduler._guesser)
    found: dict[str, Any] = {}
    for name, asked in workloads(engine.model, max(sizes)).items():
        for size in sizes:
            ratios, guessing, tokens = [], 0, 0
            for turn in range(rounds + 1):
                watched.steps.clear()
                asyncio.run(timed(engine, asked, size))
                steps = [each for each in watched.steps if each.sequences == size]
                if not turn or sum(not each.guessed for each in steps) < 2 * AROUND:
                    continue  # the first one warms up; without plain ones nothing is known
                total, with_guesses = in_steps(steps)
                ratios.append((steps[-1].tokens - steps[0].tokens) / size / total)
                guessing += with_guesses
                tokens += sum(each.guessed for each in steps)
            found[f"{name}, {size} at a time"] = {
                "of_without": round(statistics.median(ratios), 3) if ratios else None,
                "rounds": [round(each, 3) for each in ratios],
                "steps_with_guesses": guessing,
                "guessed": tokens,
            }
            print(name, size, found[f"{name}, {size} at a time"], flush=True)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--model", default="starter")
    parser.add_argument("--quantization", default="int8", choices=("int8", "float16", "none"))
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--sizes", type=int, nargs="+", default=(1, 4), help="at a time")
    parser.add_argument("--eagle", help="an EAGLE-3 head that guesses, or 'random'")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        guesses: Any = "ngram"
        if options.eagle is not None:
            guesses = guessing_head(
                options.eagle, options.model, options.quantization, Path(folder)
            )
        engine = opened(options.model, options.quantization, guesses)
        try:
            found = measure(engine, options.sizes, options.rounds)
        finally:
            engine.stop()
    results = {
        "model": options.model,
        "quantization": options.quantization,
        "guesses": "ngram" if options.eagle is None else {"eagle": options.eagle},
        "tokens": TOKENS,
        "of_without": found,
    }
    write_results("guessing-steps" + ("-eagle" if options.eagle else ""), results, "torch")


if __name__ == "__main__":
    main()
