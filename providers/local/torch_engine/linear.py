"""Matrix products with the model's weights."""

from __future__ import annotations

import platform
import warnings
from collections.abc import Callable, Mapping

import torch
from torch.nn import functional

Linear = Callable[[torch.Tensor], torch.Tensor]
"""`[tokens, inputs]` to `[tokens, outputs]`."""

Make = Callable[[torch.Tensor, torch.Tensor | None], Linear]
"""Makes one of a weight `[outputs, inputs]` and a bias `[outputs]`."""


PACKED_FOR = 8
"""Rows that oneDNN lays weights out for: that is quick for a single one too, and for hundreds."""


def plain(weight: torch.Tensor, bias: torch.Tensor | None) -> Linear:
    """The weight as it is; on a CPU in float32 in oneDNN's own layout.

    PyTorch's own product of a row takes one core, and of some rows it lays the weights out again
    each time. oneDNN's is also the same for a row in any batch, to the bit.
    """
    if weight.device.type != "cpu" or weight.dtype != torch.float32 or not _has_onednn():
        return lambda x: functional.linear(x, weight, bias)
    packed = torch.ops.mkldnn._reorder_linear_weight(weight, PACKED_FOR)
    product = torch.ops.mkldnn._linear_pointwise
    return lambda x: product(x, packed, bias, "none", [], "")


def _has_onednn() -> bool:
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


def fbgemm_available() -> bool:
    """Whether this torch has FBGEMM's kernels, `float16`'s and `int8`'s, for this CPU."""
    return "fbgemm" in torch.backends.quantized.supported_engines and all(
        hasattr(torch.ops.quantized, name)
        for name in ("linear_dynamic_fp16", "linear_with_input_q_dq_qweight_dq_output_fp32")
    )


LEVELS = 63
"""Steps that an activation has on either side of 0: the kernels for CPUs without VNNI add pairs of
products in 16 bits, which leaves room for 7 bits only."""


def int8(weight: torch.Tensor, bias: torch.Tensor | None) -> Linear:
    """Weights of 8 bits, a scale for each output; activations of 14 bits, a scale for each token.

    Each token's activations are two rows of 7 bits, the second of which is what the first leaves
    over: one row would cost the starter a fifth of its perplexity, and the second one little time,
    since reading the weights is most of the work. The scale is each token's own, not one for all of
    them as in torch's own dynamic quantization: what a request gets must not depend on what else is
    in the batch.
    """
    scales = (weight.abs().amax(1) / 127).clamp_min(1e-12)
    with warnings.catch_warnings():
        # torch means to replace the type of these tensors; there is no other way to FBGEMM yet.
        warnings.simplefilter("ignore", UserWarning)
        quantized = torch.quantize_per_channel(
            weight, scales.double(), torch.zeros(len(weight), dtype=torch.long), 0, torch.qint8
        )
        packed = torch.ops.quantized.linear_prepack(quantized, None)
    product = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32
    step, zero, finer = 1 / LEVELS, LEVELS + 1, 2 * LEVELS

    def linear(x: torch.Tensor) -> torch.Tensor:
        tokens = len(x)
        largest = x.abs().amax(-1, keepdim=True).clamp_min_(1e-12)
        rows = x.new_empty(2 * tokens, x.shape[1])
        coarse, rest = rows[:tokens], rows[tokens:]
        torch.div(x, largest, out=rest)
        torch.mul(rest, LEVELS, out=coarse).round_().mul_(step)
        rest.sub_(coarse).mul_(finer)
        both: torch.Tensor = product(rows, step, zero, packed)
        y = both[:tokens].add_(both[tokens:], alpha=1 / finer).mul_(largest)
        return y if bias is None else y.add_(bias)

    return linear


MAKES: Mapping[str, Make] = {"none": plain, "float16": float16, "int8": int8}
"""By what a template calls them as `quantization`."""
