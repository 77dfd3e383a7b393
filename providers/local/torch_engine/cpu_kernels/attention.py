"""Attention of sequences that decode, over their blocks of the cache."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from providers.local.torch_engine.cpu_kernels.code import (
    FLOAT,
    INT64,
    LANES,
    Code,
    Pointer,
    Value,
    Variable,
    exp,
)
from providers.local.torch_engine.cpu_kernels.library import kernel

SUMS_AT_ONCE = 8
"""Vectors of an output that are summed up at once: so many fit into AVX2's registers."""

LOWEST = -1e30
"""A score that weighs nothing."""


@kernel(
    queries=FLOAT,
    cached=FLOAT,
    found=FLOAT,
    scores=FLOAT,
    rows=INT64,
    tables=INT64,
    lengths=INT64,
    count=None,
    width=None,
    blocks=None,
    window=None,
)
def attend(
    code: Code,
    queries: Pointer,
    cached: Pointer,
    found: Pointer,
    scores: Pointer,
    rows: Pointer,
    tables: Pointer,
    lengths: Pointer,
    count: Value,
    width: Value,
    blocks: Value,
    window: Value,
    *,
    heads: int,
    kv_heads: int,
    head_dim: int,
    block_size: int,
    scale: float,
) -> None:
    """Each sequence's last token over all that the cache has of it.

    Args:
        code: of the kernel.
        queries: rows of `width`, of which the first `heads * head_dim` are the token's queries.
        cached: `[slots, 2 * kv_heads, head_dim]`, keys and behind them values.
        found: `[count, heads * head_dim]`.
        scores: room for `heads / kv_heads * (blocks * block_size + LANES)` of each thread.
        rows: of `queries`, one for each sequence.
        tables: each sequence's blocks, `[count, blocks]`.
        lengths: each sequence's tokens, `[count]`.
        count: how many sequences there are.
        width: of `queries`.
        blocks: of the longest sequence.
        window: how many tokens one looks back at, itself included; 0 for all.
        heads, kv_heads, head_dim: of the model.
        block_size: tokens in a block.
        scale: of the scores.
    """
    group = heads // kv_heads
    vectors = head_dim // LANES
    slot_size = 2 * kv_heads * head_dim
    room = blocks * block_size + LANES
    own_scores = scores.at(code.thread() * room * group)
    first, end = code.share_of(count * kv_heads)
    with code.loop(end, first) as place:
        sequence, kv_head = place // kv_heads, place % kv_heads
        row, length = rows.load(sequence), lengths.load(sequence)
        # Nothing is left of it where there is no window.
        start = (length - window).at_least(0) * window.at_most(1)
        slots = CacheSlots(code, tables.at(sequence * blocks), start, length, block_size)
        query = queries.at(row * width + kv_head * (group * head_dim))
        keys = cached.at(kv_head * head_dim)
        values = keys.at(kv_heads * head_dim)

        for head in range(group):
            weights = own_scores.at(room * head)
            total = _weigh(
                code, query.at(head * head_dim), keys, weights, slots, vectors, slot_size, scale
            )
            output = found.at((sequence * heads + kv_head * group + head) * head_dim)
            for column in range(0, vectors, SUMS_AT_ONCE):
                count_here = min(SUMS_AT_ONCE, vectors - column)
                sums = [Variable(code, code.zeros(FLOAT)) for _ in range(count_here)]
                with slots() as (position, slot):
                    weight = weights.load(position).spread()
                    value = values.at(slot * slot_size + column * LANES)
                    for at, summed in enumerate(sums):
                        summed.value = weight.times(value.load(at * LANES, LANES), summed.value)
                for at, summed in enumerate(sums):
                    output.store((column + at) * LANES, summed.value / total)


def _weigh(
    code: Code,
    query: Pointer,
    keys: Pointer,
    weights: Pointer,
    slots: CacheSlots,
    vectors: int,
    slot_size: int,
    scale: float,
) -> Value:
    """Write what each token weighs, times something; returns what they weigh together."""
    parts = [query.load(at * LANES, LANES) for at in range(vectors)]
    highest = Variable(code, code.like(LOWEST, FLOAT))
    with slots() as (position, slot):
        key = keys.at(slot * slot_size)
        # Two sums, since each addition waits for the one before.
        sums = [code.zeros(FLOAT), code.zeros(FLOAT)]
        for at, part in enumerate(parts):
            sums[at % 2] = part.times(key.load(at * LANES, LANES), sums[at % 2])
        score = (sums[0] + sums[1]).sum() * scale
        weights.store(position, score)
        highest.value = highest.value.at_least(score)
    # Whole vectors are read.
    weights.store(slots.end, code.like(LOWEST, FLOAT).spread())
    total = Variable(code, code.zeros(FLOAT))
    with code.loop(slots.end, slots.start, LANES) as position:
        weight = exp(weights.load(position, LANES) - highest.value)
        weights.store(position, weight)
        total.value += weight
    return total.value.sum()


class CacheSlots:
    """A loop over the tokens of a sequence, block by block.

    Args:
        code: of the kernel.
        table: the sequence's blocks.
        start: the first token.
        end: behind the last token.
        block_size: tokens in a block.
    """

    def __init__(
        self, code: Code, table: Pointer, start: Value, end: Value, block_size: int
    ) -> None:
        self._code = code
        self._table = table
        self.start = start
        self.end = end
        self._block_size = block_size

    @contextmanager
    def __call__(self) -> Iterator[tuple[Value, Value]]:
        """What is in the block, for each token's position in the sequence and slot of the cache."""
        size = self._block_size
        blocks = (self.end + (size - 1)) // size
        with self._code.loop(blocks, self.start // size) as block:
            first = block * size
            away = self._table.load(block) * size - first
            stop = self.end.at_most(first + size)
            with self._code.loop(stop, self.start.at_least(first)) as position:
                yield position, position + away
