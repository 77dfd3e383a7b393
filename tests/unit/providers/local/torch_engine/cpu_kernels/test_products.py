"""Products with weights of 8 and 4 bits: the sums, and shapes that fill no tile."""
# ruff: noqa: E402 (what follows needs packages that may not be there)

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'torch'")

from providers.local.torch_engine.model import linear

if not linear.kernels_possible():
    pytest.skip("needs x86 with AVX2, Linux and llvmlite", allow_module_level=True)

from providers.local.torch_engine.cpu_kernels.packing import PACKINGS, TILE
from providers.local.torch_engine.cpu_kernels.products import PackedLinear
from tests.unit.providers.local.torch_engine.cpu_kernels.test_packing import draw, unpacked

both = pytest.mark.parametrize("bits", PACKINGS)


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize(
    ("outputs", "inputs"), [(16, 32), (48, 96), (17, 32), (40, 33), (1, 1), (130, 200)]
)
@pytest.mark.parametrize("tokens", [1, 2, 3, 4, 5, 6, 7, 11, 12, 13, 33])
@both
def test_it_is_the_product_with_those_weights(
    outputs: int, inputs: int, tokens: int, with_bias: bool, bits: int
) -> None:
    bias = draw(outputs, seed=2) if with_bias else None
    product = PackedLinear.of(draw(outputs, inputs), bias, bits)
    rows = draw(tokens, inputs, seed=1)
    found = product(rows)
    exact = rows.double() @ unpacked(product.packed, bits)[:outputs, :inputs].double().T
    if bias is not None:
        exact += bias
    assert found.shape == (tokens, outputs)
    # Activations have 16 bits.
    assert float((found - exact).norm() / exact.norm()) < 1e-4


@both
def test_the_largest_numbers_do_not_overflow(bits: int) -> None:
    inputs = 4096
    weight = torch.full((TILE, inputs), -3.0)
    rows = torch.full((7, inputs), 1e30)
    assert torch.allclose(PackedLinear.of(weight, None, bits)(rows), rows @ weight.T, rtol=1e-3)


@both
def test_rows_that_do_not_lie_side_by_side(bits: int) -> None:
    product = PackedLinear.of(draw(32, 64), None, bits)
    rows = draw(5, 128)[:, ::2]
    assert torch.equal(product(rows), product(rows.contiguous()))


@both
def test_no_rows(bits: int) -> None:
    assert PackedLinear.of(draw(32, 64), None, bits)(draw(0, 64)).shape == (0, 32)
