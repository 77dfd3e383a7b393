"""The thread that runs a model: what comes to it, what leaves it, and how it ends."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from llama_compat.errors import APIError, internal_error, invalid_parameter, shutting_down
from llama_compat.prefixes.held import HeldPrompts
from llama_compat.types import StopReason
from llama_compat.wire.retry_after import retry_after
from providers.local.engine import (
    Ended,
    Generation,
    LocalModel,
    Output,
    Sampled,
    Stats,
    TokenScores,
)
from providers.local.media.encoding import MediaThread
from providers.local.media.placing import PlacedMedium
from providers.local.sequence import Deliver, LocalSequence
from providers.local.threads import giving_way

log = logging.getLogger(__name__)

S = TypeVar("S", bound=LocalSequence)
T = TypeVar("T")


class Scheduler(Protocol[S]):
    """Holds the sequences that wait and those that run."""

    @property
    def waiting(self) -> int:
        """How many wait."""

    @property
    def running(self) -> Collection[S]:
        """Those that run."""

    def add(self, sequence: S) -> None:
        """Queue a sequence."""

    def drop(self, sequences: set[S]) -> None:
        """Give up sequences, waiting or running."""

    def end(self, sequence: S) -> None:
        """A running sequence is complete, or has failed."""

    def clear(self) -> list[S]:
        """Let go of everything; what there was."""


class EngineThread(Generic[S]):
    """Generates with one model, in a thread of its own, which owns all that changes.

    Sequences and cancellations wait in an inbox for the thread to look at it, between two steps.
    What came of a step is handed to the event loops that asked all at once. A subclass says what a
    sequence is (`_new_sequence`), how many run at a time (`sequences`), what a step does (`_step`)
    and what the model makes of a medium (`_encode`); `_append` and `_fail` deliver.

    Args:
        model: the model.
        scheduler: an empty one.
        waiting: how many may wait; more are refused.
    """

    def __init__(self, model: LocalModel, scheduler: Scheduler[S], *, waiting: int) -> None:
        self._model = model
        self._scheduler = scheduler
        self._may_wait = waiting
        self._counts = Stats()
        self._changed = threading.Condition()
        self._arrived: list[S] = []
        self._given_up: list[S] = []
        self._errands: list[tuple[Future[Any], Callable[[], Any]]] = []
        self._closed = False
        self._outbox: dict[asyncio.AbstractEventLoop, list[tuple[_Mailbox, Output | APIError]]] = {}
        self._seconds_a_sequence = 1.0
        self._media = MediaThread(self._encode)
        self._thread = threading.Thread(
            target=self._run, name=f"engine of {model.name}", daemon=True
        )

    @property
    def model(self) -> LocalModel:
        """The model."""
        return self._model

    @property
    def stats(self) -> Stats:
        """What the engine is doing and has done."""
        return replace(
            self._counts,
            waiting=self._waiting,
            running=len(self._scheduler.running),
        )

    @property
    def sequences(self) -> int:
        """How many run at the same time."""
        raise NotImplementedError

    def held_prompts(self) -> HeldPrompts | None:
        """See `providers.local.engine.Engine.held_prompts`."""
        return None

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Break off what there is with an error, and wait for the threads to end."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()
        self._media.stop()

    async def generate(self, generation: Generation) -> AsyncGenerator[Sequence[Output], None]:
        """See `providers.local.engine.Engine.generate`."""
        if generation.media:
            self._check_waiting()
            encoded = await self._media.encoded(generation.media)
            generation = replace(generation, media=encoded)
        mailbox = _Mailbox(asyncio.get_running_loop())
        sequence = self._new_sequence(generation, partial(self._post, mailbox))
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

    def _submit(self, sequence: S) -> None:
        with self._changed:
            self._check_waiting()
            self._arrived.append(sequence)
            self._changed.notify()

    @property
    def _waiting(self) -> int:
        """How many wait, be it for a medium to be encoded: who was let in once is not refused
        when that is done."""
        return self._scheduler.waiting + len(self._arrived) + self._media.waiting

    def _check_waiting(self) -> None:
        """See whether one more may wait.

        Raises:
            APIError: 429; too many do. 503; the engine is stopped, or can't answer any more.
        """
        if self._closed:
            raise shutting_down()
        if (refusal := self._refusal()) is not None:
            raise refusal
        waiting = self._waiting
        room = self.sequences - len(self._scheduler.running)
        if waiting >= self._may_wait + max(0, room):
            raise self._too_many(waiting)

    def _too_many(self, waiting: int) -> APIError:
        # A place is free when each of those that run now has made room for one that waits.
        rounds = waiting / max(1, self.sequences)
        seconds = min(60, max(1, round(rounds * self._seconds_a_sequence)))
        return APIError(
            429,
            f"The model '{self.model.name}' is busy, and {waiting} requests wait for it already."
            f" Retry in {seconds} s.",
            code="engine_overloaded",
            headers=retry_after(seconds),
        ).about(self.model.name)

    def _give_up(self, sequence: S) -> None:
        if sequence.ended:
            return
        with self._changed:
            self._given_up.append(sequence)
            self._changed.notify()

    def _between_steps(self, errand: Callable[[], T]) -> T:
        """Have the thread do something before its next step; what came of it.

        Raises:
            APIError: 503; the engine is stopped.
        """
        done: Future[T] = Future()
        with self._changed:
            if self._closed:
                raise shutting_down()
            self._errands.append((done, errand))
            self._changed.notify()
        return done.result()

    # In the thread --------------------------------------------------------------------------------

    def _new_sequence(self, generation: Generation, deliver: Deliver) -> S:
        """A sequence for `generation`; called in the event loop."""
        raise NotImplementedError

    def _refusal(self) -> APIError | None:
        """The error for whoever asks and for all that there is, where the model can't be computed
        any more; None where it can."""
        return None

    def _encode(self, medium: PlacedMedium) -> PlacedMedium:
        """What the model reads of a medium; called in a thread for that.

        Raises:
            APIError: 400; it is damaged, or the model can't be shown it.
        """
        raise NotImplementedError

    def _step(self) -> None:
        """Compute the next tokens of what is scheduled, and deliver what came of them.

        An exception ends every sequence that there is.
        """
        raise NotImplementedError

    def _run(self) -> None:
        while self._receive():
            try:
                with giving_way.step():
                    self._step()
            except Exception:
                # It is not known what holds any more, so all that there is ends.
                if self._refusal() is None:
                    log.exception("%s: the engine failed", self.model.name)
                for sequence in self._scheduler.clear():
                    self._fail(sequence, self._refusal() or internal_error())
            self._send()
        with self._changed:
            arrived, self._arrived = self._arrived, []
            errands, self._errands = self._errands, []
        for done, _ in errands:
            done.set_exception(shutting_down())
        for sequence in [*self._scheduler.clear(), *arrived]:
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
                or self._errands
                or self._scheduler.running
                or self._scheduler.waiting
            ):
                self._changed.wait()
            if self._closed:
                return False
            arrived, self._arrived = self._arrived, []
            given_up = {each for each in self._given_up if not each.ended}
            self._given_up = []
            errands, self._errands = self._errands, []
            for sequence in arrived:
                if sequence not in given_up:
                    self._scheduler.add(sequence)
        self._scheduler.drop(given_up)
        for sequence in given_up:
            sequence.ended = True
        self._counts.cancelled += len(given_up)
        for done, errand in errands:
            try:
                done.set_result(errand())
            except Exception as error:
                done.set_exception(error)
        return True

    def _append(self, sequence: S, token_id: int, scores: TokenScores | None) -> None:
        """One more token was chosen."""
        generation = sequence.generation
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
            sequence.deliver(Sampled(token_id, scores))
            if sequence.completion_tokens == generation.max_tokens:
                self._end(sequence, Ended(StopReason.out_of_tokens))

    def _end(self, sequence: S, output: Ended) -> None:
        self._scheduler.end(sequence)
        sequence.ended = True
        self._counts.finished += 1
        taken = time.monotonic() - sequence.started
        self._seconds_a_sequence += 0.1 * (taken - self._seconds_a_sequence)
        sequence.deliver(output)

    def _fail(self, sequence: S, error: APIError) -> None:
        """A sequence, which the scheduler has let go of, ends with an error."""
        sequence.ended = True
        self._counts.failed += 1
        sequence.deliver(error)

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


def no_numbers(model: str) -> APIError:
    """The error for a request for which a model computes nothing that can be used."""
    return APIError(
        500,
        f"The model '{model}' computed no numbers for this request (NaN or infinity), so that there"
        " is no answer: its weights are damaged, or too large for its dtype.",
        code="invalid_model_output",
    ).about(model)


def nothing_left() -> APIError:
    """The error for a request that excludes every token."""
    return invalid_parameter(
        "allowed_token_ids",
        "No token is left that may come next: 'allowed_token_ids', 'min_tokens' and what the reply"
        " has to be exclude each other.",
    )
