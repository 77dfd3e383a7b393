"""The keys and values of one sequence."""

from __future__ import annotations

from typing import Any

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

FIRST_CAPACITY = 256
"""Tokens that a layer has room for at first."""


class GrowingLayer(DynamicLayer):  # type: ignore[misc]
    """One layer's keys and values, in buffers that double when they are full.

    transformers' own layer copies all of its keys and values for every token. Buffers are of shape
    `[1, kv_heads, capacity, head_dim]`; `keys` and `values` are views of their used part.
    """

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Make the buffers, like `key_states` and `value_states` in all but their length."""
        self.dtype, self.device = key_states.dtype, key_states.device
        self._key_buffer = _resized(key_states[..., :0, :], FIRST_CAPACITY)
        self._value_buffer = _resized(value_states[..., :0, :], FIRST_CAPACITY)
        self.keys, self.values = self._key_buffer[..., :0, :], self._value_buffer[..., :0, :]
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append keys and values `[1, kv_heads, tokens, head_dim]`; all there are by now."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        start = self.get_seq_length()
        end = start + key_states.shape[-2]
        if end > self._key_buffer.shape[-2]:
            capacity = max(end, 2 * self._key_buffer.shape[-2])
            self._key_buffer = _resized(self.keys, capacity)
            self._value_buffer = _resized(self.values, capacity)
        self._key_buffer[..., start:end, :] = key_states
        self._value_buffer[..., start:end, :] = value_states
        self.keys = self._key_buffer[..., :end, :]
        self.values = self._value_buffer[..., :end, :]
        return self.keys, self.values


def _resized(states: torch.Tensor, capacity: int) -> torch.Tensor:
    batch, heads, length, size = states.shape
    buffer = states.new_empty((batch, heads, capacity, size))
    buffer[..., :length, :] = states
    return buffer


def new_cache(config: Any) -> DynamicCache:
    """An empty cache for a model with this `config`; layers of other kinds stay as they are."""
    cache = DynamicCache(config=config)
    cache.layers = [
        GrowingLayer() if type(layer) is DynamicLayer else layer for layer in cache.layers
    ]
    return cache
