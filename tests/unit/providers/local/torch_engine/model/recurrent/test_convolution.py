"""A convolution over what a state has and a step brings."""
# ruff: noqa: E402 (what follows needs packages that may not be there)

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'torch'")

from providers.local.torch_engine.model.recurrent.convolution import Convolution
from providers.local.torch_engine.model.recurrent.rows import Saved, StateRows, StateSpan

SPANS = [
    StateSpan(0, 2, 1, (Saved(1, 4), Saved(2, 5))),
    StateSpan(2, 1, 2, (Saved(1, 6),)),
    StateSpan(3, 7, 0, (Saved(5, 7),)),
]


@pytest.mark.parametrize("bias", [None, torch.tensor([0.5, -1.0])])
def test_it_is_that_of_pytorch_over_the_whole_sequence(bias: torch.Tensor | None) -> None:
    chosen = torch.Generator().manual_seed(0)
    weight = torch.randn(4, 2, generator=chosen)
    states, x = torch.randn(8, 3, 2, generator=chosen), torch.randn(10, 2, generator=chosen)
    before = states.clone()
    found = Convolution(weight, bias)(x, states, StateRows(SPANS, torch.device("cpu")))
    for span in SPANS:
        known = torch.cat([before[span.slot], x[span.start : span.start + span.tokens]])
        expected = torch.nn.functional.conv1d(known.T, weight.T.unsqueeze(1), bias, groups=2).T
        torch.testing.assert_close(found[span.start : span.start + span.tokens], expected)
        torch.testing.assert_close(states[span.slot], known[-3:])
        for after, slot in span.saved:
            torch.testing.assert_close(states[slot], known[after : after + 3])
