"""What gives a request its authorization where that is no header which stays the same.

A key is: it is encoded once, with the other headers of a provider, and has nothing to do with this
module. What is here is for clouds, whose credentials end after a while (`RenewedValue`), and sign
each request for itself or are a token (`RequestCredentials`).

```
 Upstream.send
   |  no credentials: nothing
   |  authorize(method, url, body)  -> lines of headers
   v
 RequestCredentials                 AWS: `sigv4`; Google: `google_tokens`
   |  value.get()                   mostly there; else one thread fetches it for all who wait
   v
 the cloud's own small library, in that thread
```
"""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar, Generic, Literal, NamedTuple, TypeVar

from llama_compat.errors import APIError, upstream_error
from providers.remote.http1.headers import HeaderBlock

log = logging.getLogger(__name__)

T = TypeVar("T")

EARLY_SECONDS = 300.0
"""So long before its end a value is renewed, while it goes on being used."""

LATEST_SECONDS = 20.0
"""With so little left it is not used any more: it could end on its way."""

PAUSE_SECONDS = 15.0
"""Between two attempts to renew a value that is still good, or that was just refused."""

WAIT_SECONDS = 30.0
"""So long a request waits for a value. Clouds' libraries may try for minutes."""

DOUBT_SECONDS = 5.0
"""So long it waits for another where there is one that was refused, perhaps for reasons of the
request's: whoever asks for what is not allowed must not stop the others."""


def _never(seconds: float) -> bool:
    return False


class Lease(NamedTuple, Generic[T]):
    """What was fetched.

    Attributes:
        value: it.
        secrets: what of it must not be seen.
        ends_within: whether it ends within so many seconds; cheap.
    """

    value: T
    secrets: tuple[str, ...]
    ends_within: Callable[[float], bool] = _never


class CredentialsError(Exception):
    """There are no credentials to be had; the message says why, for whoever runs this server."""


class RenewedValue(Generic[T]):
    """A value that ends, and is fetched anew before it does: in a thread, by one at a time.

    Args:
        provider: its id, for messages.
        what: is fetched, for messages: `AWS credentials`.
        fetch: does so, and blocks; may raise anything.
        clock: tells the time, in seconds since whenever.

    Attributes:
        secrets: what of it, and of the one before it, must not be seen; another object when there
            is something new.
    """

    def __init__(
        self,
        provider: str,
        what: str,
        fetch: Callable[[], Lease[T]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._provider = provider
        self._what = what
        self._fetch = fetch
        self._clock = clock
        self._lease: Lease[T] | None = None
        self._doubted = False
        self._asked_at = -PAUSE_SECONDS
        self._renewal: asyncio.Task[Lease[T]] | None = None
        self._thread: ThreadPoolExecutor | None = None
        self.secrets: tuple[str, ...] = ()

    async def get(self) -> T:
        """The value, fetched if there is none that is good.

        Raises:
            APIError: 502, it can't be had.
        """
        lease = self._lease
        if lease is None or lease.ends_within(LATEST_SECONDS):
            lease = await self._renewed(WAIT_SECONDS)
        elif self._doubted and (self._is_renewing or self._has_paused()):
            lease = await self._renewed(DOUBT_SECONDS, lease)
        elif lease.ends_within(EARLY_SECONDS) and self._has_paused():
            self._begin()
        return lease.value

    def begin(self) -> None:
        """Fetch it, without waiting for it."""
        if self._lease is None:
            self._begin()

    def refused(self) -> None:
        """The vendor does not take it: whoever asks next gets another, if that was not just so. It
        goes on being used where there is no other to be had."""
        if self._has_paused():
            self._doubted = True

    async def stop(self) -> None:
        """Fetch no more. What a thread has begun is left to it."""
        renewal, self._renewal = self._renewal, None
        if renewal is not None and not renewal.done():
            renewal.cancel()
            await asyncio.wait((renewal,))
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.shutdown(wait=False, cancel_futures=True)

    def _has_paused(self) -> bool:
        return self._clock() - self._asked_at >= PAUSE_SECONDS

    @property
    def _is_renewing(self) -> bool:
        return self._renewal is not None and not self._renewal.done()

    def _begin(self) -> asyncio.Task[Lease[T]]:
        renewal = self._renewal
        if renewal is None or renewal.done():
            self._asked_at = self._clock()
            name = f"{self._what} of {self._provider}"
            renewal = self._renewal = asyncio.create_task(self._renew(), name=name)
            renewal.add_done_callback(_look_at)
        return renewal

    async def _renewed(self, patience: float, else_: Lease[T] | None = None) -> Lease[T]:
        renewal = self._begin()
        # Who leaves does not take it from the others, who wait for the same.
        done, _ = await asyncio.wait((renewal,), timeout=patience)
        if done and not renewal.cancelled() and renewal.exception() is None:
            return renewal.result()
        if else_ is not None:
            return else_
        why = "the log of this server says why" if done else f"not within {patience:g} seconds"
        raise upstream_error(
            self._provider, f"its {self._what} can't be had; {why}.", code="upstream_authentication"
        )

    async def _renew(self) -> Lease[T]:
        loop = asyncio.get_running_loop()
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "credentials")
        try:
            lease = await loop.run_in_executor(self._thread, self._fetch)
        except Exception as error:
            why = str(error) if isinstance(error, CredentialsError) else repr(error)
            log.warning("provider '%s': its %s can't be had: %s", self._provider, self._what, why)
            raise
        # A reply may still repeat what its request was sent with.
        older = self._lease.secrets if self._lease is not None else ()
        self._lease, self._doubted = lease, False
        if lease.secrets != older:
            self.secrets = (*lease.secrets, *older)
        return lease


def _look_at(renewal: asyncio.Task[Lease[T]]) -> None:
    # It is in the log already, and nobody need have waited for it.
    if not renewal.cancelled():
        renewal.exception()


class RequestCredentials(ABC, Generic[T]):
    """Authorizes the requests of one provider.

    Class attributes: `what`, what it does so with, for messages; `advice`, what to do when a vendor
    does not take that.

    Args:
        provider: its id, for messages.
    """

    what: ClassVar[str]
    advice: ClassVar[str]

    def __init__(self, provider: str) -> None:
        self._provider = provider
        self._value: RenewedValue[T] = RenewedValue(provider, self.what, self.fetch)

    @abstractmethod
    def fetch(self) -> Lease[T]:
        """Get what requests are authorized with. Called in a thread, where it may block.

        Raises:
            CredentialsError: why there is none; or anything else.
        """

    @abstractmethod
    async def authorize(
        self,
        method: Literal["GET", "POST", "DELETE"],
        url: str,
        content_type: str,
        body: bytes | None,
    ) -> HeaderBlock:
        """The lines that a request needs besides its other headers.

        Args:
            method: its method.
            url: all of it, as it is sent.
            content_type: its `content-type`.
            body: the bytes that are sent.

        Raises:
            APIError: 502, there are no credentials.
        """

    @property
    def secrets(self) -> tuple[str, ...]:
        """What vendors must not repeat; another object when there is something new."""
        return self._value.secrets

    def start(self) -> None:
        """Begin to fetch them, so that the first request need not."""
        self._value.begin()

    async def stop(self) -> None:
        """Fetch no more."""
        await self._value.stop()

    def refused(self, error: APIError, status: int) -> None:
        """The vendor does not take them: have `error` say so, of HTTP `status`, and fetch others
        before the next request."""
        self._value.refused()
        error.message = (
            f"Provider '{self._provider}': the vendor refused access with the {self.what}"
            f" configured for it (HTTP {status}). {self.advice}"
        )
