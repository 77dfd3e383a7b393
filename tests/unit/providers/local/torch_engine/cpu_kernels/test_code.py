"""The language of the kernels: what its instructions compute."""
# ruff: noqa: E402 (what follows needs packages that may not be there)

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'torch'")

from providers.local.torch_engine.model import linear

if not linear.kernels_possible():
    pytest.skip("needs x86 with AVX2, Linux and llvmlite", allow_module_level=True)

from providers.local.torch_engine.cpu_kernels.code import (
    FLOAT,
    HALF,
    INT8,
    INT32,
    INT64,
    LANES,
    Code,
    Pointer,
    Value,
    Variable,
    exp,
)
from providers.local.torch_engine.cpu_kernels.library import kernel


def vectors(
    given: torch.Tensor,
    compute: Callable[[Value], Value],
    found: torch.Tensor,
    types: tuple[object, object] = (FLOAT, FLOAT),
) -> torch.Tensor:
    """What `compute` makes of every vector of `given`."""

    @kernel(x=types[0], y=types[1], size=None)
    def each(code: Code, x: Pointer, y: Pointer, size: Value) -> None:
        first, end = code.share_of(size // LANES)
        with code.loop(end, first) as at:
            y.store(at * LANES, compute(x.load(at * LANES, LANES)))

    each.compiled()(given.data_ptr(), found.data_ptr(), given.numel())
    return found


def test_exp() -> None:
    x = torch.linspace(-86, 86, 80000)
    found = vectors(x, exp, torch.empty_like(x))
    exact = x.double().exp()
    assert float(((found - exact) / exact).abs().max()) < 2e-7
    edges = torch.tensor([-1e30, -1000.0, -88.0, 0.0, 0.0, 89.0, 1000.0, 1e30])
    found = vectors(edges, exp, torch.empty_like(edges))
    assert found.isfinite().all()
    assert found.max() > 1e38
    assert found[:3].max() < 1e-37
    assert found[3] == 1


def test_numbers_become_others() -> None:
    x = torch.tensor([-3.7, -1.0, -0.2, 0.0, 0.2, 1.0, 2.5, 100.9])
    integers = torch.empty(8, dtype=torch.int32)
    assert vectors(x, lambda v: v.to(INT32), integers, (FLOAT, INT32)).tolist() == [
        -3, -1, 0, 0, 0, 1, 2, 100,
    ]  # fmt: skip
    bytes_ = torch.tensor([-128, -1, 0, 1, 2, 3, 4, 127], dtype=torch.int8)
    widened = vectors(bytes_, lambda v: v.to(INT32), integers, (INT8, INT32))
    assert widened.tolist() == bytes_.tolist()
    floats = vectors(integers, lambda v: v.to(FLOAT), torch.empty(8), (INT32, FLOAT))
    assert floats.tolist() == bytes_.tolist()
    halves = torch.tensor([0.1, 6e-8, -65504, 1, 2, 3, 4, 5], dtype=torch.float16)
    found = vectors(halves, lambda v: v.to(FLOAT), torch.empty(8), (HALF, FLOAT))
    assert torch.equal(found, halves.float())


def test_the_smaller_and_the_larger() -> None:
    x = torch.arange(-4.0, 4.0)
    assert torch.equal(vectors(x, lambda v: v.at_most(1.0), x.clone()), x.clamp_max(1))
    assert torch.equal(vectors(x, lambda v: v.at_least(-2.0), x.clone()), x.clamp_min(-2))


def test_sums_and_the_largest_of_vectors() -> None:
    x = torch.tensor([3.0, -9.0, 4.5, 1.0, 7.25, -2.0, 0.5, 6.0])
    assert vectors(x, lambda v: v.sum().spread(), x.clone()).tolist() == [11.25] * LANES
    assert vectors(x, lambda v: v.largest().spread(), x.clone()).tolist() == [7.25] * LANES


def test_loops_in_loops_change_variables() -> None:
    @kernel(found=INT64, stop=None)
    def triangle(code: Code, found: Pointer, stop: Value) -> None:
        total = Variable(code, code.integer(0))
        with code.loop(stop, 2, 3) as outer, code.loop(outer) as inner:
            total.value += outer * 100 + inner
        found.store(0, total.value)

    found = torch.zeros(1, dtype=torch.int64)
    for stop in (0, 2, 3, 12, 50):
        triangle.compiled()(found.data_ptr(), stop)
        expected = sum(o * 100 + i for o in range(2, stop, 3) for i in range(o))
        assert found.item() == expected


def test_threads_share_everything_once_and_wait_for_each_other() -> None:
    @kernel(first=INT64, second=INT64, size=None)
    def twice(code: Code, first: Pointer, second: Pointer, size: Value) -> None:
        start, end = code.share_of(size)
        with code.loop(end, start) as at:
            first.store(at, first.load(at) + at)
        code.wait_for_all()
        with code.loop(end, start) as at:
            second.store(at, first.load(size - 1 - at))

    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 3, 5):
            torch.set_num_threads(threads)
            for size in (0, 1, 2, 7, 1000):
                first = torch.zeros(size, dtype=torch.int64)
                second = torch.zeros(size, dtype=torch.int64)
                twice.compiled()(first.data_ptr(), second.data_ptr(), size)
                assert first.tolist() == list(range(size))
                assert second.tolist() == list(reversed(range(size)))
    finally:
        torch.set_num_threads(before)


def test_a_kernel_is_compiled_once_for_its_constants() -> None:
    written = []

    @kernel(found=INT64)
    def constant(code: Code, found: Pointer, *, number: int) -> None:
        written.append(number)
        found.store(0, code.integer(number))

    found = torch.zeros(1, dtype=torch.int64)
    threads = [
        threading.Thread(target=constant.compiled, kwargs={"number": number % 2})
        for number in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(written) == [0, 1]
    for number in (0, 1):
        constant.compiled(number=number)(found.data_ptr())
        assert found.item() == number
