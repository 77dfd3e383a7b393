"""One GGUF model and the thread that runs it."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np

from llama_compat.errors import APIError, internal_error
from llama_compat.types import StopReason
from providers.base import ProviderStartError
from providers.local.engine import Ended, Generation, Prefilled, Stats, TokenScores
from providers.local.engine_thread import EngineThread, no_numbers, nothing_left
from providers.local.llama_cpp_engine.bindings.context import NO_ROOM
from providers.local.llama_cpp_engine.bindings.library import LlamaError
from providers.local.llama_cpp_engine.bindings.model import LlamaAdapter
from providers.local.llama_cpp_engine.loader import LoadedLlama
from providers.local.llama_cpp_engine.media.in_sequence import LlamaRun
from providers.local.llama_cpp_engine.media.sense import LlamaMedium
from providers.local.llama_cpp_engine.sampling import (
    Mask,
    choose,
    forbid,
    log_softmax,
    needs_mask,
    sampler_for,
    scores_of,
)
from providers.local.llama_cpp_engine.scheduler import LlamaBatch, LlamaChunk, LlamaScheduler
from providers.local.llama_cpp_engine.sequence import LlamaSequence
from providers.local.media.placing import PlacedMedium
from providers.local.models import store as model_store
from providers.local.residency.loaded_adapters import LoadedAdapters
from providers.local.sequence import Deliver

log = logging.getLogger(__name__)

Masks = dict[LlamaSequence, "Future[Mask | None]"]


class LlamaEngine(EngineThread[LlamaSequence]):
    """Generates with one GGUF model.

    A step computes one batch: a token of each sequence that decodes, and as much of the prompts
    that wait as fits. llama.cpp leaves out what may not come and chooses the likeliest; what is
    drawn is drawn here, as every engine does.

    Args:
        loaded: the model, its context and its slots.
    """

    def __init__(self, loaded: LoadedLlama) -> None:
        self.loaded = loaded
        self._scheduler: LlamaScheduler = LlamaScheduler(
            loaded.slots, loaded.limits, apart=loaded.config.deterministic
        )
        super().__init__(loaded.model, self._scheduler, waiting=loaded.config.max_waiting)
        self._adapters: LoadedAdapters[LlamaAdapter] = LoadedAdapters(loaded.model.name)
        self._grammars = ThreadPoolExecutor(1, thread_name_prefix="grammar")

    @property
    def taken_bytes(self) -> int:
        """What its weights and its cache take."""
        context = self.loaded.context
        cache = context.size * context.model.kv_bytes_per_token
        return context.model.weight_bytes + cache + self.loaded.projector_bytes

    @property
    def stats(self) -> Stats:
        """What the engine is doing and has done; its blocks are the slots."""
        slots = self.loaded.slots
        return replace(
            super().stats,
            preempted=self._scheduler.preempted,
            used_blocks=slots.used,
            total_blocks=slots.total,
        )

    @property
    def sequences(self) -> int:
        """How many run at the same time."""
        return self.loaded.slots.total

    def stop(self) -> None:
        """Break off what there is with an error, and give the context's memory back."""
        super().stop()
        self._grammars.shutdown()
        self.loaded.context.free()

    # Adapters -------------------------------------------------------------------------------------

    @property
    def adapters(self) -> Collection[str]:
        """See `AdaptableEngine`."""
        return self._adapters.sources

    def load_adapter(self, source: str) -> None:
        """See `AdaptableEngine`; steps wait meanwhile."""
        path = model_store.resolve_gguf(source)
        try:
            adapter = self._between_steps(lambda: self.loaded.context.model.adapter(path))
        except LlamaError as error:
            raise ProviderStartError(
                f"The adapter '{source}' can't be used with the model '{self.model.name}': {error}"
            ) from error
        self._adapters.add(source, adapter)

    def unload_adapter(self, source: str) -> None:
        """See `AdaptableEngine`."""
        if self._adapters.remove(source):
            self._between_steps(lambda: None)

    # In the thread --------------------------------------------------------------------------------

    def _new_sequence(self, generation: Generation, deliver: Deliver) -> LlamaSequence:
        media = [each for each in generation.media if isinstance(each, LlamaMedium)]
        return LlamaSequence(generation, deliver, self._adapters.of(generation), media)

    def _encode(self, medium: PlacedMedium) -> LlamaMedium:
        senses = self.loaded.senses
        assert senses is not None
        return senses.encode(medium)

    def _step(self) -> None:
        batch = self._scheduler.schedule()
        if not batch.chunks:
            # Adapters that nobody has any more may be those of the last step.
            self.loaded.context.adapt(self.loaded.always)
            self.loaded.context.model.free_adapters()
            if self._scheduler.waiting:
                raise RuntimeError("sequences wait, and none of them can be scheduled")
            return
        masks = {
            chunk.sequence: self._grammars.submit(chunk.sequence.generation.constraint.allowed)
            for chunk in batch.chunks
            if chunk.samples and chunk.sequence.generation.constraint is not None
        }
        try:
            self._compute(batch)
            self._advance(batch, masks)
        except Exception as error:
            if isinstance(error, APIError):
                failure = error
            else:
                log.exception("%s: the model failed", self.model.name)
                failure = internal_error()
            for chunk in batch.chunks:
                if chunk.sequence in self._scheduler.running:
                    self._scheduler.end(chunk.sequence, keep=False)
                    self._fail(chunk.sequence, failure)
        finally:
            for each in masks.values():
                each.exception()

    def _compute(self, batch: LlamaBatch) -> None:
        """Run the batch; who has no room in the KV cache is taken out of it.

        Raises:
            APIError: 503; there is not even room for one.
            RuntimeError: llama.cpp failed.
        """
        context, adapter = self.loaded.context, batch.adapter
        own = () if adapter is None else ((adapter, 1.0),)
        context.adapt((*self.loaded.always, *own))
        context.model.free_adapters()
        while (status := self._decode(batch)) == NO_ROOM:
            if not self._scheduler.give_way(batch):
                raise self._no_room()
            if not batch.chunks:
                # Others had the last of the room, and one of those made way that were in it.
                return
        if status != 0:
            raise RuntimeError(f"llama_decode returned {status}")
        self._counts.steps += 1

    def _decode(self, batch: LlamaBatch) -> int:
        """Compute the batch, which is of text, or of one medium; llama.cpp's status."""
        chunk, team = batch.chunks[0], self.loaded.team
        run = chunk.sequence.media.at(chunk.sequence.computed)
        if run is not None:
            return self._show(chunk, run)
        tokens = self._fill(batch)
        self.loaded.context.use_threads(team.threads)
        begun = time.perf_counter()
        status = self.loaded.context.decode(tokens)
        if status == 0:
            team.took((len(batch.chunks), tokens), time.perf_counter() - begun)
        return status

    def _show(self, chunk: LlamaChunk, run: LlamaRun) -> int:
        """Compute the parts of a medium in the place of tokens; llama.cpp's status."""
        sequence, start = chunk.sequence, chunk.sequence.computed
        end, slot = start + chunk.tokens, sequence.slot
        assert slot is not None
        slot.tokens[start:end] = sequence.tokens[start:end]
        return self.loaded.context.decode_embeddings(
            slot.index,
            run.parts.embeddings[start - run.start : end - run.start],
            run.positions(start, end),
            causal=not run.is_whole,
            logits=chunk.samples,
        )

    def _fill(self, batch: LlamaBatch) -> int:
        """Write the batch into the context's arrays; how many tokens it has."""
        context, at = self.loaded.context, 0
        for sequence, tokens in batch.chunks:
            slot, start = sequence.slot, sequence.computed
            assert slot is not None
            end = at + tokens
            position = sequence.media.position(start)
            if tokens == 1:
                context.tokens[at] = sequence.token_ids[start]
                context.positions[at] = position
            else:
                context.tokens[at:end] = sequence.tokens[start : start + tokens]
                context.positions[at:end] = range(position, position + tokens)
            context.sequence_ids[at:end] = slot.index
            context.wants_logits[at:end] = sequence.scores_prompt
            context.wants_logits[end - 1] |= tokens == sequence.uncomputed
            slot.tokens[start : start + tokens] = context.tokens[at:end]
            at = end
        return at

    def _advance(self, batch: LlamaBatch, masks: Masks) -> None:
        """Count the step, and choose the tokens that come next."""
        at = 0
        for chunk in batch.chunks:
            sequence, samples = chunk.sequence, chunk.samples
            start, at = at, at + chunk.tokens
            if sequence.scores_prompt:
                try:
                    self._score_prompt(chunk, start)
                except APIError as error:
                    self._lose(sequence, error)
                    continue
            if sequence.completion_tokens == 0:
                self._counts.prompt_tokens += chunk.tokens
            sequence.computed += chunk.tokens
            assert sequence.slot is not None
            sequence.slot.length = sequence.computed
            if not samples:
                continue
            if sequence.completion_tokens == 0:
                cached = sequence.cached_tokens or 0
                self._counts.cached_tokens += cached
                sequence.deliver(Prefilled(cached, tuple(sequence.prompt_scores)))
                if sequence.generation.max_tokens == 0:
                    self._end(sequence, Ended(StopReason.out_of_tokens))
                    continue
            try:
                token_id, scores = self._choose(sequence, at - 1, masks.get(sequence))
            except APIError as error:
                self._lose(sequence, error)
            else:
                self._append(sequence, token_id, scores)

    def _lose(self, sequence: LlamaSequence, error: APIError) -> None:
        """A sequence ends with an error; what is no good is of no use to others either."""
        self._scheduler.end(sequence, keep=error.status < 500)
        self._fail(sequence, error)

    def _choose(
        self, sequence: LlamaSequence, index: int, mask: Future[Mask | None] | None
    ) -> tuple[int, TokenScores | None]:
        """The token that follows the token `index` of the batch, and its scores if wanted.

        Raises:
            APIError: 400; no token may come next, or the grammar is too complex. 500; the model
                computed no numbers.
        """
        context, wanted = self.loaded.context, sequence.generation.logprobs
        logprobs: Any = None
        if not np.isfinite(context.logits(index).max()):
            raise no_numbers(self.model.name)
        if wanted is not None:
            logprobs = log_softmax(context.logits(index))
        if needs_mask(sequence):
            allowed = None if mask is None else mask.result()
            if not forbid(context.logits(index), sequence, allowed, self.model.stop_tokens):
                raise nothing_left()
        if sequence.sampler is None:
            sequence.sampler = sampler_for(sequence, self.model.vocab_size)
        token_id = choose(sequence, context, index)
        return token_id, None if wanted is None else scores_of(logprobs, token_id, wanted)

    def _score_prompt(self, chunk: LlamaChunk, start: int) -> None:
        """Score the prompt's tokens that follow those of `chunk`, of which `start` is the first.

        Raises:
            APIError: 500; the model computed no numbers.
        """
        generation, computed = chunk.sequence.generation, chunk.sequence.computed
        following = generation.prompt_ids[computed + 1 : computed + 1 + chunk.tokens]
        for index, token_id in enumerate(following, start):
            logits = self.loaded.context.logits(index)
            if not np.isfinite(logits.max()):
                raise no_numbers(self.model.name)
            logprobs = log_softmax(logits)
            chunk.sequence.prompt_scores.append(
                scores_of(logprobs, token_id, generation.logprobs or 0)
            )

    def _no_room(self) -> APIError:
        return APIError(
            503,
            f"The KV cache of the model '{self.model.name}' has no room for this request, though"
            " nothing else runs. Send a shorter prompt, or set a larger 'kv_cache' in the"
            " template.",
            code="out_of_memory",
        ).about(self.model.name)
