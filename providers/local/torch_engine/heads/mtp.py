"""An MTP head: a further layer that a model was trained with, for the token after the next one.

(DeepSeek V3, arXiv:2412.19437, section 2.2; Qwen3-Next and GLM 4.5 alike.) What comes out of the
model, normalised as for its logits, and the embedding of the token that follows are normalised
each by itself, made one, and go through a layer like the model's own. What comes of that tells the
token after it by the model's embeddings and head, and is handed on in place of what the model would
say: to the next such layer, where the model was trained with several, or to this one again.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from providers.local.torch_engine.model.decoder import Decoder
from providers.local.torch_engine.model.forward_step import ForwardStep
from providers.local.torch_engine.model.linear import Linear
from providers.local.torch_engine.model.norm import Norm


@dataclass(frozen=True, slots=True, eq=False)
class MTPHead:
    """The weights of an MTP head, as functions; see `GuessingHead`.

    Attributes:
        inner: its layer, with its own last norm, and the model's embeddings and head.
        embedding_norm: of the token that follows.
        state_norm: of states.
        projection: both, the embedding first, to what the layer takes.
        layers: the one behind the model's last: what comes out of it.
        fuse: the model's last norm.
    """

    inner: Decoder
    embedding_norm: Norm
    state_norm: Norm
    projection: Linear
    layers: tuple[int, ...]
    fuse: Norm

    def forward(
        self, token_ids: torch.Tensor, states: torch.Tensor, step: ForwardStep, cached: torch.Tensor
    ) -> torch.Tensor:
        """See `GuessingHead`."""
        hidden = self._inputs(token_ids, states, step)
        product = step.layer(self.inner.layers[0], hidden, None, cached)
        hidden = hidden if product is None else hidden.add_(product)
        return step.norm(hidden, self.inner.norm)

    def write(
        self, token_ids: torch.Tensor, states: torch.Tensor, step: ForwardStep, cached: torch.Tensor
    ) -> None:
        """See `GuessingHead`."""
        [layer] = self.inner.layers
        hidden = self._inputs(token_ids, states, step)
        normed = hidden if layer.input_norm is None else step.norm(hidden, layer.input_norm)
        step.written(layer.qkv(normed), layer, cached)

    def logits(self, hidden: torch.Tensor, step: ForwardStep, vocab_size: int) -> torch.Tensor:
        """See `GuessingHead`."""
        # It knows the model's tokens, and its states are normalised.
        return self.inner.head(hidden).float()

    def _inputs(
        self, token_ids: torch.Tensor, states: torch.Tensor, step: ForwardStep
    ) -> torch.Tensor:
        embedded = self.inner.embedding.index_select(0, token_ids)
        both = [step.norm(embedded, self.embedding_norm), step.norm(states, self.state_norm)]
        return self.projection(torch.cat(both, -1))
