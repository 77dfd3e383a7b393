"""Attention over the paged KV cache, in Triton.

One kernel for prompts and replies, in the manner of FlashAttention-2 (arXiv 2307.08691): a program
has the queries of some tokens for all heads that share keys, and goes through the cache tile by
tile with a running maximum and sum. For replies, where a sequence has a single token, the cache is
split between several programs and a second kernel joins what they found (arXiv 2311.01282).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from providers.local.torch_engine.devices import processors
from providers.local.torch_engine.kernels.places import Places

LARGEST_HALF = tl.constexpr(65504.0)
"""What float16 can be."""

LOG2_E = 1.4426950408889634
"""The kernels use powers of 2, which the hardware has."""

MAX_SPLITS = 32
PROGRAMS_PER_PROCESSOR = 2
"""As many are wanted, so that there is one whose data has arrived while another waits."""

MOST_HALVED = 8
"""Up to so many programs to a processor the work of each is done in halves."""


class Tuning(NamedTuple):
    """How a launch is laid out on the device.

    Attributes:
        rows: tokens times heads that share keys, of a program; a power of 2.
        tile: tokens of the cache that a program looks at together; a power of 2.
        warps: of a program.
        stages: tiles that are on their way at a time.
    """

    rows: int
    tile: int
    warps: int
    stages: int


# Compiled once, not again for every kind of number that a batch may bring.
@triton.jit(
    do_not_specialize=["table_stride"],
    do_not_specialize_on_alignment=["tables", "lengths", "starts"],
)
def attention_kernel(
    queries,
    cache,
    tables,
    lengths,
    starts,
    out,
    partial,
    partial_lse,
    scale,
    table_stride,
    QUERY_STRIDE: tl.constexpr,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    ROWS: tl.constexpr,
    TILE: tl.constexpr,
    SPLITS: tl.constexpr,
    WINDOW: tl.constexpr,
):
    """The program `(tile of tokens, head of keys and split, sequence)`.

    Its `ROWS` rows are tokens times the heads that share keys. `WINDOW` is 0 for all tokens. With
    one split the result goes to `out`; with more, each split's own result and the logarithm of its
    sum (base 2) go to `partial` and `partial_lse`.
    """
    kv_head = tl.program_id(1) // SPLITS
    split = tl.program_id(1) % SPLITS
    sequence = tl.program_id(2)
    first_row = tl.load(starts + sequence)
    tokens = tl.load(starts + sequence + 1) - first_row
    length = tl.load(lengths + sequence)
    TOKENS: tl.constexpr = ROWS // GROUP
    first_token = tl.program_id(0) * TOKENS
    if first_token >= tokens:
        return
    rows = tl.arange(0, ROWS)
    token = first_token + rows // GROUP
    head = kv_head * GROUP + rows % GROUP
    in_rows = (rows < TOKENS * GROUP) & (token < tokens)
    position = length - tokens + token
    dims = tl.arange(0, PADDED_DIM)
    in_dims = dims < HEAD_DIM
    row = (first_row + token).to(tl.int64)
    query = tl.load(
        queries + row[:, None] * QUERY_STRIDE + head[:, None] * HEAD_DIM + dims[None, :],
        mask=in_rows[:, None] & in_dims[None, :],
        other=0.0,
    )
    if cache.dtype.element_ty == tl.float8e4nv and query.dtype == tl.bfloat16:
        # The GPU widens FP8 to float16 in one instruction, and takes several to bfloat16.
        bounded = tl.minimum(tl.maximum(query.to(tl.float32), -LARGEST_HALF), LARGEST_HALF)
        query = bounded.to(tl.float16)

    # What the first of the tokens sees first, and the last one last.
    begin = 0
    if WINDOW > 0:
        begin = tl.maximum(0, length - tokens + first_token - WINDOW + 1)
    end = tl.minimum(length, length - tokens + first_token + TOKENS)
    if SPLITS > 1:
        share = tl.cdiv(tl.cdiv(end - begin, TILE), SPLITS) * TILE
        begin += split * share
        end = tl.minimum(end, begin + share)

    # Tiles that all of the tokens see whole come first: nothing in them has to be masked.
    whole = begin
    if WINDOW == 0:
        seen_by_all = tl.minimum(end, length - tokens + first_token + 1)
        whole += tl.maximum(0, seen_by_all - begin) // TILE * TILE
    largest = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    summed = tl.zeros([ROWS, PADDED_DIM], tl.float32)
    for masked in tl.static_range(2):
        for at in range(whole if masked else begin, end if masked else whole, TILE):
            places = at + tl.arange(0, TILE)
            in_places = places < end
            block = tl.load(
                tables + (places // BLOCK_SIZE) * table_stride + sequence, mask=in_places, other=0
            )
            slot = block.to(tl.int64) * BLOCK_SIZE + places % BLOCK_SIZE
            cached = cache + (slot * (2 * KV_HEADS) + kv_head) * HEAD_DIM
            keys = tl.load(
                cached[None, :] + dims[:, None],
                mask=in_dims[:, None] & in_places[None, :],
                other=0.0,
            ).to(query.dtype)
            scores = tl.dot(query, keys, input_precision="ieee") * scale
            if masked:
                visible = in_places[None, :] & (places[None, :] <= position[:, None])
                if WINDOW > 0:
                    visible = visible & (places[None, :] > position[:, None] - WINDOW)
                scores = tl.where(visible, scores, float("-inf"))
            new_largest = tl.maximum(largest, tl.max(scores, 1))
            # A row may not have seen anything yet, and -inf less -inf is no number.
            reference = tl.where(new_largest == float("-inf"), 0.0, new_largest)
            weights = tl.exp2(scores - reference[:, None])
            shrunk = tl.exp2(largest - reference)
            total = total * shrunk + tl.sum(weights, 1)
            values = tl.load(
                cached[:, None] + KV_HEADS * HEAD_DIM + dims[None, :],
                mask=in_places[:, None] & in_dims[None, :],
                other=0.0,
            ).to(query.dtype)
            summed = summed * shrunk[:, None]
            summed = tl.dot(weights.to(values.dtype), values, summed, input_precision="ieee")
            largest = new_largest

    result = summed / tl.where(total == 0.0, 1.0, total)[:, None]
    place = row * (KV_HEADS * GROUP) + head
    in_result = in_rows[:, None] & in_dims[None, :]
    if SPLITS == 1:
        tl.store(
            out + place[:, None] * HEAD_DIM + dims[None, :],
            result.to(out.dtype.element_ty),
            mask=in_result,
        )
    else:
        place = place * SPLITS + split
        tl.store(partial + place[:, None] * HEAD_DIM + dims[None, :], result, mask=in_result)
        lse = largest + tl.log2(tl.where(total == 0.0, 1.0, total))
        tl.store(partial_lse + place, lse, mask=in_rows)


@triton.jit
def join_kernel(
    partial,
    partial_lse,
    out,
    HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,
    SPLITS: tl.constexpr,
):
    """What the splits of one token and head found, as one: the program is token times head."""
    place = tl.program_id(0).to(tl.int64)
    splits = tl.arange(0, SPLITS)
    dims = tl.arange(0, PADDED_DIM)
    in_dims = dims < HEAD_DIM
    lse = tl.load(partial_lse + place * SPLITS + splits)
    largest = tl.max(lse, 0)
    weights = tl.exp2(lse - tl.where(largest == float("-inf"), 0.0, largest))
    total = tl.sum(weights, 0)
    found = tl.load(
        partial + (place * SPLITS + splits)[:, None] * HEAD_DIM + dims[None, :],
        mask=in_dims[None, :],
        other=0.0,
    )
    result = tl.sum(found * weights[:, None], 0) / tl.where(total == 0.0, 1.0, total)
    tl.store(out + place * HEAD_DIM + dims, result.to(out.dtype.element_ty), mask=in_dims)


def paged_attention(
    queries: torch.Tensor,
    layer: torch.Tensor,
    places: Places,
    *,
    block_size: int,
    scale: float,
    window: int | None,
    splits: int | None = None,
    tuning: Tuning | None = None,
) -> torch.Tensor:
    """Attention of each sequence's new tokens over all that it has in the cache, them included.

    Args:
        queries: `[tokens, heads, head_dim]`; a token's are side by side.
        layer: of the cache, `[slots, 2 * kv_heads, head_dim]`, in the dtype of the queries or FP8;
            the new tokens' keys and values are written already.
        places: where the sequences are.
        block_size: tokens in a block of the cache.
        scale: of the scores.
        window: how many tokens one looks back at, itself included; None for all.
        splits: programs, a power of 2, among which a sequence with one token is split; by default
            as many as keep the device busy.
        tuning: of the launches; by default as was measured, see `bench.kernels_cuda`.

    Returns:
        `[tokens, heads * head_dim]`.
    """
    tokens, heads, head_dim = queries.shape
    kv_heads = layer.shape[1] // 2
    group = heads // kv_heads
    padded_dim = max(16, triton.next_power_of_2(head_dim))
    out = torch.empty(tokens, heads * head_dim, dtype=queries.dtype, device=queries.device)
    decoding = places.decoding

    def launch(first: int, count: int, longest: int, splits: int, chosen: Tuning) -> None:
        partial, lse = out, out
        rows = max(chosen.rows, fewest_rows)
        if splits > 1:
            partial = torch.empty(
                count * heads * splits * head_dim, dtype=torch.float32, device=out.device
            )
            lse = torch.empty(count * heads * splits, dtype=torch.float32, device=out.device)
        attention_kernel[(triton.cdiv(longest, rows // group), kv_heads * splits, count)](
            queries,
            layer,
            places.tables[:, first:],
            places.lengths[first:],
            places.starts[first:],
            out,
            partial,
            lse,
            scale * LOG2_E,
            places.tables.stride(0),
            QUERY_STRIDE=queries.stride(0),
            KV_HEADS=kv_heads,
            GROUP=group,
            HEAD_DIM=head_dim,
            PADDED_DIM=padded_dim,
            BLOCK_SIZE=block_size,
            ROWS=rows,
            TILE=chosen.tile,
            SPLITS=splits,
            WINDOW=window or 0,
            num_warps=chosen.warps,
            num_stages=chosen.stages,
        )
        if splits > 1:
            join_kernel[(count * heads,)](
                partial, lse, out, HEAD_DIM=head_dim, PADDED_DIM=padded_dim, SPLITS=splits
            )

    fewest_rows = max(16, triton.next_power_of_2(group))
    if decoding:
        # They are the first in the step, so that a token's row is its sequence's number.
        if splits is None:
            splits = splits_for(decoding * kv_heads, processors(queries.device))
        launch(0, decoding, 1, splits, tuning or reply_tuning(padded_dim, layer.dtype))
    if places.prompts:
        longest = max(prompt.tokens for prompt in places.prompts)
        launch(decoding, len(places.prompts), longest, 1, tuning or prompt_tuning(padded_dim))
    return out


def reply_tuning(padded_dim: int, cached: torch.dtype) -> Tuning:
    """For sequences of a single token, with heads of so many numbers and a cache of this dtype."""
    if padded_dim > 128:
        return Tuning(16, 32, 2, 2)
    # As many bytes are on their way.
    return Tuning(16, 64, 2, 3) if cached.itemsize > 1 else Tuning(16, 128, 4, 3)


def prompt_tuning(padded_dim: int) -> Tuning:
    """For those of more."""
    return Tuning(64, 64, 4, 2) if padded_dim <= 128 else Tuning(128, 64, 8, 3)


def splits_for(programs: int, processors: int) -> int:
    """Among how many programs the work of each of `programs` is split, for a device's processors.

    A power of 2, as was quickest on an H200 (`bench.kernels_cuda --sweep`): two programs to a
    processor, and halves up to eight, so that none is left with a whole one at the end.
    """
    splits = PROGRAMS_PER_PROCESSOR * processors // programs
    if splits < 2:
        return 2 if programs < MOST_HALVED * processors else 1
    return int(min(MAX_SPLITS, 1 << (splits.bit_length() - 1)))
