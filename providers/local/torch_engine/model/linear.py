"""Matrix products with the model's weights."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch.nn import functional

Linear = Callable[[torch.Tensor], torch.Tensor]
"""`[tokens, inputs]` to `[tokens, outputs]`."""

Make = Callable[[torch.Tensor, torch.Tensor | None], Linear]
"""Makes one of a weight `[outputs, inputs]` and a bias `[outputs]`."""


PACKED_FOR = 8
"""Rows that oneDNN lays weights out for: that is quick for a single one too, and for hundreds."""


FP8_MULTIPLE = 16
"""Of outputs and of inputs, which tensor cores take in FP8."""


ROWS_AT_ONCE = 6
"""Rows that FBGEMM's kernel for weights of 16 bits computes together with AVX2."""


@dataclass(frozen=True, slots=True, eq=False)
class PlainLinear:
    """PyTorch's own product.

    Attributes:
        weight: `[outputs, inputs]`.
        bias: `[outputs]`, if there is one.
    """

    weight: torch.Tensor
    bias: torch.Tensor | None

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """The product of `x`, `[tokens, inputs]`."""
        return functional.linear(x, self.weight, self.bias)


def plain(weight: torch.Tensor, bias: torch.Tensor | None) -> Linear:
    """The weight as it is; on a CPU in float32 in oneDNN's own layout.

    PyTorch's own product of a row takes one core, and of some rows it lays the weights out again
    each time. oneDNN's is also the same for a row in any batch of two or more, to the bit; alone it
    is another where there are many inputs.
    """
    if not _is_laid_out(weight):
        return PlainLinear(weight, bias)
    packed = torch.ops.mkldnn._reorder_linear_weight(weight, PACKED_FOR)
    product = torch.ops.mkldnn._linear_pointwise
    return lambda x: product(x, packed, bias, "none", [], "")


def leaves(make: Make, weight: torch.Tensor) -> bool:
    """Whether `make` leaves such a weight of many experts as it is: where it makes a `PlainLinear`
    of it, or FP8, in which kernels don't have experts."""
    return make in (plain, fp8) and not _is_laid_out(weight)


def _is_laid_out(weight: torch.Tensor) -> bool:
    return weight.device.type == "cpu" and weight.dtype == torch.float32 and has_onednn()


def in_pairs(weight: torch.Tensor, bias: torch.Tensor | None) -> Linear:
    """As `plain`, and a row that is alone is the same to the bit as beside others."""
    product = plain(weight, bias)

    def multiply(x: torch.Tensor) -> torch.Tensor:
        return product(x) if len(x) != 1 else product(x.expand(2, -1).contiguous())[:1]

    return multiply


def has_onednn() -> bool:
    """Whether there is oneDNN where this was measured, on x86."""
    return (
        platform.machine().lower() in ("x86_64", "amd64")
        and torch.backends.mkldnn.is_available()
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    )


def float16(weight: torch.Tensor, bias: torch.Tensor | None) -> Linear:
    """Weights of 16 bits, which FBGEMM widens as it reads them; all else is float32.

    Half the memory has to be read, which is what a decode step waits for, and what gets lost is
    next to nothing: see `bench.quantization`.
    """
    packed = torch.ops.quantized.linear_prepack_fp16(weight, None)
    product = torch.ops.quantized.linear_dynamic_fp16
    if bias is None:
        return lambda x: product(x, packed)
    return lambda x: product(x, packed).add_(bias)


def in_sixes(weight: torch.Tensor, bias: torch.Tensor | None) -> Linear:
    """As `float16`, and a row is the same to the bit in any batch.

    With AVX2 FBGEMM computes six rows at a time, and what is left over in kernels of their own, of
    which those for one and for two rows add up in another order. So nothing is left over.
    """
    product = float16(weight, bias)

    def multiply(x: torch.Tensor) -> torch.Tensor:
        lacking = -len(x) % ROWS_AT_ONCE
        return product(functional.pad(x, (0, 0, 0, lacking)))[: len(x)] if lacking else product(x)

    return multiply


def fbgemm_available() -> bool:
    """Whether this torch has FBGEMM's kernels, `float16`'s and `int8`'s, for this CPU."""
    return "fbgemm" in torch.backends.quantized.supported_engines and all(
        hasattr(torch.ops.quantized, name)
        for name in ("linear_dynamic_fp16", "linear_with_input_q_dq_qweight_dq_output_fp32")
    )


def int8(weight: torch.Tensor, bias: torch.Tensor | None) -> Linear:
    """Weights of 8 bits, a scale for each 32 of an output's; activations of 16 bits.

    A quarter of the memory is read, and twice as many products are made at once.
    """
    from providers.local.torch_engine.cpu_kernels.products import PackedLinear

    return PackedLinear.of(weight, bias, 8)


def int4(weight: torch.Tensor, bias: torch.Tensor | None) -> Linear:
    """Weights of 4 bits, a scale and a zero for each 32 of an output's; activations of 16 bits.

    What a checkpoint has as 4 bits with a scale for a multiple of 32 is what it was.
    """
    from providers.local.torch_engine.cpu_kernels.products import PackedLinear

    return PackedLinear.of(weight, bias, 4)


def fp8(weight: torch.Tensor, bias: torch.Tensor | None) -> Linear:
    """Weights in FP8, a scale for each output, in Triton kernels; what it does not fit is `plain`.

    Half of the memory of 16 bits is read. Activations are rounded to FP8 too where there are many
    rows, which tensor cores then multiply twice as fast.
    """
    if any(length % FP8_MULTIPLE for length in weight.shape):
        return plain(weight, bias)
    from providers.local.torch_engine.kernels.fp8 import FP8Linear

    return FP8Linear.of(weight, bias)


def kernels_possible() -> bool:
    """Whether our own kernels, `int8`'s and `int4`'s, can be compiled for this CPU."""
    try:
        from providers.local.torch_engine.cpu_kernels.library import possible
    except ImportError:
        return False
    return possible()


ON_CPUS: Mapping[str, Make] = {"none": plain, "float16": float16, "int8": int8, "int4": int4}
"""Those that CPUs have, by what a template calls them as `quantization`."""

MAKES: Mapping[str, Make] = {**ON_CPUS, "fp8": fp8}
"""All of them: `none` is everywhere, `fp8` on GPUs."""

APART: Mapping[str, Make] = {**ON_CPUS, "none": in_pairs, "float16": in_sixes}
"""On CPUs, where a row has to be the same to the bit in any batch."""

HEADS: Mapping[str, Make] = {"int4": int8, "fp8": plain}
"""What makes the head, where that is not made as all else: the likeliest token hangs on it."""
