"""The thread in which a model looks at pictures, beside the steps of its engine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from llama_compat.errors import shutting_down
from providers.local.pictures.placing import PlacedPicture

See = Callable[[PlacedPicture], PlacedPicture]
"""What a model makes of a picture in a prompt: the same, and what it reads in its place.

It raises an `APIError` for a picture that the model can't be shown."""


class PictureThread:
    """Looks at the pictures of requests, one after the other: one takes as long as many steps.

    Args:
        see: looks at one; called in the thread.

    Attributes:
        waiting: how many requests have pictures that it looks at, or will.
    """

    def __init__(self, see: See) -> None:
        self.waiting = 0
        self._see = see
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="pictures")
        self._stopped = False

    async def seen(self, pictures: Sequence[PlacedPicture]) -> tuple[PlacedPicture, ...]:
        """What the model reads of each; who leaves meanwhile has no more of them looked at.

        Raises:
            APIError: 503; the thread is stopped. What `see` raises.
        """
        found = []
        self.waiting += 1
        try:
            for each in pictures:
                try:
                    looking = self._thread.submit(self._look, each)
                except RuntimeError:
                    raise shutting_down() from None
                found.append(await asyncio.wrap_future(looking))
        finally:
            self.waiting -= 1
        return tuple(found)

    def stop(self) -> None:
        """Break off what waits with an error, once the picture that is looked at is done."""
        self._stopped = True
        self._thread.shutdown()

    def _look(self, picture: PlacedPicture) -> PlacedPicture:
        if self._stopped:
            raise shutting_down()
        return self._see(picture)
