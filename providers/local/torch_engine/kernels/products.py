"""Products of a few rows with a weight, in Triton: the weight is read once, and that is the time.

A decode step waits for its weights to come from memory. So a program has some of the outputs and
goes through their inputs; where that makes too few programs to keep the memory busy, the inputs are
split between several, and what these found is added up in their order by a second kernel, so that
the result is the same each time.

A weight has the dtype of the rows, or is FP8 with a scale for each output, and is widened on the
way: activations are never rounded.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from providers.local.torch_engine.devices import processors

WIDE = 16384
"""Outputs that make programs enough, each of several."""

NARROW = 4096
"""Outputs that make so few programs that each has half as many as else."""

PROGRAMS_PER_PROCESSOR = {1: 4, 2: 1, 4: 1}
"""How many are wanted, by a weight's bytes a number: one that widens FP8 waits for itself too."""

MOST_ROWS = 64
"""More are as many products as there are weights to read, which is another kind of work."""

FEWEST_FOR_DOT = 8
"""Rows that a tensor core takes at least; those that are missing are computed for nothing."""


@dataclass(frozen=True, slots=True)
class Tiling:
    """How the work is cut.

    Attributes:
        dot: whether tensor cores multiply; else each weight is multiplied with a row's number at a
            time, which does for very few rows.
        outputs: of a program.
        inputs: that it looks at together.
        splits: programs that share the inputs of the same outputs; None for as many as keep the
            device busy.
        warps: of a program.
        stages: tiles that are on their way at the same time.
    """

    dot: bool
    outputs: int
    inputs: int
    splits: int | None = None
    warps: int = 4
    stages: int = 3


@triton.jit
def _put(
    sums,
    row,
    output,
    in_range,
    scales,
    biases,
    out,
    rows,
    outputs,
    SPLIT: tl.constexpr,
    SCALED: tl.constexpr,
    BIASED: tl.constexpr,
):
    """Write a program's sums: to `out`, or where the inputs are split as they are.

    `row` and `output` are of shapes that make that of `sums` together.
    """
    if SPLIT:
        place = (tl.program_id(1) * rows + row) * outputs + output
        tl.store(out + place, sums, mask=in_range)
    else:
        if SCALED:
            sums = sums * tl.load(scales + output, mask=output < outputs, other=0.0)
        if BIASED:
            sums = sums + tl.load(biases + output, mask=output < outputs, other=0.0).to(tl.float32)
        tl.store(out + row * outputs + output, sums.to(out.dtype.element_ty), mask=in_range)


# Compiled once for all numbers of rows that are padded to the same.
@triton.jit(do_not_specialize=["rows"])
def dot_kernel(
    x,
    weight,
    scales,
    biases,
    out,
    rows,
    outputs,
    inputs,
    stride,
    ROWS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    INPUTS: tl.constexpr,
    EVEN: tl.constexpr,
    SPLIT: tl.constexpr,
    SCALED: tl.constexpr,
    BIASED: tl.constexpr,
):
    """The program is a tile of the outputs, and a part of the inputs; tensor cores multiply.

    Outputs are the first dimension of the product, of which a tensor core takes many.
    """
    row = tl.arange(0, ROWS)
    output = tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS)
    place = tl.arange(0, INPUTS)
    # What is beyond the last is the last again, which is quicker than not to read it.
    own = tl.minimum(output, outputs - 1).to(tl.int64)
    weights = weight + own[:, None] * inputs + place[None, :]
    numbers = x + tl.minimum(row, rows - 1)[None, :] * stride + place[:, None]
    share = tl.cdiv(tl.cdiv(inputs, INPUTS), tl.num_programs(1)) * INPUTS
    begin = tl.program_id(1) * share
    end = tl.minimum(inputs, begin + share)
    sums = tl.zeros([OUTPUTS, ROWS], tl.float32)
    for at in range(begin, end, INPUTS):
        if EVEN:
            tile = tl.load(weights + at, eviction_policy="evict_first")
            taken = tl.load(numbers + at)
        else:
            inside = at + place < inputs
            tile = tl.load(weights + at, mask=inside[None, :], other=0.0)
            taken = tl.load(numbers + at, mask=inside[:, None], other=0.0)
        sums = tl.dot(tile.to(taken.dtype), taken, sums, input_precision="ieee")
    _put(
        sums,
        row[None, :],
        output[:, None],
        (row < rows)[None, :] & (output < outputs)[:, None],
        scales,
        biases,
        out,
        rows,
        outputs,
        SPLIT,
        SCALED,
        BIASED,
    )


@triton.jit(do_not_specialize=["rows"])
def sum_of_products_kernel(
    x,
    weight,
    scales,
    biases,
    out,
    rows,
    outputs,
    inputs,
    stride,
    ROWS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    INPUTS: tl.constexpr,
    EVEN: tl.constexpr,
    SPLIT: tl.constexpr,
    SCALED: tl.constexpr,
    BIASED: tl.constexpr,
    STAGES: tl.constexpr,
):
    """As `dot_kernel`, number by number: each thread has sums of its own, until the end."""
    row = tl.arange(0, ROWS)
    output = tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS)
    place = tl.arange(0, INPUTS)
    own = tl.minimum(output, outputs - 1).to(tl.int64)
    # Three dimensions from the start, so that what is read stays in the thread that reads it.
    weights = weight + own[None, :, None] * inputs + place[None, None, :]
    numbers = x + tl.minimum(row, rows - 1)[:, None, None] * stride + place[None, None, :]
    share = tl.cdiv(tl.cdiv(inputs, INPUTS), tl.num_programs(1)) * INPUTS
    begin = tl.program_id(1) * share
    end = tl.minimum(inputs, begin + share)
    sums = tl.zeros([ROWS, OUTPUTS, INPUTS], tl.float32)
    for at in tl.range(begin, end, INPUTS, num_stages=STAGES):
        if EVEN:
            tile = tl.load(weights + at, eviction_policy="evict_first")
            taken = tl.load(numbers + at)
        else:
            inside = (at + place < inputs)[None, None, :]
            tile = tl.load(weights + at, mask=inside, other=0.0)
            taken = tl.load(numbers + at, mask=inside, other=0.0)
        sums += tile.to(tl.float32) * taken.to(tl.float32)
    _put(
        tl.sum(sums, 2),
        row[:, None],
        output[None, :],
        (row < rows)[:, None] & (output < outputs)[None, :],
        scales,
        biases,
        out,
        rows,
        outputs,
        SPLIT,
        SCALED,
        BIASED,
    )


@triton.jit(do_not_specialize=["splits"])
def join_splits_kernel(
    partial,
    scales,
    biases,
    out,
    outputs,
    splits,
    stride,
    TILE: tl.constexpr,
    SCALED: tl.constexpr,
    BIASED: tl.constexpr,
):
    """What the splits of a row's outputs found, added up one after the other: the program is a row
    and a tile of its outputs."""
    row = tl.program_id(0)
    output = tl.program_id(1) * TILE + tl.arange(0, TILE)
    inside = output < outputs
    found = partial + row * outputs + output
    total = tl.zeros([TILE], tl.float32)
    for split in range(splits):
        total += tl.load(found + split * stride, mask=inside, other=0.0)
    if SCALED:
        total = total * tl.load(scales + output, mask=inside, other=0.0)
    if BIASED:
        total = total + tl.load(biases + output, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * outputs + output, total.to(out.dtype.element_ty), mask=inside)


JOIN_TILE = 512


def few_rows(
    x: torch.Tensor,
    weight: torch.Tensor,
    scales: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    tiling: Tiling | None = None,
) -> torch.Tensor:
    """The product of few rows with a weight, in the dtype of the rows; sums are float32.

    Args:
        x: `[rows, inputs]`, up to `MOST_ROWS`.
        weight: `[outputs, inputs]`, contiguous; of the dtype of `x`, or float8_e4m3fn.
        scales: float32, `[outputs]`, by which each output is multiplied; None for 1.
        bias: `[outputs]`, if there is one.
        tiling: how the work is cut; by default as `tiling_for` has it.

    Returns:
        `[rows, outputs]`.

    Raises:
        ValueError: the rows are too many.
    """
    rows, inputs = x.shape
    outputs = len(weight)
    if x.stride(1) != 1:
        x = x.contiguous()
    if rows > MOST_ROWS:
        raise ValueError(f"{rows} rows are more than the {MOST_ROWS} that this is made for")
    out = torch.empty(rows, outputs, dtype=x.dtype, device=x.device)
    if not rows:
        return out
    tiling = tiling or tiling_for(rows, outputs, inputs, weight.dtype)
    tiles = triton.cdiv(outputs, tiling.outputs)
    wanted = PROGRAMS_PER_PROCESSOR[weight.itemsize] * processors(x.device)
    splits = tiling.splits or splits_for(tiles, triton.cdiv(inputs, tiling.inputs), wanted)
    sums = out
    if splits > 1:
        sums = torch.empty(splits, rows, outputs, dtype=torch.float32, device=x.device)
    # A pointer that nobody follows stands for what is not there.
    own_scales = sums if scales is None else scales
    own_bias = sums if bias is None else bias
    arguments = (x, weight, own_scales, own_bias, sums, rows, outputs, inputs, x.stride(0))
    padded = triton.next_power_of_2(rows)
    constants = {
        "ROWS": max(FEWEST_FOR_DOT, padded) if tiling.dot else padded,
        "OUTPUTS": tiling.outputs,
        "INPUTS": tiling.inputs,
        "EVEN": inputs % tiling.inputs == 0,
        "SPLIT": splits > 1,
        "SCALED": scales is not None,
        "BIASED": bias is not None,
    }
    if tiling.dot:
        dot_kernel[(tiles, splits)](
            *arguments, **constants, num_warps=tiling.warps, num_stages=tiling.stages
        )
    else:
        sum_of_products_kernel[(tiles, splits)](
            *arguments, **constants, STAGES=tiling.stages, num_warps=tiling.warps
        )
    if splits > 1:
        join_splits_kernel[(rows, triton.cdiv(outputs, JOIN_TILE))](
            sums,
            own_scales,
            own_bias,
            out,
            outputs,
            splits,
            rows * outputs,
            TILE=JOIN_TILE,
            SCALED=scales is not None,
            BIASED=bias is not None,
        )
    return out


def tiling_for(rows: int, outputs: int, inputs: int, dtype: torch.dtype) -> Tiling:
    """How the work is cut for so many rows and a weight of this shape and dtype."""
    # By what was quickest on an H100: `bench.products_cuda`.
    is_wide = outputs >= WIDE
    if dtype.itemsize > 1:
        if rows == 1 and is_wide:
            return Tiling(False, 8, 1024, splits=1, warps=8, stages=1)
        if rows <= 2:
            return Tiling(False, 4, 512, splits=1, warps=2)
        return Tiling(True, 64, 128, stages=4)
    if rows == 1 or (rows == 2 and not is_wide):
        return Tiling(False, 4, 1024, splits=1, warps=2)
    if rows > 32:
        return Tiling(True, 128, 128, stages=4)
    # Widened in registers, which instructions of four warps do not suit.
    if rows <= 16 and outputs <= NARROW:
        return Tiling(True, 32, 256, warps=2, stages=4)
    return Tiling(True, 64, 128, warps=2, stages=4)


def splits_for(tiles: int, steps: int, programs: int) -> int:
    """Between how many programs the inputs are split.

    Args:
        tiles: of outputs.
        steps: that a program would go through alone.
        programs: how many are wanted in all.
    """
    return max(1, min(round(programs / tiles), steps // 4))
