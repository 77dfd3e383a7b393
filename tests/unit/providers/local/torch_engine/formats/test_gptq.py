"""GPTQ checkpoints, packed here as their definition says, stand for what was packed."""
# ruff: noqa: E402 (what follows needs packages that may not be there)

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'torch'")
transformers = pytest.importorskip("transformers", reason="needs the extra 'torch'")

from tests.unit.providers.local.torch_engine.formats.checkpoints import (
    Quantize,
    Tensors,
    assert_same,
    make_pair,
)


def packed(rows: Any, bits: int) -> Any:
    """Each row as one long number, its first value lowest, cut into words of 32 bits."""
    single = (rows[..., None] >> torch.arange(bits)) & 1
    long = numpy.packbits(single.flatten(1).numpy().astype(bool), axis=1, bitorder="little")
    words = numpy.pad(long, ((0, 0), (0, -long.shape[1] % 4))).view("<i4")
    return torch.from_numpy(words.copy())


def quantizer(
    bits: int, size: int, *, order: str = "", symmetric: bool = False, minus_one: bool = True
) -> Quantize:
    """
    Args:
        bits: of a number.
        size: of a group, -1 for all.
        order: `index` where it is said which group an input has, `act` where that is any.
        symmetric: whether zero is in the middle.
        minus_one: whether zeros are kept less one, as the first version has them.
    """
    most = (1 << bits) - 1

    def quantize(name: str, weight: Any) -> tuple[Tensors, Any]:
        outputs, inputs = weight.shape
        one = inputs if size < 0 else size
        group = torch.arange(inputs) // one
        if order == "act":
            group = group[torch.randperm(inputs)]
        groups = int(group.max()) + 1
        scales = torch.zeros(groups, outputs)
        # Zeros and most are among them, which wrap where they are kept less one.
        zeros = torch.randint(0, most + 1, (groups, outputs))
        values = torch.zeros(outputs, inputs, dtype=torch.long)
        if symmetric:
            zeros[:] = 1 << (bits - 1)
        for at in range(groups):
            inside = weight[:, group == at]
            scales[at] = (inside.abs().amax(1) / most * 2).half().float()
            raw = (inside / scales[at][:, None]).round() + zeros[at][:, None]
            values[:, group == at] = raw.clamp(0, most).long()
        plain = (values - zeros.T[:, group]).float() * scales.T[:, group]
        kept = (zeros - 1) % (most + 1) if minus_one else zeros
        parts = {
            f"{name}.qweight": packed(values, bits).T,
            f"{name}.qzeros": packed(kept, bits),
            f"{name}.scales": scales.half(),
        }
        if order:
            parts[f"{name}.g_idx"] = group.to(torch.int32)
        return parts, plain

    return quantize


@pytest.mark.parametrize(
    ("bits", "order"),
    [(2, ""), (3, "index"), (3, "act"), (4, ""), (4, "index"), (4, "act"), (8, "act")],
)
async def test_bits_and_orders(tmp_path: Path, bits: int, order: str) -> None:
    settings = {"quant_method": "gptq", "bits": bits, "group_size": 64, "desc_act": order == "act"}
    pair = make_pair(tmp_path, quantizer(bits, 64, order=order), settings, shards=2)
    await assert_same(pair)


@pytest.mark.parametrize("size", [-1, 96, 128])
async def test_groups_the_last_of_which_may_be_smaller(tmp_path: Path, size: int) -> None:
    settings = {"quant_method": "gptq", "bits": 4, "group_size": size, "sym": True}
    await assert_same(make_pair(tmp_path, quantizer(4, size, symmetric=True), settings))


async def test_zeros_of_the_second_version_are_as_they_are(tmp_path: Path) -> None:
    settings = {"quant_method": "gptq", "bits": 4, "group_size": 64}
    settings["checkpoint_format"] = "gptq_v2"
    await assert_same(make_pair(tmp_path, quantizer(4, 64, minus_one=False), settings))


async def test_layers_may_have_more_bits_than_the_settings_say(tmp_path: Path) -> None:
    four, eight = quantizer(4, 64), quantizer(8, 32)

    def quantize(name: str, weight: Any) -> tuple[Tensors, Any]:
        return (eight if "down_proj" in name else four)(name, weight)

    settings = {"quant_method": "gptq", "bits": 4, "group_size": 64}
    pair = make_pair(tmp_path, quantize, settings)
    from providers.local.torch_engine.loading.footprint import count_weights
    from tests.unit.providers.local.torch_engine.formats.checkpoints import said, weights_in

    found, expected = weights_in(pair.quantized), weights_in(pair.plain)
    assert all(torch.equal(found[name], weight) for name, weight in expected.items())
    assert count_weights(pair.quantized).all > count_weights(pair.plain).all
    assert await said(pair.quantized) == await said(pair.plain)
