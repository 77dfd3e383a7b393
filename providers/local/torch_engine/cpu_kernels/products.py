"""Matrix products with weights of 8 or 4 bits, which lie as `packing` says.

Activations get 16 bits and a scale for each row. Products of theirs with 8 bits fit into 32 over a
group, so these sums are exact, and what a row gets does not depend on the others.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from providers.local.torch_engine.cpu_kernels.code import (
    FLOAT,
    HALF,
    INT8,
    INT16,
    INT32,
    LANES,
    Code,
    Pointer,
    Value,
    Variable,
    vector_of,
)
from providers.local.torch_engine.cpu_kernels.library import kernel
from providers.local.torch_engine.cpu_kernels.packing import (
    GROUP,
    LARGEST_CODE,
    PACKINGS,
    TILE,
    quantize,
)
from providers.local.torch_engine.model.kv_cache import LEAST_SCALE

ROWS_AT_ONCE = (6, 4, 2, 1)
"""What the sums of fit into AVX2's sixteen registers; the most first."""

AHEAD = 2
"""Blocks that weights are asked for before they are read. The processor's own prefetching ends with
each page of 4096 bytes: a row takes a tenth longer without."""

CACHE_LINE = 64

LARGEST_ACTIVATION = 32767


@dataclass(frozen=True, slots=True)
class PackedLinear:
    """A matrix product; see `linear.Linear`.

    Attributes:
        packed: what `quantize` made of the weights.
        outputs: how many there are; the tiles may have more.
        inputs: how many there are; the groups may have more.
        bias: `[tiles * TILE]`.
        bits: of a weight.
    """

    packed: torch.Tensor
    outputs: int
    inputs: int
    bias: torch.Tensor
    bits: int

    @classmethod
    def of(cls, weight: torch.Tensor, bias: torch.Tensor | None, bits: int) -> PackedLinear:
        """One with this weight `[outputs, inputs]` and bias `[outputs]`."""
        packed, (outputs, inputs) = quantize(weight, bits), weight.shape
        padded = torch.zeros(len(packed) * TILE)
        if bias is not None:
            padded[:outputs] = bias
        return cls(packed, outputs, inputs, padded, bits)

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        """The outputs of `rows`: both are float32."""
        tiles, groups, _ = self.packed.shape
        tokens, inputs = rows.shape
        if inputs != groups * GROUP:
            rows = torch.nn.functional.pad(rows, (0, groups * GROUP - inputs))
        rows = rows.contiguous()
        found = rows.new_empty(tokens, tiles * TILE)
        integers = rows.new_empty(tokens, groups * GROUP, dtype=torch.int16)
        scales = rows.new_empty(tokens)
        product.compiled(bits=self.bits)(
            rows.data_ptr(),
            integers.data_ptr(),
            scales.data_ptr(),
            self.packed.data_ptr(),
            self.bias.data_ptr(),
            found.data_ptr(),
            tokens,
            groups,
            tiles,
        )
        return found if self.outputs == tiles * TILE else found[:, : self.outputs].contiguous()


@kernel(
    rows=FLOAT,
    integers=INT16,
    scales=FLOAT,
    packed=INT8,
    bias=FLOAT,
    found=FLOAT,
    tokens=None,
    groups=None,
    tiles=None,
)
def product(
    code: Code,
    rows: Pointer,
    integers: Pointer,
    scales: Pointer,
    packed: Pointer,
    bias: Pointer,
    found: Pointer,
    tokens: Value,
    groups: Value,
    tiles: Value,
    *,
    bits: int,
) -> None:
    """`rows`, `[tokens, groups * GROUP]`, times weights.

    Every thread may read the rows that are its share; `found` is complete when all are done.

    Args:
        code: of the kernel.
        rows: the activations.
        integers: they become these, `[tokens, groups * GROUP]`.
        scales: times these, `[tokens]`.
        packed: the weights; see `quantize`.
        bias: `[tiles * TILE]`.
        found: `[tokens, tiles * TILE]`.
        tokens, groups, tiles: how many there are.
        bits: of a weight.
    """
    inputs = groups * GROUP
    first, end = code.share_of(tokens)
    with code.loop(end, first) as token:
        start = token * inputs
        _quantize_row(code, rows.at(start), integers.at(start), scales.at(token), inputs)
    code.wait_for_all()
    first, end = code.share_of(tiles)
    with code.loop(end, first) as tile:
        weights, start = packed.at(tile * groups * PACKINGS[bits].block), tile * TILE
        done: Value = code.integer(0)
        for count in ROWS_AT_ONCE:
            until = tokens - (tokens - done) % count
            with code.loop(until, done, count) as token:
                _multiply.within(
                    code,
                    weights,
                    integers.at(token * inputs),
                    scales.at(token),
                    bias.at(start),
                    found.at(token * tiles * TILE + start),
                    groups,
                    tiles,
                    rows=count,
                    bits=bits,
                )
            done = until


def _quantize_row(code: Code, row: Pointer, into: Pointer, scale: Pointer, inputs: Value) -> None:
    largest = Variable(code, code.zeros(FLOAT))
    with code.loop(inputs, step=LANES) as at:
        largest.value = largest.value.at_least(code.call("llvm.fabs", row.load(at, LANES)))
    highest = largest.value.largest().at_least(LEAST_SCALE)
    scale.store(0, highest / float(LARGEST_ACTIVATION))
    inverse = (code.like(float(LARGEST_ACTIVATION), FLOAT) / highest).spread()
    with code.loop(inputs, step=LANES) as at:
        rounded = code.call("llvm.rint", row.load(at, LANES) * inverse)
        into.store(at, rounded.to(INT32).to(INT16))


@kernel(
    weights=INT8, integers=INT16, scales=FLOAT, bias=FLOAT, found=FLOAT, groups=None, tiles=None
)
def _multiply(
    code: Code,
    weights: Pointer,
    integers: Pointer,
    scales: Pointer,
    bias: Pointer,
    found: Pointer,
    groups: Value,
    tiles: Value,
    *,
    rows: int,
    bits: int,
) -> None:
    """A tile's outputs for some rows."""
    packing = PACKINGS[bits]
    parts = range(TILE // LANES)
    totals = [[Variable(code, code.zeros(FLOAT)) for _ in parts] for _ in range(rows)]
    sums = [[Variable(code, code.zeros(INT32)) for _ in parts] for _ in range(rows)]
    with code.loop(groups) as group:
        block = weights.at(group * packing.block)
        ahead = AHEAD * packing.block
        for line in range(ahead, ahead + packing.block + CACHE_LINE - 1, CACHE_LINE):
            block.at(line).prefetch()
        zeros = [_zeros(block.at(2 * TILE + LANES * part)) for part in parts] if bits == 4 else []
        for of_row in sums:
            for summed in of_row:
                summed.value = code.zeros(INT32)
        with code.loop(GROUP // 2, step=2) as start:
            lines = block.at(start * (2 * TILE * bits // 8) + packing.weights_at)
            two = _two_of_8_bits(lines) if bits == 8 else _two_of_4_bits(lines, zeros)
            for pair, columns in zip((start, start + 1), two, strict=True):
                for row, of_row in enumerate(sums):
                    place = (groups * row + group) * GROUP + pair * 2
                    both = integers.at(place).of(INT32).load(0)
                    activations = both.spread().bits_as(vector_of(INT16, 2 * LANES))
                    for summed, column in zip(of_row, columns, strict=True):
                        summed.value += _pairwise(column, activations)
        for part in parts:
            of_group = block.of(HALF).load(part * LANES, LANES).to(FLOAT)
            for total, of_row in zip(totals, sums, strict=True):
                floats = of_row[part].value.to(FLOAT)
                total[part].value = floats.times(of_group, total[part].value)
    for row, total in enumerate(totals):
        scale, output = scales.load(row).spread(), found.at(tiles * (row * TILE))
        for part in parts:
            constant = bias.load(part * LANES, LANES)
            output.store(part * LANES, total[part].value.times(scale, constant))


def _two_of_8_bits(lines: Pointer) -> list[list[Value]]:
    """For two pairs of inputs, one after the other: the weights of a tile's outputs, by its parts,
    in 16 bits."""
    return [
        [lines.load(at, 2 * LANES).to(INT16) for at in range(line, line + 2 * TILE, 2 * LANES)]
        for line in (0, 2 * TILE)
    ]


def _two_of_4_bits(lines: Pointer, zeros: list[Value]) -> list[list[Value]]:
    bytes_ = [lines.load(at, 2 * LANES).as_unsigned(INT16) for at in range(0, 2 * TILE, 2 * LANES)]
    return [
        [(each & LARGEST_CODE) - zero for each, zero in zip(bytes_, zeros, strict=True)],
        [(each >> 4) - zero for each, zero in zip(bytes_, zeros, strict=True)],
    ]


def _zeros(of_part: Pointer) -> Value:
    """What is subtracted from each of two integers of a part's outputs."""
    return (of_part.load(0, LANES).to(INT32) * 0x10001).bits_as(vector_of(INT16, 2 * LANES))


def _pairwise(left: Value, right: Value) -> Value:
    """Of two vectors of 16 integers of 16 bits: the sums of two products each, of 32 bits."""
    return left.code.external("llvm.x86.avx2.pmadd.wd", vector_of(INT32), left, right)
