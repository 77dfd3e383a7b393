"""The model's forward pass in Triton kernels, and as CUDA graphs where all sequences decode."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from providers.local.torch_engine.adapters.low_rank import AdaptedRows
from providers.local.torch_engine.devices import recording
from providers.local.torch_engine.kernels.inputs import InputBuffer, Inputs
from providers.local.torch_engine.kernels.step import KernelStep, mixes
from providers.local.torch_engine.media.in_step import (
    MediaRows,
    have_media,
    looks_ahead,
    turns_in_grid,
)
from providers.local.torch_engine.model.decoder import Decoder
from providers.local.torch_engine.model.kv_cache import KVCache
from providers.local.torch_engine.model.recurrent.states import StatePool
from providers.local.torch_engine.model.recurrent.step_states import StepStates
from providers.local.torch_engine.model_runner import PagedRunner, fill_in
from providers.local.torch_engine.scheduling.step import Chunk


class Graph(NamedTuple):
    """A recorded step for some number of rows, and where it leaves their logits."""

    graph: torch.cuda.CUDAGraph
    logits: torch.Tensor


class KernelRunner:
    """Runs a `Decoder` on the tokens of all chunks at once, in Triton kernels.

    Args:
        decoder: the model.
        cache: of its keys and values.
        tokens: how many a step has at most.
        sequences: likewise.
        blocks: how many of the cache's blocks a sequence has at most.
        states: of sequences, where layers have some: then there are no graphs.
    """

    def __init__(
        self,
        decoder: Decoder,
        cache: KVCache,
        *,
        tokens: int,
        sequences: int,
        blocks: int,
        states: StatePool | None = None,
    ) -> None:
        self._decoder = decoder
        self._cache = cache
        self._states = states
        self._sizes = graph_sizes(sequences)
        self._inputs = InputBuffer(
            max(tokens, sequences), sequences, blocks, cache.block_size, decoder.embedding.device
        )
        self._graphs: dict[int, Graph] = {}
        self._plain: PagedRunner | None = None

    @property
    def graphs(self) -> int:
        """How many sizes of batches are recorded."""
        return len(self._graphs)

    @property
    def are_alike(self) -> bool:
        """Whether steps of as many rows are the same launches, so that they can be recorded.

        They are not where the host asks which experts a step takes, nor with states, whose slots
        are others each time.
        """
        return self._states is None and all(map(mixes, self._decoder.experts))

    def forward(self, chunks: Sequence[Chunk], chosen: torch.Tensor | None = None) -> torch.Tensor:
        """See `Runner`; the logits may be written over by the next step."""
        with_media = have_media(chunks)
        if with_media and any(turns_in_grid(each) or looks_ahead(each) for each in chunks):
            # Kernels turn by one position, and look back alone.
            if self._plain is None:
                self._plain = PagedRunner(self._decoder, self._cache, states=self._states)
            return self._plain.forward(chunks, chosen)
        with torch.inference_mode():
            seen = MediaRows.of(chunks) if with_media else None
            size = self._graph_size(chunks) if seen is None else None
            inputs = self._inputs.load(chunks, padded=size or 0)
            fill_in(inputs.token_ids, chosen)
            if size is None:
                return self._compute(inputs, chunks, seen)
            recorded = self._graphs[size]
            recorded.graph.replay()
            return recorded.logits[: len(chunks)]

    def record(self) -> None:
        """Record the graphs; CUDA only.

        Raises:
            RuntimeError: CUDA can't, or has not enough memory.
        """
        pool = torch.cuda.graph_pool_handle()
        graphs = {}
        with torch.inference_mode():
            # The largest first, so that the others find the memory they need in the pool.
            for size in reversed(self._sizes):
                inputs = self._inputs.load((), padded=size)
                # Once before, since nothing may be compiled or set up while a graph is recorded.
                self._compute(inputs)
                graph = torch.cuda.CUDAGraph()
                # It begins by waiting for what was computed.
                alone = torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local")
                with recording(), alone:
                    logits = self._compute(inputs)
                graphs[size] = Graph(graph, logits)
        self._graphs = graphs

    def _graph_size(self, chunks: Sequence[Chunk]) -> int | None:
        """The smallest graph for these chunks, if there is one."""
        if not self._graphs or any(chunk.tokens != 1 or chunk.logits != 1 for chunk in chunks):
            return None
        # Graphs are recorded of the model alone.
        if any(chunk.sequence.adapter is not None for chunk in chunks):
            return None
        return next((size for size in self._sizes if size >= len(chunks)), None)

    def _compute(
        self, inputs: Inputs, chunks: Sequence[Chunk] = (), seen: MediaRows | None = None
    ) -> torch.Tensor:
        step = KernelStep(self._decoder, inputs.places, self._cache.block_size)
        step.adapted = AdaptedRows.of(chunks, inputs.token_ids.device)
        step.states = StepStates.of(self._states, chunks, inputs.token_ids.device)
        step.seen = seen
        hidden = self._decoder.hidden_states(inputs.token_ids, step, self._cache)
        if inputs.rows is not None:
            hidden = hidden.index_select(0, inputs.rows)
        return self._decoder.logits(hidden, step)


def graph_sizes(sequences: int) -> list[int]:
    """For how many rows graphs are recorded: 1, 2, 4, 8, and then every 16 up to `sequences`."""
    sizes = [size for size in (1, 2, 4, 8) if size < sequences]
    return [*sizes, *range(16, sequences, 16), sequences]


def step_of(
    decoder: Decoder,
    chunks: Sequence[Chunk],
    block_size: int,
) -> KernelStep:
    """The step of these chunks alone; see `self_check`."""
    tokens = sum(chunk.tokens for chunk in chunks)
    widest = max(len(chunk.sequence.blocks) for chunk in chunks)
    buffer = InputBuffer(tokens, len(chunks), widest, block_size, decoder.embedding.device)
    return KernelStep(decoder, buffer.load(chunks).places, block_size)
