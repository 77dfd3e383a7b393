"""A step of a model on the CPU, in kernels where PyTorch would take an operation for each move."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch

from providers.local.torch_engine.attention import SequenceSpan, Span
from providers.local.torch_engine.cpu_kernels import rows
from providers.local.torch_engine.cpu_kernels.attention import attend
from providers.local.torch_engine.cpu_kernels.code import LANES
from providers.local.torch_engine.cpu_kernels.library import Call
from providers.local.torch_engine.decoder import Decoder, Layer, Norm
from providers.local.torch_engine.model_runner import located
from providers.local.torch_engine.scheduler import Chunk
from providers.local.torch_engine.torch_step import TorchStep


class CPUKernels:
    """A model's kernels, compiled.

    Args:
        decoder: the model, which `supports`.
        block_size: tokens in a block of the cache.
    """

    def __init__(self, decoder: Decoder, block_size: int) -> None:
        epsilon = decoder.norm.epsilon
        sizes = {
            "kv_heads": decoder.kv_heads,
            "head_dim": decoder.head_dim,
        }
        self._decoder = decoder
        self.block_size = block_size
        self.group = decoder.heads // decoder.kv_heads
        self.norm = rows.norm.compiled(epsilon=epsilon, adds=False)
        self.add_and_norm = rows.norm.compiled(epsilon=epsilon, adds=True)
        self.gate = rows.gate.compiled(activation=decoder.activation)
        self.turn_and_write = [
            rows.turn_and_write.compiled(
                **sizes, query_heads=decoder.heads, pairs=rope.dimensions // 2
            )
            for rope in decoder.ropes
        ]
        self.attend = attend.compiled(
            **sizes, heads=decoder.heads, block_size=block_size, scale=decoder.attention_scale
        )

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
    norms = [decoder.norm, *(layer.input_norm for layer in decoder.layers)]
    return (
        decoder.embedding.dtype == torch.float32
        and decoder.embedding.shape[1] % LANES == 0
        and decoder.head_dim % LANES == 0
        and decoder.activation in rows.ACTIVATIONS
        and len({norm.epsilon for norm in norms}) == 1
    )


def step_of(decoder: Decoder, chunks: Sequence[Chunk], block_size: int) -> CPUStep:
    """The step of these chunks alone; see `self_check`."""
    _, _, where = located(decoder, chunks, block_size)
    return CPUKernels(decoder, block_size)(*where)


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
        super().__init__(decoder, positions, slots, spans)
        self._kernels = kernels

    def norm(self, x: torch.Tensor, norm: Norm) -> torch.Tensor:
        """See `Step`."""
        return _normed(self._kernels.norm, x, x, norm)

    def add_and_norm(self, x: torch.Tensor, hidden: torch.Tensor, norm: Norm) -> torch.Tensor:
        """See `Step`."""
        return _normed(self._kernels.add_and_norm, hidden, x, norm)

    def turn_and_write(self, qkv: torch.Tensor, layer: Layer, cached: torch.Tensor) -> torch.Tensor:
        """See `Step`."""
        heads = qkv.unflatten(-1, (-1, self._decoder.head_dim))
        self._norm_heads(heads, layer)
        self._kernels.turn_and_write[layer.rope](
            qkv.data_ptr(),
            self._rotations[layer.rope].data_ptr(),
            self._slots.data_ptr(),
            cached.data_ptr(),
            len(qkv),
        )
        return heads[:, : self._decoder.heads]

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

    @cached_property
    def _scores(self) -> torch.Tensor:
        room = self._tables.shape[1] * self._kernels.block_size + LANES
        return torch.empty(torch.get_num_threads(), self._kernels.group, room)

    def attend(
        self, queries: torch.Tensor, layer: torch.Tensor, *, scale: float, window: int | None
    ) -> torch.Tensor:
        """See `Span`; the scale is the kernel's own."""
        _, heads, head_dim = queries.shape
        count, blocks = self._tables.shape
        found = queries.new_empty(count, heads * head_dim)
        self._kernels.attend(
            queries.data_ptr(),
            layer.data_ptr(),
            found.data_ptr(),
            self._scores.data_ptr(),
            self._rows.data_ptr(),
            self._tables.data_ptr(),
            self._lengths.data_ptr(),
            count,
            queries.stride(0),
            blocks,
            window or 0,
        )
        return found
