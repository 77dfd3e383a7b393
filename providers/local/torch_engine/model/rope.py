"""Rotary embeddings, and at which lengths of a sequence they turn by other frequencies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch


@dataclass(eq=False)
class Rope:
    """Rotary embeddings of one kind of layer.

    The weights are ordered so that a pair of dimensions that turns together lies side by side.

    Attributes:
        frequencies: of the pairs, `[rotated dimensions / 2]`, in float32.
        scale: what queries and keys are scaled by, for long contexts.
        axes: by which of three positions each pair turns, where there are three: in time, in rows
            and in columns.
        long: the frequencies of long sequences, where those are others.
        query_growth: how much longer queries get with each `query_length` of positions before
            them, by its logarithm; None where they don't.
        query_length: see `query_growth`.
        query_start: how many positions are before the first.
        rotations: what turns a pair, complex, `[positions, rotated dimensions / 2]`, as far as
            `reach` was told; behind them those of long sequences, if there are any.
        query_scales: what the queries at each position are scaled by, `[positions]`; None where
            that is 1, as far as `reach` was told.
    """

    frequencies: torch.Tensor
    scale: float
    long: torch.Tensor | None = None
    query_growth: float | None = None
    query_length: int | None = None
    query_start: int = 0
    axes: list[int] | None = None

    def __post_init__(self) -> None:
        self.reach(0)

    def reach(self, positions: int, *, long: bool = False) -> None:
        """Make the rotations of so many positions; with `long`, those of long sequences too."""
        tables = [self._turned(self.frequencies, positions)]
        if long:
            frequencies = self.frequencies if self.long is None else self.long
            tables.append(self._turned(frequencies, positions))
        self.rotations = torch.cat(tables) if long else tables[0]
        self.query_scales: torch.Tensor | None = None
        end = positions + self.query_start
        if self.query_growth is not None and self.query_length and end > self.query_length:
            before = torch.arange(self.query_start, end, device=self.frequencies.device)
            periods = before // self.query_length
            self.query_scales = 1 + self.query_growth * torch.log(1 + periods.float())

    def _turned(self, frequencies: torch.Tensor, positions: int) -> torch.Tensor:
        numbers = torch.arange(positions, device=frequencies.device)
        angles = numbers.float()[:, None] * frequencies
        return torch.polar(torch.full_like(angles, self.scale), angles)

    def turns(self, positions: torch.Tensor) -> torch.Tensor:
        """What tokens turn by, `[tokens, 1, pairs]`.

        Args:
            positions: `[tokens]`, or `[3, tokens]`, one for each axis.
        """
        if positions.dim() == 1:
            return self.rotations[positions].unsqueeze(1)
        if self.axes is None:
            return self.rotations[positions[0]].unsqueeze(1)
        rows = positions[self.axes].T
        pairs = torch.arange(len(self.axes), device=positions.device)
        return self.rotations[rows, pairs].unsqueeze(1)

    @property
    def dimensions(self) -> int:
        """How many of a head's first dimensions are turned."""
        return 2 * len(self.frequencies)

    def apply(self, heads: torch.Tensor, rotations: torch.Tensor) -> None:
        """Turn `heads`, `[tokens, heads, head_dim]`, by `rotations`, `[tokens, 1, pairs]`."""
        turned = heads[..., : self.dimensions]
        if turned.dtype == torch.float32:
            turned.view(torch.complex64).mul_(rotations)
        else:
            pairs = torch.view_as_complex(turned.float().unflatten(-1, (-1, 2)))
            turned.copy_(torch.view_as_real(pairs * rotations).flatten(-2))


class LongRope(NamedTuple):
    """What a sequence that outgrows the context of a model's first training turns by.

    Attributes:
        after: the most tokens of a sequence that has not.
        row: of the tables of rotations, where those of longer sequences begin.
    """

    after: int
    row: int


def rope_parameters(config: Any) -> dict[str, dict[str, Any]]:
    """The parameters for each kind of layer; under the name `""` if all have the same."""
    parameters = getattr(config, "rope_parameters", None)
    if not parameters:
        return {}
    if "rope_type" in parameters:
        return {"": parameters}
    return {kind: each for kind, each in parameters.items() if each}


def rope_lengths(config: Any) -> tuple[int, ...]:
    """The most tokens that a sequence has before each change, in order; LongRoPE has one.

    What was computed of a sequence up to there does not hold for a longer one.
    """
    return tuple(
        sorted(
            {
                int(rope["original_max_position_embeddings"])
                for rope in rope_parameters(config).values()
                if rope["rope_type"] == "longrope"
            }
        )
    )
