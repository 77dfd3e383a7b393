"""One model and the thread that runs it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import torch

from llama_compat.errors import APIError, internal_error
from llama_compat.types import SamplingParams, StopReason
from providers.base import ProviderStartError
from providers.local.engine import Ended, Generation, Prefilled, Stats
from providers.local.engine_thread import EngineThread, nothing_left
from providers.local.sequence import Deliver
from providers.local.torch_engine import sequence as sequences_module
from providers.local.torch_engine.loader import LoadedModel
from providers.local.torch_engine.sampler import FastSampler, Sampler, score_tokens
from providers.local.torch_engine.scheduler import Batch, Chunk, Scheduler

log = logging.getLogger(__name__)

LocalSequence = sequences_module.Sequence


class Engine(EngineThread[LocalSequence]):
    """Generates with one model; a step computes the next tokens of all that it has room for.

    Args:
        loaded: the model and what belongs to it.
    """

    def __init__(self, loaded: LoadedModel) -> None:
        self.loaded = loaded
        self._runner = loaded.runner
        self._scheduler: Scheduler = Scheduler(
            loaded.blocks, loaded.limits, prefix_cache=loaded.prefix_cache
        )
        super().__init__(loaded.model, self._scheduler, waiting=loaded.limits.waiting)
        self._sampler = Sampler(loaded.model.vocab_size, loaded.model.stop_tokens, _fast(loaded))
        self._grammars = ThreadPoolExecutor(1, thread_name_prefix="grammar")

    @property
    def stats(self) -> Stats:
        """What the engine is doing and has done."""
        return replace(
            super().stats,
            preempted=self._scheduler.preempted,
            used_blocks=self.loaded.blocks.used,
            total_blocks=self.loaded.blocks.total,
            batched=self.loaded.batched,
        )

    @property
    def sequences(self) -> int:
        """How many run at the same time; fewer, where memory turned out to be short."""
        return self.loaded.limits.sequences

    def start(self) -> None:
        """Run the model once, so that the first request finds it warm, and start the thread.

        Raises:
            ProviderStartError: the model does not run.
        """
        trial = LocalSequence(Generation((0,), SamplingParams(), 1), lambda _: None)
        trial.blocks = [0]
        try:
            self._runner.forward([Chunk(trial, 1)])
        except Exception as error:
            raise ProviderStartError(
                f"The model '{self.model.name}' was loaded, but it does not run on"
                f" '{self.loaded.device}' ({type(error).__name__}: {error}): try another 'device'"
                " or 'dtype' in the template, or another model."
            ) from error
        super().start()

    def stop(self) -> None:
        """Break off what there is with an error, and wait for the thread to end."""
        super().stop()
        self._grammars.shutdown()

    # In the thread --------------------------------------------------------------------------------

    def _new_sequence(self, generation: Generation, deliver: Deliver) -> LocalSequence:
        return LocalSequence(generation, deliver)

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def _step(self) -> None:
        batch = self._scheduler.schedule()
        if batch.chunks:
            self._compute(batch)
        elif self._scheduler.waiting:
            raise RuntimeError("sequences wait, and none of them can be scheduled")

    def _compute(self, batch: Batch) -> None:
        constrained = {
            chunk.sequence: self._grammars.submit(chunk.sequence.generation.constraint.allowed)
            for chunk in batch.chunks
            if chunk.samples and chunk.sequence.generation.constraint is not None
        }
        try:
            logits = self._runner.forward(batch.chunks)
            self._advance(batch, logits, constrained)
        except Exception as error:
            for each in constrained.values():
                each.exception()
            if _is_out_of_memory(error):
                log.error("%s: out of memory: %s", self.model.name, error)
                if self.loaded.device.type == "cuda":
                    torch.cuda.empty_cache()
                if self._scheduler.shrink(batch):
                    log.warning(
                        "%s: going on with %d sequences at a time",
                        self.model.name,
                        self._scheduler.limits.sequences,
                    )
                    return
                failure = self._no_memory()
            else:
                log.exception("%s: the model failed", self.model.name)
                failure = internal_error()
            self._scheduler.undo(batch)
            for chunk in batch.chunks:
                if chunk.sequence in self._scheduler.running:
                    self._scheduler.end(chunk.sequence)
                    self._fail(chunk.sequence, failure)

    def _advance(
        self,
        batch: Batch,
        logits: torch.Tensor,
        constrained: dict[LocalSequence, Future[Any]],
    ) -> None:
        """Count the step, and choose the tokens that come next."""
        self._counts.steps += 1
        sampling: list[LocalSequence] = []
        rows: list[int] = []
        row = 0
        for chunk in batch.chunks:
            sequence, samples, scored = chunk.sequence, chunk.samples, chunk.sequence.scores_prompt
            start, end = row, row + chunk.logits
            row = end
            if scored:
                self._score_prompt(sequence, logits[start:end])
            if sequence.completion_tokens == 0:
                self._counts.prompt_tokens += chunk.tokens
            sequence.computed += chunk.tokens
            if not samples:
                continue
            if sequence.completion_tokens == 0:
                cached = sequence.cached_tokens or 0
                self._counts.cached_tokens += cached
                sequence.deliver(Prefilled(cached, tuple(sequence.prompt_scores)))
                if sequence.generation.max_tokens == 0:
                    self._end(sequence, Ended(StopReason.out_of_tokens))
                    continue
            sampling.append(sequence)
            rows.append(end - 1)
        if not sampling:
            return
        masks = self._masks(sampling, constrained)
        kept = [place for place, each in enumerate(sampling) if each in masks]
        sampling = [sampling[place] for place in kept]
        allowed = [masks[each] for each in sampling]
        if not sampling:
            return
        if len(kept) != len(logits):
            logits = logits[[rows[place] for place in kept]]
        for sequence, choice in zip(
            sampling, self._sampler.sample(logits, sampling, allowed), strict=True
        ):
            if choice is None:
                self._scheduler.end(sequence)
                self._fail(sequence, nothing_left())
            else:
                self._append(sequence, choice.token_id, choice.scores)

    def _masks(
        self,
        sampling: Sequence[LocalSequence],
        constrained: dict[LocalSequence, Future[Any]],
    ) -> dict[LocalSequence, torch.Tensor | None]:
        """What each sequence's next token may be; one whose grammar fails ends with that."""
        masks: dict[LocalSequence, torch.Tensor | None] = {}
        for each in sampling:
            try:
                allowed = constrained[each].result() if each in constrained else None
                masks[each] = None if allowed is None else torch.from_numpy(allowed)
            except APIError as error:
                self._scheduler.end(each)
                self._fail(each, error)
        return masks

    def _score_prompt(self, sequence: LocalSequence, logits: torch.Tensor) -> None:
        """Score the tokens that follow each of those that `logits` belong to."""
        generation, start = sequence.generation, sequence.computed + 1
        following = generation.prompt_ids[start : start + len(logits)]
        if following:
            sequence.prompt_scores += score_tokens(
                logits[: len(following)], following, generation.logprobs or 0
            )

    def _no_memory(self) -> APIError:
        return APIError(
            503,
            f"The memory of '{self.loaded.device}' is not enough for this request of model"
            f" '{self.model.name}'. Send a shorter prompt or a lower max_tokens, or retry when less"
            " is running.",
            code="out_of_memory",
        )


def _fast(loaded: LoadedModel) -> FastSampler | None:
    """The sampler in Triton, where the model runs in such kernels."""
    if loaded.kernels != "triton":
        return None
    from providers.local.torch_engine.kernels.sampling import KernelSampler

    return KernelSampler(loaded.limits.sequences, loaded.device)


def _is_out_of_memory(error: Exception) -> bool:
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)
