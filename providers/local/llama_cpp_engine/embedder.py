"""Texts made into vectors by a GGUF whose header says how they are pooled."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from llama_compat.errors import APIError, internal_error
from providers.base import ProviderStartError
from providers.local.embedder_thread import EmbedderThread
from providers.local.llama_cpp_engine.bindings import MAX_SEQUENCES, Context, LlamaError, Model
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

    def _batches(self, lengths: Sequence[int]) -> list[list[int]]:
        return batches(lengths, self.max_tokens, self._texts)

    def _run(
        self, batch: Sequence[Sequence[int]], dimensions: int | None
    ) -> Iterable[tuple[float, ...]]:
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
        return [_cut(context.embedding(sequence), dimensions) for sequence in range(len(batch))]


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
