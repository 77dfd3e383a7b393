"""A template that has changed takes the place of the one that is served, if it is right."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import fields

from llama_compat.distribution import Distribution, ServerSettings, load_distribution
from llama_compat.distribution.problems import TemplateError
from llama_compat.distribution.watched_file import LOOK_SECONDS, WatchedFile
from providers.base import ProviderStartError
from providers.registry import config_model
from routing.app import Application
from routing.http.limits import Limits
from routing.runtime import Runtime

log = logging.getLogger(__name__)

RESTART_FOR = (
    "host",
    "port",
    "apis",
    "shutdown_grace_seconds",
    "metrics",
    *(field.name for field in fields(Limits)),
)
"""The settings of the server that are looked at when it starts, and not again."""


class Reloader:
    """Reloads the template of an application, when asked to or when its file has changed.

    Args:
        app: the application, which has started when `run` is called.
        source: the template's name or path.
        watched: the file to look at; None to wait until asked.
    """

    def __init__(self, app: Application, source: str, watched: WatchedFile | None = None) -> None:
        self._app = app
        self._source = source
        self._watched = watched
        self._begun_with = app.runtime.settings
        self._asked = asyncio.Event()

    def ask(self) -> None:
        """Have the template reloaded; after the reload that may be going on."""
        self._asked.set()

    async def run(self) -> None:
        """Reload whenever there is reason to, until cancelled."""
        while True:
            if await self._due():
                self._asked.clear()
                try:
                    await self._reload()
                except Exception:
                    log.exception("%s is not reloaded; all goes on as it was", self._source)

    async def _due(self) -> bool:
        if self._watched is None:
            return await self._asked.wait()
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                return await self._asked.wait()
        except TimeoutError:
            return self._watched.changed()

    async def _reload(self) -> None:
        before = self._app.runtime
        try:
            distribution = await asyncio.to_thread(load_distribution, self._source, config_model)
            if distribution == before.distribution:
                log.info("%s says what it said before: nothing is reloaded", self._source)
                return
            await self._app.reload(distribution)
        except (TemplateError, ProviderStartError) as error:
            log.error("%s is not reloaded; all goes on as it was:\n%s", self._source, error)
            self._count(succeeded=False)
            return
        self._count(succeeded=True)
        log.info("%s is reloaded: %s", self._source, _fates(before, self._app.runtime))
        log_models(distribution)
        if restart := needs_restart(self._begun_with, distribution.server):
            log.warning("%s: only a restart changes %s", self._source, ", ".join(restart))

    def _count(self, *, succeeded: bool) -> None:
        observers = self._app.runtime.observers
        if observers is not None and observers.meter is not None:
            observers.meter.reloaded(succeeded=succeeded)


def needs_restart(before: ServerSettings, after: ServerSettings) -> list[str]:
    """The settings in which both differ, and that a running server keeps."""
    changed = (name for name in RESTART_FOR if getattr(before, name) != getattr(after, name))
    return [f"server.{name}" for name in changed]


def log_models(distribution: Distribution) -> None:
    """Say what can be asked for."""
    models = ", ".join(model.id for model in distribution.models)
    log.info("models: %s", models or "those that the providers list")


def _fates(before: Runtime, after: Runtime) -> str:
    """What became of the providers."""
    fates: dict[str, list[str]] = {"as it was": [], "changed": [], "new": [], "gone": []}
    for id in {**before.providers, **after.providers}:
        if id not in before.providers:
            fate = "new"
        elif id not in after.providers:
            fate = "gone"
        else:
            fate = "as it was" if before.providers[id] is after.providers[id] else "changed"
        fates[fate].append(id)
    return "; ".join(f"{fate}: {', '.join(ids)}" for fate, ids in fates.items() if ids)
