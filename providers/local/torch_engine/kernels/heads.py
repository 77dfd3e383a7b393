"""What happens to queries, keys and values before attention, in one Triton kernel."""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl

from providers.local.torch_engine.kernels.places import Places
from providers.local.torch_engine.model.kv_cache import E4M3_MOST


# Compiled once, however the numbers of a batch lie in their buffer.
@triton.jit(do_not_specialize_on_alignment=["positions", "slots"])
def heads_kernel(
    qkv,
    rotations,
    positions,
    slots,
    cached,
    query_weight,
    key_weight,
    query_epsilon,
    key_epsilon,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HALF: tl.constexpr,
    PADDED_HALF: tl.constexpr,
    PAIRS: tl.constexpr,
    NORMS: tl.constexpr,
    TILE: tl.constexpr,
    MOST: tl.constexpr,
):
    """The program is a token and `TILE` of its heads: of queries, keys or values, in this order.

    Dimensions that turn together lie side by side. The first `PAIRS` of the `HALF` pairs turn. What
    goes into a cache in FP8 is `MOST` at most.
    """
    token = tl.program_id(0).to(tl.int64)
    first_head = tl.program_id(1) * TILE
    head = (first_head + tl.arange(0, TILE))[:, None, None]
    pairs = tl.arange(0, PADDED_HALF)
    # `[pairs, 2]`, so that both of a pair are read and written at once.
    both = 2 * pairs[:, None] + tl.arange(0, 2)[None, :]
    in_both = both < 2 * HALF
    place = both[None, :, :]
    in_place = place < 2 * HALF
    source = qkv + (token * (HEADS + 2 * KV_HEADS) + head) * 2 * HALF + place
    kind: tl.constexpr = qkv.dtype.element_ty
    first, second = tl.split(tl.load(source, mask=in_place, other=0.0).to(tl.float32))
    if first_head < HEADS + KV_HEADS:
        if NORMS:
            weight = query_weight
            epsilon = query_epsilon
            if first_head >= HEADS:
                weight = key_weight
                epsilon = key_epsilon
            mean = tl.sum(first * first + second * second, 1) / (2 * HALF)
            root = tl.sqrt(mean + epsilon)[:, None]
            first_weight, second_weight = tl.split(tl.load(weight + both, mask=in_both, other=0.0))
            first = first / root * first_weight[None, :]
            second = second / root * second_weight[None, :]
            # A norm's result has the dtype of the model.
            first = first.to(kind).to(tl.float32)
            second = second.to(kind).to(tl.float32)
        position = tl.load(positions + token).to(tl.int64)
        turns = both < 2 * PAIRS
        turn = tl.load(rotations + position * PAIRS * 2 + both, mask=turns, other=0.0)
        cosine, sine = tl.split(turn)
        # The others stay as they are.
        cosine = tl.where(pairs < PAIRS, cosine, 1.0)[None, :]
        sine = sine[None, :]
        turned = first * cosine - second * sine
        second = first * sine + second * cosine
        first = turned
    result = tl.join(first, second).to(kind)
    if first_head < HEADS:
        tl.store(source, result, mask=in_place)
    else:
        slot = tl.load(slots + token).to(tl.int64)
        written = result.to(tl.float32)
        if cached.dtype.element_ty == tl.float8e4nv:
            # What is larger would be no number.
            written = tl.minimum(tl.maximum(written, -MOST), MOST)
        target = cached + (slot * 2 * KV_HEADS + head - HEADS) * 2 * HALF + place
        tl.store(target, written.to(cached.dtype.element_ty), mask=in_place & (slot >= 0))


MOST_HEADS = 8
"""Of a program: of more there are too few programs for a single token."""

NUMBERS_OF_A_WARP = 128
"""Pairs that the threads of a warp have, four of each."""


def turn_and_write(
    qkv: torch.Tensor,
    cached: torch.Tensor,
    rotations: torch.Tensor,
    norms: tuple[tuple[torch.Tensor, float], tuple[torch.Tensor, float]] | None,
    places: Places,
    *,
    heads: int,
    kv_heads: int,
) -> torch.Tensor:
    """Normalise and turn queries and keys, and write keys and values into the cache.

    Args:
        qkv: `[tokens, (heads + 2 * kv_heads) * head_dim]`, contiguous; the queries change in place.
        cached: a layer of the cache, `[slots, 2 * kv_heads, head_dim]`, perhaps in FP8.
        rotations: cosine and sine, float32, `[positions, pairs, 2]`.
        norms: weight (float32, `[head_dim]`) and epsilon of the queries' norm and of the keys', if
            there are any.
        places: of the tokens.
        heads: of the queries.
        kv_heads: of the keys, and as many of the values.

    Returns:
        The queries, a view of `qkv`: `[tokens, heads, head_dim]`.
    """
    tokens = len(qkv)
    split = qkv.view(tokens, heads + 2 * kv_heads, -1)
    half = split.shape[2] // 2
    (query_weight, query_epsilon), (key_weight, key_epsilon) = norms or ((rotations, 0.0),) * 2
    # A program's heads are all of queries, of keys or of values.
    tile = math.gcd(heads, kv_heads, MOST_HEADS)
    padded_half = triton.next_power_of_2(half)
    if tokens:
        heads_kernel[(tokens, (heads + 2 * kv_heads) // tile)](
            qkv,
            rotations,
            places.positions,
            places.slots,
            cached,
            query_weight,
            key_weight,
            query_epsilon,
            key_epsilon,
            HEADS=heads,
            KV_HEADS=kv_heads,
            HALF=half,
            PADDED_HALF=padded_half,
            PAIRS=rotations.shape[1],
            NORMS=norms is not None,
            TILE=tile,
            MOST=E4M3_MOST,
            num_warps=max(1, tile * padded_half // NUMBERS_OF_A_WARP),
        )
    return split[:, :heads]
