"""The thread that runs an embedding model: what comes to it, what leaves it, and how it ends."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from llama_compat.errors import APIError, invalid_parameter
from llama_compat.types import EmbeddingRequest, EmbeddingResponse
from providers.local.engine import Stats
from providers.local.engine_thread import no_numbers


class EmbedderThread:
    """Embeds with one model, one request at a time, in a thread of its own.

    A subclass encodes texts, says which of them are computed together, and computes them.

    Args:
        name: the provider's name for the model.
        size: how many numbers a vector has.
        max_waiting: how many requests may wait.
    """

    def __init__(self, name: str, size: int, max_waiting: int) -> None:
        self._name = name
        self._size = size
        self._max_waiting = max_waiting
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"embedder of {name}")
        self._stats = Stats()
        self._stopping = threading.Event()

    @property
    def stats(self) -> Stats:
        """What it is doing and has done."""
        return self._stats

    def stop(self) -> None:
        """Take no more, and wait for the batch that runs."""
        self._stopping.set()
        self._thread.shutdown(cancel_futures=True)

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
        encoded: list[Sequence[int]] = []
        for index, text in enumerate(request.inputs):
            if gone.is_set() or self._stopping.is_set():
                break
            encoded.append(self._encode(index, text))
        vectors: dict[int, tuple[float, ...]] = {}
        for batch in self._batches([len(each) for each in encoded]):
            if gone.is_set() or self._stopping.is_set():
                break
            made = self._run([encoded[index] for index in batch], request.dimensions)
            for index, vector in zip(batch, made, strict=True):
                if not math.isfinite(sum(vector)):
                    raise no_numbers(self._name)
                vectors[index] = vector
        tokens = sum(map(len, encoded))
        self._stats.prompt_tokens += tokens
        in_order = tuple(vectors[index] for index in sorted(vectors))
        return EmbeddingResponse(in_order, tokens)

    def _encode(self, index: int, text: str) -> Sequence[int]:
        """The tokens of the text with the number `index`.

        Raises:
            APIError: 400; it is too long.
        """
        raise NotImplementedError

    def _batches(self, lengths: Sequence[int]) -> list[list[int]]:
        """The indices of texts of so many tokens, those together that are computed together."""
        raise NotImplementedError

    def _run(
        self, batch: Sequence[Sequence[int]], dimensions: int | None
    ) -> Iterable[tuple[float, ...]]:
        """One vector a text, of `dimensions` numbers where that is said."""
        raise NotImplementedError
