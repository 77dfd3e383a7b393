"""The model's forward pass over one step's chunks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import torch
from transformers import DynamicCache

from providers.local.torch_engine import sequence
from providers.local.torch_engine.attention import KVCache, SequenceSpan
from providers.local.torch_engine.decoder import Decoder
from providers.local.torch_engine.kv_cache import new_cache
from providers.local.torch_engine.scheduler import Chunk


class Runner(Protocol):
    """Computes chunks."""

    def forward(self, chunks: Sequence[Chunk]) -> torch.Tensor:
        """Append the tokens of all chunks to what the cache has of their sequences.

        Returns:
            The logits after the last `Chunk.logits` tokens of each, one below the other: float32,
            `[sum, vocab_size]`.
        """


class PagedRunner:
    """Runs a `Decoder` on the tokens of all chunks at once.

    Args:
        decoder: the model.
        cache: of its keys and values.
    """

    def __init__(self, decoder: Decoder, cache: KVCache) -> None:
        self._decoder = decoder
        self._cache = cache
        self._device = decoder.embedding.device

    def forward(self, chunks: Sequence[Chunk]) -> torch.Tensor:
        """See `Runner`."""
        size = self._cache.block_size
        token_ids: list[int] = []
        positions: list[int] = []
        slots: list[int] = []
        rows: list[int] = []
        spans = []
        for each, tokens in chunks:
            start, end = each.computed, each.computed + tokens
            blocks = each.blocks
            spans.append(SequenceSpan(len(token_ids), tokens, end, blocks, size, self._device))
            token_ids += each.token_ids[start:end]
            positions += range(start, end)
            slots += [blocks[place // size] * size + place % size for place in range(start, end)]
        at = 0
        for chunk in chunks:
            at += chunk.tokens
            rows += range(at - chunk.logits, at)
        with torch.inference_mode():
            hidden = self._decoder.hidden_states(
                self._tensor(token_ids),
                self._tensor(positions),
                self._tensor(slots),
                spans,
                self._cache,
            )
            if not rows:
                return hidden[:0]
            if len(rows) != len(hidden):
                hidden = hidden.index_select(0, self._tensor(rows))
            return self._decoder.logits(hidden)

    def _tensor(self, values: list[int]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.long, device=self._device)


class UnbatchedRunner:
    """Runs transformers' own module, one sequence after the other, each with its own cache.

    Args:
        model: a causal language model, on its device and in evaluation mode.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._config = model.config.get_text_config()
        self._vocab_size = model.get_input_embeddings().num_embeddings
        self._caches: WeakKeyDictionary[sequence.Sequence, DynamicCache] = WeakKeyDictionary()

    def forward(self, chunks: Sequence[Chunk]) -> torch.Tensor:
        """See `Runner`."""
        with torch.inference_mode():
            return torch.cat([self._forward(chunk) for chunk in chunks])

    def _forward(self, chunk: Chunk) -> torch.Tensor:
        each, start = chunk.sequence, chunk.sequence.computed
        if start == 0:
            self._caches[each] = new_cache(self._config)
        output = self._model(
            input_ids=torch.tensor(
                [each.token_ids[start : start + chunk.tokens]], device=self._model.device
            ),
            past_key_values=self._caches[each],
            use_cache=True,
            logits_to_keep=max(1, chunk.logits),
        )
        logits: torch.Tensor = output.logits[0].float()
        return logits[len(logits) - chunk.logits :]
