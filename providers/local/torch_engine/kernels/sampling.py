"""Tokens drawn on the device, in one Triton kernel and without sorting.

What top-k and top-p keep is a threshold: all tokens that weigh more, and so many of those that
weigh just as much, in their order. Bits of positive floats order as the numbers do, so that some
thirty passes over a row, which lies in the device's cache, find it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import triton
import triton.language as tl

from llama_compat.types import GreedySamplingStrategy, SamplingParams
from providers.local import draw
from providers.local.torch_engine.kernels.staging import Staged
from providers.local.torch_engine.scheduling.sampler import NO_TOKEN, truncation
from providers.local.torch_engine.scheduling.sequence import TorchSequence

LOG2_E = 1.4426950408889634
LARGEST_TILE = 4096

STRIDE, FIRST, SECOND = (tl.constexpr(each) for each in (draw.STRIDE, draw.FIRST, draw.SECOND))
SCALE, HALF = (tl.constexpr(each) for each in (draw.SCALE, draw.HALF))

ONE = tl.constexpr(0x3F800000)
"""The bits of 1.0, which is what the likeliest token weighs."""


@triton.jit
def weigh(logits, places, size, best, factor):
    """How much the tokens at `places` weigh: 0 to 1."""
    values = tl.load(logits + places, mask=places < size, other=float("-inf"))
    return tl.exp2((values - best) * factor)


@triton.jit
def at_least(logits, size, best, factor, bits, TILE: tl.constexpr):
    """The weight, and the number, of the tokens whose weight has at least these `bits`."""
    weight = 0.0
    count = 0
    for start in range(0, size, TILE):
        places = start + tl.arange(0, TILE)
        weights = weigh(logits, places, size, best, factor)
        enough = (weights.to(tl.int32, bitcast=True) >= bits) & (places < size)
        weight += tl.sum(tl.where(enough, weights, 0.0), 0)
        count += tl.sum(enough.to(tl.int32), 0)
    return weight, count


@triton.jit
def exponential(places, first, second):
    """The exponential numbers of the tokens at `places`; see `providers.local.draw`."""
    bits = places.to(tl.uint32) * STRIDE + first
    bits ^= bits >> 16
    bits *= FIRST
    bits ^= second
    bits ^= bits >> 15
    bits *= SECOND
    bits ^= bits >> 15
    number = bits.to(tl.float32) * SCALE + HALF
    # 1 less a small number has lost most of its digits.
    series = number * (1.0 + number * (0.5 + number * (1.0 / 3.0 + number * 0.25)))
    return tl.where(number < 0.01, series, -tl.log(1.0 - number))


@triton.jit
def sample_kernel(
    logits,
    out,
    settings,
    row_stride,
    settings_stride,
    size,
    LOG2_E: tl.constexpr,
    TILE: tl.constexpr,
):
    """The program is a row; `settings` are those of `KernelSampler`."""
    row = tl.program_id(0)
    logits += row.to(tl.int64) * row_stride
    best = float("-inf")
    likeliest = tl.full([], 0, tl.int32)
    no_numbers = 0
    for start in range(0, size, TILE):
        places = start + tl.arange(0, TILE)
        values = tl.load(logits + places, mask=places < size, other=float("-inf"))
        no_numbers += tl.sum(((values != values) | (values == float("inf"))).to(tl.int32), 0)
        largest = tl.max(values, 0)
        if largest > best:
            best = largest
            likeliest = start + tl.argmax(values, 0)
    if (no_numbers > 0) | (best == float("-inf")):
        tl.store(out + row, tl.full([], -1, tl.int64))
        return
    temperature = tl.load(settings + row)
    if temperature == 0.0:
        tl.store(out + row, likeliest.to(tl.int64))
        return
    top_k = tl.load(settings + settings_stride + row).to(tl.int32)
    top_p = tl.load(settings + 2 * settings_stride + row)
    min_p = tl.load(settings + 3 * settings_stride + row)
    factor = LOG2_E / temperature

    # What is kept: weights above `bits`, and the first `ties` of those that have just these.
    bits = min_p.to(tl.int32, bitcast=True)
    ties = size
    if top_k > 0:
        low = bits
        high = ONE + 1
        for _ in range(30):
            middle = (low + high) // 2
            _weight, count = at_least(logits, size, best, factor, middle, TILE)
            if count >= top_k:
                low = middle
            else:
                high = middle
        _weight, above = at_least(logits, size, best, factor, low + 1, TILE)
        bits = low
        ties = top_k - above
    weight_above, count_above = at_least(logits, size, best, factor, bits + 1, TILE)
    _weight, count_all = at_least(logits, size, best, factor, bits, TILE)
    ties = tl.minimum(ties, count_all - count_above)
    whole = weight_above + ties * bits.to(tl.float32, bitcast=True)
    if top_p < 1.0:
        wanted = top_p * whole
        low = bits
        high = ONE + 1
        for _ in range(30):
            middle = (low + high) // 2
            weight, _count = at_least(logits, size, best, factor, middle, TILE)
            # In `whole` there may be fewer of the lowest.
            if weight >= wanted:
                low = middle
            else:
                high = middle
        above, _count = at_least(logits, size, best, factor, low + 1, TILE)
        each = low.to(tl.float32, bitcast=True)
        # One is kept if those before it are not yet enough.
        enough = tl.maximum(1.0, tl.ceil((wanted - above) / each)).to(tl.int32)
        ties = tl.where(low == bits, tl.minimum(ties, enough), enough)
        bits = low

    first = tl.load(settings + 4 * settings_stride + row).to(tl.uint32, bitcast=True)
    second = tl.load(settings + 5 * settings_stride + row).to(tl.uint32, bitcast=True)
    chosen = likeliest
    farthest = 0.0
    tied = 0
    for start in range(0, size, TILE):
        places = start + tl.arange(0, TILE)
        weights = weigh(logits, places, size, best, factor)
        found = weights.to(tl.int32, bitcast=True)
        tie = (found == bits) & (places < size)
        rank = tied + tl.cumsum(tie.to(tl.int32), 0)
        kept = ((found > bits) | (tie & (rank <= ties))) & (weights > 0.0)
        reached = tl.where(kept, weights / exponential(places, first, second), 0.0)
        largest = tl.max(reached, 0)
        if largest > farthest:
            farthest = largest
            chosen = start + tl.argmax(reached, 0)
        tied += tl.sum(tie.to(tl.int32), 0)
    tl.store(out + row, chosen.to(tl.int64))


class KernelSampler:
    """Draws tokens for sequences that ask for nothing else.

    Args:
        sequences: how many there are at most.
        device: where the logits are.
    """

    def __init__(self, sequences: int, device: torch.device) -> None:
        # Temperature (0: the likeliest), top-k (0: all), top-p, min-p and, as bits, the draw's key.
        self._staged = Staged(6, sequences, dtype=torch.float32, device=device)

    def sample(self, logits: torch.Tensor, sequences: Sequence[TorchSequence]) -> torch.Tensor:
        """A token for each row, int64, on the device and perhaps not there yet; see `FastSampler`.

        Args:
            logits: float32, `[len(sequences), vocab_size]`.
            sequences: one a row, of which `is_plain` is true.
        """
        samplings = [each.generation.sampling for each in sequences]
        if all(isinstance(each.strategy, GreedySamplingStrategy) for each in samplings):
            largest, likeliest = logits.max(-1)
            return torch.where(largest.isfinite(), likeliest, NO_TOKEN)
        rows, size = logits.shape
        host = self._staged.to_write()
        settings = [_settings(sampling) for sampling in samplings]
        host[:4, :rows] = torch.tensor([*zip(*settings, strict=True)])
        keys = np.array([each.draw_key for each in sequences], np.uint32)
        host.view(torch.int32)[4:, :rows] = torch.from_numpy(keys.view(np.int32).T)
        told = self._staged.send()
        out = torch.empty(rows, dtype=torch.int64, device=logits.device)
        tile = min(LARGEST_TILE, triton.next_power_of_2(size))
        sample_kernel[(rows,)](
            logits,
            out,
            told,
            logits.stride(0),
            told.stride(0),
            size,
            LOG2_E=LOG2_E,
            TILE=tile,
            num_warps=8,
        )
        return out


def _settings(sampling: SamplingParams) -> tuple[float, float, float, float]:
    if isinstance(sampling.strategy, GreedySamplingStrategy):
        return 0.0, 0.0, 1.0, 0.0
    temperature, top_k, top_p = truncation(sampling.strategy)
    return temperature, float(top_k), top_p, sampling.min_p
