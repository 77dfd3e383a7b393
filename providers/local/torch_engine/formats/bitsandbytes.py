"""bitsandbytes: NF4 or FP4 by a table, with the largest of each block, and whole numbers of 8 bits.

https://github.com/bitsandbytes-foundation/bitsandbytes (`functional.QuantState`)
"""

from __future__ import annotations

import json
from typing import Any

import torch

from providers.local.torch_engine.formats.packing import looked_up
from providers.local.torch_engine.formats.stored_format import Parts, Settings, StoredFormat

LARGEST = 127
"""What the largest number of a row is kept as, where they have 8 bits."""

BY_ROWS = 0
"""The one layout of 8 bits that does not depend on a GPU."""

STATE = ".weight.quant_state.bitsandbytes__"


def _read(parts: Parts, settings: Settings, dtype: torch.dtype) -> torch.Tensor:
    values = parts["values"]
    if "absmax" in parts:
        return _read_4bit(parts).to(dtype)
    layout = parts.get("layout")
    if layout is not None and int(layout) != BY_ROWS:
        raise ValueError(f"their layout is {int(layout)}, and not by rows")
    return values.float().mul_(parts["row_max"].float().unsqueeze(-1) / LARGEST).to(dtype)


def _read_4bit(parts: Parts) -> torch.Tensor:
    told = [parts[kind] for kind in ("nf4", "fp4") if kind in parts]
    if not told:
        raise ValueError("what is known of their state is not there")
    state: dict[str, Any] = json.loads(bytes(told[0].tolist()))
    largest = parts["absmax"]
    if "nested_absmax" in parts:
        table = parts["nested_quant_map"].float()
        largest = _times_block(
            table[largest.long()], parts["nested_absmax"].float(), state["nested_blocksize"]
        ).add_(state["nested_offset"])
    # They may be stored as if they were of another dtype.
    octets = parts["values"].contiguous().flatten().view(torch.uint8)
    shape = torch.Size(state["shape"])
    numbers = looked_up(octets, parts["quant_map"].float(), high_first=True)[: shape.numel()]
    return _times_block(numbers, largest.float(), state["blocksize"]).view(shape)


def _times_block(numbers: torch.Tensor, scales: torch.Tensor, size: int) -> torch.Tensor:
    """`numbers`, multiplied by the scale of their block, of which the last may be smaller."""
    whole = len(numbers) // size
    numbers[: whole * size].view(whole, size).mul_(scales[:whole].unsqueeze(-1))
    if whole * size < len(numbers):
        numbers[whole * size :].mul_(scales[whole])
    return numbers


BITSANDBYTES = StoredFormat(
    endings={
        "values": ".weight",
        "absmax": ".weight.absmax",
        "quant_map": ".weight.quant_map",
        "nested_absmax": ".weight.nested_absmax",
        "nested_quant_map": ".weight.nested_quant_map",
        "nf4": f"{STATE}nf4",
        "fp4": f"{STATE}fp4",
        "row_max": ".SCB",
        "layout": ".weight_format",
    },
    marks=("absmax", "row_max"),
    values=("values",),
    ending=".weight",
    bits=lambda parts, settings: 4 if "absmax" in parts else 8,
    read=_read,
    needs={"absmax": ("quant_map",), "nested_absmax": ("nested_quant_map",)},
)
