"""Linear attention by the gated delta rule (Gated DeltaNet, arXiv:2412.06464).

Each head has a memory, a matrix from keys to values. A token has part of it forgotten, looks up its
key, and stores the difference between its value and what it found there, as far as it wants to.
Then its query is looked up. With `S` the memory, `a` what remains, `b` how far, `k`, `v`, `q` the
token's key, value and query:

    S <- a S;  S <- S + b k (v - k S);  q S

Many tokens at once are some products among themselves, and one with the memory before them: what
each of them stores is found by solving a triangular system (arXiv:2406.06484, section 3).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn import functional

from providers.local.torch_engine.model.experts import Rows
from providers.local.torch_engine.model.recurrent.convolution import Convolution
from providers.local.torch_engine.model.recurrent.rows import Chunks, Singles, StateRows
from providers.local.torch_engine.model.recurrent.states import LayerStates, StateShape

LENGTH_EPSILON = 1e-6
"""What is added to the squared length of keys and queries before they are divided by it."""


@dataclass(frozen=True, slots=True, eq=False)
class GatedDelta:
    """What such a layer has between its two products; numbers are float32.

    Attributes:
        key_heads: heads of queries and keys, of which each is that of several heads of values.
        value_heads: of values, of memories, and of what comes out.
        key_dim, value_dim: of a head.
        convolution: of queries, keys and values, in this order.
        gates: of the layer's input: how far each head stores, before the sigmoid, and behind all of
            these how much it forgets, `[2 * value_heads, hidden]`.
        rate: of forgetting, `[value_heads]`, negative.
        rate_bias: what is added to the second gates, `[value_heads]`.
        norm: of what comes out, `[value_dim]`.
        epsilon: of that norm.
    """

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    convolution: Convolution
    gates: Rows
    rate: torch.Tensor
    rate_bias: torch.Tensor
    norm: torch.Tensor
    epsilon: float

    @property
    def state_shape(self) -> StateShape:
        """Of what it keeps."""
        return StateShape(self.convolution.inputs, (self.value_heads, self.key_dim, self.value_dim))

    def __call__(
        self, projected: torch.Tensor, x: torch.Tensor, states: LayerStates, rows: StateRows
    ) -> torch.Tensor:
        """See `decoder.Recurrent`; `projected` is queries, keys, values, and what gates them in the
        end."""
        assert states.memory is not None
        _, channels = self.convolution.inputs
        mixed = self.convolution(projected[:, :channels].float(), states.inputs, rows)
        mixed = functional.silu(mixed, inplace=True)
        wide = self.key_heads * self.key_dim
        queries = self._of_length_one(mixed[:, :wide]) * self.key_dim**-0.5
        keys = self._of_length_one(mixed[:, wide : 2 * wide])
        values = mixed[:, 2 * wide :].unflatten(-1, (self.value_heads, self.value_dim))
        store, forget = self.gates(x).float().chunk(2, -1)
        remains = self.rate * functional.softplus(forget + self.rate_bias)
        tokens = Tokens(queries, keys, values, store.sigmoid(), remains)
        found = torch.empty_like(values)
        for each in rows.singles:
            go_on(tokens, states.memory, each, found)
        if rows.chunks is not None:
            read(tokens, states.memory, rows.chunks, found)
        gate = projected[:, channels:].unflatten(-1, found.shape[1:]).float()
        squares = found.square().mean(-1, keepdim=True)
        found = found * torch.rsqrt(squares + self.epsilon) * self.norm * functional.silu(gate)
        return found.flatten(-2).to(projected.dtype)

    def _of_length_one(self, x: torch.Tensor) -> torch.Tensor:
        """Queries or keys as those of each head of values: `[tokens, value_heads, key_dim]`."""
        heads = x.unflatten(-1, (self.key_heads, self.key_dim))
        heads = heads * torch.rsqrt(heads.square().sum(-1, keepdim=True) + LENGTH_EPSILON)
        return heads.repeat_interleave(self.value_heads // self.key_heads, dim=1)


@dataclass(frozen=True, slots=True, eq=False)
class Tokens:
    """What a step's tokens are to the memories.

    Attributes:
        queries, keys: `[tokens, heads, key_dim]`.
        values: `[tokens, heads, value_dim]`.
        store: how far they are stored, `[tokens, heads]`.
        remains: the logarithm of what remains of what was there, `[tokens, heads]`.
    """

    queries: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor
    store: torch.Tensor
    remains: torch.Tensor


def go_on(tokens: Tokens, memory: torch.Tensor, singles: Singles, found: torch.Tensor) -> None:
    """Compute one token of each sequence.

    Args:
        tokens: of the step.
        memory: of the sequences, `[slots, heads, key_dim, value_dim]`; it changes.
        singles: which tokens, and where their memories are.
        found: where it goes what they find, `[tokens, heads, value_dim]`.
    """
    at = singles.rows
    own = memory[singles.slots].flatten(0, 1)
    queries, keys, values = (
        each[at].flatten(0, 1) for each in (tokens.queries, tokens.keys, tokens.values)
    )
    remains = tokens.remains[at].flatten().exp()[:, None]
    # Both are looked up in what there was: the memory is read once.
    looked_up = torch.bmm(torch.stack([queries, keys], 1), own) * remains.unsqueeze(-1)
    stored = (values - looked_up[:, 1]) * tokens.store[at].flatten()[:, None]
    own.mul_(remains.unsqueeze(-1)).addcmul_(keys.unsqueeze(-1), stored.unsqueeze(1))
    result = looked_up[:, 0] + (queries * keys).sum(-1, keepdim=True) * stored
    found[at] = result.unflatten(0, (-1, memory.shape[1]))
    if singles.copies is not None:
        singles.copies.of(memory)


def read(tokens: Tokens, memory: torch.Tensor, chunks: Chunks, found: torch.Tensor) -> None:
    """Compute prompts, chunk by chunk; see `go_on`."""
    # All of a chunk of a head at once: `[chunks, heads, tokens of a chunk, ...]`.
    queries, keys, values = (
        each[chunks.rows].transpose(1, 2) for each in (tokens.queries, tokens.keys, tokens.values)
    )
    filled = chunks.filled.unsqueeze(-1)
    store = (tokens.store[chunks.rows] * filled).transpose(1, 2).unsqueeze(-1)
    since = (tokens.remains[chunks.rows] * filled).transpose(1, 2).cumsum(-1)
    size = since.shape[-1]
    ahead = torch.ones(size, size, dtype=torch.bool, device=memory.device).triu(1)
    # What remains at one token of what another one stored before it.
    kept = (since.unsqueeze(-1) - since.unsqueeze(-2)).masked_fill(ahead, -torch.inf).exp()
    since = since.unsqueeze(-1)
    looked_up = store * (keys @ keys.transpose(-1, -2)) * kept
    sides = torch.cat([values * store, keys * store * since.exp()], -1)
    solved = torch.linalg.solve_triangular(looked_up, sides, upper=False, unitriangular=True)
    stored, of_memory = solved.split([values.shape[-1], keys.shape[-1]], -1)
    among = (queries @ keys.transpose(-1, -2)) * kept
    queries = queries * since.exp()
    keys = (keys * (since[:, :, -1:] - since).exp()).transpose(-1, -2)
    remains = since[:, :, -1:].exp()
    results = torch.empty_like(stored)
    for at, slots, copies in chunks.rounds:
        before = memory.index_select(0, slots)
        new = stored[at] - of_memory[at] @ before
        results[at] = queries[at] @ before + among[at] @ new
        memory.index_copy_(0, slots, torch.addcmul(keys[at] @ new, before, remains[at]))
        if copies is not None:
            copies.of(memory)
    found[chunks.rows[chunks.filled]] = results.transpose(1, 2)[chunks.filled]
