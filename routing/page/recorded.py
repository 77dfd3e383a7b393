"""What the page's routes read of the records, and what they say where there are none."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from fastapi import Request as HTTPRequest

from llama_compat.errors import APIError
from routing.runtime import Runtime, runtime_of
from routing.storage.outage import unavailable
from routing.storage.storage import Storage

Told = TypeVar("Told")


def storage_of(runtime: Runtime) -> Storage | None:
    """Where the records of `runtime` are; None where it keeps none."""
    observers = runtime.observers
    recorder = observers.recorder if observers is not None else None
    return recorder.storage if recorder is not None else None


async def recorded(request: HTTPRequest, read: Callable[[Storage], Awaitable[Told]]) -> Told:
    """What `read` finds in the records.

    Raises:
        APIError: 409, there are none; 503, they can't be read.
    """
    storage = storage_of(runtime_of(request))
    if storage is None:
        raise APIError(
            409,
            "This server records no requests: set `server.records: {}` in its template.",
            code="no_records",
        )
    with unavailable("Records"):
        return await read(storage)
