"""Attention whose keys and values are made of a few numbers for each token (MLA, arXiv:2405.04434).

These numbers are what the cache keeps, one row for all heads. Keys are never made of them: what
would make a head's keys makes its queries as wide as the row instead, and what a query finds among
the rows becomes its head's value. So the row is the key and the value of one head, which all
queries share.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from providers.local.torch_engine.model.linear import Linear

if TYPE_CHECKING:
    from providers.local.torch_engine.model.norm import Norm


@dataclass(frozen=True, slots=True, eq=False)
class Latent:
    """What a layer with such keys and values has of its own.

    Its `Layer.qkv` gives the queries, or what they are made of, and behind them the row: what is
    turned of it, then the rest.

    Attributes:
        row_norm: of the part of a row that is not turned, `[rank]`.
        to_rows: that part of a head's keys, of the rows, `[heads, unturned, rank]`.
        to_values: a head's values, of that part of the rows, `[heads, rank, value_dim]`.
        queries_norm: of what queries are made of, where they are made of few numbers too.
        queries: that to `[tokens, heads * (turned + unturned)]`.
    """

    row_norm: Norm
    to_rows: torch.Tensor
    to_values: torch.Tensor
    queries_norm: Norm | None = None
    queries: Linear | None = None

    def widened(self, heads: torch.Tensor, turned: int) -> torch.Tensor:
        """Queries, `[tokens, heads, turned + unturned]`, as wide as rows: `[tokens, heads, width]`.

        Args:
            heads: the queries.
            turned: numbers of each that are turned.
        """
        rest = torch.einsum("thk,hkr->thr", heads[..., turned:], self.to_rows)
        return torch.cat([heads[..., :turned], rest], -1)

    def values(self, found: torch.Tensor) -> torch.Tensor:
        """The heads' values, `[tokens, heads * value_dim]`.

        Args:
            found: among the rows, `[tokens, heads * width]`.
        """
        heads, rank = self.to_values.shape[:2]
        rest = found.unflatten(-1, (heads, -1))[..., -rank:]
        return torch.einsum("thr,hrv->thv", rest, self.to_values).flatten(-2)
