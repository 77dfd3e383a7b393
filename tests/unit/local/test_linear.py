"""Weights of 8 bits: close to the weights as they are, and the same for a token in any batch."""
# ruff: noqa: E402 (what follows needs packages that may not be there)

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'torch'")
pytest.importorskip("transformers", reason="needs the extra 'torch'")

from llama_compat.types import TopPSamplingStrategy
from providers.base import ProviderStartError
from providers.local.torch_engine import linear
from tests.tiny_models import make_model
from tests.unit.local.engines import generate, opened, running
from tests.unit.local.test_torch_core import PROMPTS

pytestmark = pytest.mark.skipif(not linear.int8_available(), reason="needs FBGEMM's kernels")


@pytest.mark.parametrize("with_bias", [False, True])
def test_int8_is_close(with_bias: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(96, 256, generator=generator)
    bias = torch.randn(96, generator=generator) if with_bias else None
    rows = torch.randn(5, 256, generator=generator)
    # An activation far from the others takes their precision away where there are 7 bits alone.
    rows[0, 3] = 500.0
    with torch.inference_mode():
        exact = torch.nn.functional.linear(rows.double(), weight.double())
        wanted = exact if bias is None else exact + bias
        found = linear.int8(weight, bias)(rows)
    error = (found - wanted).norm(dim=1) / exact.norm(dim=1)
    assert float(error.max()) < 0.01


def test_a_row_does_not_know_the_others() -> None:
    generator = torch.Generator().manual_seed(1)
    rows = torch.randn(9, 64, generator=generator)
    rows[4] *= 1000
    rows[5] = 0
    with torch.inference_mode():
        product = linear.int8(torch.randn(48, 64, generator=generator), None)
        together = product(rows)
        for row in range(len(rows)):
            assert torch.equal(product(rows[row : row + 1])[0], together[row])
    assert not together[5].any()


async def test_a_seed_gives_the_same_alone_and_in_a_batch(tmp_path: Path) -> None:
    make_model(tmp_path)
    strategy = TopPSamplingStrategy(1.0, 0.9)
    async with running(tmp_path, quantization="int8", max_step_tokens=32) as engine:
        assert engine.loaded.quantization == "int8"
        alone = [
            await generate(engine, prompt, 16, strategy=strategy, seed=7) for prompt in PROMPTS[:12]
        ]
        together = await asyncio.gather(
            *(generate(engine, prompt, 16, strategy=strategy, seed=7) for prompt in PROMPTS[:12])
        )
    assert [each.token_ids for each in together] == [each.token_ids for each in alone]


def test_int8_is_refused_where_it_can_not_be(tmp_path: Path) -> None:
    make_model(tmp_path)
    with pytest.raises(ProviderStartError, match="quantization: none"):
        opened(tmp_path, quantization="int8", dtype="bfloat16")
    engine = opened(tmp_path, quantization="auto")
    engine.stop()
    assert engine.loaded.quantization == "none"
