"""Weights of 8 and 4 bits: where they lie, and what they miss."""
# ruff: noqa: E402 (what follows needs packages that may not be there)

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'torch'")

from providers.local.torch_engine.cpu_kernels.packing import (
    AT_ONCE,
    GROUP,
    PACKINGS,
    TILE,
    quantize,
)


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def unpacked(packed: torch.Tensor, bits: int) -> torch.Tensor:
    """The weights that `quantize` packed, read as its layout is described."""
    tiles, groups, _ = packed.shape
    weight = torch.empty(tiles * TILE, groups * GROUP)
    for tile in range(tiles):
        for group in range(groups):
            block = packed[tile, group]
            scales = block[: 2 * TILE].clone().view(torch.float16).float()
            rows, columns = slice(tile * TILE, None), slice(group * GROUP, (group + 1) * GROUP)
            weight[rows, columns][:TILE] = _integers(block, bits) * scales[:, None]
    return weight


def _integers(block: torch.Tensor, bits: int) -> torch.Tensor:
    """Those of one block: `[TILE, GROUP]`."""
    if bits == 8:
        pairs = block[2 * TILE :].view(torch.int8).reshape(GROUP // 2, TILE, 2)
        return pairs.transpose(0, 1).reshape(TILE, GROUP).int()
    pairs = block[3 * TILE :].int().reshape(GROUP // 4, TILE, 2)
    # The first two of four inputs are in the lower halves of two bytes, the others in the upper.
    codes = torch.stack([pairs & 15, pairs >> 4], 2).transpose(0, 1).reshape(TILE, GROUP)
    return codes - block[2 * TILE : 3 * TILE].int()[:, None]


def test_every_weight_of_8_bits_is_within_half_a_step_of_its_group() -> None:
    weight = draw(2 * TILE, 3 * GROUP)
    weight[3, :GROUP] *= 1e-4
    weight[4, GROUP : 2 * GROUP] = 0
    weight[5, 7] = 1000.0
    packed = quantize(weight, 8)
    assert packed.shape == (2, 3, PACKINGS[8].block)
    error = (unpacked(packed, 8) - weight).unflatten(1, (3, GROUP)).abs().amax(2)
    # float16 has 11 bits, and the scales are rounded up.
    step = weight.unflatten(1, (3, GROUP)).abs().amax(2) / 127 * (1 + 2**-10) + 2**-24
    assert bool((error <= step / 2 * 1.0001).all())


def missed(weight: torch.Tensor) -> float:
    """By 4 bits, as a part of the weights."""
    found = unpacked(quantize(weight, 4), 4)[: len(weight), : weight.shape[1]]
    return float((found - weight).norm() / weight.norm())


def test_4_bits_miss_less_than_steps_over_the_whole_range_do() -> None:
    weight = draw(2 * TILE, 4 * GROUP)
    grouped = weight.unflatten(1, (-1, GROUP))
    step = (grouped.amax(2, keepdim=True) - grouped.amin(2, keepdim=True)) / 15
    zero = (-grouped.amin(2, keepdim=True) / step).round()
    evenly = (((grouped / step).round() + zero).clamp(0, 15) - zero) * step
    usual = float((evenly - grouped).norm() / grouped.norm())
    assert usual / 2 < missed(weight) < usual


def test_what_is_odd_in_a_group_of_4_bits() -> None:
    weight = draw(TILE, 2 * GROUP)
    weight[0, :GROUP] = 0
    weight[1, :GROUP] = 0.25
    weight[2, :GROUP] = -3e-3
    weight[3, :GROUP] = weight[3, :GROUP].abs() + 5
    weight[4, 3] = 1000.0
    weight[5, :GROUP] *= 1e-9
    packed = quantize(weight, 4)
    assert packed.shape == (1, 2, PACKINGS[4].block)
    found = unpacked(packed, 4)
    assert bool(found.isfinite().all())
    assert not found[0, :GROUP].any()
    for output in (1, 2):
        assert torch.allclose(found[output, :GROUP], weight[output, :GROUP], rtol=1e-3)
    assert torch.allclose(found[3, :GROUP], weight[3, :GROUP], rtol=0.1)
    assert float(found[4, 3]) == pytest.approx(1000, rel=1e-2)
    assert float(found[5, :GROUP].abs().max()) < 1e-6


def of_4_bits(groups_of: int, seed: int = 0) -> torch.Tensor:
    """Weights as a checkpoint of 4 bits has them, with a scale and a zero for so many inputs."""
    generator = torch.Generator().manual_seed(seed)
    shape = (3 * TILE, 256 // groups_of)
    scales = (torch.rand(shape, generator=generator) * 0.01 + 1e-4).half().float()
    zeros = torch.randint(0, 16, shape, generator=generator)
    # Few weights are far out.
    spread = torch.randn((*shape, groups_of), generator=generator) * 3 + 7.5
    codes = spread.round().clamp(0, 15)
    return ((codes - zeros.unsqueeze(2)) * scales.unsqueeze(2)).flatten(1)


@pytest.mark.parametrize("groups_of", [32, 64, 128])
def test_what_had_4_bits_before_is_what_it_was(groups_of: int) -> None:
    weight = of_4_bits(groups_of)
    assert torch.equal(unpacked(quantize(weight, 4), 4), weight)


def test_more_than_is_tried_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = draw(5 * TILE, 2 * GROUP)
    whole = quantize(weight, 4)
    assert weight.numel() < AT_ONCE
    monkeypatch.setattr("providers.local.torch_engine.cpu_kernels.packing.AT_ONCE", 200)
    assert torch.equal(quantize(weight, 4), whole)


@pytest.mark.parametrize("bits", PACKINGS)
def test_what_fills_up_is_zero(bits: int) -> None:
    found = unpacked(quantize(draw(17, 33), bits), bits)
    assert found.shape == (2 * TILE, 2 * GROUP)
    assert not found[17:].any()
    assert not found[:, 33:].any()
