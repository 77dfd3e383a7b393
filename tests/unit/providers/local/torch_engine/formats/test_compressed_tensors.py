"""What compressed-tensors packs stands for what it unpacks itself."""
# ruff: noqa: E402 (what follows needs packages that may not be there)

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'torch'")
transformers = pytest.importorskip("transformers", reason="needs the extra 'torch'")

from tests.unit.providers.local.torch_engine.formats.checkpoints import (
    Tensors,
    assert_same,
    make_pair,
)

INT = {"type": "int"}
FLOAT = {"type": "float", "num_bits": 8, "symmetric": True}

WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "fp8 by tensor": ("float-quantized", {**FLOAT, "strategy": "tensor"}),
    "fp8 by row": ("float-quantized", {**FLOAT, "strategy": "channel"}),
    "fp8 by block": (
        "float-quantized",
        {**FLOAT, "strategy": "block", "block_structure": [128, 128]},
    ),
    "int8 by tensor": ("int-quantized", {**INT, "num_bits": 8, "strategy": "tensor"}),
    "int8 by row": ("int-quantized", {**INT, "num_bits": 8, "strategy": "channel"}),
    "int8 by group": (
        "naive-quantized",
        {**INT, "num_bits": 8, "strategy": "group", "group_size": 64},
    ),
    "int8 with zeros": (
        "naive-quantized",
        {**INT, "num_bits": 8, "strategy": "channel", "symmetric": False},
    ),
    "int4 by group": (
        "pack-quantized",
        {**INT, "num_bits": 4, "strategy": "group", "group_size": 64},
    ),
    "int4 by row": ("pack-quantized", {**INT, "num_bits": 4, "strategy": "channel"}),
    "int4 by group with zeros": (
        "pack-quantized",
        {**INT, "num_bits": 4, "strategy": "group", "group_size": 64, "symmetric": False},
    ),
    "int8 packed with zeros": (
        "pack-quantized",
        {**INT, "num_bits": 8, "strategy": "channel", "symmetric": False},
    ),
    "int3 by group": (
        "pack-quantized",
        {**INT, "num_bits": 3, "strategy": "group", "group_size": 32},
    ),
}


@pytest.fixture(scope="module", autouse=True)
def package() -> None:
    """Imported by the one process that needs it."""
    pytest.importorskip("compressed_tensors", reason="needs the extra 'abuse'")


def args_of(**told: Any) -> Any:
    from compressed_tensors.quantization import QuantizationArgs

    return QuantizationArgs(**told)


def blocks_of(weight: Any, args: Any) -> tuple[Any, Any]:
    """The least and the most of what has a scale of its own."""
    if args.strategy == "tensor":
        return weight.amin().reshape(1), weight.amax().reshape(1)
    high, wide = {
        "channel": (1, weight.shape[1]),
        "group": (1, args.group_size),
        "block": args.block_structure,
    }[args.strategy]
    parts = [rows.split(wide, 1) for rows in weight.split(high)]
    low = torch.stack([torch.stack([part.amin() for part in row]) for row in parts])
    return low, torch.stack([torch.stack([part.amax() for part in row]) for row in parts])


def compressed(form: str, args: Any, weight: Any) -> tuple[Tensors, Any]:
    """What the package packs, and what it makes of that again."""
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationScheme
    from compressed_tensors.quantization.utils import calculate_qparams

    scheme = QuantizationScheme(targets=["Linear"], weights=args)
    compressor = BaseCompressor.get_value_from_registry(form)
    scale, zeros = calculate_qparams(*blocks_of(weight, args), args)
    parts = {"weight": weight, "weight_scale": scale, "weight_zero_point": zeros}
    packed = compressor.compress(parts, scheme)
    return packed, compressor.decompress(packed, scheme)["weight"]


def settings_of(form: str, args: Any) -> dict[str, Any]:
    group = {"targets": ["Linear"], "weights": args.model_dump(mode="json")}
    return {
        "quant_method": "compressed-tensors",
        "format": form,
        "ignore": ["lm_head", "model.layers.0.self_attn.o_proj"],
        "quantization_status": "compressed",
        "config_groups": {"group_0": group},
    }


@pytest.mark.parametrize("way", WAYS)
async def test_what_it_packs(tmp_path: Path, way: str) -> None:
    form, told = WAYS[way]
    args = args_of(**told)

    def quantize(name: str, weight: Any) -> tuple[Tensors, Any]:
        packed, plain = compressed(form, args, weight)
        stored = {f"{name}.{part}": tensor for part, tensor in packed.items()}
        # Of activations, which are not quantized here.
        stored[f"{name}.input_scale"] = torch.tensor(0.5)
        return stored, plain

    await assert_same(make_pair(tmp_path, quantize, settings_of(form, args), shards=2))


@pytest.mark.parametrize("symmetric", [True, False])
async def test_groups_of_inputs_in_any_order(tmp_path: Path, symmetric: bool) -> None:
    """As checkpoints with `actorder: group` have them, which the package no longer makes."""
    from compressed_tensors.compressors.pack_quantized.helpers import (
        pack_to_int32,
        unpack_from_int32,
    )

    args = args_of(num_bits=4, strategy="group", group_size=64, symmetric=symmetric)

    def quantize(name: str, weight: Any) -> tuple[Tensors, Any]:
        order = torch.randperm(weight.shape[1])
        back = order.argsort()
        packed, plain = compressed("pack-quantized", args, weight[:, order].contiguous())
        values = unpack_from_int32(packed["weight_packed"], 4, weight.shape)
        packed["weight_packed"] = pack_to_int32(values[:, back].contiguous(), 4)
        packed["weight_g_idx"] = (back // args.group_size).to(torch.int32)
        stored = {f"{name}.{part}": tensor for part, tensor in packed.items()}
        return stored, plain[:, back].contiguous()

    await assert_same(make_pair(tmp_path, quantize, settings_of("pack-quantized", args)))
