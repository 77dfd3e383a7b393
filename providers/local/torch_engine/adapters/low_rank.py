"""What adapters add to a step, of whose tokens some may have one adapter, and some another."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

import torch

from providers.local.torch_engine.model.linear import Linear

if TYPE_CHECKING:
    from providers.local.torch_engine.model.decoder import Layer
    from providers.local.torch_engine.scheduling.step import Chunk

Place = Literal["qkv", "out", "gate_up", "down"]
"""The products of a layer, as `Layer` and `GatedMLP` have them."""


_numbers = itertools.count()


@dataclass(frozen=True, slots=True, eq=False)
class LowRank:
    """What is added to some outputs of a product: a product of two, with few numbers in between.

    Attributes:
        down: `[tokens, inputs]` to `[tokens, rank]`.
        up: that to `[tokens, outputs]`, scaled as the adapter has it.
        first, end: which outputs of the model's product they are.
    """

    down: Linear
    up: Linear
    first: int
    end: int

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """What is added for `x`."""
        return self.up(self.down(x))


@dataclass(frozen=True, eq=False)
class TorchAdapter:
    """An adapter that was read for one model. It is another one each time that it is read.

    Attributes:
        source: where it is from, as a template names it.
        layers: what it adds in each layer, for each of its products.
        nbytes: what it takes.
        key: told from all others of this process, and so is what was computed with it.
    """

    source: str
    layers: Mapping[Layer, Mapping[Place, Sequence[LowRank]]]
    nbytes: int
    key: bytes = field(default_factory=lambda: next(_numbers).to_bytes(8))


class _Group(NamedTuple):
    """The rows of a step that have one adapter."""

    adapter: TorchAdapter
    rows: slice | torch.Tensor


class AdaptedRows:
    """The rows of a step that have adapters.

    Each adapter's are computed together, and those without any are not touched.

    Args:
        groups: of rows.
    """

    def __init__(self, groups: Sequence[_Group]) -> None:
        self._groups = groups

    @classmethod
    def of(cls, chunks: Sequence[Chunk], device: torch.device) -> AdaptedRows | None:
        """Those of `chunks`; None where no chunk has an adapter."""
        rows: dict[TorchAdapter, list[int]] = {}
        at = 0
        for chunk in chunks:
            start, at = at, at + chunk.rows
            if chunk.sequence.adapter is not None:
                rows.setdefault(chunk.sequence.adapter, []).extend(range(start, at))
        if not rows:
            return None
        return cls([_Group(adapter, _placed(own, device)) for adapter, own in rows.items()])

    def add(self, layer: Layer, place: Place, x: torch.Tensor, found: torch.Tensor) -> None:
        """Add what the adapters have for one of a layer's products, in place.

        Args:
            layer: which.
            place: of the product.
            x: what was multiplied, `[tokens, inputs]`.
            found: what came of it, `[tokens, outputs]`.
        """
        for adapter, rows in self._groups:
            parts = adapter.layers.get(layer, {}).get(place, ())
            own = x[rows] if parts else x
            for part in parts:
                found[rows, part.first : part.end] += part(own)


def _placed(rows: list[int], device: torch.device) -> slice | torch.Tensor:
    """`rows`, ascending; what lies side by side needs no copy."""
    if rows[-1] - rows[0] + 1 == len(rows):
        return slice(rows[0], rows[-1] + 1)
    return torch.tensor(rows, device=device)
