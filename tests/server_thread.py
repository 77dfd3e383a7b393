"""Servers that run in a thread of the tests, each with an event loop of its own."""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import ClassVar, Self

from aiohttp import web


class ServerThread(ABC):
    """A server that is there while it is entered; what fails as it starts is raised there.

    Attributes:
        port: where it listens on 127.0.0.1, once it is entered.
    """

    port: int

    def __enter__(self) -> Self:
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self._thread.start()
        self._ready.wait()
        if self._failure is not None:
            self._thread.join()
            raise self._failure
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End it; nothing to do where that is done."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()

    @abstractmethod
    def _listening(self) -> AbstractAsyncContextManager[int]:
        """Listen, and give the port."""

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        try:
            async with self._listening() as self.port:
                self._ready.set()
                await self._stop.wait()
        except BaseException as error:
            if self._ready.is_set():
                raise
            self._failure = error
        finally:
            self._ready.set()


class WebServerThread(ServerThread):
    """One that answers with aiohttp.

    Attributes:
        handler_cancellation: whether a client that goes away cancels what answers it.
    """

    handler_cancellation: ClassVar[bool] = False

    @property
    def url(self) -> str:
        """Where it listens, without a path."""
        return f"http://127.0.0.1:{self.port}"

    @abstractmethod
    def _add_routes(self, router: web.UrlDispatcher) -> None:
        """Say what is answered, and by what."""

    @asynccontextmanager
    async def _listening(self) -> AsyncIterator[int]:
        application = web.Application(client_max_size=1 << 27)
        self._add_routes(application.router)
        runner = web.AppRunner(
            application, handler_cancellation=self.handler_cancellation, shutdown_timeout=1
        )
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            yield runner.addresses[0][1]
        finally:
            await runner.cleanup()
