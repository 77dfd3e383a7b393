"""A chain of samplers: how the tokens of a sequence are chosen."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from providers.local.draw import TokenIds, Weights
from providers.local.llama_cpp_engine.bindings.context import Context
from providers.local.llama_cpp_engine.bindings.library import lib

_TOKEN_DATA = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])


class LlamaSampler:
    """A chain of llama.cpp's samplers: how the tokens of one sequence are chosen.

    Args:
        vocab_size: of the model.
    """

    def __init__(self, vocab_size: int) -> None:
        self._chain = lib.llama_sampler_chain_init(lib.llama_sampler_chain_default_params())
        self._vocab_size = vocab_size

    def add_penalties(
        self,
        last_tokens: int,
        *,
        repetition: float = 1.0,
        frequency: float = 0.0,
        presence: float = 0.0,
        seen: Sequence[int] = (),
    ) -> None:
        """Penalise what is among the `last_tokens` that were chosen, or in `seen`."""
        penalties = lib.llama_sampler_init_penalties(
            self._vocab_size, last_tokens, repetition, frequency, presence
        )
        for token_id in seen:
            lib.llama_sampler_accept(penalties, token_id)
        self._add(penalties)

    def add_biases(self, biases: Mapping[int, float]) -> None:
        """Add to the logits of some tokens."""
        array = (lib.llama_logit_bias * len(biases))(
            *(lib.llama_logit_bias(token=token_id, bias=bias) for token_id, bias in biases.items())
        )
        self._add(lib.llama_sampler_init_logit_bias(self._vocab_size, len(biases), array))

    def add_temperature(self, temperature: float) -> None:
        """Divide the logits by `temperature`."""
        self._add(lib.llama_sampler_init_temp(temperature))

    def add_min_p(self, min_p: float) -> None:
        """Leave out what is less likely than `min_p` times the likeliest."""
        self._add(lib.llama_sampler_init_min_p(min_p, 1))

    def add_top_k(self, top_k: int) -> None:
        """Leave in the `top_k` likeliest."""
        self._add(lib.llama_sampler_init_top_k(top_k))

    def add_top_p(self, top_p: float) -> None:
        """Leave in the fewest likeliest that make `top_p`."""
        self._add(lib.llama_sampler_init_top_p(top_p, 1))

    def add_greedy(self) -> None:
        """Choose the likeliest."""
        self._add(lib.llama_sampler_init_greedy())

    def kept(self, context: Context, index: int) -> tuple[TokenIds, Weights]:
        """What the chain leaves of the tokens that may follow the token `index` of the batch.

        Returns:
            Which they are, and their logits.
        """
        logits = context.logits(index)
        data = np.zeros(len(logits), _TOKEN_DATA)
        data["id"] = np.arange(len(logits))
        data["logit"] = logits
        pointer = data.ctypes.data_as(ctypes.POINTER(lib.llama_token_data))
        left = lib.llama_token_data_array(data=pointer, size=len(data), selected=-1, sorted=False)
        lib.llama_sampler_apply(self._chain, ctypes.byref(left))
        kept = np.ctypeslib.as_array(left.data, (left.size,)).view(_TOKEN_DATA)
        return kept["id"].astype(np.uint32), kept["logit"].copy()

    def accept(self, token_id: int) -> None:
        """Count a token that was chosen of those that `kept` gave."""
        lib.llama_sampler_accept(self._chain, token_id)

    def sample(self, context: Context, index: int) -> int:
        """Choose the token that follows the token `index` of the batch; the chain has to end so."""
        return int(lib.llama_sampler_sample(self._chain, context._context, index))

    def free(self) -> None:
        """Give its memory back; it must not be used any more."""
        lib.llama_sampler_free(self._chain)

    def _add(self, sampler: Any) -> None:
        # The chain owns it from now on.
        lib.llama_sampler_chain_add(self._chain, sampler)
