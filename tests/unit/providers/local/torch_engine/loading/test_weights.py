"""Weights that lie as they are lie where transformers read them to."""
# ruff: noqa: E402 (what follows needs packages that may not be there)

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'torch'")
transformers = pytest.importorskip("transformers", reason="needs the extra 'torch'")

from providers.local.torch_engine.loading.weights import decoder_of
from providers.local.torch_engine.model import linear
from providers.local.torch_engine.model.experts import StackedMLPs
from tests.unit.providers.local.engines import make_architecture


def test_experts_are_not_there_twice(tmp_path: Path) -> None:
    """Nearly all of such a model is experts, and it has to fit while it is loaded, too."""
    make_architecture(tmp_path, "mixtral")
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.bfloat16)
    theirs = [
        (own.gate_up_proj.data_ptr(), own.down_proj.data_ptr())
        for own in (layer.mlp.experts for layer in model.model.layers)
    ]
    decoder = decoder_of(model, linear.plain)
    stacked = [each.each for each in decoder.experts]
    assert all(isinstance(each, StackedMLPs) for each in stacked)
    assert [(each.gate_up.data_ptr(), each.down.data_ptr()) for each in stacked] == theirs
    [first, *_] = stacked
    alone = first[1]
    assert alone.gate_up.weight.data_ptr() == first.gate_up[1].data_ptr()
    assert alone.intermediate == first.down.shape[2]
    assert len(first) == 6
