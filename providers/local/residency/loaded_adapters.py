"""The adapters that are in memory beside one engine's model."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Generic, TypeVar

from llama_compat.errors import APIError
from llama_compat.wire.retry_after import retry_after
from providers.local.engine import Generation

log = logging.getLogger(__name__)

Adapter = TypeVar("Adapter")


class LoadedAdapters(Generic[Adapter]):
    """Those of one engine, by their sources as templates name them.

    Args:
        model: its name, for the log.
    """

    def __init__(self, model: str) -> None:
        self._model = model
        self._loaded: dict[str, Adapter] = {}

    @property
    def sources(self) -> Collection[str]:
        """Those of them that are loaded now."""
        return self._loaded.keys()

    def add(self, source: str, adapter: Adapter) -> None:
        """One more is there, which generations may name from now on."""
        self._loaded[source] = adapter
        log.info("%s: the adapter '%s' is loaded", self._model, source)

    def remove(self, source: str) -> bool:
        """Let go of one; False where it is not there. What runs with it has it to its end."""
        if self._loaded.pop(source, None) is None:
            return False
        log.info("%s: the adapter '%s' is unloaded", self._model, source)
        return True

    def of(self, generation: Generation) -> Adapter | None:
        """The one that a generation names; None where it names none.

        Raises:
            APIError: 503; it was unloaded in the moment in which the request came.
        """
        source = generation.adapter
        if source is None:
            return None
        adapter = self._loaded.get(source)
        if adapter is None:
            raise APIError(
                503,
                f"The adapter '{source}' has just been unloaded. Ask again, and it is loaded.",
                code="model_not_loaded",
                headers=retry_after(1),
            )
        return adapter
