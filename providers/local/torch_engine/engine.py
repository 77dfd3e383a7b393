"""One model and the thread that runs it."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from llama_compat.errors import APIError, internal_error
from llama_compat.prefixes.held import HeldPrompts
from llama_compat.types import SamplingParams, StopReason
from providers.base import ProviderStartError
from providers.local.engine import Ended, Generation, Prefilled, Stats, TokenScores
from providers.local.engine_thread import EngineThread, no_numbers, nothing_left
from providers.local.media.placing import PlacedMedium
from providers.local.models import store as model_store
from providers.local.residency.loaded_adapters import LoadedAdapters
from providers.local.sequence import Deliver
from providers.local.torch_engine import devices, lost_devices, parking
from providers.local.torch_engine.adapters.low_rank import TorchAdapter
from providers.local.torch_engine.cpu_thread import aside, on_cpu_thread, on_device
from providers.local.torch_engine.devices import current
from providers.local.torch_engine.drafts import guesser_of
from providers.local.torch_engine.loading.loader import LoadedModel
from providers.local.torch_engine.media.sense import TorchMedium
from providers.local.torch_engine.scheduling.sampler import (
    NO_TOKEN,
    Choice,
    FastSampler,
    Sampler,
    are_numbers,
    is_plain,
    score_tokens,
)
from providers.local.torch_engine.scheduling.scheduler import TorchScheduler
from providers.local.torch_engine.scheduling.sequence import TorchSequence
from providers.local.torch_engine.scheduling.step import Chunk, StepBatch
from providers.local.torch_engine.thread_team import TeamRunner

log = logging.getLogger(__name__)


class Launched(NamedTuple):
    """A step whose tokens were not read yet.

    Attributes:
        batch: the step.
        sequences: those that it chooses a token for.
        chosen: the tokens, on the device.
        copy: the same on the host, once `copied` happened.
        copied: None where there is nothing to wait for.
    """

    batch: StepBatch
    sequences: list[TorchSequence]
    chosen: torch.Tensor
    copy: torch.Tensor
    copied: torch.cuda.Event | None


class TorchEngine(EngineThread[TorchSequence]):
    """Generates with one model; a step computes the next tokens of all that it has room for.

    Where tokens are chosen on the device, a step is launched before those of the step before are
    read, so that the device need not wait for what is done with them here. In the meantime another
    token stands for each in its sequence. What a step computes for a sequence that turns out to
    have ended is dropped; its blocks may have a new owner by then, who writes to them later.

    Args:
        loaded: the model and what belongs to it.
    """

    def __init__(self, loaded: LoadedModel) -> None:
        self.loaded = loaded
        self._runner = loaded.runner
        if loaded.device.type == "cpu":
            threads = loaded.config.threads
            if loaded.config.deterministic and threads is None:
                # PyTorch's attention is another with another number of threads.
                threads = on_cpu_thread(torch.get_num_threads)
            self._runner = TeamRunner(loaded.runner, threads)
        self._scheduler: TorchScheduler = TorchScheduler(
            loaded.blocks,
            loaded.limits,
            prefix_cache=loaded.config.prefix_cache and loaded.batched,
            guesser=guesser_of(loaded),
            slowdown=loaded.config.prompt_slowdown,
            long_rope=loaded.long_rope,
            states=loaded.states,
        )
        super().__init__(loaded.model, self._scheduler, waiting=loaded.config.max_waiting)
        self._fast = _fast(loaded)
        self._sampler = Sampler(loaded.model.vocab_size, loaded.model.stop_tokens, self._fast)
        self._launched: Launched | None = None
        self._copies = [
            devices.host_buffer(loaded.limits.sequences, dtype=torch.int64, device=loaded.device)
            for _ in range(2)
        ]
        self._adapters: LoadedAdapters[TorchAdapter] = LoadedAdapters(loaded.model.name)
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

    def held_prompts(self) -> HeldPrompts | None:
        """Those in the KV cache, where several requests share one."""
        blocks = self.loaded.blocks
        if blocks.held is None and self.loaded.config.prefix_cache and self.loaded.batched:
            blocks.held = HeldPrompts()
        return blocks.held

    def start(self) -> None:
        """Run the model once, so that the first request finds it warm, and start the thread.

        Raises:
            ProviderStartError: the model does not run.
        """
        trial = TorchSequence(Generation((0,), SamplingParams(), 1), lambda _: None)
        trial.blocks = [0]
        try:
            on_device(self.loaded.device, self._runner.forward, [Chunk(trial, 1)])
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

    # Waiting in main memory -----------------------------------------------------------------------

    @property
    def parked_bytes(self) -> int:
        """See `ParkableEngine`."""
        # What takes media, or goes ahead, would stay where it is.
        loaded = self.loaded
        if not (loaded.draft is None and loaded.head is None and loaded.sense is None):
            return 0
        return parking.parked_bytes(self.loaded.weights)

    def parked(self) -> parking.ParkedTorchModel:
        """See `ParkableEngine`."""
        return parking.ParkedTorchModel(self.loaded, started)

    # Adapters -------------------------------------------------------------------------------------

    @property
    def adapters(self) -> Collection[str]:
        """See `AdaptableEngine`."""
        return self._adapters.sources

    def load_adapter(self, source: str) -> None:
        """See `AdaptableEngine`."""
        reader = self.loaded.adapters
        if reader is None:
            raise ProviderStartError(
                f"The model '{self.model.name}' takes no adapters, as it runs on transformers' own"
                " code: leave its `adapters` out of the template, or choose a model that runs in"
                " batches."
            )
        folder = model_store.resolve_adapter(source)
        with devices.loading(f"model '{self.model.name}'"):
            # Whoever runs now goes on meanwhile.
            adapter = aside(current(self.loaded.device)(reader.read), source, folder)
        self._adapters.add(source, adapter)

    def unload_adapter(self, source: str) -> None:
        """See `AdaptableEngine`."""
        self._adapters.remove(source)

    # In the thread --------------------------------------------------------------------------------

    def _new_sequence(self, generation: Generation, deliver: Deliver) -> TorchSequence:
        media = [each for each in generation.media if isinstance(each, TorchMedium)]
        return TorchSequence(generation, deliver, self._adapters.of(generation), media)

    def _encode(self, medium: PlacedMedium) -> TorchMedium:
        sense, device = self.loaded.sense, self.loaded.device
        assert sense is not None
        with devices.within_memory(self.model.name, device):
            # Beside the steps, which go on; a medium takes as long as many of them.
            return aside(current(device)(sense.encode), medium)

    def _refusal(self) -> APIError | None:
        return lost_devices.refusal(devices.place_of(self.loaded.device))

    def _step(self) -> None:
        on_device(self.loaded.device, self._run_step)

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def _run_step(self) -> None:
        before, self._launched = self._launched, None
        batch = self._scheduler.schedule()
        if self._can_launch(batch):
            self._overlap(batch, before)
            return
        if before is not None:
            self._finish(before, batch)
        if batch.chunks:
            self._compute(batch)
        elif before is None and self._scheduler.waiting:
            raise RuntimeError("sequences wait, and none of them can be scheduled")

    # Steps whose tokens are read when the next one runs -------------------------------------------

    def _can_launch(self, batch: StepBatch) -> bool:
        """Whether all that the step chooses can be chosen on the device."""
        if self._fast is None or not self.loaded.config.overlap:
            return False
        sampling = [chunk.sequence for chunk in batch.chunks if chunk.samples]
        return bool(sampling) and all(
            is_plain(each) and each.generation.max_tokens and not each.generation.prompt_logprobs
            for each in sampling
        )

    def _overlap(self, batch: StepBatch, before: Launched | None) -> None:
        """Launch a step, and only then read the tokens of the one before."""
        try:
            launched = self._launch(batch, before)
        except Exception as error:
            if before is not None:
                self._finish(before, batch)
            self._recover(batch, error)
            return
        if before is not None:
            self._finish(before, batch)
        self._counts.steps += 1
        for chunk in batch.chunks:
            self._count(chunk)
        for place, each in enumerate(launched.sequences):
            if not each.ended:
                each.token_ids.append(-1 - place)
        self._launched = launched

    def _launch(self, batch: StepBatch, before: Launched | None) -> Launched:
        assert self._fast is not None
        sequences = [chunk.sequence for chunk in batch.chunks if chunk.samples]
        logits = self._runner.forward(batch.chunks, None if before is None else before.chosen)
        chosen = self._fast.sample(logits, sequences)
        if chosen.device.type != "cuda":
            return Launched(batch, sequences, chosen, chosen, None)
        # Of the step before this, which was not read yet, it is the other.
        self._copies.reverse()
        copy = self._copies[0][: len(chosen)]
        copied = torch.cuda.Event()
        copy.copy_(chosen, non_blocking=True)
        copied.record()
        return Launched(batch, sequences, chosen, copy, copied)

    def _finish(self, launched: Launched, following: StepBatch) -> None:
        """Read a step's tokens, and take what ends with them out of the step that follows."""
        try:
            if launched.copied is not None:
                launched.copied.synchronize()
            token_ids = launched.copy.tolist()
        except Exception as error:
            devices.check(self.loaded.device, error)
            log.error("%s: the model failed", self.model.name, exc_info=error)
            self._end_all(launched.batch, internal_error())
            token_ids = []
        for each, token_id in zip(launched.sequences, token_ids, strict=False):
            if not each.ended:
                each.token_ids.pop()
                self._take(each, token_id, None)
        following.chunks = [chunk for chunk in following.chunks if not chunk.sequence.ended]
        for chunk in following.chunks:
            self._scheduler.register(following, chunk)

    # Steps whose tokens are read at once ----------------------------------------------------------

    def _compute(self, batch: StepBatch) -> None:
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
            self._recover(batch, error)

    def _advance(
        self,
        batch: StepBatch,
        logits: torch.Tensor,
        constrained: dict[TorchSequence, Future[Any]],
    ) -> None:
        """Count the step, and choose the tokens that come next."""
        self._counts.steps += 1
        sampling: list[TorchSequence] = []
        rows: list[int] = []
        guessed: dict[TorchSequence, tuple[Chunk, torch.Tensor]] = {}
        row = 0
        for chunk in batch.chunks:
            sequence, samples, scored = chunk.sequence, chunk.samples, chunk.sequence.scores_prompt
            start, end = row, row + chunk.logits
            row = end
            if scored:
                if not all(are_numbers(logits[start:end])):
                    self._fail_without_numbers(sequence)
                    continue
                self._score_prompt(sequence, logits[start:end])
            self._count(chunk)
            if not samples:
                continue
            if sequence.generation.max_tokens == 0:
                self._end(sequence, Ended(StopReason.out_of_tokens))
                continue
            sampling.append(sequence)
            rows.append(end - 1 - len(chunk.guessed))
            if chunk.guessed:
                guessed[sequence] = (chunk, logits[end - len(chunk.guessed) : end])
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
            self._say(sequence, choice)
        for chunk, following in guessed.values():
            self._go_on(batch, chunk, following)

    def _go_on(self, batch: StepBatch, chunk: Chunk, logits: torch.Tensor) -> None:
        """Choose further tokens, as long as each was guessed before it was chosen.

        Args:
            batch: the step.
            chunk: of a sequence whose next token was chosen.
            logits: after each guessed token, `[guessed, vocab_size]`.
        """
        sequence, right = chunk.sequence, 0
        for guess, row in zip(chunk.guessed, logits.split(1), strict=True):
            if sequence.ended or sequence.token_ids[-1] != guess:
                break
            right += 1
            constraint = sequence.generation.constraint
            try:
                allowed = None if constraint is None else constraint.allowed()
            except APIError as error:
                self._scheduler.end(sequence)
                self._fail(sequence, error)
                break
            mask = None if allowed is None else torch.from_numpy(allowed)
            [choice] = self._sampler.sample(row, [sequence], [mask])
            self._say(sequence, choice)
        self._scheduler.guessed_right(batch, chunk, right)
        self._counts.guessed_tokens += len(chunk.guessed)
        self._counts.guessed_right_tokens += right

    def _say(self, sequence: TorchSequence, choice: Choice | None) -> None:
        """Give a sequence what was chosen for it, or end it where nothing may come."""
        if choice is None:
            self._scheduler.end(sequence)
            self._fail(sequence, nothing_left())
        else:
            self._take(sequence, choice.token_id, choice.scores)

    def _take(self, sequence: TorchSequence, token_id: int, scores: TokenScores | None) -> None:
        """Give a sequence the token that was chosen for it, or end it where none could be."""
        if token_id == NO_TOKEN:
            self._fail_without_numbers(sequence)
        else:
            self._append(sequence, token_id, scores)

    def _fail_without_numbers(self, sequence: TorchSequence) -> None:
        """End a sequence with an error, so that no other finds what was computed of it."""
        log.error("%s: the model computed no numbers for a request", self.model.name)
        self._scheduler.distrust(sequence)
        self._scheduler.end(sequence)
        self._fail(sequence, no_numbers(self.model.name))

    def _count(self, chunk: Chunk) -> None:
        """Count a chunk that is in the cache, or will be before anything is read from it."""
        sequence, samples = chunk.sequence, chunk.samples
        self._scheduler.advance(chunk)
        # Of a step that is done again all has been told.
        if sequence.completion_tokens or sequence.prefilled:
            return
        self._counts.prompt_tokens += chunk.tokens
        if samples:
            cached = sequence.cached_tokens or 0
            self._counts.cached_tokens += cached
            size = self.loaded.blocks.block_size
            if sequence.adapter is None:  # who is told asks of the model alone
                self.loaded.blocks.note(
                    sequence.generation.marks, lambda index: sequence.block_hash(index, size)
                )
            sequence.prefilled = True
            sequence.deliver(Prefilled(cached, tuple(sequence.prompt_scores)))

    def _recover(self, batch: StepBatch, error: Exception) -> None:
        """After a step that failed: do it again with less where memory was short, else end all that
        were in it.

        Raises:
            APIError: 503; the device is lost, so that all there is ends.
        """
        devices.check(self.loaded.device, error)
        if devices.is_out_of_memory(error):
            log.error("%s: out of memory: %s", self.model.name, error)
            devices.give_back(self.loaded.device, error)
            if self._scheduler.shrink(batch):
                limits = self._scheduler.limits
                log.warning(
                    "%s: going on for a while with %d sequences at a time, and %d tokens a step",
                    self.model.name,
                    limits.sequences,
                    limits.tokens,
                )
                return
            failure = devices.no_memory(self.model.name, self.loaded.device)
        else:
            log.error("%s: the model failed", self.model.name, exc_info=error)
            failure = internal_error()
        self._end_all(batch, failure)

    def _end_all(self, batch: StepBatch, failure: APIError) -> None:
        """End all sequences of a step that could not be computed."""
        self._scheduler.undo(batch)
        for chunk in batch.chunks:
            if not chunk.sequence.ended:
                self._scheduler.end(chunk.sequence)
                self._fail(chunk.sequence, failure)

    def _masks(
        self,
        sampling: Sequence[TorchSequence],
        constrained: dict[TorchSequence, Future[Any]],
    ) -> dict[TorchSequence, torch.Tensor | None]:
        """What each sequence's next token may be; one whose grammar fails ends with that."""
        masks: dict[TorchSequence, torch.Tensor | None] = {}
        for each in sampling:
            try:
                allowed = constrained[each].result() if each in constrained else None
                masks[each] = None if allowed is None else torch.from_numpy(allowed)
            except APIError as error:
                self._scheduler.end(each)
                self._fail(each, error)
        return masks

    def _score_prompt(self, sequence: TorchSequence, logits: torch.Tensor) -> None:
        """Score the tokens that follow each of those that `logits` belong to."""
        generation, start = sequence.generation, sequence.computed + 1
        following = generation.prompt_ids[start : start + len(logits)]
        if following:
            sequence.prompt_scores += score_tokens(
                logits[: len(following)], following, generation.logprobs or 0
            )


def started(loaded: LoadedModel) -> TorchEngine:
    """An engine that runs.

    Raises:
        ProviderStartError: the model does not run.
    """
    engine = TorchEngine(loaded)
    engine.start()
    return engine


def _fast(loaded: LoadedModel) -> FastSampler | None:
    """The sampler in Triton, where the model runs in such kernels."""
    if loaded.kernels != "triton":
        return None
    from providers.local.torch_engine.kernels.sampling import KernelSampler

    return KernelSampler(loaded.limits.sequences, loaded.device)
