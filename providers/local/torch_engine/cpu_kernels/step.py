"""A step of a model on the CPU, in kernels where PyTorch would take an operation for each move."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import torch

from providers.local.torch_engine.cpu_kernels import rows
from providers.local.torch_engine.cpu_kernels.attention import attend
from providers.local.torch_engine.cpu_kernels.code import LANES
from providers.local.torch_engine.cpu_kernels.layer import Room, weights_of
from providers.local.torch_engine.cpu_kernels.layer import layer as whole_layer
from providers.local.torch_engine.cpu_kernels.library import Call
from providers.local.torch_engine.model.attention import Scores, SequenceSpan, Span
from providers.local.torch_engine.model.decoder import Decoder, Layer
from providers.local.torch_engine.model.norm import Norm
from providers.local.torch_engine.model.torch_step import TorchStep
from providers.local.torch_engine.model_runner import located
from providers.local.torch_engine.scheduling.step import Chunk

AS_ROWS = 32
"""Tokens of a piece of a prompt that are computed as so many replies: in the kernel of a whole
layer, in which PyTorch's attention has no part."""


class CPUKernels:
    """A model's kernels, compiled.

    Args:
        decoder: the model, which `supports`.
        block_size: tokens in a block of the cache.
        apart: see `ForwardStep`.
        packed: whether the cache is; see `kv_cache`.
    """

    def __init__(
        self, decoder: Decoder, block_size: int, *, apart: bool = False, packed: bool = False
    ) -> None:
        epsilon = decoder.norm.epsilon
        sizes = {"kv_heads": decoder.kv_heads, "head_dim": decoder.head_dim}
        # All layers are alike in this, see `supports`.
        norms_heads = any(layer.query_norm is not None for layer in decoder.layers)
        norms_results = any(layer.attention_norm is not None for layer in decoder.layers)
        self._decoder = decoder
        self.apart = apart
        self.block_size = block_size
        self.group = decoder.heads // decoder.kv_heads
        self.norm = rows.norm.compiled(epsilon=epsilon, adds=False)
        self.add_and_norm = rows.norm.compiled(epsilon=epsilon, adds=True)
        self.gate = rows.gate.compiled(activation=decoder.activation)
        self.turn_and_write = [
            rows.turn_and_write.compiled(
                **sizes,
                query_heads=decoder.heads,
                pairs=rope.dimensions // 2,
                head_epsilon=epsilon if norms_heads else None,
                packed=packed,
            )
            for rope in decoder.ropes
        ]
        attention = {"heads": decoder.heads, "block_size": block_size, "packed": packed}
        scale = decoder.attention_scale
        self.attend = attend.compiled(**sizes, **attention, scale=scale)
        # By their layers, of those that one kernel computes.
        self.weights = {
            each: weights for each in decoder.layers if (weights := weights_of(each)) is not None
        }
        self.layer: list[Call] = []
        if self.weights:
            weights = next(iter(self.weights.values()))
            self.layer = [
                whole_layer.compiled(
                    **sizes,
                    **attention,
                    scale=scale,
                    epsilon=epsilon,
                    norms_heads=norms_heads,
                    norms_results=norms_results,
                    activation=decoder.activation,
                    size=decoder.embedding.shape[1],
                    intermediate=weights.intermediate,
                    bits=weights.bits,
                    pairs=rope.dimensions // 2,
                )
                for rope in decoder.ropes
            ]

    def __call__(
        self, positions: torch.Tensor, slots: torch.Tensor, spans: Sequence[SequenceSpan]
    ) -> CPUStep:
        """See `model_runner.MakeStep`."""
        decoding = [span for span in spans if span.tokens == 1]
        together: list[Span] = [span for span in spans if span.tokens > 1]
        if decoding:
            together.append(DecodingSpans(decoding, self))
        return CPUStep(self._decoder, self, positions, slots, together)


def supports(decoder: Decoder) -> bool:
    """Whether there are kernels for this model: its rows are whole vectors of float32."""
    norms = [decoder.norm, *chain.from_iterable(layer.norms for layer in decoder.layers)]
    norms += chain.from_iterable(
        (layer.query_row_norm, layer.key_row_norm) for layer in decoder.layers
    )
    return (
        decoder.embedding.device.type == "cpu"
        and decoder.embedding.dtype == torch.float32
        and decoder.embedding.shape[1] % LANES == 0
        and decoder.head_dim % LANES == 0
        and decoder.activation in rows.ACTIVATIONS
        and decoder.unusual is None
        and _normed_alike(decoder.layers)
        and len({norm.epsilon for norm in norms if norm is not None}) == 1
    )


def _normed_alike(layers: Sequence[Layer]) -> bool:
    """Whether all with attention have the same norms of heads and of results, which are compiled
    into kernels."""
    kinds = {
        (each.query_norm is None, each.attention_norm is None)
        for each in layers
        if each.recurrence is None
    }
    return len(kinds) == 1


def step_of(
    decoder: Decoder, chunks: Sequence[Chunk], block_size: int, *, packed: bool = False
) -> CPUStep:
    """The step of these chunks alone; see `self_check`."""
    _, _, where = located(decoder, chunks, block_size)
    return CPUKernels(decoder, block_size, packed=packed)(*where)


class CPUStep(TorchStep):
    """See `decoder.Step`.

    Args:
        decoder: the model.
        kernels: its.
        positions: of the tokens in their sequences, `[tokens]`, int64.
        slots: of the tokens in the cache, `[tokens]`, int64.
        spans: of all of them.
    """

    def __init__(
        self,
        decoder: Decoder,
        kernels: CPUKernels,
        positions: torch.Tensor,
        slots: torch.Tensor,
        spans: Sequence[Span],
    ) -> None:
        super().__init__(decoder, positions, slots, spans, apart=kernels.apart)
        self._kernels = kernels
        self._decoding: DecodingSpans | None = None
        if len(spans) == 1 and isinstance(spans[0], DecodingSpans):
            self._decoding = spans[0]
        self._room: Room | None = None

    def layer(
        self, layer: Layer, hidden: torch.Tensor, product: torch.Tensor | None, cached: torch.Tensor
    ) -> torch.Tensor | None:
        """See `Step`; in one kernel where all sequences decode, and none has an adapter."""
        weights = self._kernels.weights.get(layer)
        spans = self._decoding
        if weights is None or spans is None or self.adapted is not None:
            return super().layer(layer, hidden, product, cached)
        if self._room is None:
            heads = self._decoder.heads * self._decoder.head_dim
            self._room = Room.of(len(hidden), hidden.shape[1], heads, weights)
        added = torch.zeros_like(hidden) if product is None else product
        self._kernels.layer[layer.rope](
            hidden.data_ptr(),
            added.data_ptr(),
            *weights.addresses,
            *self._room.addresses,
            self._rotations[layer.rope].data_ptr(),
            self._slots.data_ptr(),
            cached.data_ptr(),
            *spans.addresses,
            *spans.shape,
            layer.window or 0,
        )
        return added

    def norm(self, x: torch.Tensor, norm: Norm) -> torch.Tensor:
        """See `Step`."""
        return _normed(self._kernels.norm, x, x, norm)

    def add_and_norm(self, x: torch.Tensor, hidden: torch.Tensor, norm: Norm) -> torch.Tensor:
        """See `Step`."""
        return _normed(self._kernels.add_and_norm, hidden, x, norm)

    def turn_and_write(self, qkv: torch.Tensor, layer: Layer, cached: torch.Tensor) -> torch.Tensor:
        """See `Step`."""
        norms = (layer.query_norm, layer.key_norm)
        self._kernels.turn_and_write[layer.rope](
            qkv.data_ptr(),
            *(0 if norm is None else norm.weight.data_ptr() for norm in norms),
            self._rotations[layer.rope].data_ptr(),
            self._slots.data_ptr(),
            cached.data_ptr(),
            len(qkv),
        )
        return qkv.unflatten(-1, (-1, self._decoder.head_dim))[:, : self._decoder.heads]

    def gated(self, gate_up: torch.Tensor) -> torch.Tensor:
        """See `Step`."""
        tokens, size = len(gate_up), gate_up.shape[1] // 2
        if size % LANES:
            return super().gated(gate_up)
        found = gate_up.new_empty(tokens, size)
        self._kernels.gate(gate_up.data_ptr(), found.data_ptr(), tokens, size)
        return found


def _normed(kernel: Call, hidden: torch.Tensor, added: torch.Tensor, norm: Norm) -> torch.Tensor:
    found = torch.empty_like(hidden)
    kernel(
        hidden.data_ptr(),
        added.data_ptr(),
        norm.weight.data_ptr(),
        found.data_ptr(),
        *hidden.shape,
    )
    return found


class DecodingSpans:
    """Sequences with one new token each; see `attention.Span`.

    Args:
        spans: the sequences.
        kernels: of the model.

    Attributes:
        addresses: of the parameters from `scores` to `lengths` of `attention.attend`.
        shape: how many sequences there are, and the most blocks of one.
    """

    def __init__(self, spans: Sequence[SequenceSpan], kernels: CPUKernels) -> None:
        self._kernels = kernels
        starts = [span.rows.start for span in spans]
        self._rows = torch.tensor(starts)
        adjacent = starts == list(range(starts[0], starts[0] + len(starts)))
        self.rows: slice | torch.Tensor = self._rows
        if adjacent:
            self.rows = slice(starts[0], starts[0] + len(starts))
        self._lengths = torch.tensor([span.length for span in spans])
        size = kernels.block_size
        tables = [torch.tensor(span.blocks[: -(-span.length // size)]) for span in spans]
        self._tables = torch.nn.utils.rnn.pad_sequence(tables, batch_first=True)
        room = self._tables.shape[1] * kernels.block_size + LANES
        self._scores = torch.empty(torch.get_num_threads(), kernels.group, room)
        self.shape = tuple(self._tables.shape)
        self.addresses = tuple(
            each.data_ptr() for each in (self._scores, self._rows, self._tables, self._lengths)
        )

    def attend(self, queries: torch.Tensor, layer: torch.Tensor, scores: Scores) -> torch.Tensor:
        """See `Span`; the scale is the kernel's own."""
        _, heads, head_dim = queries.shape
        count, blocks = self.shape
        found = queries.new_empty(count, heads * head_dim)
        self._kernels.attend(
            queries.data_ptr(),
            layer.data_ptr(),
            found.data_ptr(),
            *self.addresses,
            count,
            queries.stride(0),
            blocks,
            scores.window or 0,
        )
        return found
