"""Attention over the paged KV cache."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple, Protocol

import torch
from torch.nn import functional

from providers.local.torch_engine.model.kv_cache import read, unpacked


class Scores(NamedTuple):
    """How much of each other tokens look at.

    Attributes:
        scale: of the products of queries and keys.
        window: how many tokens one looks back at, itself included; None for all.
        cap: what bounds the scores, if something does.
        sinks: of each head a score that takes its share and adds nothing, `[heads]`, if there are.
        chunk: a sequence is cut after each so many tokens, and none looks back beyond a cut.
        ahead: whether tokens look at those behind them of the same medium, where a model has media
            that look at themselves as a whole.
    """

    scale: float
    window: int | None
    cap: float | None = None
    sinks: torch.Tensor | None = None
    chunk: int | None = None
    ahead: bool = True

    @property
    def are_unusual(self) -> bool:
        """Whether PyTorch's own attention doesn't know them."""
        return self.cap is not None or self.sinks is not None

    @property
    def reach(self) -> Reach:
        """How far tokens look."""
        return Reach(self.window, self.chunk, self.ahead)


class Reach(NamedTuple):
    """How far tokens look: see `Scores`."""

    window: int | None
    chunk: int | None
    ahead: bool = True

    def first(self, place: int) -> int:
        """The first token that the one at `place` looks at."""
        first = 0 if self.window is None else max(0, place - self.window + 1)
        return first if self.chunk is None else max(first, place // self.chunk * self.chunk)


def keys_and_values(cached: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """What is in a layer of the cache, `[sequences, rows, length, size]`; see `RowShape`."""
    heads = cached.shape[1] // 2
    return (cached[:, :heads], cached[:, heads:]) if heads else (cached, cached)


class Span(Protocol):
    """Some of a step's tokens, and what they look at in the cache."""

    @property
    def rows(self) -> slice | torch.Tensor:
        """Of the tokens in the step."""

    def attend(self, queries: torch.Tensor, layer: torch.Tensor, scores: Scores) -> torch.Tensor:
        """Attention of these tokens: `[tokens of the span, heads * head_dim]`; see `attend`."""


class SequenceSpan:
    """Where one sequence's tokens are: in the step, and in the cache.

    Args:
        start: the row of its first token in the step.
        tokens: how many it has there.
        length: how many it has in the cache with them.
        blocks: of the cache, in order.
        block_size: tokens in each.
        device: of the cache.
        copied: whether keys and values are read from a copy wherever they lie, so that what is
            computed does not depend on that.
        is_whole: whether the tokens look at each other, and not back alone, where a layer has that.
    """

    def __init__(
        self,
        start: int,
        tokens: int,
        length: int,
        blocks: Sequence[int],
        block_size: int,
        device: torch.device,
        *,
        copied: bool = False,
        is_whole: bool = False,
    ) -> None:
        self._copied = copied
        self._is_whole = is_whole
        self.rows = slice(start, start + tokens)
        self.tokens = tokens
        self.length = length
        self.blocks = blocks
        self._block_size = block_size
        self._masks: dict[Reach, torch.Tensor] = {}
        self._device = device

    @cached_property
    def _slots(self) -> torch.Tensor | None:
        """Of the sequence's tokens; None where its blocks lie side by side."""
        blocks = self.blocks[: -(-self.length // self._block_size)]
        if not self._copied and all(
            block + 1 == following for block, following in pairwise(blocks)
        ):
            return None
        firsts = torch.tensor(blocks) * self._block_size
        slots = (firsts[:, None] + torch.arange(self._block_size)).flatten()
        return slots[: self.length].to(self._device)

    def _read(self, layer: torch.Tensor, reach: Reach, dtype: torch.dtype) -> torch.Tensor:
        """Keys and values that the step's tokens may look at: `[length, rows, size]`, in numbers
        of this dtype.

        A view where the blocks lie side by side and are not packed, else a copy.
        """
        first = self._first_visible(reach)
        if self._slots is None:
            start = self.blocks[0] * self._block_size
            return unpacked(layer[start + first : start + self.length], dtype)
        return read(layer, self._slots[first:], dtype)

    def _mask(self, reach: Reach, dtype: torch.dtype) -> torch.Tensor:
        """What is added to the scores of the step's tokens and of those that `_read` gives."""
        if reach not in self._masks:
            self._masks[reach] = self._make_mask(reach, dtype)
        return self._masks[reach]

    def attend(self, queries: torch.Tensor, layer: torch.Tensor, scores: Scores) -> torch.Tensor:
        """See `Span`."""
        _, heads, head_dim = queries.shape
        scale, reach = scores.scale, scores.reach
        cached = self._read(layer, reach, queries.dtype)
        keys, values = keys_and_values(cached.transpose(0, 1).unsqueeze(0))
        kv_heads = keys.shape[1]
        group = heads // kv_heads
        if scores.are_unusual:
            query = queries[self.rows].transpose(0, 1).unsqueeze(0)
            mask = None if self._sees_all(reach) else self._mask(reach, queries.dtype)
            attended = attended_unusually(query, keys, values, mask, scores)
            return attended.transpose(1, 2).reshape(self.tokens, heads * head_dim)
        if self.tokens == 1:
            # The heads that share keys are so many queries to them: nothing has to be repeated.
            query = queries[self.rows].view(1, kv_heads, group, head_dim)
            attended = functional.scaled_dot_product_attention(query, keys, values, scale=scale)
            return attended.reshape(1, heads * head_dim)
        query = queries[self.rows].transpose(0, 1).unsqueeze(0)
        all_new = self.tokens == self.length and reach.first(self.length - 1) == 0
        begins = all_new and not self._look_ahead(reach)
        free = begins or self._sees_all(reach)
        attended = functional.scaled_dot_product_attention(
            query,
            keys,
            values,
            attn_mask=None if free else self._mask(reach, queries.dtype),
            is_causal=begins,
            scale=scale,
            enable_gqa=group > 1,
        )
        return attended.transpose(1, 2).reshape(self.tokens, heads * head_dim)

    def _sees_all(self, reach: Reach) -> bool:
        """Whether each token looks at all that `_read` gives."""
        everything = reach.window is None and reach.chunk is None
        return self.tokens == 1 or (everything and self._look_ahead(reach))

    def _look_ahead(self, reach: Reach) -> bool:
        return self._is_whole and reach.ahead

    def _first_visible(self, reach: Reach) -> int:
        return reach.first(self.length - self.tokens)

    def _make_mask(self, reach: Reach, dtype: torch.dtype) -> torch.Tensor:
        ends = torch.arange(self.length - self.tokens, self.length, device=self._device)[:, None]
        places = torch.arange(self._first_visible(reach), self.length, device=self._device)
        hidden = (places > ends) & (not self._look_ahead(reach))
        if reach.window is not None:
            hidden |= places <= ends - reach.window
        if reach.chunk is not None:
            hidden |= places < ends // reach.chunk * reach.chunk
        return torch.zeros(hidden.shape, dtype=dtype, device=self._device).masked_fill_(
            hidden, -torch.inf
        )


def attend(
    queries: torch.Tensor,
    layer: torch.Tensor,
    spans: Sequence[Span],
    scores: Scores,
) -> torch.Tensor:
    """Attention of each sequence's new tokens over all that it has in the cache, them included.

    Args:
        queries: `[tokens, heads, head_dim]`.
        layer: of the cache; the new tokens' keys and values are written already.
        spans: where the sequences are; together they are all of the tokens.
        scores: of the layer.

    Returns:
        `[tokens, heads * head_dim]`.
    """
    if len(spans) == 1:
        return spans[0].attend(queries, layer, scores)
    tokens, heads, head_dim = queries.shape
    out = torch.empty(tokens, heads * head_dim, dtype=queries.dtype, device=queries.device)
    for span in spans:
        out[span.rows] = span.attend(queries, layer, scores)
    return out


def attended_unusually(
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    mask: torch.Tensor | None,
    scores: Scores,
) -> torch.Tensor:
    """Attention whose scores are bounded, or have sinks, one operation after the other.

    Args:
        queries: `[sequences, heads, tokens, head_dim]`.
        keys, values: `[sequences, kv_heads, length, head_dim]`.
        mask: what is added to the scores, to be broadcast to `[sequences, 1, tokens, length]`.
        scores: of the layer.

    Returns:
        As the queries.
    """
    sequences, heads, tokens, head_dim = queries.shape
    kv_heads, length = keys.shape[1:3]
    grouped = queries.reshape(sequences, kv_heads, -1, head_dim)
    found = (grouped @ keys.transpose(-1, -2) * scores.scale).float()
    found = found.view(sequences, heads, tokens, length)
    if scores.cap is not None:
        found = torch.tanh(found / scores.cap) * scores.cap
    if mask is not None:
        found = found + mask
    if scores.sinks is not None:
        sinks = scores.sinks.float().view(1, heads, 1, 1).expand(sequences, heads, tokens, 1)
        found = torch.cat([found, sinks], -1)
    shares = found.softmax(-1)[..., :length].to(values.dtype)
    attended = shares.reshape(sequences, kv_heads, -1, length) @ values
    return attended.view(sequences, heads, tokens, head_dim)
