"""The store that gateways share: who there is, what they say to each other, who may do what."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Protocol


class StoreAway(Exception):
    """The store can't be asked at the moment; the message says why."""


class FleetStore(Protocol):
    """Every method but `stop` raises `StoreAway` where the store can't be asked."""

    async def start(self) -> None:
        """Make ready to ask; the store may be away.

        Raises:
            ProviderStartError: a package is missing, or the address is none.
        """
        ...

    async def stop(self) -> None:
        """Disconnect."""
        ...

    async def exchange(self, gateway: str, report: bytes, seconds: float) -> dict[str, bytes]:
        """Leave a report, and read those of the other gateways that are not older than `seconds`;
        older ones are gone then."""
        ...

    async def leave(self, gateway: str) -> None:
        """Take a gateway's report away."""
        ...

    async def tell(self, message: bytes) -> None:
        """Send a message to all that listen, the sender among them."""
        ...

    def heard(self) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """The messages from now on, as they come."""
        ...

    async def claim(self, name: str, gateway: str, seconds: float) -> bool:
        """Be the only one that has `name`, for so many seconds from now; whether it is."""
        ...

    async def release(self, name: str, gateway: str) -> None:
        """Give up what `claim` gave, if it is this gateway's still."""
        ...

    async def read(self, name: str) -> bytes | None:
        """What is kept under `name`."""
        ...

    async def keep(self, name: str, value: bytes) -> None:
        """Keep it under `name`, for weeks."""
        ...
