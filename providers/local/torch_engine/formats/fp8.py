"""FP8 as DeepSeek, Mistral and vLLM write it: a scale for each block, row or whole weight.

https://huggingface.co/docs/transformers/quantization/finegrained_fp8,
https://github.com/deepseek-ai/DeepSeek-V3/blob/main/README_WEIGHTS.md
"""

from __future__ import annotations

import torch

from providers.local.torch_engine.formats.packing import as_scale, spread
from providers.local.torch_engine.formats.stored_format import Parts, Settings, StoredFormat


def _read(parts: Parts, settings: Settings, dtype: torch.dtype) -> torch.Tensor:
    values = parts["values"]
    scales = as_scale(parts["inverse" if "inverse" in parts else "scale"])
    size = settings.get("weight_block_size")
    return values.float().mul_(spread(scales, values.shape, [size] if size else [])).to(dtype)


FP8 = StoredFormat(
    # Of experts that are one tensor, that has no `.weight`.
    endings={"values": "", "inverse": "_scale_inv", "scale": "_scale"},
    marks=("inverse", "scale"),
    values=("values",),
    ending="",
    bits=lambda parts, settings: 8,
    read=_read,
    needs={},
    unused=("input_scale", "activation_scale", "k_scale", "v_scale", "input_scale_ub"),
)
