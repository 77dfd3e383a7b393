"""Products with weights of 8 bits: the bytes, the sums, and shapes that fill no tile."""
# ruff: noqa: E402 (what follows needs packages that may not be there)

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'torch'")

from providers.local.torch_engine.model import linear

if not linear.kernels_possible():
    pytest.skip("needs x86 with AVX2, Linux and llvmlite", allow_module_level=True)

from providers.local.torch_engine.cpu_kernels.products import (
    BLOCK,
    GROUP,
    TILE,
    Int8Linear,
    quantize,
)


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def unpacked(packed: torch.Tensor) -> torch.Tensor:
    """The weights that `quantize` packed, read one by one as its layout is described."""
    tiles, groups, _ = packed.shape
    weight = torch.empty(tiles * TILE, groups * GROUP)
    for tile in range(tiles):
        for group in range(groups):
            block = packed[tile, group]
            scales = block[: 2 * TILE].clone().view(torch.float16).float()
            integers = block[2 * TILE :].view(torch.int8)
            for output in range(TILE):
                for at in range(GROUP):
                    integer = integers[(at // 2 * TILE + output) * 2 + at % 2]
                    weight[tile * TILE + output, group * GROUP + at] = integer * scales[output]
    return weight


def test_every_weight_is_within_half_a_step_of_its_group() -> None:
    weight = draw(2 * TILE, 3 * GROUP)
    weight[3, :GROUP] *= 1e-4
    weight[4, GROUP : 2 * GROUP] = 0
    weight[5, 7] = 1000.0
    packed = quantize(weight)
    assert packed.shape == (2, 3, BLOCK)
    error = (unpacked(packed) - weight).unflatten(1, (3, GROUP)).abs().amax(2)
    # float16 has 11 bits, and the scales are rounded up.
    step = weight.unflatten(1, (3, GROUP)).abs().amax(2) / 127 * (1 + 2**-10) + 2**-24
    assert bool((error <= step / 2 * 1.0001).all())


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize(
    ("outputs", "inputs"), [(16, 32), (48, 96), (17, 32), (40, 33), (1, 1), (130, 200)]
)
@pytest.mark.parametrize("tokens", [1, 2, 3, 4, 5, 6, 7, 11, 12, 13, 33])
def test_it_is_the_product_with_those_weights(
    outputs: int, inputs: int, tokens: int, with_bias: bool
) -> None:
    bias = draw(outputs, seed=2) if with_bias else None
    product = Int8Linear.of(draw(outputs, inputs), bias)
    rows = draw(tokens, inputs, seed=1)
    found = product(rows)
    exact = rows.double() @ unpacked(product.packed)[:outputs, :inputs].double().T
    if bias is not None:
        exact += bias
    assert found.shape == (tokens, outputs)
    # Activations have 16 bits.
    assert float((found - exact).norm() / exact.norm()) < 1e-4


def test_the_largest_numbers_do_not_overflow() -> None:
    inputs = 4096
    weight = torch.full((TILE, inputs), -3.0)
    rows = torch.full((7, inputs), 1e30)
    assert torch.allclose(Int8Linear.of(weight, None)(rows), rows @ weight.T, rtol=1e-3)


def test_rows_that_do_not_lie_side_by_side() -> None:
    product = Int8Linear.of(draw(32, 64), None)
    rows = draw(5, 128)[:, ::2]
    assert torch.equal(product(rows), product(rows.contiguous()))


def test_no_rows() -> None:
    assert Int8Linear.of(draw(32, 64), None)(draw(0, 64)).shape == (0, 32)
