"""One model and the thread that runs it."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncGenerator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from llama_compat.errors import APIError, internal_error, invalid_parameter, shutting_down
from llama_compat.types import SamplingParams, StopReason
from providers.base import ProviderStartError
from providers.local.engine import (
    Ended,
    Generation,
    LocalModel,
    Output,
    Prefilled,
    Sampled,
    Stats,
)
from providers.local.torch_engine import sequence as sequences_module
from providers.local.torch_engine.loader import LoadedModel
from providers.local.torch_engine.sampler import Choice, Sampler, score_tokens
from providers.local.torch_engine.scheduler import Batch, Chunk, Scheduler

log = logging.getLogger(__name__)

LocalSequence = sequences_module.Sequence


class Engine:
    """Generates with one model, in a thread of its own, which owns all that changes.

    Sequences and cancellations wait in an inbox for the thread to look at it, between two steps. A
    step computes the next tokens of all sequences that it has room for; what came of it is handed
    to the event loops that asked all at once.

    Args:
        loaded: the model and what belongs to it.
    """

    def __init__(self, loaded: LoadedModel) -> None:
        self.loaded = loaded
        self._runner = loaded.runner
        self._scheduler = Scheduler(loaded.blocks, loaded.limits, prefix_cache=loaded.prefix_cache)
        self._sampler = Sampler(loaded.model.vocab_size, loaded.model.stop_tokens)
        self._grammars = ThreadPoolExecutor(1, thread_name_prefix="grammar")
        self._changed = threading.Condition()
        self._arrived: list[LocalSequence] = []
        self._given_up: list[LocalSequence] = []
        self._closed = False
        self._outbox: dict[asyncio.AbstractEventLoop, list[tuple[_Mailbox, Output | APIError]]] = {}
        self._counts = Stats(batched=loaded.batched, total_blocks=loaded.blocks.total)
        self._seconds_a_sequence = 1.0
        self._thread = threading.Thread(
            target=self._run, name=f"torch engine of {loaded.model.name}", daemon=True
        )

    @property
    def model(self) -> LocalModel:
        """The model."""
        return self.loaded.model

    @property
    def stats(self) -> Stats:
        """What the engine is doing and has done."""
        return replace(
            self._counts,
            waiting=self._scheduler.waiting + len(self._arrived),
            running=len(self._scheduler.running),
            preempted=self._scheduler.preempted,
            used_blocks=self.loaded.blocks.used,
        )

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
        self._thread.start()

    def stop(self) -> None:
        """Break off what there is with an error, and wait for the thread to end."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()
        self._grammars.shutdown()

    async def generate(self, generation: Generation) -> AsyncGenerator[Sequence[Output], None]:
        """See `providers.local.engine.Engine.generate`."""
        mailbox = _Mailbox(asyncio.get_running_loop())
        sequence = LocalSequence(generation, partial(self._post, mailbox))
        self._submit(sequence)
        try:
            while True:
                outputs = await mailbox.take()
                last = outputs[-1]
                if isinstance(last, APIError):
                    raise last
                yield outputs  # type: ignore[misc]
                if isinstance(last, Ended):
                    return
        finally:
            self._give_up(sequence)

    def _submit(self, sequence: LocalSequence) -> None:
        with self._changed:
            if self._closed:
                raise shutting_down()
            waiting = self._scheduler.waiting + len(self._arrived)
            room = self.loaded.limits.sequences - len(self._scheduler.running)
            if waiting >= self.loaded.limits.waiting + max(0, room):
                raise self._too_many(waiting)
            self._arrived.append(sequence)
            self._changed.notify()

    def _too_many(self, waiting: int) -> APIError:
        # A place is free when each of those that run now has made room for one that waits.
        rounds = waiting / max(1, self.loaded.limits.sequences)
        seconds = min(60, max(1, round(rounds * self._seconds_a_sequence)))
        return APIError(
            429,
            f"The model '{self.model.name}' is busy, and {waiting} requests wait for it already."
            f" Retry in {seconds} s.",
            code="engine_overloaded",
            headers={"retry-after": str(seconds)},
        )

    def _give_up(self, sequence: LocalSequence) -> None:
        if sequence.ended:
            return
        with self._changed:
            self._given_up.append(sequence)
            self._changed.notify()

    # In the thread --------------------------------------------------------------------------------

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def _run(self) -> None:
        while self._receive():
            try:
                batch = self._scheduler.schedule()
                if batch.chunks:
                    self._step(batch)
                elif self._scheduler.waiting:
                    raise RuntimeError("sequences wait, and none of them can be scheduled")
            except Exception:
                # It is not known what holds any more, so all that there is ends.
                log.exception("%s: the engine failed", self.model.name)
                for sequence in self._scheduler.clear():
                    self._fail(sequence, internal_error())
            self._send()
        for sequence in [*self._scheduler.clear(), *self._arrived]:
            sequence.ended = True
            self._counts.cancelled += 1
            sequence.deliver(shutting_down())
        self._send()

    def _receive(self) -> bool:
        """Wait for something to do and take in what came; False when the engine is to stop."""
        with self._changed:
            while not (
                self._closed
                or self._arrived
                or self._given_up
                or self._scheduler.running
                or self._scheduler.waiting
            ):
                self._changed.wait()
            if self._closed:
                return False
            arrived, self._arrived = self._arrived, []
            given_up = {each for each in self._given_up if not each.ended}
            self._given_up = []
            for sequence in arrived:
                if sequence not in given_up:
                    self._scheduler.add(sequence)
        self._scheduler.drop(given_up)
        for sequence in given_up:
            sequence.ended = True
        self._counts.cancelled += len(given_up)
        return True

    def _step(self, batch: Batch) -> None:
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
                self._fail(sequence, _nothing_left())
            else:
                self._append(sequence, choice)

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

    def _append(self, sequence: LocalSequence, choice: Choice) -> None:
        generation, token_id = sequence.generation, choice.token_id
        sampling = generation.sampling
        sequence.token_ids.append(token_id)
        self._counts.generated_tokens += 1
        if generation.constraint is not None:
            generation.constraint.accept(token_id)
        # A grammar that is complete allows nothing but an end.
        ignores_end = sampling.ignore_eos and generation.constraint is None
        if token_id in self.model.stop_tokens and not ignores_end:
            self._end(sequence, Ended(self.model.stop_tokens[token_id], token_id))
        elif token_id in sampling.stop_token_ids:
            self._end(sequence, Ended(StopReason.end_of_turn, token_id))
        else:
            sequence.deliver(Sampled(token_id, choice.scores))
            if sequence.completion_tokens == generation.max_tokens:
                self._end(sequence, Ended(StopReason.out_of_tokens))

    def _end(self, sequence: LocalSequence, output: Ended) -> None:
        self._scheduler.end(sequence)
        sequence.ended = True
        self._counts.finished += 1
        taken = time.monotonic() - sequence.started
        self._seconds_a_sequence += 0.1 * (taken - self._seconds_a_sequence)
        sequence.deliver(output)

    def _fail(self, sequence: LocalSequence, error: APIError) -> None:
        sequence.ended = True
        self._counts.failed += 1
        sequence.deliver(error)

    def _no_memory(self) -> APIError:
        return APIError(
            503,
            f"The memory of '{self.loaded.device}' is not enough for this request of model"
            f" '{self.model.name}'. Send a shorter prompt or a lower max_tokens, or retry when less"
            " is running.",
            code="out_of_memory",
        )

    def _post(self, mailbox: _Mailbox, output: Output | APIError) -> None:
        self._outbox.setdefault(mailbox.loop, []).append((mailbox, output))

    def _send(self) -> None:
        """Hand over what came of the step: one call an event loop."""
        outbox, self._outbox = self._outbox, {}
        for loop, items in outbox.items():
            # The loop may be closed already, and then nobody is waiting.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(_distribute, items)


class _Mailbox:
    """Where the outputs of one sequence wait for who asked; used in its event loop alone."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._items: list[Output | APIError] = []
        self._waiter: asyncio.Future[None] | None = None

    def put(self, item: Output | APIError) -> None:
        self._items.append(item)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def take(self) -> Sequence[Output | APIError]:
        """All there are, at least one; an error is the last."""
        if not self._items:
            self._waiter = self.loop.create_future()
            await self._waiter
        items, self._items = self._items, []
        return items


def _distribute(items: Sequence[tuple[_Mailbox, Output | APIError]]) -> None:
    for mailbox, item in items:
        mailbox.put(item)


def _nothing_left() -> APIError:
    return invalid_parameter(
        "allowed_token_ids",
        "No token is left that may come next: 'allowed_token_ids', 'min_tokens' and what the reply"
        " has to be exclude each other.",
    )


def _is_out_of_memory(error: Exception) -> bool:
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)
