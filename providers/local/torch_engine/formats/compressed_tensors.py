"""compressed-tensors, as llm-compressor writes it: FP8 and whole numbers, packed or not.

https://github.com/vllm-project/compressed-tensors
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import torch

from providers.local.torch_engine.formats.packing import spread, unpacked
from providers.local.torch_engine.formats.stored_format import Parts, Settings, StoredFormat

FORMATS = (
    "dense",
    "float-quantized",
    "int-quantized",
    "mixed-precision",
    "naive-quantized",
    "pack-quantized",
)


def _why_not(settings: Settings) -> str | None:
    kinds = [settings.get("format"), *(group.get("format") for group in _groups(settings))]
    for kind in kinds:
        if kind is not None and kind not in FORMATS:
            return (
                f"its compressed-tensors are in the format '{kind}', which is none of"
                f" {', '.join(FORMATS)}"
            )
    sparse = (settings.get("sparsity_config") or {}).get("format") or "dense"
    if sparse != "dense":
        return f"its weights leave out zeros, in the format '{sparse}'"
    if (settings.get("transform_config") or {}).get("config_groups"):
        return "its activations have to be turned before they meet its weights ('transform_config')"
    return None


def _read(parts: Parts, settings: Settings, dtype: torch.dtype) -> torch.Tensor:
    scales, zeros = parts["scale"].float(), parts.get("zero_point")
    if "packed" in parts:
        packed = parts["packed"]
        shape = [int(length) for length in parts["shape"].tolist()]
        bits = _packed_bits(packed.shape[-1], shape[-1], settings)
        # As if they had no sign: so much less they have one.
        middle = 1 << (bits - 1)
        made = unpacked(packed, bits, shape[-1]).float().sub_(middle)
        if zeros is not None and zeros.dtype == torch.int32:
            zeros = unpacked(zeros.mT, bits, shape[-2]).mT.float() - middle
    else:
        made = parts["values"].float()
    group = parts.get("g_idx")
    if group is None or bool((group < 0).any()):
        sizes = list(_block_sizes(settings))
        if zeros is not None:
            made -= spread(zeros.float(), made.shape, sizes)
        return made.mul_(spread(scales, made.shape, sizes)).to(dtype)
    if zeros is not None:
        made -= zeros.float()[:, group.long()]
    return made.mul_(scales[:, group.long()]).to(dtype)


def _packed_bits(words: int, numbers: int, settings: Settings) -> int:
    """Of a number, so that a row of so many takes so many words."""
    told = _told_bits(settings)
    fitting = [bits for bits in told if -(-numbers * bits // 32) == words]
    if not fitting:
        raise ValueError(f"{numbers} numbers of {told} bits don't fit {words} words")
    return fitting[0]


def _told_bits(settings: Settings) -> list[int]:
    return [int(weights["num_bits"]) for weights in _weights(settings)]


def _block_sizes(settings: Settings) -> Iterator[tuple[int, int]]:
    for weights in _weights(settings):
        block = weights.get("block_structure")
        if isinstance(block, str):
            # Older ones say it so.
            block = [int(length) for length in block.split("x")]
        if block:
            yield block[0], block[1]
        elif (weights.get("group_size") or -1) > 0:
            yield 1, weights["group_size"]


def _weights(settings: Settings) -> list[Mapping[str, Any]]:
    return [group["weights"] for group in _groups(settings) if group.get("weights")]


def _groups(settings: Settings) -> list[Mapping[str, Any]]:
    groups = (settings.get("config_groups") or {}).values()
    # A name alone stands for what has 8 bits, or none.
    return [group for group in groups if isinstance(group, Mapping)]


def _bits(parts: Collection[str], settings: Settings) -> int:
    told = _told_bits(settings) if "packed" in parts else []
    return told[0] if told else 8


COMPRESSED_TENSORS = StoredFormat(
    endings={
        "values": ".weight",
        "packed": ".weight_packed",
        "scale": ".weight_scale",
        "zero_point": ".weight_zero_point",
        "shape": ".weight_shape",
        "g_idx": ".weight_g_idx",
    },
    marks=("packed", "scale"),
    values=("values", "packed"),
    ending=".weight",
    bits=_bits,
    read=_read,
    needs={"packed": ("scale", "shape"), "values": ("scale",)},
    unused=(
        "input_scale",
        "input_zero_point",
        "output_scale",
        "output_zero_point",
        "k_scale",
        "v_scale",
        "k_zero_point",
        "v_zero_point",
    ),
    why_not=_why_not,
)
