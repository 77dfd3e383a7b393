"""The process that serves a distribution: its socket, its signals, its end."""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import os
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial

import uvicorn

from llama_compat.distribution import Distribution
from llama_compat.going_on import going_on
from routing.app import Application
from routing.health import lost_devices
from routing.http.clock import watch_the_clock
from routing.http.connection import Connection
from routing.http.limits import Limits
from routing.http.listener import Listener
from routing.http.state import ServerState
from routing.observability.logs import configure_logging, link_requests
from routing.process.reload import Reloader, log_models
from routing.process.signals import RELOAD_SIGNAL, SIGNALS, STOP_SIGNALS, Terminal, unblock_signals
from routing.process.watched_file import WatchedFile

log = logging.getLogger(__name__)

GARBAGE_THRESHOLD = 10_000
"""So many new objects have the collector look for cycles among them. Requests leave none when all
goes well, and Python's own 700 has it look every few of them."""


DEVICE_LOST = 4
"""The exit code of a process that has lost a GPU, where another may have it."""

LOOK_SECONDS = 0.5
"""So often it is looked whether a GPU is lost."""


class ServerStartError(Exception):
    """The server can't listen; the message is one sentence with what mends it."""


def serve(
    distribution: Distribution,
    *,
    source: str,
    host: str | None = None,
    port: int | None = None,
    workers: int = 1,
    watched: WatchedFile | None = None,
) -> int:
    """Serve `distribution` until SIGINT or SIGTERM, then let running requests finish.

    Args:
        distribution: what to serve.
        source: the template's name or path, for messages.
        host, port: in place of the template's; port 0 takes a free one.
        workers: processes that share the port.
        watched: the template's file, if it is reloaded when it changes and not on SIGHUP alone.

    Returns:
        The exit code: 0 after a signal.

    Raises:
        ServerStartError: the port is in use, or the host is not this machine's.
    """
    settings = distribution.server
    configure_logging()
    if settings.fleet is None and settings.counting.store.get_secret_value() != "memory":
        log.info(
            "`server.limits` counts limits for all gateways and shares nothing else; write the"
            " store under `server.fleet` to share cooldowns, loads and reloads too"
        )
    listener = _listen(
        settings.host if host is None else host, settings.port if port is None else port, source
    )
    with listener:
        if workers > 1:
            from routing.observability.telemetry.sharing import shared_metrics
            from routing.process.workers import serve_in_workers

            if has_limits_apart(distribution):
                log.warning(
                    "limits are counted in memory, by each of the %s workers for itself: together"
                    " they let in up to %s times as much. `server.fleet: redis://...` counts for"
                    " all of them",
                    workers,
                    workers,
                )
            if distribution.memory is not None:
                log.warning(
                    "`memory` is what the models of each of the %s workers may take: together that"
                    " is %s times as much",
                    workers,
                    workers,
                )
            with shared_metrics() if settings.metrics else nullcontext():
                return serve_in_workers(
                    source, listener, workers, settings.shutdown_grace_seconds, watched
                )
        return serve_on(listener, distribution, source, watched=watched)


def has_limits_apart(distribution: Distribution) -> bool:
    """Whether there are limits, or may be with the keys that are stored, that each process counts
    for itself."""
    server = distribution.server
    in_memory = server.counting.store.get_secret_value() == "memory"
    return in_memory and (distribution.has_limits or server.stored_keys)


def serve_on(
    listener: socket.socket,
    distribution: Distribution,
    source: str,
    *,
    watched: WatchedFile | None = None,
    is_worker: bool = False,
    tell_others: Callable[[], None] | None = None,
) -> int:
    """Serve `distribution`, which is that of the template `source`, on a socket that is bound
    already, until SIGINT or SIGTERM; SIGHUP reloads it.

    A worker minds SIGTERM and SIGHUP alone, of which its parent sends it what concerns it; with
    `tell_others` it has its parent do so for a template that it has written itself.

    Returns:
        The exit code.
    """
    configure_logging()
    logging.getLogger("uvicorn.error").addFilter(_is_trouble)
    app = Application(distribution)
    state = ServerState(app, Limits.of(distribution.server).fitting())
    config = uvicorn.Config(
        app,
        http=Connection,  # uvicorn makes none: the listener does
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # nobody asks for the client's address
        lifespan="on",
        ws="none",
        timeout_graceful_shutdown=distribution.server.shutdown_grace_seconds,
    )
    server = _Server(config, state, app, Reloader(app, source, watched, tell_others))
    terminal = None if is_worker else Terminal()
    end_signals = (signal.SIGTERM,) if is_worker else STOP_SIGNALS
    with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        return runner.run(server.run_until(listener, end_signals, terminal))


def _is_trouble(record: logging.LogRecord) -> bool:
    # Of what uvicorn says of itself only trouble; a start that failed has been explained already,
    # and one that was broken off by a signal is none.
    cancelled = record.exc_info and record.exc_info[0] is asyncio.CancelledError
    return record.levelno > logging.INFO and "startup failed" not in record.msg and not cancelled


class _Server(uvicorn.Server):
    """uvicorn's server over connections of our own, which have their bounds.

    What is uvicorn's is the order of a start and of an end. It ends with 0 after a signal instead
    of raising the signal again.
    """

    def __init__(
        self, config: uvicorn.Config, state: ServerState, app: Application, reloader: Reloader
    ) -> None:
        super().__init__(config)
        self.server_state = self._state = state
        self._listeners: list[Listener] = []
        self._app = app
        self._reloader = reloader
        self._reloading: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._has_lost = False

    async def run_until(
        self,
        listener: socket.socket,
        end_signals: Sequence[signal.Signals],
        terminal: Terminal | None,
    ) -> int:
        loop = asyncio.get_running_loop()
        serving = asyncio.current_task()
        assert serving is not None

        def stop(number: signal.Signals) -> None:
            log.info("%s: no new requests; the running ones may finish", number.name)
            if self.started:
                self.handle_exit(number, None)
            else:
                serving.cancel()

        def reload(number: signal.Signals) -> None:
            if terminal is not None and terminal.closed():
                stop(number)
            else:
                self._reloader.ask()

        for number in end_signals:
            _on_signal(loop, number, stop)
        if RELOAD_SIGNAL is not None:
            _on_signal(loop, RELOAD_SIGNAL, reload)
            unblock_signals(RELOAD_SIGNAL)
        try:
            await self.serve(sockets=[listener])
        except asyncio.CancelledError:
            return 0
        except SystemExit:  # uvicorn's way to say that the application could not start
            return 1
        finally:
            _ignore_signals()
        if self._has_lost:
            return DEVICE_LOST
        # Some versions of uvicorn don't raise for an application that could not start.
        return 0 if self.started else 1

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup([])
        if self.started:
            self._clock = asyncio.create_task(
                going_on("time limits", partial(watch_the_clock, self._state))
            )
            self._listeners = [Listener(each, self._state) for each in sockets or ()]
            for listener in self._listeners:
                listener.start()
        gc.freeze()  # what has been loaded stays, and need not be looked at again and again
        gc.set_threshold(GARBAGE_THRESHOLD)
        if self.started and sockets:
            where, page = _addresses(*sockets[0].getsockname()[:2])
            log.info("serving at %s/v1, its page at %s, its API at /docs; Ctrl-C ends", where, page)
            served = self._app.runtime.distribution.server
            if served.admin_key is not None and served.records is not None:
                link_requests(page)
            log_models(self._app.runtime.distribution)
            self._reloading = asyncio.create_task(self._reloader.run(), name="reloads")
            self._watching = asyncio.create_task(
                going_on("devices", self._watch_devices), name="devices"
            )

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._state.ending = True
        for listener in self._listeners:
            listener.close()
            await listener.wait_closed()
        others = [each for each in (self._reloading, self._watching) if each is not None]
        for each in others:
            each.cancel()
        try:
            await super().shutdown(sockets)
        finally:
            self._clock.cancel()
            await asyncio.gather(self._clock, *others, return_exceptions=True)

    async def _watch_devices(self) -> None:
        """End where the template says so of a GPU that is lost."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            runtime = self._app.runtime
            if not runtime.settings.end_when_device_lost:
                continue
            if lost := lost_devices(runtime):
                log.error("%s lost: no new requests; the running ones may finish", ", ".join(lost))
                self._has_lost = True
                self.handle_exit(signal.SIGTERM, None)
                return

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _on_signal(
    loop: asyncio.AbstractEventLoop,
    number: signal.Signals,
    callback: Callable[[signal.Signals], None],
) -> None:
    try:
        loop.add_signal_handler(number, callback, number)
    except NotImplementedError:  # Windows
        signal.signal(number, lambda *_: loop.call_soon_threadsafe(callback, number))


def _ignore_signals() -> None:
    # The loop takes its handlers away when it closes: a second Ctrl-C, sent by somebody in a hurry,
    # would turn the end into a traceback.
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        return
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _listen(host: str, port: int, source: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    if os.name == "posix":  # elsewhere it lets two servers have the same port
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        said = f"Can't listen on {host} port {port}: {(error.strerror or str(error)).lower()}."
        run = f"llama-compat run {source}"
        if error.errno == errno.EADDRINUSE:
            other = port + 1 if port < 65535 else 8321
            mend = f"Stop what listens there, or take another port: {run} --port {other}"
        elif error.errno == errno.EACCES:
            mend = f"Ports below 1024 may be the administrator's; take another: {run} --port 8321"
        else:
            mend = f"The host has to be an address of this machine: {run} --host 0.0.0.0"
        raise ServerStartError(f"{said} {mend}") from None
    return listener


_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}
"""Where a browser on this machine finds what listens at all addresses."""


def _addresses(host: str, port: int) -> tuple[str, str]:
    """Where the server listens, and where a browser here finds its page."""
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{port}", f"http://{_EVERYWHERE.get(host, shown)}:{port}/"
