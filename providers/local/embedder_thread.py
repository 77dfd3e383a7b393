"""What embedding models do in their thread, whichever engine they have."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from llama_compat.errors import APIError, invalid_parameter
from llama_compat.types import EmbeddingRequest, EmbeddingResponse
from providers.local.batch_thread import BatchThread, Gone
from providers.local.engine_thread import no_numbers


class EmbedderThread(BatchThread):
    """Embeds with one model, one request at a time, in a thread of its own.

    A subclass encodes texts, says which of them are computed together, and computes them.

    Args:
        name: the provider's name for the model.
        size: how many numbers a vector has.
        max_waiting: how many requests may wait.
    """

    def __init__(self, name: str, size: int, max_waiting: int) -> None:
        super().__init__(name, "embedder", max_waiting)
        self._size = size

    async def embed(self, request: EmbeddingRequest) -> EmbeddingResponse:
        """One vector a text; who goes away is not served any further.

        Raises:
            APIError: 400 for a text that is too long or `dimensions` that there are not, 429 where
                too many wait.
        """
        if request.dimensions is not None and request.dimensions > self._size:
            raise invalid_parameter(
                "dimensions",
                f"'dimensions' is {request.dimensions}, but the vectors of the model"
                f" '{self._name}' have {self._size} numbers.",
            ).about(self._name)
        if request.dimensions is not None and (why := self._why_not(request.dimensions)):
            raise invalid_parameter(
                "dimensions",
                f"'dimensions' is {request.dimensions}, but the model '{self._name}' {why}. Leave"
                f" it out for vectors of {self._size} numbers.",
            ).about(self._name)
        return await self.in_thread(self._embed, request)

    def _why_not(self, dimensions: int) -> str | None:
        """What the model has against vectors of so many numbers; nothing, if nobody knows."""
        return None

    # In the thread --------------------------------------------------------------------------------

    def _embed(self, request: EmbeddingRequest, gone: Gone) -> EmbeddingResponse:
        encoded: list[Sequence[int]] = []
        for index, text in enumerate(request.inputs):
            if gone:
                break
            encoded.append(self._encode(request, index, text))
        vectors: dict[int, tuple[float, ...]] = {}
        for batch in self._batches([len(each) for each in encoded]):
            if gone:
                break
            made = self._run([encoded[index] for index in batch], request)
            for index, vector in zip(batch, made, strict=True):
                if not math.isfinite(sum(vector)):
                    raise no_numbers(self._name)
                vectors[index] = vector
        tokens = sum(map(len, encoded))
        self._stats.prompt_tokens += tokens
        in_order = tuple(vectors[index] for index in sorted(vectors))
        return EmbeddingResponse(in_order, tokens)

    def _encode(self, request: EmbeddingRequest, index: int, text: str) -> Sequence[int]:
        """The tokens of the text with the number `index`.

        Raises:
            APIError: 400; it is too long, and is not to be cut.
        """
        raise NotImplementedError

    def _too_long(self, index: int, what: str, max_tokens: int) -> APIError:
        return APIError(
            400,
            f"Text {index} of 'input' has {what} the {max_tokens} tokens that the model"
            f" '{self._name}' takes. Shorten it, or have its end cut off: 'truncate_prompt_tokens':"
            " -1",
            param="input",
            code="context_length_exceeded",
        ).about(self._name)

    def _batches(self, lengths: Sequence[int]) -> list[list[int]]:
        """The indices of texts of so many tokens, those together that are computed together."""
        raise NotImplementedError

    def _run(
        self, batch: Sequence[Sequence[int]], request: EmbeddingRequest
    ) -> Iterable[tuple[float, ...]]:
        """One vector a text, as the request wants them."""
        raise NotImplementedError
