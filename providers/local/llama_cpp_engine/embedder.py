"""Texts made into vectors by a GGUF whose header says how they are pooled."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from llama_compat.errors import internal_error
from llama_compat.types import EmbeddingRequest
from providers.base import ProviderStartError
from providers.local.embedder_thread import EmbedderThread
from providers.local.llama_cpp_engine.bindings.context import MAX_SEQUENCES, Context
from providers.local.llama_cpp_engine.bindings.library import LlamaError
from providers.local.llama_cpp_engine.bindings.model import Model
from providers.local.llama_cpp_engine.config import LlamaCppConfig
from providers.local.llama_cpp_engine.loader import POOLING_RANK, cpu_cores

BATCH_TEXTS = 32
"""Texts that are computed at once, if they fit."""

MAX_TOKENS = 8192
"""Of a text: it is computed in one batch, whose memory grows with the square of its length."""

Vector = np.ndarray[Any, np.dtype[np.float32]]


class LlamaEmbedder(EmbedderThread):
    """Embeds with one GGUF; its vectors have length 1.

    Args:
        name: the provider's name for the model.
        model: it.
        config: the provider's settings.
        context_length: the tokens that a text may have, if less than the model takes.

    Raises:
        ProviderStartError: its context can't be made, or it has no embeddings.
    """

    def __init__(
        self, name: str, model: Model, config: LlamaCppConfig, context_length: int | None
    ) -> None:
        super().__init__(name, model.embedding_size, config.max_waiting)
        self._model = model
        wanted = context_length or MAX_TOKENS
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
                threads=config.threads or cpu_cores(),
                embeddings=True,
            )
            self._context.adapt([(model.adapter(each.path), each.scale) for each in config.lora])
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

    @property
    def taken_bytes(self) -> int:
        """What its weights and its cache take."""
        return self._model.weight_bytes + self._context.size * self._model.kv_bytes_per_token

    def stop(self) -> None:
        """Take no more, wait for the batch that runs, and give the memory back."""
        super().stop()
        self._context.free()

    def _encode(self, request: EmbeddingRequest, index: int, text: str) -> list[int]:
        token_ids: list[int] = []
        # What is too long by its length alone is not worth the time.
        most = self.max_tokens * self._longest_token
        is_longer = len(text) > most
        if request.truncate is not None:
            text = text[:most] if request.truncate == "end" else text[-most:]
        if not is_longer or request.truncate is not None:
            token_ids = self._model.tokenize(text, add_special=True, parse_special=False)
        limit = min(self.max_tokens, request.max_tokens or self.max_tokens)
        if request.truncate is not None and len(token_ids) > limit:
            token_ids = self._cut(token_ids, limit, request.truncate)
        elif len(token_ids) > self.max_tokens:
            raise self._too_long(index, f"{len(token_ids)} tokens, more than", self.max_tokens)
        elif is_longer and request.truncate is None:
            raise self._too_long(index, f"{len(text)} characters, too many for", self.max_tokens)
        # An empty text of a model without special tokens would be no sequence at all.
        return token_ids or [self._model.first_token or 0]

    def _cut(self, token_ids: list[int], limit: int, end: str) -> list[int]:
        """The first or the last of a text, between the tokens that the model has every text in."""
        nothing = self._model.tokenize("", add_special=True, parse_special=False)
        before = 0
        while before < len(nothing) and nothing[before] == token_ids[before]:
            before += 1
        after = len(nothing) - before
        first, text = token_ids[:before], token_ids[before : len(token_ids) - after]
        room = max(0, limit - len(nothing))
        kept = text[:room] if end == "end" else text[len(text) - room :]
        return [*first, *kept, *token_ids[len(token_ids) - after :]]

    def _batches(self, lengths: Sequence[int]) -> list[list[int]]:
        return batches(lengths, self.max_tokens, self._texts)

    def _run(
        self, batch: Sequence[Sequence[int]], request: EmbeddingRequest
    ) -> Iterable[tuple[float, ...]]:
        context, at = self._context, 0
        # A text may need all the room there is, that of texts before it too.
        for sequence in range(self._texts):
            context.keep(sequence, 0)
        for sequence, token_ids in enumerate(batch):
            end = at + len(token_ids)
            context.tokens[at:end] = token_ids
            context.positions[at:end] = range(len(token_ids))
            context.sequence_ids[at:end] = sequence
            at = end
        context.wants_logits[:at] = 1
        status = context.decode(at)
        if status != 0:
            raise internal_error()
        return [
            _shortened(context.embedding(sequence), request.dimensions)
            for sequence in range(len(batch))
        ]


def _shortened(vector: Vector, dimensions: int | None) -> tuple[float, ...]:
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
