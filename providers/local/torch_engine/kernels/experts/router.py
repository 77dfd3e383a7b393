"""Which experts a token takes, and how much of each, in one Triton kernel."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def route_kernel(
    scores,
    correction,
    shares,
    chosen,
    scale,
    EXPERTS: tl.constexpr,
    PADDED: tl.constexpr,
    CHOSEN: tl.constexpr,
    PADDED_CHOSEN: tl.constexpr,
    SIGMOID: tl.constexpr,
    CORRECTED: tl.constexpr,
    NORMALISED: tl.constexpr,
):
    """The program is a token; of experts alike it takes the first."""
    token = tl.program_id(0).to(tl.int64)
    experts = tl.arange(0, PADDED)
    inside = experts < EXPERTS
    found = tl.load(scores + token * EXPERTS + experts, mask=inside, other=float("-inf"))
    found = found.to(tl.float32)
    if SIGMOID:
        found = tl.sigmoid(found)
    else:
        found = tl.exp(found - tl.max(found, 0))
        found = found / tl.sum(found, 0)
    ranked = found
    if CORRECTED:
        ranked += tl.load(correction + experts, mask=inside, other=0.0)
    ranked = tl.where(inside, ranked, float("-inf"))
    places = tl.arange(0, PADDED_CHOSEN)
    share = tl.zeros([PADDED_CHOSEN], tl.float32)
    which = tl.zeros([PADDED_CHOSEN], tl.int32)
    for place in range(CHOSEN):
        # Of what is no number there is no largest, and what follows reads where this says.
        best = tl.minimum(tl.argmax(ranked, 0), EXPERTS - 1)
        of_best = tl.sum(tl.where(experts == best, found, 0.0), 0)
        share = tl.where(places == place, of_best, share)
        which = tl.where(places == place, best, which)
        ranked = tl.where(experts == best, float("-inf"), ranked)
    if NORMALISED:
        share = share / tl.sum(share, 0)
    share *= scale
    in_chosen = places < CHOSEN
    target = token * CHOSEN + places
    tl.store(shares + target, share.to(shares.dtype.element_ty), mask=in_chosen)
    tl.store(chosen + target, which, mask=in_chosen)


def route(
    scores: torch.Tensor,
    chosen: int,
    dtype: torch.dtype,
    *,
    sigmoid: bool,
    correction: torch.Tensor | None,
    normalised: bool,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """What `Router` makes of scores, where its experts are in no groups.

    Args:
        scores: `[tokens, experts]`, contiguous.
        chosen: how many experts a token takes.
        dtype: of the shares.
        sigmoid, correction, normalised, scale: see `Router`.

    Returns:
        The shares of the chosen experts, `[tokens, chosen]` in `dtype`, and which these are, int32.
    """
    tokens, experts = scores.shape
    shares = torch.empty(tokens, chosen, dtype=dtype, device=scores.device)
    which = torch.empty(tokens, chosen, dtype=torch.int32, device=scores.device)
    if tokens:
        route_kernel[(tokens,)](
            scores,
            scores if correction is None else correction,
            shares,
            which,
            scale,
            EXPERTS=experts,
            PADDED=triton.next_power_of_2(experts),
            CHOSEN=chosen,
            PADDED_CHOSEN=triton.next_power_of_2(chosen),
            SIGMOID=sigmoid,
            CORRECTED=correction is not None,
            NORMALISED=normalised,
            num_warps=1,
        )
    return shares, which
