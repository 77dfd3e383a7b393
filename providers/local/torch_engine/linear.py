"""Matrix products with the model's weights."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from torch.nn import functional

Linear = Callable[[torch.Tensor], torch.Tensor]
"""`[tokens, inputs]` to `[tokens, outputs]`."""

Make = Callable[[torch.Tensor, torch.Tensor | None], Linear]
"""Makes one of a weight `[outputs, inputs]` and a bias `[outputs]`."""


def plain(weight: torch.Tensor, bias: torch.Tensor | None) -> Linear:
    """The weight as it is."""
    return lambda x: functional.linear(x, weight, bias)


def int8_available() -> bool:
    """Whether this torch has FBGEMM's kernels for this CPU."""
    return "fbgemm" in torch.backends.quantized.supported_engines and hasattr(
        torch.ops.quantized, "linear_with_input_q_dq_qweight_dq_output_fp32"
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
