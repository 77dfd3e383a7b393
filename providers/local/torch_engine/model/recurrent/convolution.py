"""A convolution over a sequence's last few tokens, of each channel by itself."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from providers.local.torch_engine.model.recurrent.rows import StateRows, StateSpan


@dataclass(frozen=True, slots=True, eq=False)
class Convolution:
    """The weights of one.

    Attributes:
        weight: what each of the last tokens counts, the oldest first, `[taps, channels]` in
            float32.
        bias: `[channels]` in float32, if there is one.
    """

    weight: torch.Tensor
    bias: torch.Tensor | None = None

    @property
    def inputs(self) -> tuple[int, int]:
        """Of the state: how many tokens there are before a token, and how wide each is."""
        taps, channels = self.weight.shape
        return taps - 1, channels

    def __call__(self, x: torch.Tensor, states: torch.Tensor, rows: StateRows) -> torch.Tensor:
        """What comes of each token and of those before it; the states go on.

        Args:
            x: `[tokens, channels]` in float32.
            states: of the sequences the tokens before, `[slots, taps - 1, channels]`.
            rows: where the sequences are in `x`, and in `states`.

        Returns:
            As `x`.
        """
        found = torch.empty_like(x)
        for at, slots, copies in rows.singles:
            window = torch.cat([states[slots], x[at].unsqueeze(1)], 1)
            found[at] = (window * self.weight).sum(1)
            states[slots] = window[:, 1:]
            if copies is not None:
                copies.of(states)
        for span in rows.prompts:
            found[span.start : span.start + span.tokens] = self._of_prompt(x, states, span)
        return found if self.bias is None else found.add_(self.bias)

    def _of_prompt(self, x: torch.Tensor, states: torch.Tensor, span: StateSpan) -> torch.Tensor:
        tokens, (before, _) = span.tokens, self.inputs
        known = torch.cat([states[span.slot], x[span.start : span.start + tokens]])
        found = known[:tokens] * self.weight[0]
        for place, weight in enumerate(self.weight[1:], 1):
            found.addcmul_(known[place : place + tokens], weight)
        for after, slot in span.saved:
            states[slot] = known[after : after + before]
        states[span.slot] = known[tokens:]
        return found
