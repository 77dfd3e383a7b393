"""MXFP4 as gpt-oss has its experts: FP4, and an exponent for each 32 of an output's.

https://huggingface.co/docs/transformers/quantization/mxfp4
"""

from __future__ import annotations

import torch

from providers.local.torch_engine.formats.packing import as_scale, fp4_table, looked_up
from providers.local.torch_engine.formats.stored_format import Parts, Settings, StoredFormat


def _read(parts: Parts, settings: Settings, dtype: torch.dtype) -> torch.Tensor:
    """`[experts, inputs, outputs]`, as transformers has them."""
    blocks, exponents = parts["blocks"], parts["scales"]
    if blocks.ndim != 4 or blocks.shape[:-1] != exponents.shape:
        raise ValueError(
            f"blocks {list(blocks.shape)} and scales {list(exponents.shape)} are not of experts"
        )
    experts, outputs, groups, octets = blocks.shape
    made = torch.empty(experts, 2 * groups * octets, outputs, dtype=dtype)
    table = fp4_table()
    # Of one alone at a time, since there is much of them in float32.
    for expert in range(experts):
        numbers = looked_up(blocks[expert], table, high_first=False)
        made[expert] = numbers.mul_(as_scale(exponents[expert]).unsqueeze(-1)).flatten(1).T
    return made


MXFP4 = StoredFormat(
    endings={"blocks": "_blocks", "scales": "_scales"},
    marks=("blocks",),
    values=("blocks",),
    ending="",
    bits=lambda parts, settings: 4,
    read=_read,
    needs={"blocks": ("scales",)},
)
