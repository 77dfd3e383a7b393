"""Products of a few rows in Triton, beside PyTorch's."""
# ruff: noqa: E402 (what follows needs packages that may not be there)

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'torch'")
pytest.importorskip("triton", reason="needs the extra 'dev' on Linux, or torch's build for CUDA")

from providers.local.torch_engine.kernels.products import (
    MOST_ROWS,
    Tiling,
    few_rows,
    splits_for,
)

DOT = Tiling(True, 16, 32)
SUM = Tiling(False, 4, 64, stages=1)


def distance(found: Any, expected: Any) -> float:
    return float((found.double() - expected).norm() / expected.norm())


def case(
    rows: int, outputs: int, inputs: int, device: Any, dtype: Any = torch.float32
) -> tuple[Any, Any, Any]:
    """Rows, a weight and a bias."""
    torch.manual_seed(rows + outputs + inputs)
    return tuple(
        torch.randn(shape).to(device, dtype)
        for shape in ((rows, inputs), (outputs, inputs), outputs)
    )


def in_fp8(weight: Any) -> tuple[Any, Any]:
    """A weight, and a scale for each output."""
    scales = weight.abs().amax(1).float() / 448
    return (weight.float() / scales[:, None]).to(torch.float8_e4m3fn), scales


@pytest.mark.parametrize("splits", [1, 2, 3])
@pytest.mark.parametrize("tiling", [DOT, SUM], ids=["dot", "sum"])
@pytest.mark.parametrize("rows", [1, 3, 17])
@pytest.mark.parametrize(("outputs", "inputs"), [(32, 128), (37, 150)])
def test_products(
    device: Any, rows: int, outputs: int, inputs: int, tiling: Tiling, splits: int
) -> None:
    x, weight, bias = case(rows, outputs, inputs, device)
    cut = Tiling(tiling.dot, tiling.outputs, tiling.inputs, splits, stages=tiling.stages)
    found = few_rows(x, weight, bias=bias, tiling=cut)
    assert distance(found, x.double() @ weight.double().T + bias.double()) < 1e-6


@pytest.mark.parametrize("splits", [1, 3])
@pytest.mark.parametrize("tiling", [DOT, SUM], ids=["dot", "sum"])
def test_weights_of_8_bits(device: Any, tiling: Tiling, splits: int) -> None:
    x, weight, bias = case(5, 37, 150, device)
    packed, scales = in_fp8(weight)
    cut = Tiling(tiling.dot, tiling.outputs, tiling.inputs, splits, stages=tiling.stages)
    expected = x.double() @ (packed.double() * scales[:, None].double()).T
    assert distance(few_rows(x, packed, scales, tiling=cut), expected) < 1e-6
    assert distance(few_rows(x, packed, scales, bias, cut), expected + bias.double()) < 1e-6


def test_all_numbers_of_8_bits(device: Any) -> None:
    every = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn)
    every = every[~every.float().isnan()].to(device)
    x = torch.ones(1, 1, device=device)
    weight = every[:, None].contiguous()
    found = few_rows(x, weight, tiling=Tiling(False, 16, 16, stages=1))
    assert torch.equal(found[0], every.float())


def test_rows_that_lie_apart(device: Any) -> None:
    x, weight, _ = case(4, 20, 64, device)
    assert torch.equal(few_rows(x[::2], weight, tiling=DOT), few_rows(x, weight, tiling=DOT)[::2])


def test_no_rows_and_too_many(device: Any) -> None:
    x, weight, _ = case(MOST_ROWS + 1, 20, 64, device)
    assert few_rows(x[:0], weight).shape == (0, 20)
    with pytest.raises(ValueError, match="65 rows"):
        few_rows(x, weight)


@pytest.mark.parametrize("rows", [1, 2])
def test_as_the_work_is_cut_by_itself(device: Any, rows: int) -> None:
    x, weight, _ = case(rows, 70, 300, device, torch.float16)
    found = few_rows(x, weight)
    assert found.dtype == torch.float16
    assert distance(found, x.double() @ weight.double().T) < 1e-3


def test_splits() -> None:
    assert splits_for(448, 32, 132) == 1
    assert splits_for(64, 32, 132) == 2
    assert splits_for(96, 32, 4 * 132) == 6
    assert splits_for(1, 32, 132) == 8
    assert splits_for(1, 1, 132) == 1


@pytest.mark.cuda
@pytest.mark.parametrize("rows", [1, 2, 5, 16, 33, 64])
@pytest.mark.parametrize(
    ("outputs", "inputs"), [(6144, 4096), (4096, 14336), (151936, 1024), (4099, 1000)]
)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_large(device: Any, dtype: Any, outputs: int, inputs: int, rows: int) -> None:
    if device.type != "cuda":
        pytest.skip("takes too long in the interpreter")
    x, weight, bias = case(rows, outputs, inputs, device, dtype)
    expected = x.double() @ weight.double().T + bias.double()
    found = few_rows(x, weight, bias=bias)
    assert distance(found, expected) < 1e-2
    assert torch.equal(found, few_rows(x, weight, bias=bias))
    packed, scales = in_fp8(weight)
    expected = x.double() @ (packed.double() * scales[:, None].double()).T
    found = few_rows(x, packed, scales)
    assert distance(found, expected) < 1e-2
    assert torch.equal(found, few_rows(x, packed, scales))
