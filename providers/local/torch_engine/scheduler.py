"""Whose turn it is."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, replace

from providers.local.torch_engine.sequence import Sequence

MAX_RUNNING = 1
"""Sequences that are generated at the same time; the others wait."""


@dataclass(slots=True)
class Stats:
    """What an engine is doing and has done, in sequences and in tokens.

    `waiting` and `running` are now; the rest counts since the start. Each sequence that came ends
    as one of `finished`, `cancelled` and `failed`.
    """

    waiting: int = 0
    running: int = 0
    finished: int = 0
    cancelled: int = 0
    failed: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0


class Scheduler:
    """The queue between the event loop, which brings sequences, and the thread that runs them.

    All methods may be called from any thread.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: deque[Sequence] = deque()
        self._running: list[Sequence] = []
        self._closed = False
        self._counts = Stats()

    @property
    def stats(self) -> Stats:
        """The figures of this moment."""
        with self._changed:
            return replace(self._counts, waiting=len(self._waiting), running=len(self._running))

    def add(self, sequence: Sequence) -> bool:
        """Queue a sequence; False if the scheduler is closed."""
        with self._changed:
            if self._closed:
                return False
            self._waiting.append(sequence)
            self._changed.notify()
            return True

    def cancel(self, sequence: Sequence) -> None:
        """Give up a sequence: at once if it waits, before its next token if it is running.

        One that has ended is left as it is.
        """
        with self._changed:
            sequence.cancelled = True
            if sequence in self._waiting:
                self._waiting.remove(sequence)
                self._counts.cancelled += 1

    def next(self) -> Sequence | None:
        """Wait for the sequence that is to take a step; None when the scheduler is closed."""
        with self._changed:
            while True:
                self._drop_cancelled()
                if self._closed:
                    return None
                while self._waiting and len(self._running) < MAX_RUNNING:
                    self._running.append(self._waiting.popleft())
                if self._running:
                    return self._running[0]
                self._changed.wait()

    def count_tokens(self, *, prompt: int = 0, generated: int = 0) -> None:
        """Tokens that were computed."""
        with self._changed:
            self._counts.prompt_tokens += prompt
            self._counts.generated_tokens += generated

    def end(self, sequence: Sequence, *, failed: bool = False) -> None:
        """A running sequence is complete, or failed."""
        with self._changed:
            self._running.remove(sequence)
            sequence.release()
            if failed:
                self._counts.failed += 1
            else:
                self._counts.finished += 1

    def close(self) -> list[Sequence]:
        """Take no more; what was waiting or running, for which nothing more will be done."""
        with self._changed:
            self._closed = True
            left = [*self._running, *self._waiting]
            for sequence in left:
                sequence.cancelled = True
            self._counts.cancelled += len(self._waiting)
            self._waiting.clear()
            self._changed.notify()
            return left

    def _drop_cancelled(self) -> None:
        for sequence in [sequence for sequence in self._running if sequence.cancelled]:
            self._running.remove(sequence)
            sequence.release()
            self._counts.cancelled += 1
