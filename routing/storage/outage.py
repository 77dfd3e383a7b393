"""What fails for a while is said when it begins, once a minute, and when it is over."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

from llama_compat.errors import APIError
from routing.storage.storage import Storage, StorageAway, StorageError

log = logging.getLogger(__name__)

LOG_SECONDS = 60.0


@contextmanager
def unavailable(what: str, otherwise: str = "") -> Iterator[None]:
    """Where a storage is used for a client: what goes wrong with it is logged, and told as 503.

    Args:
        what: is kept there, the beginning of a sentence about several.
        otherwise: how a client can do without, after `later`.
    """
    try:
        yield
    except StorageError as error:
        log.error("%s can't be used: %s", what, error)
        raise APIError(
            503,
            f"{what} can't be used now; the server's log says why. Ask again later{otherwise}.",
            code="store_unavailable",
        ) from None


async def open_or_wait(storage: Storage, what: str) -> None:
    """Open a storage where `what` is kept. One that is away opens by itself when it is used once it
    is back: a server that is started anew meanwhile answers all that needs none of it.

    Raises:
        StorageError: it can't be used at all.
    """
    try:
        await storage.start()
    except StorageAway as error:
        log.error("%s can't be used: %s", what, error)


class Outage:
    """One thing that may fail for a while.

    Args:
        begun: what that means, for the log.
        over: what is said when it works again.

    Attributes:
        why: the reason, while it fails; else empty.
    """

    def __init__(self, begun: str, over: str) -> None:
        self._begun = begun
        self._over = over
        self._since = self._told = 0.0
        self.why = ""

    def failed(self, why: str, more: str = "") -> None:
        """It does not work, for this reason; `more` says what has come of it so far."""
        now = time.monotonic()
        if not self.why:
            self._since, self._told = now, now - LOG_SECONDS
        self.why = why or "for no reason that was told"
        if now - self._told >= LOG_SECONDS:
            self._told = now
            log.error("%s%s: %s", self._begun, f" ({more})" if more else "", self.why)

    def worked(self, more: str = "") -> None:
        """It works."""
        if self.why:
            self.why = ""
            seconds = time.monotonic() - self._since
            log.warning("%s, after %.3g s%s", self._over, seconds, f" ({more})" if more else "")
