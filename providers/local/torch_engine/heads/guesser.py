"""Tokens guessed by a head; see `head`.

It draws by the numbers that the model itself will draw by, as a draft does, so that a reply is what
it is without; see `scheduling.draft`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from providers.local.torch_engine.heads.head_runner import HeadRunner
from providers.local.torch_engine.scheduling.measured_guesser import MeasuredGuesser
from providers.local.torch_engine.scheduling.sampler import NO_TOKEN, Sampler
from providers.local.torch_engine.scheduling.sequence import TorchSequence
from providers.local.torch_engine.scheduling.speculation import MOST_ROWS


class HeadGuesser(MeasuredGuesser):
    """Has a head say what may come; see `Guesser`.

    Args:
        runner: of the head.
        most: how many tokens it guesses at most, of one sequence.
        longest: the most tokens of a sequence.
        vocab_size: of the model.
        stop_tokens: see `Sampler`.
        clock: seconds, of no certain beginning.
    """

    def __init__(
        self,
        runner: HeadRunner,
        most: int,
        longest: int,
        vocab_size: int,
        stop_tokens: Collection[int] = (),
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        super().__init__(most, longest, clock)
        self._runner = runner
        self._vocab_size = vocab_size
        self._sampler = Sampler(vocab_size, stop_tokens)

    def _guess(self, wanted: dict[TorchSequence, int]) -> dict[TorchSequence, tuple[int, ...]]:
        ahead = going = self._runner.begin(list(wanted))
        while going:
            began = self._clock()
            rows = sum(len(each.states) for each in going)
            logits = self._runner.forward(going, self._vocab_size)
            own = [each.own for each in going]
            choices = self._sampler.sample(logits, own, [None] * len(own))
            going_on = []
            for each, choice in zip(going, choices, strict=True):
                if choice is None or choice.token_id == NO_TOKEN:
                    continue
                each.own.token_ids.append(choice.token_id)
                if len(each.guessed) < wanted[each.sequence]:
                    going_on.append(each)
            going = going_on
            if rows <= MOST_ROWS:
                self._took(began)
        return {each.sequence: each.guessed for each in ahead if each.guessed}
