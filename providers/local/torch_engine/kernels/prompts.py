"""Attention of prompts by flashinfer and flash-attn, where these packages are installed.

Replies stay with the kernel of `attention.py`, which CUDA graphs record. Neither package is needed,
and neither is used before it has given what PyTorch's operations give; see `self_check`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch

from providers.local.torch_engine.kernels.places import Places

WORKSPACE_BYTES = 128 * 2**20
"""What flashinfer's documentation recommends."""


class Attend(Protocol):
    """Attention of the prompts of one step."""

    def __call__(
        self, queries: torch.Tensor, layer: torch.Tensor, *, scale: float, window: int | None
    ) -> torch.Tensor:
        """What `paged_attention` computes, as `[tokens, heads, head_dim]`.

        Args:
            queries: `[tokens, heads, head_dim]`, those of the prompts alone.
            layer: of the cache, `[slots, 2 * kv_heads, head_dim]`.
            scale: of the scores.
            window: how many tokens one looks back at, itself included; None for all.
        """


class PromptAttention(Protocol):
    """A package's attention."""

    def of(self, places: Places, block_size: int) -> Attend:
        """That of a step with these places; of its cache's blocks each has `block_size` tokens."""


class FlashAttention:
    """flash-attn's `flash_attn_varlen_func` (arXiv 2307.08691).

    Its own pages have 256 tokens or more. So keys and values are gathered before, which takes
    little beside what prompts have to compute.

    Raises:
        ImportError: it is not there.
    """

    def __init__(self) -> None:
        from flash_attn import flash_attn_varlen_func

        self._attention: Callable[..., torch.Tensor] = flash_attn_varlen_func

    def of(self, places: Places, block_size: int) -> Attend:
        """See `PromptAttention`."""
        first, counts = places.decoding, [prompt.length for prompt in places.prompts]
        lengths = places.lengths[first:]
        owners, tokens = _spread(lengths, sum(counts))
        blocks = places.tables[tokens // block_size, first + owners]
        slots = blocks * block_size + tokens % block_size
        settings = {
            "cu_seqlens_q": places.starts[first:] - places.starts[first],
            "cu_seqlens_k": _starts(lengths),
            "max_seqlen_q": max(prompt.tokens for prompt in places.prompts),
            "max_seqlen_k": max(counts),
            "causal": True,
        }

        def attend(
            queries: torch.Tensor, layer: torch.Tensor, *, scale: float, window: int | None
        ) -> torch.Tensor:
            keys, values = layer.index_select(0, slots).chunk(2, dim=1)
            # How far it looks back and ahead, its own token not counted; -1 for all.
            around = (-1, -1) if window is None else (window - 1, 0)
            return self._attention(
                queries, keys, values, softmax_scale=scale, window_size=around, **settings
            )

        return attend


class FlashInfer:
    """flashinfer's `BatchPrefillWithPagedKVCacheWrapper` (arXiv 2501.01005).

    Args:
        device: where the cache is.

    Raises:
        ImportError: it is not there.
    """

    def __init__(self, device: torch.device) -> None:
        from flashinfer import BatchPrefillWithPagedKVCacheWrapper

        self._make_wrapper: Callable[..., Any] = BatchPrefillWithPagedKVCacheWrapper
        self._workspace = torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device=device)
        self._wrappers: dict[int | None, Any] = {}
        self._planned = torch.cuda.Event() if device.type == "cuda" else None

    def of(self, places: Places, block_size: int) -> Attend:
        """See `PromptAttention`."""
        if self._planned is not None:
            # A plan is copied from a buffer on the host that the next plan writes over.
            self._planned.synchronize()
        first, prompts = places.decoding, places.prompts
        # It plans on the host, and would have to wait for numbers that are on the device.
        lengths = torch.tensor([prompt.length for prompt in prompts], dtype=torch.int32)
        counts = (lengths + block_size - 1) // block_size
        on_device = (places.lengths[first:] + block_size - 1) // block_size
        owners, pages = _spread(on_device, int(counts.sum()))
        where = (
            _starts(torch.tensor([prompt.tokens for prompt in prompts])),
            _starts(counts),
            places.tables[pages, first + owners],
            lengths - (counts - 1) * block_size,
        )
        planned = set[int | None]()

        def attend(
            queries: torch.Tensor, layer: torch.Tensor, *, scale: float, window: int | None
        ) -> torch.Tensor:
            keys, values = layer.unflatten(0, (-1, block_size)).chunk(2, dim=2)
            wrapper = self._wrapper(window)
            if window not in planned:
                wrapper.plan(
                    *where,
                    queries.shape[1],
                    keys.shape[2],
                    queries.shape[2],
                    block_size,
                    causal=True,
                    sm_scale=scale,
                    window_left=-1 if window is None else window - 1,
                    q_data_type=queries.dtype,
                )
                if self._planned is not None:
                    self._planned.record()
                planned.add(window)
            attended: torch.Tensor = wrapper.run(queries, (keys, values))
            return attended

        return attend

    def _wrapper(self, window: int | None) -> Any:
        """Each has the plan of one kind of layers."""
        if window not in self._wrappers:
            self._wrappers[window] = self._make_wrapper(self._workspace, "NHD")
        return self._wrappers[window]


def _spread(counts: torch.Tensor, total: int) -> tuple[torch.Tensor, torch.Tensor]:
    """For each of `total` things, of which each owner has so many: the owner, and which of its."""
    owners = torch.repeat_interleave(counts.long(), output_size=total)
    starts = counts.cumsum(0) - counts
    return owners, torch.arange(total, device=counts.device) - starts[owners]


def _starts(counts: torch.Tensor) -> torch.Tensor:
    """Where each one's begin, and behind them how many there are: int32, `[len(counts) + 1]`."""
    ends = counts.cumsum(0)
    return torch.cat([ends.new_zeros(1), ends]).to(torch.int32)


PACKAGES: dict[str, Callable[[torch.device], PromptAttention]] = {
    "flashinfer": FlashInfer,
    "flash_attn": lambda _: FlashAttention(),
}
"""By the names they are imported by; the first is preferred, since it reads the cache as it is."""
