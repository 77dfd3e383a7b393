"""AWQ: numbers of 4 bits, packed along the outputs in the order of its matrix kernels.

https://github.com/casper-hansen/AutoAWQ (`WQLinear_GEMM`)
"""

from __future__ import annotations

import torch

from providers.local.torch_engine.formats.packing import spread, unpacked
from providers.local.torch_engine.formats.stored_format import Parts, Settings, StoredFormat

ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
"""Which of eight outputs stands where in a word, from its lowest bits on."""


def _why_not(settings: Settings) -> str | None:
    bits = settings.get("bits") or settings.get("w_bit") or 4
    version = str(settings.get("version") or settings.get("format") or "gemm").lower()
    if bits != 4:
        return f"its AWQ weights have {bits} bits, and not 4"
    if version != "gemm":
        return f"its AWQ weights are packed for '{version}', and not for 'gemm'"
    return None


def _read(parts: Parts, settings: Settings, dtype: torch.dtype) -> torch.Tensor:
    values = _ordered(parts["qweight"])
    size = settings.get("group_size") or settings.get("q_group_size") or -1
    sizes = [(size, 1)] if size > 0 else []
    made = values.float()
    made -= spread(_ordered(parts["qzeros"]).float(), values.shape, sizes)
    made *= spread(parts["scales"].float(), values.shape, sizes)
    return made.T.contiguous().to(dtype)


def _ordered(words: torch.Tensor) -> torch.Tensor:
    """The numbers of `[rows, words]`, those of each word in the order of the outputs."""
    places = [ORDER.index(output) for output in range(len(ORDER))]
    return unpacked(words, 4).unflatten(-1, (-1, len(ORDER)))[..., places].flatten(-2)


AWQ = StoredFormat(
    endings={"qweight": ".qweight", "qzeros": ".qzeros", "scales": ".scales"},
    marks=("qweight",),
    values=("qweight",),
    ending=".weight",
    bits=lambda parts, settings: 4,
    read=_read,
    needs={"qweight": ("qzeros", "scales")},
    why_not=_why_not,
)
