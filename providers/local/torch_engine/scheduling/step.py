"""What one step computes: the next tokens of some sequences."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from providers.local.torch_engine.scheduling.sequence import TorchSequence


class Chunk(NamedTuple):
    """The next tokens of one sequence: those from `sequence.computed` on.

    Attributes:
        sequence: whose.
        tokens: how many.
        guessed: tokens that may come after the last of it.
        tried: where the sequence has a state, the slots of what it is before each of these.
    """

    sequence: TorchSequence
    tokens: int
    guessed: tuple[int, ...] = ()
    tried: tuple[int, ...] = ()

    @property
    def rows(self) -> int:
        """How many tokens are computed."""
        return self.tokens + len(self.guessed)

    @property
    def samples(self) -> bool:
        """Whether the token after the chunk is to be chosen."""
        return self.tokens == self.sequence.uncomputed

    @property
    def logits(self) -> int:
        """After how many of its last rows the logits are needed."""
        if self.sequence.scores_prompt:
            return self.tokens
        return 1 + len(self.guessed) if self.samples else 0


@dataclass(slots=True)
class StepBatch:
    """One step: the chunks that it computes, and the blocks that are full with it."""

    chunks: list[Chunk] = field(default_factory=list)
    registered: list[int] = field(default_factory=list)
