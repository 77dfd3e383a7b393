"""Texts made into vectors by a GGUF whose header says how they are pooled."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from llama_compat.errors import APIError, internal_error, invalid_parameter
from llama_compat.types import EmbeddingRequest, EmbeddingResponse
from providers.base import ProviderStartError
from providers.local.engine import Stats
from providers.local.llama_cpp_engine.bindings import MAX_SEQUENCES, Context, LlamaError, Model
from providers.local.llama_cpp_engine.loader import POOLING_RANK, LoadOptions, cpu_cores

BATCH_TEXTS = 32
"""Texts that are computed at once, if they fit."""

MAX_TOKENS = 8192
"""Of a text: it is computed in one batch, whose memory grows with the square of its length."""

Vector = np.ndarray[Any, np.dtype[np.float32]]


class LlamaEmbedder:
    """Embeds with one model, one request at a time, in a thread of its own.

    Args:
        name: the provider's name for the model.
        model: it.
        options: how it is to run.

    Raises:
        ProviderStartError: its context can't be made, or it has no embeddings.
    """

    def __init__(self, name: str, model: Model, options: LoadOptions) -> None:
        self._name = name
        self._model = model
        self._max_waiting = options.max_waiting
        wanted = options.context_length or MAX_TOKENS
        self.max_tokens = min(model.context_length, wanted, MAX_TOKENS)
        self._texts = min(BATCH_TEXTS, MAX_SEQUENCES)
        self._longest_token = max(len(model.piece(id)) for id in range(model.vocab_size))
        try:
            self._context = Context(
                model,
                tokens=self.max_tokens,
                sequences=self._texts,
                # All of a text has to be in one batch, for its tokens may look ahead.
                batch_tokens=self.max_tokens,
                outputs=self.max_tokens,
                threads=options.threads or cpu_cores(),
                embeddings=True,
            )
            self._context.adapt(options.adapters)
        except LlamaError as error:
            raise ProviderStartError(
                f"The embedding model '{name}' was loaded, but its context of {self.max_tokens}"
                f" tokens can't be made: {error} Set a smaller 'context_length' for it."
            ) from error
        if self._context.pooling == POOLING_RANK:
            self._context.free()
            raise ProviderStartError(
                f"The model '{name}' ranks texts and has no embeddings: choose another model."
            )
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"embedder of {name}")
        self._stats = Stats()
        self._stopping = threading.Event()

    @property
    def stats(self) -> Stats:
        """What it is doing and has done."""
        return self._stats

    def stop(self) -> None:
        """Take no more, wait for the batch that runs, and give the memory back."""
        self._stopping.set()
        self._thread.shutdown(cancel_futures=True)
        self._context.free()

    async def embed(self, request: EmbeddingRequest) -> EmbeddingResponse:
        """One vector a text, of length 1; who goes away is not served any further.

        Raises:
            APIError: 400 for a text that is too long or `dimensions` that there are not, 429 where
                too many wait.
        """
        size = self._model.embedding_size
        if request.dimensions is not None and request.dimensions > size:
            raise invalid_parameter(
                "dimensions",
                f"'dimensions' is {request.dimensions}, but the vectors of the model"
                f" '{self._name}' have {size} numbers.",
            )
        if self._stats.waiting >= self._max_waiting:
            raise APIError(
                429,
                f"The model '{self._name}' is busy, and {self._stats.waiting} requests wait for it"
                " already. Retry in 1 s.",
                code="engine_overloaded",
                headers={"retry-after": "1"},
            )
        gone = threading.Event()
        loop = asyncio.get_running_loop()
        self._stats.waiting += 1
        future = loop.run_in_executor(self._thread, self._embed, request, gone)
        future.add_done_callback(self._count)
        try:
            return await future
        finally:
            gone.set()

    def _count(self, future: asyncio.Future[EmbeddingResponse]) -> None:
        self._stats.waiting -= 1
        if future.cancelled():
            self._stats.cancelled += 1
        elif future.exception() is not None:
            self._stats.failed += 1
        else:
            self._stats.finished += 1

    # In the thread --------------------------------------------------------------------------------

    def _embed(self, request: EmbeddingRequest, gone: threading.Event) -> EmbeddingResponse:
        encoded = [self._encode(index, text) for index, text in enumerate(request.inputs)]
        vectors: list[tuple[float, ...]] = []
        for batch in batches([len(each) for each in encoded], self.max_tokens, self._texts):
            if gone.is_set() or self._stopping.is_set():
                break
            made = self._run([encoded[index] for index in batch])
            vectors += (_cut(vector, request.dimensions) for vector in made)
        tokens = sum(map(len, encoded))
        self._stats.prompt_tokens += tokens
        return EmbeddingResponse(tuple(vectors), tokens)

    def _encode(self, index: int, text: str) -> list[int]:
        token_ids: list[int] = []
        # What is too long by its length alone is not worth the time.
        is_longer = len(text) > self.max_tokens * self._longest_token
        if not is_longer:
            token_ids = self._model.tokenize(text, add_special=True, parse_special=False)
        if is_longer or len(token_ids) > self.max_tokens:
            raise APIError(
                400,
                f"Text {index} of 'input' has more than the {self.max_tokens} tokens that the model"
                f" '{self._name}' takes. Cut it.",
                param="input",
                code="context_length_exceeded",
            )
        # An empty text of a model without special tokens would be no sequence at all.
        return token_ids or [self._model.first_token or 0]

    def _run(self, batch: Sequence[Sequence[int]]) -> list[Vector]:
        context, at = self._context, 0
        for sequence, token_ids in enumerate(batch):
            context.keep(sequence, 0)
            end = at + len(token_ids)
            context.tokens[at:end] = token_ids
            context.positions[at:end] = range(len(token_ids))
            context.sequence_ids[at:end] = sequence
            at = end
        context.wants_logits[:at] = 1
        status = context.decode(at)
        if status != 0:
            raise internal_error()
        return [context.embedding(sequence) for sequence in range(len(batch))]


def _cut(vector: Vector, dimensions: int | None) -> tuple[float, ...]:
    """The first `dimensions` of `vector`, made to have length 1."""
    cut = vector[:dimensions]
    length = float(np.linalg.norm(cut))
    return tuple((cut / length if length else cut).tolist())


def batches(lengths: Sequence[int], tokens: int, texts: int) -> list[list[int]]:
    """The indices of texts, in order, that are computed together: so many tokens, so many texts."""
    made: list[list[int]] = []
    room = 0
    for index, length in enumerate(lengths):
        if not made or length > room or len(made[-1]) == texts:
            made.append([])
            room = tokens
        made[-1].append(index)
        room -= length
    return made
