"""Several processes that serve the same distribution on the same port."""

from __future__ import annotations

import logging
import multiprocessing
import multiprocessing.connection
import signal
import socket
import time
from multiprocessing.process import BaseProcess

log = logging.getLogger(__name__)

SHORTEST_LIFE_SECONDS = 1.0
"""A worker that lived less would only die again: it is not replaced."""


def serve_in_workers(source: str, listener: socket.socket, workers: int) -> int:
    """Serve the template `source` from `workers` processes until SIGINT or SIGTERM.

    Each worker accepts from `listener` on its own. One that dies is replaced; one that can't start
    ends them all.

    Returns:
        The exit code: 0 after a signal, else that of the worker that could not start.
    """
    group = _WorkerGroup(source, listener, workers)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: group.stop())
    return group.run()


def _serve_one(source: str, listener: socket.socket) -> None:
    # A Ctrl-C reaches the whole group; it is the parent that tells the workers to end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    from llama_compat.distribution import load_distribution
    from providers.registry import config_model
    from routing.server import serve_on

    distribution = load_distribution(source, config_model)
    raise SystemExit(serve_on(listener, distribution, end_signals=(signal.SIGTERM,)))


class _WorkerGroup:
    def __init__(self, source: str, listener: socket.socket, workers: int) -> None:
        self._source = source
        self._listener = listener
        self._count = workers
        # A fresh interpreter each: a fork would share whatever threads and locks are about.
        self._context = multiprocessing.get_context("spawn")
        self._begun: dict[BaseProcess, float] = {}
        self._stopping = False

    def run(self) -> int:
        for _ in range(self._count):
            if not self._stopping:
                self._start_one()
        exit_code = 0
        while self._begun:
            ready = multiprocessing.connection.wait([each.sentinel for each in self._begun])
            for worker in [each for each in self._begun if each.sentinel in ready]:
                lived = time.monotonic() - self._begun.pop(worker)
                worker.join()
                if self._stopping:
                    continue
                if lived < SHORTEST_LIFE_SECONDS or worker.exitcode == 1:
                    exit_code = worker.exitcode or 1
                    self.stop()
                else:
                    log.error("worker %s died (%s); starting another", worker.pid, worker.exitcode)
                    self._start_one()
        return exit_code

    def stop(self) -> None:
        self._stopping = True
        # As long as anybody has it open, new connections would queue up for nobody.
        self._listener.close()
        for worker in self._begun:
            worker.terminate()

    def _start_one(self) -> None:
        worker = self._context.Process(target=_serve_one, args=(self._source, self._listener))
        worker.start()
        self._begun[worker] = time.monotonic()
