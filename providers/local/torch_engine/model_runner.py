"""The model's forward pass over the next tokens of a sequence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers import DynamicCache

from providers.local.torch_engine.kv_cache import new_cache

PREFILL_CHUNK = {"cpu": 256, "cuda": 2048}
"""Prompt tokens a forward pass: enough to be efficient, few enough to be cancelled soon after."""

SCORED_CHUNK = 128
"""The same where the logits of every one are wanted, which take vocabulary times 4 bytes each."""


class ModelRunner:
    """Runs a transformers model in inference mode, one sequence at a time.

    Args:
        model: a causal language model, on its device and in evaluation mode.
    """

    def __init__(self, model: Any) -> None:
        self.device: torch.device = model.device
        self._model = model
        self._config = model.config.get_text_config()
        self._prefill_chunk = PREFILL_CHUNK[self.device.type]

    def new_cache(self) -> DynamicCache:
        """An empty KV cache."""
        return new_cache(self._config)

    def chunk_size(self, *, scored: bool) -> int:
        """How many tokens to give to one `forward` at most."""
        return min(SCORED_CHUNK, self._prefill_chunk) if scored else self._prefill_chunk

    def forward(
        self, token_ids: Sequence[int], cache: DynamicCache, *, all_logits: bool = False
    ) -> torch.Tensor:
        """Append `token_ids` to the `cache`.

        Returns:
            The logits after the last of them, or after each: float32, `[1 or tokens, vocab_size]`.
        """
        with torch.inference_mode():
            output = self._model(
                input_ids=torch.tensor([token_ids], device=self.device),
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=0 if all_logits else 1,
            )
            logits: torch.Tensor = output.logits[0].float()
        return logits
