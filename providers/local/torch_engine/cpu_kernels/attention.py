"""Attention of sequences that decode, over their blocks of the cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from providers.local.torch_engine.cpu_kernels.code import (
    FLOAT,
    INT8,
    INT64,
    LANES,
    Code,
    Pointer,
    Value,
    Variable,
    exp,
)
from providers.local.torch_engine.cpu_kernels.library import kernel
from providers.local.torch_engine.model.kv_cache import SCALE_BYTES

HEADS_AT_ONCE = 4
"""Of those that share keys and values, which are read once for so many of them."""

SUMS_AT_ONCE = 12
"""Vectors of outputs that are summed up at once: so many fit into AVX2's registers."""

LOWEST = -1e30
"""A score that weighs nothing."""


@kernel(
    queries=FLOAT,
    cached=INT8,
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
    packed: bool,
) -> None:
    """Each sequence's last token over all that the cache has of it.

    Args:
        code: of the kernel.
        queries: rows of `width`, of which the first `heads * head_dim` are the token's queries.
        cached: `[slots, 2 * kv_heads, head_dim]`, keys and behind them values; see `packed`.
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
        packed: whether the cache has 8 bits a number, and a scale for each head; see `kv_cache`.
    """
    group = heads // kv_heads
    vectors = head_dim // LANES
    width_of_head = head_dim + (SCALE_BYTES if packed else 0)
    slot_size = 2 * kv_heads * width_of_head
    if not packed:
        cached = cached.of(FLOAT)
    room = blocks * block_size + LANES
    own_scores = scores.at(code.thread() * room * group)
    # In turns: those that are long may be side by side.
    with code.turns(count * kv_heads) as place:
        sequence, kv_head = place // kv_heads, place % kv_heads
        row, length = rows.load(sequence), lengths.load(sequence)
        # Nothing is left of it where there is no window.
        start = (length - window).at_least(0) * window.at_most(1)
        slots = CacheSlots(code, tables.at(sequence * blocks), start, length, block_size)
        query = queries.at(row * width + kv_head * (group * head_dim))
        keys = cached.at(kv_head * width_of_head)
        values = keys.at(kv_heads * width_of_head)

        for head in range(0, group, HEADS_AT_ONCE):
            here = range(head, min(group, head + HEADS_AT_ONCE))
            weights = [own_scores.at(room * each) for each in here]
            totals = _weigh(
                code,
                [query.at(each * head_dim) for each in here],
                keys,
                weights,
                slots,
                vectors,
                slot_size,
                scale,
                packed=packed,
            )
            output = found.at((sequence * heads + kv_head * group + head) * head_dim)
            at_once = max(1, SUMS_AT_ONCE // len(here))
            for column in range(0, vectors, at_once):
                columns = range(column, min(vectors, column + at_once))
                sums = [[Variable(code, code.zeros(FLOAT)) for _ in columns] for _ in here]
                with slots() as (position, slot):
                    value = values.at(slot * slot_size)
                    parts = [value.load(each * LANES, LANES).to(FLOAT) for each in columns]
                    by = _scale_of(value, head_dim) if packed else None
                    for weight, of_head in zip(weights, sums, strict=True):
                        part_of = weight.load(position)
                        share = (part_of if by is None else part_of * by).spread()
                        for summed, part in zip(of_head, parts, strict=True):
                            summed.value = share.times(part, summed.value)
                for at, (total, of_head) in enumerate(zip(totals, sums, strict=True)):
                    for each, summed in zip(columns, of_head, strict=True):
                        output.store(at * head_dim + each * LANES, summed.value / total)


def _weigh(
    code: Code,
    queries: Sequence[Pointer],
    keys: Pointer,
    weights: Sequence[Pointer],
    slots: CacheSlots,
    vectors: int,
    slot_size: int,
    scale: float,
    *,
    packed: bool,
) -> list[Value]:
    """Write what each token weighs to each of some heads, times something; returns what all tokens
    weigh together, to each."""
    parts = [[query.load(at * LANES, LANES) for at in range(vectors)] for query in queries]
    highest = [Variable(code, code.like(LOWEST, FLOAT)) for _ in queries]
    with slots() as (position, slot):
        key = keys.at(slot * slot_size)
        # Two sums, since each addition waits for the one before.
        sums = [[code.zeros(FLOAT), code.zeros(FLOAT)] for _ in queries]
        for at in range(vectors):
            here = key.load(at * LANES, LANES).to(FLOAT)
            for of_head, part in zip(sums, parts, strict=True):
                of_head[at % 2] = part[at].times(here, of_head[at % 2])
        by = _scale_of(key, vectors * LANES) * scale if packed else scale
        for of_head, weight, most in zip(sums, weights, highest, strict=True):
            score = (of_head[0] + of_head[1]).sum() * by
            weight.store(position, score)
            most.value = most.value.at_least(score)
    return [
        _shares(code, weight, most.value, slots)
        for weight, most in zip(weights, highest, strict=True)
    ]


def _scale_of(head: Pointer, head_dim: int) -> Value:
    """What the numbers of a packed head are multiplied by."""
    return head.at(head_dim).of(FLOAT).load(0)


def _shares(code: Code, weights: Pointer, highest: Value, slots: CacheSlots) -> Value:
    """Make weights of a head's scores; their sum."""
    # Whole vectors are read.
    weights.store(slots.end, code.like(LOWEST, FLOAT).spread())
    total = Variable(code, code.zeros(FLOAT))
    with code.loop(slots.end, slots.start, LANES) as position:
        weight = exp(weights.load(position, LANES) - highest)
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
