"""A sequence in a llama.cpp context."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from providers.local.engine import Generation
from providers.local.llama_cpp_engine.media.in_sequence import LlamaMedia
from providers.local.sequence import Deliver, LocalSequence

if TYPE_CHECKING:
    from providers.local.llama_cpp_engine.bindings.model import LlamaAdapter
    from providers.local.llama_cpp_engine.bindings.sampler import LlamaSampler
    from providers.local.llama_cpp_engine.media.sense import LlamaMedium
    from providers.local.llama_cpp_engine.slots import Slot, Tokens


Owner = tuple[str | None, int | None]
"""The `cache_salt` of a request, and the key of its adapter."""


class LlamaSequence(LocalSequence):
    """A generation, the slot that it is computed in, and how its tokens are chosen.

    Attributes:
        slot: where its keys and values are; None while it waits.
        sampler: chooses its tokens; made when the first is due, and kept when it has to wait again,
            so that its random numbers go on.
        adapter: what it is computed with besides the model's own weights.
        media: those in its prompt.
    """

    def __init__(
        self,
        generation: Generation,
        deliver: Deliver,
        adapter: LlamaAdapter | None = None,
        media: Sequence[LlamaMedium] = (),
    ) -> None:
        super().__init__(generation, deliver)
        self.media = LlamaMedia(media)
        self.adapter = adapter
        self.slot: Slot | None = None
        self.sampler: LlamaSampler | None = None
        self._tokens = self._known_by()

    @property
    def owner(self) -> Owner:
        """Who else may begin with what is computed of it."""
        adapter = None if self.adapter is None else self.adapter.key
        return self.generation.sampling.cache_salt, adapter

    @property
    def tokens(self) -> Tokens:
        """`token_ids` as an array, made anew only when it is asked for after it grew. In the place
        of a medium's is what tells it from others: a negative number."""
        if len(self._tokens) != len(self.token_ids):
            self._tokens = self._known_by()
        return self._tokens

    def _known_by(self) -> Tokens:
        tokens = np.array(self.token_ids, np.int32)
        for run in self.media:
            tokens[run.start : run.end] = -run.number
        return tokens
