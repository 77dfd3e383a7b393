"""What the experts that tokens chose come to, in Triton, without the host knowing which these are.

A pair is a token and one of its experts. `plan_kernel` orders the pairs by expert, and cuts each
expert's into tiles of rows; a program of `product_kernel` multiplies such a tile by some of its
expert's weights, which so are read once for all tokens of the tile; `sum_kernel` adds up what a
token's experts gave, always in the same order. The grid has room for the most tiles that there can
be, so that CUDA graphs can be recorded of it.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from providers.local.torch_engine.kernels.gates import activated

FEW_PAIRS = 512
MANY_PAIRS = 4096
"""How many are looked at together when they are ordered, where there are few, and else."""

SUM_TILE = 1024


class Tiles(NamedTuple):
    """How a product is cut up: each program has `rows` pairs and `outputs` numbers of each, and
    reads `inputs` at a time, `stages` times ahead."""

    rows: int
    outputs: int
    inputs: int
    warps: int
    stages: int


def tiles_of(pairs: int, experts: int, dtype: torch.dtype) -> Tiles:
    """The tiles for so many pairs: of about as many rows as an expert has on average."""
    if dtype.itemsize > 2:
        # There are no tensor cores for it, and to compile larger ones takes half a minute.
        return Tiles(32, 32, 32, 4, 2)
    # As was quickest on an H200: `bench.experts_cuda`.
    if pairs <= 8 * experts:
        return Tiles(16, 128, 128, 8, 3)
    if pairs <= 32 * experts:
        return Tiles(32, 128, 64, 4, 4)
    if pairs <= 128 * experts:
        return Tiles(64, 128, 64, 8, 3)
    return Tiles(128, 128, 64, 8, 3)


def most_tiles(pairs: int, experts: int, rows: int) -> int:
    """Into how many tiles of `rows` rows the pairs fall at most, whoever has how many."""
    # Where each has one row, and nobody's last tile has another that is not full.
    holders = min(pairs, experts)
    return holders + (pairs - holders) // rows


# Compiled once for all numbers of pairs.
@triton.jit(do_not_specialize=["pairs", "slots"])
def plan_kernel(
    chosen,
    plan,
    pairs,
    slots,
    EXPERTS: tl.constexpr,
    BINS: tl.constexpr,
    ROWS: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """The program is an expert; each counts the pairs of all.

    `plan` is `[pairs + 3 * slots + 1]`: the pairs, ordered by expert and each expert's as they
    were; of each tile its expert, its first row and the end of its expert's rows; and how many
    tiles there are.
    """
    expert = tl.program_id(0)
    tiles = plan + pairs
    bins = tl.arange(0, BINS)
    counts = tl.zeros([BINS], tl.int32)
    for start in range(0, pairs, CHUNK):
        places = start + tl.arange(0, CHUNK)
        owners = tl.load(chosen + places, mask=places < pairs, other=EXPERTS).to(tl.int32)
        counts += tl.histogram(owners, BINS)
    # The last bin has what is no pair.
    counts = tl.where(bins < EXPERTS, counts, 0)
    needed = (counts + ROWS - 1) // ROWS
    if expert == 0:
        tl.store(tiles + 3 * slots, tl.sum(needed, 0))
    tile = tl.sum(tl.where(bins < expert, needed, 0), 0)
    row = tl.sum(tl.where(bins < expert, counts, 0), 0)
    own = tl.sum(tl.where(bins == expert, counts, 0), 0)
    end = row + own
    for first in range(row, end, ROWS):
        tl.store(tiles + tile, expert)
        tl.store(tiles + slots + tile, first)
        tl.store(tiles + 2 * slots + tile, end)
        tile += 1
    # Most experts have nothing where few tokens are.
    if own > 0:
        for start in range(0, pairs, CHUNK):
            places = start + tl.arange(0, CHUNK)
            owners = tl.load(chosen + places, mask=places < pairs, other=EXPERTS).to(tl.int32)
            is_own = owners == expert
            counted = tl.cumsum(is_own.to(tl.int32), 0)
            tl.store(plan + row + counted - 1, places, mask=is_own)
            row += tl.sum(is_own.to(tl.int32), 0)


@triton.jit(do_not_specialize=["pairs", "slots"])
def product_kernel(
    x,
    weights,
    shares,
    out,
    plan,
    pairs,
    slots,
    INPUTS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    CHOSEN: tl.constexpr,
    ACTIVATION: tl.constexpr,
    ROWS: tl.constexpr,
    WIDE: tl.constexpr,
    DEEP: tl.constexpr,
):
    """The program `(tile of outputs, tile of rows)`.

    With an `ACTIVATION` it is the first product: `x` has a row for each token, and an expert's
    weights are the gates' and, behind them, those of what they let by; `out` has the pairs in the
    plan's order. Without, it is the second: `x` has the pairs in that order, and what comes of
    them, times the token's share, goes where the pair was before.
    """
    tile = tl.program_id(1)
    tiles = plan + pairs
    if tile >= tl.load(tiles + 3 * slots):
        return
    expert = tl.load(tiles + tile).to(tl.int64)
    rows = tl.load(tiles + slots + tile) + tl.arange(0, ROWS)
    in_rows = rows < tl.load(tiles + 2 * slots + tile)
    # What is outside computes what another row does, so that nothing has to be masked.
    rows = tl.where(in_rows, rows, 0)
    pair = tl.load(plan + rows)
    GATED: tl.constexpr = ACTIVATION is not None
    if GATED:
        source = (pair // CHOSEN).to(tl.int64)
        weights += expert * (2 * OUTPUTS * INPUTS)
    else:
        source = rows.to(tl.int64)
        weights += expert * (OUTPUTS * INPUTS)
    outputs = tl.program_id(0) * WIDE + tl.arange(0, WIDE)
    in_outputs = outputs < OUTPUTS
    deep = tl.arange(0, DEEP)
    taken = x + source[:, None] * INPUTS + deep[None, :]
    weight = weights + tl.where(in_outputs, outputs, 0)[None, :] * INPUTS + deep[:, None]
    summed = tl.zeros([ROWS, WIDE], tl.float32)
    let_by = tl.zeros([ROWS, WIDE], tl.float32)
    for at in range(0, INPUTS, DEEP):
        if INPUTS % DEEP == 0:
            values = tl.load(taken)
            factors = tl.load(weight)
        else:
            inside = deep < INPUTS - at
            values = tl.load(taken, mask=inside[None, :], other=0.0)
            factors = tl.load(weight, mask=inside[:, None], other=0.0)
        summed = tl.dot(values, factors, summed, input_precision="ieee")
        if GATED:
            if INPUTS % DEEP == 0:
                factors = tl.load(weight + OUTPUTS * INPUTS)
            else:
                factors = tl.load(weight + OUTPUTS * INPUTS, mask=inside[:, None], other=0.0)
            let_by = tl.dot(values, factors, let_by, input_precision="ieee")
        taken += DEEP
        weight += DEEP
    if GATED:
        summed = activated(summed, ACTIVATION) * let_by
        target = rows.to(tl.int64)
    else:
        summed = summed * tl.load(shares + pair).to(tl.float32)[:, None]
        target = pair.to(tl.int64)
    tl.store(
        out + target[:, None] * OUTPUTS + outputs[None, :],
        summed.to(out.dtype.element_ty),
        mask=in_rows[:, None] & in_outputs[None, :],
    )


@triton.jit
def sum_kernel(parts, out, size, CHOSEN: tl.constexpr, TILE: tl.constexpr):
    """The program is a token and a tile of its numbers."""
    token = tl.program_id(0).to(tl.int64)
    places = tl.program_id(1) * TILE + tl.arange(0, TILE)
    inside = places < size
    summed = tl.zeros([TILE], tl.float32)
    for at in tl.static_range(CHOSEN):
        part = parts + (token * CHOSEN + at) * size + places
        summed += tl.load(part, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + token * size + places, summed.to(out.dtype.element_ty), mask=inside)


def mix_experts(
    x: torch.Tensor,
    gate_up: torch.Tensor,
    down: torch.Tensor,
    shares: torch.Tensor,
    chosen: torch.Tensor,
    activation: str,
    tiles: Tiles | None = None,
) -> torch.Tensor:
    """What the experts that tokens chose come to, each times its share.

    Sums are in float32, and of a token always in the same order.

    Args:
        x: `[tokens, hidden]`, contiguous, as all else but `chosen` in the weights' dtype.
        gate_up: `[experts, 2 * intermediate, hidden]`, contiguous: gates, then what they let by.
        down: `[experts, hidden, intermediate]`, contiguous.
        shares: `[tokens, chosen]`, contiguous.
        chosen: which experts, integers, `[tokens, chosen]`, contiguous.
        activation: see `gated`.
        tiles: how products are cut up; None for what suits the numbers.

    Returns:
        `[tokens, hidden]`.
    """
    tokens, hidden = x.shape
    experts, _, intermediate = down.shape
    each = chosen.shape[1]
    pairs = tokens * each
    out = torch.empty_like(x)
    if not pairs:
        return out.zero_()
    tiles = tiles or tiles_of(pairs, experts, x.dtype)
    slots = most_tiles(pairs, experts, tiles.rows)
    many = pairs > 2 * FEW_PAIRS
    plan = torch.empty(pairs + 3 * slots + 1, dtype=torch.int32, device=x.device)
    plan_kernel[(experts,)](
        chosen,
        plan,
        pairs,
        slots,
        EXPERTS=experts,
        BINS=triton.next_power_of_2(experts + 1),
        ROWS=tiles.rows,
        CHUNK=MANY_PAIRS if many else FEW_PAIRS,
        num_warps=8 if many else 4,
    )
    gated = torch.empty(pairs, intermediate, dtype=x.dtype, device=x.device)
    parts = torch.empty(pairs, hidden, dtype=x.dtype, device=x.device)
    for source, weights, target, gate in (
        (x, gate_up, gated, activation),
        (gated, down, parts, None),
    ):
        outputs = target.shape[1]
        product_kernel[(triton.cdiv(outputs, tiles.outputs), slots)](
            source,
            weights,
            shares,
            target,
            plan,
            pairs,
            slots,
            INPUTS=source.shape[1],
            OUTPUTS=outputs,
            CHOSEN=each,
            ACTIVATION=gate,
            ROWS=tiles.rows,
            WIDE=tiles.outputs,
            DEEP=tiles.inputs,
            num_warps=tiles.warps,
            num_stages=tiles.stages,
        )
    sum_kernel[(tokens, triton.cdiv(hidden, SUM_TILE))](
        parts, out, hidden, CHOSEN=each, TILE=SUM_TILE
    )
    return out
