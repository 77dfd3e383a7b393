"""A template that has changed takes the place of the one that is served, if it is right."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from llama_compat.distribution import (
    Distribution,
    ServerSettings,
    distribution_of,
    read_template,
)
from llama_compat.distribution.problems import TemplateError
from providers.base import ProviderStartError
from providers.registry import config_model
from routing.app import Application
from routing.http.limits import Limits
from routing.process.watched_file import LOOK_SECONDS, WatchedFile
from routing.runtime import Runtime

if TYPE_CHECKING:
    from routing.fleet.templates import Templates

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


class TemplateRefused(Exception):
    """Another gateway finds the template wrong; the message says which, and what."""


@dataclass(frozen=True, slots=True)
class Reloaded:
    """What has come of a reload.

    Attributes:
        providers: which are as they were, changed, new and gone, by those words; empty where the
            template says what it said before.
        restart: the settings that have changed and wait for a restart, such as `server.port`.
    """

    providers: dict[str, list[str]]
    restart: list[str]


class Reloader:
    """Reloads the template of an application, when asked to, when its file has changed, or when the
    other gateways of its fleet have.

    Args:
        app: the application, which has started when `run` is called.
        source: the template's name or path.
        watched: the file to look at; None to wait until asked.
        tell_others: has the other processes that serve the template read it again; None where there
            are none.

    Attributes:
        source: the template's name or path.
        has_others: whether other processes of this server serve the template too.
    """

    def __init__(
        self,
        app: Application,
        source: str,
        watched: WatchedFile | None = None,
        tell_others: Callable[[], None] | None = None,
    ) -> None:
        self._app = app
        self.source = source
        self.has_others = tell_others is not None
        self._tell_others = tell_others
        self._changing = asyncio.Lock()
        app.reloader = self
        self._watched = watched
        self._begun_with = app.runtime.settings
        self._asked = asyncio.Event()
        self._reloads = self._adopts = False
        self._path, self._text = source, ""

    def ask(self) -> None:
        """Have the template reloaded; after the reload that may be going on."""
        self._reloads = True
        self._asked.set()

    async def run(self) -> None:
        """Reload whenever there is reason to, until cancelled."""
        if self._app.runtime.fleet is not None:
            with suppress(TemplateError):
                self._path, self._text = await asyncio.to_thread(read_template, self.source)
            self._connect()
        while True:
            if await self._due():
                self._asked.clear()
                adopts, reloads = self._adopts, self._reloads or not self._adopts
                self._adopts = self._reloads = False
                try:
                    async with self._changing:
                        if adopts:
                            await self._adopt()
                        if reloads:
                            await self._reload()
                except Exception:
                    log.exception("%s is not reloaded; all goes on as it was", self.source)

    async def take_over(self, path: str, text: str, keep: Callable[[], None]) -> Reloaded:
        """Serve another text from now on, and have it kept; the other processes of this server
        follow.

        A reload that fails leaves everything as it was, and so does what can't be kept.

        Args:
            path: of the template's file, for messages.
            text: what is to be in it.
            keep: puts it there, in a thread; what it raises is raised.

        Raises:
            TemplateError: the text is wrong.
            ProviderStartError: a provider can't start.
            TemplateRefused: another gateway finds it wrong.
        """
        async with self._changing:
            before = self._app.runtime
            distribution = await self._load(path, text)
            try:
                await asyncio.to_thread(keep)
            except BaseException:
                if self._app.runtime is not before:
                    await self._app.reload(before.distribution)
                    self._connect()
                raise
            await self._settle(text, before)
            reloaded = Reloaded(
                {} if self._app.runtime is before else _fates(before, self._app.runtime),
                needs_restart(self._begun_with, distribution.server),
            )
        if self._tell_others is not None:
            self._tell_others()
        return reloaded

    async def _due(self) -> bool:
        if self._watched is None:
            return await self._asked.wait()
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                return await self._asked.wait()
        except TimeoutError:
            return self._watched.changed()

    async def _reload(self) -> None:
        """Load what the file says, if it is right, and right for the other gateways."""
        before = self._app.runtime
        try:
            path, text = await asyncio.to_thread(read_template, self.source)
            await self._load(path, text)
        except (TemplateError, ProviderStartError, TemplateRefused) as error:
            self._refuse(error)
            return
        await self._settle(text, before)

    async def _load(self, path: str, text: str) -> Distribution:
        """Answer from what `text` says, unless that is what was said before."""
        before = self._app.runtime
        distribution = await asyncio.to_thread(distribution_of, path, text, config_model)
        is_as_before = distribution == before.distribution
        templates = self._templates
        if not is_as_before or (templates is not None and not templates.is_settled(text)):
            objections = await self._objections(templates, text)
            if objections:
                raise TemplateRefused("\n".join(objections))
        if not is_as_before:
            await self._app.reload(distribution)
        return distribution

    async def _settle(self, text: str, before: Runtime) -> None:
        """Tell of what is served now."""
        now = self._app.runtime
        templates = self._templates
        if now is before and (templates is None or templates.is_settled(text)):
            log.info("%s says what it said before: nothing is reloaded", self.source)
            return
        self._text = text
        self._connect()
        await self._tell_agreed(text)
        if now is not before:
            self._say_reloaded(before, now.distribution)

    async def _adopt(self) -> None:
        """Load what the fleet has agreed upon."""
        from routing.fleet.store import StoreAway

        before, templates = self._app.runtime, self._templates
        if templates is None:
            return
        try:
            found = await templates.current()
        except StoreAway:
            return  # this gateway asks again once it hears of the others
        if found is None or found.hash == templates.served:
            return
        try:
            distribution = await asyncio.to_thread(
                distribution_of, self._path, found.text, config_model
            )
            if distribution != before.distribution:
                await self._app.reload(distribution)
        except (TemplateError, ProviderStartError) as error:
            self._refuse(error)
            return
        self._text = found.text
        self._connect()
        if distribution != before.distribution:
            self._say_reloaded(before, distribution)

    # Other gateways -------------------------------------------------------------------------------

    @property
    def _templates(self) -> Templates | None:
        fleet = self._app.runtime.fleet
        return None if fleet is None else fleet.templates

    def _connect(self) -> None:
        """Let the fleet of the runtime that serves now know what it serves."""
        if (templates := self._templates) is not None:
            from routing.fleet.templates import hash_of

            templates.connect(hash_of(self._text), self._problem, self._ask_to_adopt, self.ask)

    async def _problem(self, text: str) -> str:
        try:
            await asyncio.to_thread(distribution_of, self._path, text, config_model)
        except TemplateError as error:
            return str(error)
        return ""

    def _ask_to_adopt(self) -> None:
        self._adopts = True
        self._asked.set()

    async def _objections(self, templates: Templates | None, text: str) -> list[str]:
        if templates is None:
            return []
        from routing.fleet.store import StoreAway

        try:
            return await templates.objections(text)
        except StoreAway:
            log.warning("the store is away: %s is reloaded here, and elsewhere later", self.source)
            return []

    async def _tell_agreed(self, text: str) -> None:
        if (templates := self._templates) is None:
            return
        from routing.fleet.store import StoreAway

        try:
            await templates.agreed(text)
        except StoreAway:
            templates.pending = True

    # What is said of it ---------------------------------------------------------------------------

    def _refuse(self, error: Exception) -> None:
        log.error("%s is not reloaded; all goes on as it was:\n%s", self.source, error)
        self._count(succeeded=False)

    def _say_reloaded(self, before: Runtime, distribution: Distribution) -> None:
        self._count(succeeded=True)
        fates = _fates(before, self._app.runtime)
        told = "; ".join(f"{fate}: {', '.join(ids)}" for fate, ids in fates.items())
        log.info("%s is reloaded: %s", self.source, told)
        log_models(distribution)
        if restart := needs_restart(self._begun_with, distribution.server):
            log.warning("%s: only a restart changes %s", self.source, ", ".join(restart))

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


def _fates(before: Runtime, after: Runtime) -> dict[str, list[str]]:
    """What became of the providers: whose are as they were, changed, new and gone."""
    fates: dict[str, list[str]] = {"as it was": [], "changed": [], "new": [], "gone": []}
    for id in {**before.providers, **after.providers}:
        if id not in before.providers:
            fate = "new"
        elif id not in after.providers:
            fate = "gone"
        else:
            fate = "as it was" if before.providers[id] is after.providers[id] else "changed"
        fates[fate].append(id)
    return {fate: ids for fate, ids in fates.items() if ids}
