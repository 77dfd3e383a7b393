"""GPTQ: whole numbers of 2, 3, 4 or 8 bits, packed along the inputs, with zeros and scales.

https://github.com/AutoGPTQ/AutoGPTQ (its `qlinear` modules), https://github.com/ModelCloud/GPTQModel
"""

from __future__ import annotations

import torch

from providers.local.torch_engine.formats.packing import block_size, unpacked
from providers.local.torch_engine.formats.stored_format import Parts, Settings, StoredFormat

BITS = (2, 3, 4, 8)

FORMATS = ("gptq", "gptq_v2")
"""Of the first, zeros are kept less one."""


def _why_not(settings: Settings) -> str | None:
    kind = _format(settings)
    if kind not in FORMATS:
        return f"its GPTQ weights are in the format '{kind}', which is none of {', '.join(FORMATS)}"
    return None


def _read(parts: Parts, settings: Settings, dtype: torch.dtype) -> torch.Tensor:
    scales = parts["scales"].float()
    groups, outputs = scales.shape
    # Not as the settings say: there may be others for some layers.
    bits = 32 * parts["qzeros"].shape[1] // outputs
    if bits not in BITS:
        raise ValueError(f"numbers of {bits} bits are none of {BITS}")
    values = unpacked(parts["qweight"].T, bits)
    zeros = unpacked(parts["qzeros"], bits, outputs)
    if _format(settings) == "gptq":
        zeros = (zeros + 1) & ((1 << bits) - 1)
    group = parts["g_idx"].long() if "g_idx" in parts else _in_order(values, groups, settings)
    made = values.float()
    made -= zeros.T.float()[:, group]
    return made.mul_(scales.T[:, group]).to(dtype)


def _in_order(values: torch.Tensor, groups: int, settings: Settings) -> torch.Tensor:
    """Of each input, its group, where they stand one behind the other."""
    inputs = values.shape[1]
    size = block_size(inputs, groups, [settings.get("group_size") or -1])
    if size is None:
        raise ValueError(f"{groups} groups don't fit {inputs} inputs")
    return torch.arange(inputs, device=values.device) // size


def _format(settings: Settings) -> str:
    return str(settings.get("checkpoint_format") or settings.get("format") or "gptq")


GPTQ = StoredFormat(
    endings={
        "qweight": ".qweight",
        "qzeros": ".qzeros",
        "scales": ".scales",
        "g_idx": ".g_idx",
    },
    marks=("qweight",),
    values=("qweight",),
    ending=".weight",
    bits=lambda parts, settings: int(settings.get("bits") or 4),
    read=_read,
    needs={"qweight": ("qzeros", "scales")},
    why_not=_why_not,
)
