"""An EAGLE-3 head (arXiv:2503.01840): one layer, which is told what a model makes of each token.

What comes into three of the model's layers, a low, a middle and a high one, is fused into a state
of the head's size. With the embedding of the token that follows, the layer makes of that what tells
the token after it. That goes on without the model: what the layer made of a token is the state that
the one guessed behind it is computed with.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from providers.local.torch_engine.model.decoder import Decoder
from providers.local.torch_engine.model.forward_step import ForwardStep
from providers.local.torch_engine.model.gated_mlp import GatedMLP
from providers.local.torch_engine.model.linear import Linear
from providers.local.torch_engine.model.norm import Norm


@dataclass(frozen=True, slots=True, eq=False)
class EagleHead:
    """The weights of an EAGLE-3 head, as functions; see `GuessingHead`.

    Attributes:
        inner: its layer, with embedding, last norm and what makes logits, as a model of one layer.
            The layer's `qkv` takes an embedding and a state, one behind the other.
        fuse: what the model's layers give, `[tokens, layers * hidden]`, to states.
        state_norm: of states.
        adds_to_normed: whether what the layer makes is added to the state as it is normalised.
        layers: of the model, which give it states, ascending; see `TakenStates`.
        targets: the model's token for each of the head's, `[draft_vocab]` int64; None where they
            are the same.
    """

    inner: Decoder
    fuse: Linear
    state_norm: Norm
    adds_to_normed: bool
    layers: tuple[int, ...]
    targets: torch.Tensor | None

    def forward(
        self, token_ids: torch.Tensor, states: torch.Tensor, step: ForwardStep, cached: torch.Tensor
    ) -> torch.Tensor:
        """See `GuessingHead`."""
        [layer] = self.inner.layers
        assert layer.mlp_input_norm is not None
        assert isinstance(layer.mlp, GatedMLP)
        qkv, normed = self._queries_and_keys(token_ids, states, step)
        hidden = normed if self.adds_to_normed else states.clone()
        queries = step.turn_and_write(qkv, layer, cached)
        attended = layer.out(step.attend(queries, cached, layer))
        normed = step.add_and_norm(attended, hidden, layer.mlp_input_norm)
        return hidden.add_(layer.mlp(normed, step.gated))

    def write(
        self, token_ids: torch.Tensor, states: torch.Tensor, step: ForwardStep, cached: torch.Tensor
    ) -> None:
        """See `GuessingHead`."""
        qkv, _ = self._queries_and_keys(token_ids, states, step)
        step.turn_and_write(qkv, self.inner.layers[0], cached)

    def logits(self, hidden: torch.Tensor, step: ForwardStep, vocab_size: int) -> torch.Tensor:
        """See `GuessingHead`."""
        own = self.inner.logits(hidden, step)
        if self.targets is None:
            return own
        logits = own.new_full((len(own), vocab_size), -torch.inf)
        return logits.index_copy_(1, self.targets, own)

    def _queries_and_keys(
        self, token_ids: torch.Tensor, states: torch.Tensor, step: ForwardStep
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """What attention takes, and the states as they are normalised."""
        layer = self.inner.layers[0]
        assert layer.input_norm is not None
        embedded = self.inner.embedding.index_select(0, token_ids)
        normed = step.norm(states, self.state_norm)
        both = torch.cat([step.norm(embedded, layer.input_norm), normed], -1)
        return layer.qkv(both), normed
