"""A context: the KV cache of a model, and what it computes next."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from providers.local.llama_cpp_engine.bindings.library import explained, lib, refusal
from providers.local.llama_cpp_engine.bindings.model import AdapterScales, LlamaAdapter, Model

NO_ROOM = 1
"""What `Context.decode` returns when the KV cache has no room for the batch; nothing is changed."""

MAX_SEQUENCES = int(lib.llama_max_parallel_sequences())
"""How many sequences a context can have."""


class Context:
    """The KV cache of a model, whose cells all sequences share, and the batch to be computed next.

    One thread at a time may use it.

    Args:
        model: whose it is.
        tokens: how many the cache holds.
        sequences: how many there can be.
        batch_tokens: how many a batch has at most.
        outputs: after how many tokens of a batch there can be logits.
        threads: of the CPU.
        embeddings: whether embeddings are computed in place of logits.
        offload: whether the cache goes where the layers are, and not into this machine's memory.
        apart: whether each sequence has its own part of the cache, so that where its tokens lie
            does not depend on others; none can be shared then.

    Attributes:
        tokens, positions, sequence_ids, wants_logits: the batch's arrays, `[batch_tokens]`; int32,
            the last int8. They are read by `decode`.

    Raises:
        LlamaError: there is not enough memory, or the model's header makes no sense.
    """

    def __init__(
        self,
        model: Model,
        *,
        tokens: int,
        sequences: int,
        batch_tokens: int,
        outputs: int,
        threads: int,
        embeddings: bool = False,
        offload: bool = True,
        apart: bool = False,
    ) -> None:
        params = lib.llama_context_default_params()
        params.n_ctx, params.n_seq_max = tokens, sequences
        params.n_batch = params.n_ubatch = batch_tokens
        params.n_outputs_max = outputs
        params.n_threads = params.n_threads_batch = self._threads = threads
        params.embeddings, params.offload_kqv = embeddings, offload
        # One pool for all: sequences of any length, and prefixes shared by marking cells.
        params.kv_unified = not apart
        # Or a sliding window would leave nothing of a prefix that others could begin with.
        params.swa_full = True
        params.no_perf = True
        with explained():
            self._context = lib.llama_init_from_model(model._model, params)
            if not self._context:
                raise refusal()
        self.model = model
        self._memory = lib.llama_get_memory(self._context)
        self._adapters: tuple[tuple[LlamaAdapter, float], ...] = ()
        self.tokens = np.zeros(batch_tokens, np.int32)
        self.positions = np.zeros(batch_tokens, np.int32)
        self.sequence_ids = np.zeros(batch_tokens, np.int32)
        self.wants_logits = np.zeros(batch_tokens, np.int8)
        self._ones = np.ones(batch_tokens, np.int32)
        self._rows = (
            self.sequence_ids.ctypes.data
            + np.arange(batch_tokens, dtype=np.uintp) * self.sequence_ids.itemsize
        )
        self._batch = self._batch_of(token=self.tokens, pos=self.positions)

    def _batch_of(self, **arrays: np.ndarray[Any, Any]) -> Any:
        """A batch of these arrays, for whose rows `sequence_ids` and `wants_logits` hold."""
        batch = lib.llama_batch()
        fields = dict(lib.llama_batch._fields_)
        arrays |= {"n_seq_id": self._ones, "seq_id": self._rows, "logits": self.wants_logits}
        for name, array in arrays.items():
            setattr(batch, name, array.ctypes.data_as(fields[name]))
        return batch

    @property
    def size(self) -> int:
        """How many tokens the cache really holds."""
        return int(lib.llama_n_ctx(self._context))

    @property
    def pooling(self) -> int:
        """How embeddings are pooled: llama.cpp's `LLAMA_POOLING_TYPE_*`."""
        return int(lib.llama_pooling_type(self._context))

    def free(self) -> None:
        """Give its memory back; it must not be used any more."""
        lib.llama_free(self._context)
        self._context = None

    def adapt(self, adapters: AdapterScales) -> None:
        """Compute with these LoRA adapters, and no others, from now on.

        Raises:
            LlamaError: llama.cpp refuses that.
        """
        wanted = tuple(adapters)
        if wanted == self._adapters:
            return
        array = (lib.llama_adapter_lora_p_ctypes * len(wanted))(
            *(each.pointer for each, _ in wanted)
        )
        scales = (ctypes.c_float * len(wanted))(*(scale for _, scale in wanted))
        with explained():
            if lib.llama_set_adapters_lora(self._context, array, len(wanted), scales):
                raise refusal()
        self._adapters = wanted

    def use_threads(self, threads: int) -> None:
        """Compute with so many threads of the CPU from now on."""
        if threads != self._threads:
            lib.llama_set_n_threads(self._context, threads, threads)
            self._threads = threads

    def decode(self, tokens: int) -> int:
        """Compute the first `tokens` of the batch: 0 when done, `NO_ROOM`, or another failure."""
        self._batch.n_tokens = tokens
        return int(lib.llama_decode(self._context, self._batch))

    def decode_embeddings(
        self,
        sequence: int,
        embeddings: np.ndarray[Any, np.dtype[np.float32]],
        positions: np.ndarray[Any, np.dtype[np.int32]],
        *,
        causal: bool,
        logits: bool,
    ) -> int:
        """Compute embeddings in the place of tokens; what it returns is as of `decode`.

        Args:
            sequence: whose they are.
            embeddings: float32 `[tokens, input_size]`.
            positions: `[tokens]`, or `[4, tokens]` of a model that turns by four axes (M-RoPE).
            causal: whether each looks back alone, and not at all of them.
            logits: whether the last one's are wanted.
        """
        tokens = len(embeddings)
        embeddings, positions = np.ascontiguousarray(embeddings), np.ascontiguousarray(positions)
        self.sequence_ids[:tokens] = sequence
        self.wants_logits[:tokens] = 0
        self.wants_logits[tokens - 1] = logits
        batch = self._batch_of(embd=embeddings, pos=positions)
        batch.n_tokens = tokens
        lib.llama_set_causal_attn(self._context, causal)
        try:
            return int(lib.llama_decode(self._context, batch))
        finally:
            lib.llama_set_causal_attn(self._context, True)

    def logits(self, index: int) -> np.ndarray[Any, np.dtype[np.float32]]:
        """The logits after the token `index` of the batch, `[vocab_size]`; a view, until `decode`.

        What is written to it, `Sampler.sample` sees.
        """
        pointer = lib.llama_get_logits_ith(self._context, index)
        return np.ctypeslib.as_array(pointer, shape=(self.model.vocab_size,))

    def embedding(self, sequence: int) -> np.ndarray[Any, np.dtype[np.float32]]:
        """The pooled embedding of a sequence, a copy."""
        pointer = lib.llama_get_embeddings_seq(self._context, sequence)
        return np.ctypeslib.as_array(pointer, shape=(self.model.embedding_size,)).copy()

    # The KV cache ---------------------------------------------------------------------------------

    def length(self, sequence: int) -> int:
        """How many tokens there are of `sequence`."""
        return int(lib.llama_memory_seq_pos_max(self._memory, sequence)) + 1

    def keep(self, sequence: int, tokens: int) -> bool:
        """Remove what `sequence` has behind its first `tokens`; False if nothing could be kept.

        They are counted in positions, of which a medium may have fewer than tokens.

        A model whose state can't be taken back, such as a recurrent one, loses all of it.
        """
        if self._memory is None:
            return False
        if tokens == 0:
            lib.llama_memory_seq_rm(self._memory, sequence, -1, -1)
            return True
        lib.llama_memory_seq_rm(self._memory, sequence, tokens, -1)
        if self.length(sequence) == tokens:
            return True
        lib.llama_memory_seq_rm(self._memory, sequence, -1, -1)
        return False

    def share(self, source: int, target: int, tokens: int) -> bool:
        """Let the empty `target` begin with the first `tokens` of `source`; False if it can't."""
        if self._memory is None:
            return False
        lib.llama_memory_seq_cp(self._memory, source, target, 0, tokens)
        return self.keep(target, tokens)
