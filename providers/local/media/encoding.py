"""The thread in which a model makes something of media, beside the steps of its engine."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, Protocol, TypeVar

from llama_compat.errors import shutting_down
from providers.local.media.placing import PlacedMedium

Encode = Callable[[PlacedMedium], PlacedMedium]
"""What a model makes of a medium in a prompt: the same, and what it reads in its place.

It raises an `APIError` for one that the model can't be shown."""


class MediaThread:
    """Has the media of requests encoded, one after the other: one takes as long as many steps.

    Args:
        encode: does one; called in the thread.

    Attributes:
        waiting: how many requests have media that are encoded, or will be.
    """

    def __init__(self, encode: Encode) -> None:
        self.waiting = 0
        # Gone once this is stopped, or it and the engine whose method it is would keep each other.
        self._encode: Encode | None = encode
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="media")
        self._stopped = False

    async def encoded(self, media: Sequence[PlacedMedium]) -> tuple[PlacedMedium, ...]:
        """What the model reads of each; who leaves meanwhile has no more of them encoded.

        Raises:
            APIError: 503; the thread is stopped. What `encode` raises.
        """
        found = []
        self.waiting += 1
        try:
            for each in media:
                try:
                    encoding = self._thread.submit(self._encode_next, each)
                except RuntimeError:
                    raise shutting_down() from None
                found.append(await asyncio.wrap_future(encoding))
        finally:
            self.waiting -= 1
        return tuple(found)

    def stop(self) -> None:
        """Break off what waits with an error, once the medium that is encoded is done."""
        self._stopped = True
        self._thread.shutdown()
        self._encode = None

    def _encode_next(self, medium: PlacedMedium) -> PlacedMedium:
        if self._stopped or self._encode is None:
            raise shutting_down()
        return self._encode(medium)


class Sized(Protocol):
    """What takes memory."""

    @property
    def nbytes(self) -> int:
        """How much."""


E = TypeVar("E", bound=Sized)


class KeptEncodings(Generic[E]):
    """What a model read in media, by their keys, for requests with the same; for one thread.

    Args:
        room: bytes in which it is kept: what was not asked for longest goes first.
    """

    def __init__(self, room: int) -> None:
        self._room = room
        self._kept: OrderedDict[bytes, E] = OrderedDict()
        self.taken = 0

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: bytes, encode: Callable[[], E]) -> E:
        """What was read in the medium with this key; `encode` reads it where nothing is kept."""
        found = self._kept.pop(key, None)
        if found is None:
            found = encode()
            self.taken += found.nbytes
        self._kept[key] = found
        while self.taken > self._room:
            _, gone = self._kept.popitem(last=False)
            self.taken -= gone.nbytes
        return found
