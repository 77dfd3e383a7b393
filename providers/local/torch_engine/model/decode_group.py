"""Attention of sequences that decode, many in one operation.

An operation for each sequence takes longer to start than to compute as long as sequences are short.
So their keys and values are gathered, one sequence below the other, and attended to together.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from torch.nn import functional

from providers.local.torch_engine.model.attention import (
    Reach,
    Scores,
    SequenceSpan,
    Span,
    attended_unusually,
    keys_and_values,
)
from providers.local.torch_engine.model.kv_cache import is_packed, read

LONGEST = 384
"""Tokens of a sequence in a group: to copy more takes longer than an operation of its own."""

GATHERED_TOKENS = 8192
"""Of a group, with what fills up the shorter sequences."""


class DecodeGroup:
    """Sequences with one new token each; see `attention.Span`.

    Args:
        spans: the sequences.
        block_size: tokens in a block of the cache.
        gathered: where their keys and values go, `[GATHERED_TOKENS, numbers]`: as many as a token
            has in the widest layer.
    """

    def __init__(
        self, spans: Sequence[SequenceSpan], block_size: int, gathered: torch.Tensor
    ) -> None:
        device = gathered.device
        starts = [span.rows.start for span in spans]
        self.rows: slice | torch.Tensor = slice(starts[0], starts[0] + len(starts))
        if starts != list(range(starts[0], starts[0] + len(starts))):
            self.rows = torch.tensor(starts, device=device)
        self._block_size = block_size
        self._gathered = gathered
        self._lengths = torch.tensor([span.length for span in spans], device=device)[:, None]
        self._longest = max(span.length for span in spans)
        self._blocks = torch.nn.utils.rnn.pad_sequence(
            [torch.tensor(span.blocks) for span in spans], batch_first=True
        ).to(device)
        self._visible: dict[Reach, tuple[torch.Tensor, torch.Tensor]] = {}

    def attend(self, queries: torch.Tensor, layer: torch.Tensor, scores: Scores) -> torch.Tensor:
        """See `Span`."""
        _, heads, head_dim = queries.shape
        count, reach = len(self._lengths), scores.reach
        if reach not in self._visible:
            self._visible[reach] = self._look(reach, queries.dtype)
        slots, mask = self._visible[reach]
        if is_packed(layer):
            cached = read(layer, slots, queries.dtype)
        else:
            shape = (len(slots), *layer.shape[1:])
            cached = self._gathered.view(-1)[: math.prod(shape)].view(shape)
            torch.index_select(layer, 0, slots, out=cached)
        of_each = cached.view(count, -1, *cached.shape[1:]).transpose(1, 2)
        keys, values = keys_and_values(of_each)
        if scores.are_unusual:
            query = queries[self.rows].view(count, heads, 1, head_dim)
            attended = attended_unusually(query, keys, values, mask, scores)
            return attended.reshape(count, heads * head_dim)
        attended = functional.scaled_dot_product_attention(
            # The heads that share keys are so many queries to them: nothing has to be repeated.
            queries[self.rows].view(count, keys.shape[1], -1, head_dim),
            keys,
            values,
            attn_mask=mask,
            scale=scores.scale,
        )
        return attended.reshape(count, heads * head_dim)

    def _look(self, reach: Reach, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        """What the new tokens may look at.

        Returns:
            Slots of the cache, of all sequences, each with as many as the longest of them; and what
            is added to the scores, `[sequences, 1, 1, slots of each]`.
        """
        lengths, size = self._lengths, self._block_size
        visible, longest = lengths, self._longest
        if reach.window is not None:
            visible, longest = lengths.clamp_max(reach.window), min(longest, reach.window)
        if reach.chunk is not None:
            visible = visible.minimum((lengths - 1) % reach.chunk + 1)
            longest = min(longest, reach.chunk)
        numbers = torch.arange(longest, device=lengths.device)
        # What is behind a sequence's end may hold anything, even what is no number.
        places = (lengths - visible + numbers).minimum(lengths - 1)
        slots = self._blocks.gather(1, places // size) * size + places % size
        mask = torch.zeros(slots.shape, dtype=dtype, device=lengths.device)
        mask.masked_fill_(numbers >= visible, -torch.inf)
        return slots.flatten(), mask[:, None, None]


def grouped(
    spans: Sequence[SequenceSpan], block_size: int, gathered: torch.Tensor
) -> Sequence[Span]:
    """`spans`, those that can be together in groups of similar length.

    Args:
        spans: of a step.
        block_size: tokens in a block of the cache.
        gathered: see `DecodeGroup`; the groups take turns with it.
    """
    decoding = [span for span in spans if span.tokens == 1 and span.length <= LONGEST]
    made: list[Span] = [span for span in spans if span.tokens > 1 or span.length > LONGEST]
    decoding.sort(key=lambda span: -span.length)
    for group in _of_similar_length(decoding, len(gathered)):
        if len(group) == 1:
            made += group
        else:
            group.sort(key=lambda span: span.rows.start)
            made.append(DecodeGroup(group, block_size, gathered))
    return made


def _of_similar_length(
    spans: Sequence[SequenceSpan], most_tokens: int
) -> Iterator[list[SequenceSpan]]:
    """Groups of `spans`, which are the longest first; none is twice as long as another in it."""
    group: list[SequenceSpan] = []
    for span in spans:
        if group:
            longest = group[0].length
            if 2 * span.length < longest or (len(group) + 1) * longest > most_tokens:
                yield group
                group = []
        group.append(span)
    if group:
        yield group
