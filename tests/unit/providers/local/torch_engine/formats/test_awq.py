"""AWQ checkpoints, packed here as their definition says, stand for what was packed."""
# ruff: noqa: E402 (what follows needs packages that may not be there)

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'torch'")
transformers = pytest.importorskip("transformers", reason="needs the extra 'torch'")

from tests.unit.providers.local.torch_engine.formats.checkpoints import (
    Tensors,
    assert_kept,
    assert_same,
    make_pair,
)


def packed(numbers: Any) -> Any:
    """Of eight columns the words that AutoAWQ's packer makes, shift by shift."""
    words = torch.zeros(numbers.shape[0], numbers.shape[1] // 8, dtype=torch.int64)
    for word in range(words.shape[1]):
        for place, column in enumerate([0, 2, 4, 6, 1, 3, 5, 7]):
            words[:, word] |= numbers[:, 8 * word + column] << (4 * place)
    return torch.where(words >= 1 << 31, words - (1 << 32), words).to(torch.int32)


@pytest.mark.parametrize("size", [-1, 32, 96])
async def test_groups(tmp_path: Path, size: int) -> None:
    def quantize(name: str, weight: Any) -> tuple[Tensors, Any]:
        inputs = weight.shape[1]
        one = inputs if size < 0 else size
        group = torch.arange(inputs) // one
        groups = int(group.max()) + 1
        low = torch.stack([weight[:, group == at].amin(1) for at in range(groups)])
        high = torch.stack([weight[:, group == at].amax(1) for at in range(groups)])
        scales = ((high - low) / 15).half().float()
        zeros = (-low / scales).round().clamp(0, 15).long()
        values = (weight.T / scales[group] + zeros[group]).round().clamp(0, 15).long()
        parts = {
            f"{name}.qweight": packed(values),
            f"{name}.qzeros": packed(zeros),
            f"{name}.scales": scales.half(),
        }
        return parts, ((values - zeros[group]).float() * scales[group]).T.contiguous()

    settings = {"quant_method": "awq", "bits": 4, "group_size": size, "version": "gemm"}
    pair = make_pair(tmp_path, quantize, settings, shards=2)
    await assert_same(pair)
    assert_kept(pair)
