"""Each kernel beside PyTorch's operations in float32, in the shapes of real models, on a GPU."""
# ruff: noqa: E402 (what follows needs packages that may not be there)

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'torch'")
pytest.importorskip("triton", reason="needs the extra 'dev' on Linux, or torch's build for CUDA")

from bench.cuda import SHAPES
from bench.kernels_cuda import cases, sampler_case

OFF = {torch.bfloat16: 1e-2, torch.float16: 2e-3}
"""By how much results may be, as a part of their length: of a number there are 8 and 11 bits."""


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", OFF, ids=str)
@pytest.mark.parametrize("model", [name for name in SHAPES if name != "qwen3 0.6b"])
def test_kernels(device: Any, model: str, dtype: Any) -> None:
    if device.type != "cuda":
        pytest.skip("takes too long in the interpreter")
    torch.manual_seed(1)
    off = {}
    for make in cases(SHAPES[model], dtype):
        case: Any = make()
        off[case.name] = case.check()
        # Tests share the card, side by side.
        del case
        torch.cuda.empty_cache()
    assert len(off) > 12
    assert {name: each for name, each in off.items() if not each < OFF[dtype]} == {}


@pytest.mark.cuda
@pytest.mark.parametrize("model", ["llama 3.1 8b", "gemma3 12b"])
def test_tokens_are_drawn_from_what_is_left(device: Any, model: str) -> None:
    if device.type != "cuda":
        pytest.skip("takes too long in the interpreter")
    torch.manual_seed(1)
    assert sampler_case(SHAPES[model], 64).check() == 0
