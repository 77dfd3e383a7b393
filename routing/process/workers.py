"""Several processes that serve the same distribution on the same port."""

from __future__ import annotations

import logging
import multiprocessing
import multiprocessing.connection
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerContext, SpawnContext

from llama_compat.distribution import load_distribution
from llama_compat.distribution.problems import TemplateError
from providers.registry import config_model
from routing.observability.telemetry.sharing import forget_process
from routing.process.signals import (
    RELOAD_SIGNAL,
    SIGNALS,
    STOP_SIGNALS,
    Terminal,
    signals_wait,
    unblock_signals,
)
from routing.process.watched_file import LOOK_SECONDS, WatchedFile

log = logging.getLogger(__name__)

CANNOT_START = 3
"""A worker's exit code where another would not start either."""

STEADY_SECONDS = 10.0
"""A worker that lived as long is replaced at once; after shorter lives there are pauses."""

FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 30.0

_LOOK, _RELOAD = b"!", b"reload"
"""What the bell rings for: there is something to look at; a worker has written the template."""

KILL_AFTER_SECONDS = 5.0
"""How long a worker may go on after the grace for its requests, before it is killed."""


def serve_in_workers(
    source: str,
    listener: socket.socket,
    workers: int,
    grace_seconds: float,
    watched: WatchedFile | None = None,
) -> int:
    """Serve the template `source` from `workers` processes until SIGINT or SIGTERM.

    On SIGHUP, and when `watched` has changed, the template is read again; if it is right, all of
    them are told to reload it.

    Each worker accepts from `listener` on its own. One that dies is replaced. If one of the first
    can't start, all end; a replacement that can't is tried again while others serve. However this
    process ends, they end too.

    Args:
        source: the template's name or path.
        listener: bound already; closed at the end.
        workers: how many.
        grace_seconds: what running requests get to finish.
        watched: the template's file, if it is reloaded when it changes.

    Returns:
        The exit code: 0 after a signal, 1 if a worker could not start.
    """
    group = _WorkerGroup(source, listener, workers, grace_seconds + KILL_AFTER_SECONDS, watched)
    terminal = Terminal()
    for number in STOP_SIGNALS:
        signal.signal(number, lambda *_: group.stop())
    if RELOAD_SIGNAL is not None:
        signal.signal(
            RELOAD_SIGNAL, lambda *_: group.stop() if terminal.closed() else group.reload()
        )
        unblock_signals(RELOAD_SIGNAL)
    try:
        return group.run()
    finally:
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)


def _serve_one(
    source: str,
    listener: socket.socket,
    lifeline: Connection,
    bell_button: Connection,
    longest_end: float,
) -> None:
    # A Ctrl-C reaches the whole group; it is the parent that tells the workers to end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # SIGHUP waits until there is somebody to reload: the template may be read before.
    unblock_signals(*STOP_SIGNALS)
    threading.Thread(target=_end_with, args=(lifeline, longest_end), daemon=True).start()
    from providers.base import ProviderStartError
    from routing.process.server import serve_on

    try:
        distribution = load_distribution(source, config_model)
        code = serve_on(
            listener,
            distribution,
            source,
            is_worker=True,
            tell_others=lambda: bell_button.send_bytes(_RELOAD),
        )
    except (TemplateError, ProviderStartError) as error:
        log.error("%s", error)
        code = 1
    finally:
        logging.shutdown()  # a forked process ends without what is due at an interpreter's exit
    raise SystemExit(CANNOT_START if code == 1 else code)


def _end_with(lifeline: Connection, longest_end: float) -> None:
    """End this process as SIGTERM does when the other end of `lifeline` closes, however it does."""
    with suppress(EOFError, OSError):
        lifeline.recv_bytes()
    signal.raise_signal(signal.SIGTERM)
    time.sleep(longest_end)
    os._exit(1)


class _Worker(NamedTuple):
    process: BaseProcess
    lifeline: Connection
    since: float
    is_replacement: bool


class _WorkerGroup:
    """Keeps so many workers alive until it is told to stop.

    Signals only ring here: all that follows from one is done between two waits, never in the middle
    of a start.
    """

    def __init__(
        self,
        source: str,
        listener: socket.socket,
        count: int,
        longest_end: float,
        watched: WatchedFile | None,
    ) -> None:
        self._source = source
        self._listener = listener
        self._longest_end = longest_end
        self._watched = watched
        self._context = _context()
        self._bell, self._bell_button = self._context.Pipe(duplex=False)
        self._workers: list[_Worker] = []
        self._missing = count
        self._start_at = 0.0
        self._pause = 0.0
        self._replacing = False
        self._stopping = False
        self._reloading = False
        self._exit_code = 0

    def stop(self) -> None:
        """To be called by signal handlers."""
        self._stopping = True
        self._bell_button.send_bytes(_LOOK)

    def reload(self) -> None:
        """To be called by signal handlers."""
        self._reloading = True
        self._bell_button.send_bytes(_LOOK)

    def run(self) -> int:
        if os.name == "posix":
            # It would unblock the signals if it came with the first worker.
            resource_tracker.ensure_running()
        try:
            while not self._stopping:
                if self._missing and time.monotonic() >= self._start_at:
                    self._start_one()
                    continue
                for worker in self._ended(self._next_look(), self._bell):
                    self._replace(worker)
                while self._bell.poll():
                    self._reloading |= self._bell.recv_bytes() == _RELOAD
                if self._reloading or (self._watched is not None and self._watched.changed()):
                    self._reloading = False
                    self._reload()
        finally:
            self._end_all()
        return self._exit_code

    def _next_look(self) -> float | None:
        """Until when nothing has to be done unless something happens."""
        times = [self._start_at] if self._missing else []
        if self._watched is not None:
            times.append(time.monotonic() + LOOK_SECONDS)
        return min(times, default=None)

    def _reload(self) -> None:
        # Each worker reads the template itself. Here it is said once what is wrong with it.
        try:
            load_distribution(self._source, config_model)
        except TemplateError as error:
            log.error("%s is not reloaded; all goes on as it was:\n%s", self._source, error)
            return
        if RELOAD_SIGNAL is None:
            log.error("%s: several workers can't reload on this system: restart", self._source)
            return
        for worker in self._workers:
            assert worker.process.pid is not None
            os.kill(worker.process.pid, RELOAD_SIGNAL)

    def _start_one(self) -> None:
        watched, lifeline = self._context.Pipe(duplex=False)
        bell = self._bell_button
        arguments = (self._source, self._listener, watched, bell, self._longest_end)
        process = self._context.Process(target=_serve_one, args=arguments)
        with watched, signals_wait():
            process.start()
            self._workers.append(_Worker(process, lifeline, time.monotonic(), self._replacing))
        self._missing -= 1

    def _ended(self, until: float | None, *others: Connection) -> list[_Worker]:
        """Those that have ended, waiting for one, or for one of `others`, if there is none."""
        waiting = [each.process.sentinel for each in self._workers]
        timeout = None if until is None else max(0.0, until - time.monotonic())
        ready = multiprocessing.connection.wait([*waiting, *others], timeout)
        ended = [each for each in self._workers if each.process.sentinel in ready]
        for worker in ended:
            self._workers.remove(worker)
            worker.lifeline.close()
            worker.process.join()
            forget_process(worker.process.pid or 0)
        return ended

    def _replace(self, worker: _Worker) -> None:
        code = worker.process.exitcode
        others_serve = worker.is_replacement and self._workers
        if code == CANNOT_START and not others_serve:
            self._stopping, self._exit_code = True, 1
            return
        steady = time.monotonic() - worker.since >= STEADY_SECONDS
        longer = min(max(2 * self._pause, FIRST_PAUSE_SECONDS), LONGEST_PAUSE_SECONDS)
        self._pause = 0.0 if steady else longer
        when = f"in {self._pause:g} s" if self._pause else "now"
        log.error("worker %s died (%s); another starts %s", worker.process.pid, code, when)
        self._replacing = True
        self._missing += 1
        self._start_at = time.monotonic() + self._pause

    def _end_all(self) -> None:
        # As long as anybody has it open, new connections would queue up for nobody.
        self._listener.close()
        for worker in self._workers:
            worker.lifeline.close()
        deadline = time.monotonic() + self._longest_end
        while self._workers:
            if not self._ended(deadline):
                self._kill(self._workers)

    def _kill(self, workers: Sequence[_Worker]) -> None:
        for worker in workers:
            log.error("worker %s does not end; killing it", worker.process.pid)
            worker.process.kill()
            worker.process.join()
        self._workers = [each for each in self._workers if each not in workers]


def _context() -> SpawnContext | ForkServerContext:
    """How workers begin: not as forks of this process, which would share whatever threads and locks
    are about, but of one that has only imported what they need; elsewhere each by itself, as what
    macOS's own libraries do does not survive a fork."""
    if sys.platform != "linux":
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["routing.process.preloaded"])
    return context
