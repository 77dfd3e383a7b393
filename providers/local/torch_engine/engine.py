"""One model and the thread that runs it."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncGenerator
from contextlib import suppress

import torch

from llama_compat.errors import APIError, internal_error, shutting_down
from llama_compat.types import (
    StopReason,
    StreamComplete,
    StreamEvent,
    StreamProgress,
    StreamStart,
    TextDelta,
    Usage,
)
from providers.base import ProviderStartError
from providers.local.torch_engine.loader import LoadedModel
from providers.local.torch_engine.model_runner import ModelRunner
from providers.local.torch_engine.reply import Reply, describe_token
from providers.local.torch_engine.sampler import Sampler, score_tokens
from providers.local.torch_engine.scheduler import Scheduler, Stats
from providers.local.torch_engine.sequence import Generation, Sequence

log = logging.getLogger(__name__)


class Engine:
    """Generates with one model, in a thread of its own.

    The scheduler says which sequence takes the next step; a step computes a chunk of its prompt or
    samples one token, and its events are handed to the event loop that asked for them.

    Args:
        loaded: the model and what belongs to it.
    """

    def __init__(self, loaded: LoadedModel) -> None:
        self.loaded = loaded
        self._runner = ModelRunner(loaded.model)
        self._scheduler = Scheduler()
        self._thread = threading.Thread(
            target=self._run, name=f"torch engine of {loaded.name}", daemon=True
        )

    @property
    def stats(self) -> Stats:
        """What the engine is doing and has done."""
        return self._scheduler.stats

    def start(self) -> None:
        """Run the model once, so that the first request finds it warm, and start the thread.

        Raises:
            ProviderStartError: the model does not run.
        """
        try:
            self._runner.forward([0], self._runner.new_cache())
        except Exception as error:
            raise ProviderStartError(
                f"The model '{self.loaded.name}' was loaded, but it does not run on"
                f" '{self._runner.device}' ({type(error).__name__}: {error}): try another 'device'"
                " or 'dtype' in the template, or another model."
            ) from error
        self._thread.start()

    def stop(self) -> None:
        """Break off what there is with an error, and wait for the thread to end."""
        for sequence in self._scheduler.close():
            _deliver(sequence, shutting_down())
        self._thread.join()

    async def generate(self, generation: Generation) -> AsyncGenerator[StreamEvent, None]:
        """The events of one generation; closing the generator cancels it.

        Raises:
            APIError: the model failed, or the engine was stopped.
        """
        loop = asyncio.get_running_loop()
        events: asyncio.Queue[StreamEvent | APIError] = asyncio.Queue()

        def deliver(event: StreamEvent | APIError) -> None:
            loop.call_soon_threadsafe(events.put_nowait, event)

        sequence = Sequence(generation, deliver)
        if not self._scheduler.add(sequence):
            raise shutting_down()
        try:
            while True:
                event = await events.get()
                if isinstance(event, APIError):
                    raise event
                yield event
                if isinstance(event, StreamComplete):
                    return
        finally:
            self._scheduler.cancel(sequence)

    # In the thread --------------------------------------------------------------------------------

    def _run(self) -> None:
        while (sequence := self._scheduler.next()) is not None:
            try:
                last_events = self._step(sequence)
            except Exception as error:
                self._scheduler.end(sequence, failed=True)
                _deliver(sequence, self._explain(error))
            else:
                if last_events:
                    # Counted first: who has the last event finds the sequence gone.
                    self._scheduler.end(sequence)
                    for event in last_events:
                        _deliver(sequence, event)

    def _step(self, sequence: Sequence) -> list[StreamEvent]:
        """Compute the next tokens of `sequence`; its last events, if it is complete with that."""
        if sequence.cache is None:
            self._begin(sequence)
        assert sequence.cache is not None
        scored = sequence.scores_prompt
        start = sequence.computed
        chunk = sequence.token_ids[start : start + self._runner.chunk_size(scored=scored)]
        logits = self._runner.forward(chunk, sequence.cache, all_logits=scored)
        sequence.computed += len(chunk)
        if scored:
            self._score_prompt(sequence, logits, start)
        if start < sequence.prompt_tokens:
            self._scheduler.count_tokens(prompt=len(chunk))
            if sequence.computed < sequence.prompt_tokens:
                return []
            _deliver(sequence, StreamStart(sequence.prompt_tokens))
            if sequence.generation.echo is not None:
                _deliver(sequence, self._echo(sequence, sequence.generation.echo))
            if sequence.generation.max_tokens == 0:
                return _last_events(sequence, StopReason.out_of_tokens)
        return self._sample(sequence, logits[-1])

    def _begin(self, sequence: Sequence) -> None:
        generation = sequence.generation
        sequence.cache = self._runner.new_cache()
        sequence.sampler = Sampler(
            generation.sampling,
            generation.prompt_ids,
            self.loaded.vocab_size,
            self._runner.device,
            generation.openings,
        )
        sequence.reply = Reply(
            self.loaded.vocabulary,
            generation.prompt_ids,
            generation.sampling.stop,
            with_logprobs=generation.logprobs is not None,
            shown_tokens=generation.shown_tokens,
        )

    def _sample(self, sequence: Sequence, logits: torch.Tensor) -> list[StreamEvent]:
        assert sequence.sampler is not None
        assert sequence.reply is not None
        generation = sequence.generation
        token_id = sequence.sampler.sample(logits)
        sequence.token_ids.append(token_id)
        self._scheduler.count_tokens(generated=1)
        if token_id in self.loaded.stop_tokens:
            return _last_events(sequence, self.loaded.stop_tokens[token_id])
        scores = None
        if generation.logprobs is not None:
            [scores] = score_tokens(logits[None], [token_id], generation.logprobs)
        progress = sequence.reply.push(token_id, scores)
        if progress is not None:
            _deliver(sequence, progress)
        if sequence.reply.stopped:
            return _last_events(sequence, StopReason.end_of_turn)
        if sequence.completion_tokens == generation.max_tokens:
            return _last_events(sequence, StopReason.out_of_tokens)
        return []

    def _score_prompt(self, sequence: Sequence, logits: torch.Tensor, start: int) -> None:
        """Score the tokens that follow each of those that `logits` belong to, from `start` on."""
        generation = sequence.generation
        assert generation.logprobs is not None
        following = generation.prompt_ids[start + 1 : start + 1 + len(logits)]
        if following:
            sequence.prompt_scores += score_tokens(
                logits[: len(following)], following, generation.logprobs
            )

    def _echo(self, sequence: Sequence, text: str) -> StreamProgress:
        generation = sequence.generation
        if generation.logprobs is None:
            return StreamProgress(TextDelta(text))
        scores = [None, *sequence.prompt_scores]
        return StreamProgress(
            TextDelta(text),
            tuple(
                describe_token(self.loaded.vocabulary, token_id, score)
                for token_id, score in zip(generation.prompt_ids, scores, strict=True)
            ),
        )

    def _explain(self, error: Exception) -> APIError:
        if isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error):
            log.error("%s: out of memory: %s", self.loaded.name, error)
            if self._runner.device.type == "cuda":
                torch.cuda.empty_cache()
            return APIError(
                503,
                f"The memory of '{self._runner.device}' is not enough for this request of model"
                f" '{self.loaded.name}'. Send a shorter prompt or a lower max_tokens, or retry when"
                " less is running.",
                code="out_of_memory",
            )
        log.exception("%s: the model failed", self.loaded.name)
        return internal_error()


def _last_events(sequence: Sequence, reason: StopReason) -> list[StreamEvent]:
    assert sequence.reply is not None
    rest = sequence.reply.end()
    usage = Usage(sequence.prompt_tokens, sequence.completion_tokens)
    return [*([rest] if rest is not None else []), StreamComplete(reason, usage)]


def _deliver(sequence: Sequence, event: StreamEvent | APIError) -> None:
    # The loop may be closed already, and then nobody is waiting.
    with suppress(RuntimeError):
        sequence.deliver(event)
