"""The replicas of a template's models: deployed, followed as they come and go, and taken down."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from llama_compat.distribution import ScaleSettings
from llama_compat.errors import APIError
from llama_compat.going_on import going_on
from providers.base import ProviderStartError
from providers.followers import Followers
from providers.remote.config import RemoteConfig
from providers.remote.upstream.exchanges import Upstream
from providers.requirements import require
from routing.replicas.application import ServeApplication
from routing.replicas.driver import Driver, DriverError
from routing.replicas.serve_api import ApplicationState, ServeAPI, cluster_token
from routing.waiting import first_of

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
"""How often Serve is asked where replicas are. One that is to end takes requests for longer than
that from who does not know of it (`RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S`)."""

STARTING_LOOK_SECONDS = 0.25
"""The same while somebody waits for a replica."""

AGAIN_SECONDS = 30.0
"""What Serve has lost is deployed again, but not more often than this."""

NO_ROOM = (
    "Is there room in the cluster for its `cpus` and `gpus`? New ones in the place of others need"
    " it beside them, unless `replicas.update` is `stop_first`."
)

GOOD = ("RUNNING", "DEPLOYING", "UNHEALTHY")
"""The states of an application that need not be deployed."""


class ReplicaCluster:
    """All replicas on one Ray cluster.

    Args:
        settings: which cluster.

    Attributes:
        is_away: whether the cluster could not be asked when it was asked last; what is known of
            replicas is then what it said before.
    """

    def __init__(self, settings: ScaleSettings) -> None:
        self.settings = settings
        self.is_away = False
        self._driver = Driver(settings.ray or os.environ.get("RAY_ADDRESS", ""), settings.keep)
        self._api: ServeAPI | None = None
        self._known: Mapping[str, ApplicationState] = {}
        self._wanted: dict[str, ServeApplication] = {}
        self._holders: dict[str, int] = {}
        self._deployed_at: dict[str, float] = {}
        self._made_here: set[str] = set()
        self._followers: Followers[[]] = Followers("replicas")
        self._following: asyncio.Task[None] | None = None
        self._look_now = asyncio.Event()
        self._looked = asyncio.Condition()
        self._waiting = 0

    async def start(self) -> None:
        """Connect to the cluster, or start one, and begin to follow it.

        Raises:
            ProviderStartError: that can't be done; the message says why.
        """
        require(["ray"], "for `replicas`", "ray")
        try:
            cluster = await self._driver.start()
        except DriverError as error:
            raise ProviderStartError(f"Ray can't be used for `replicas`: {error}") from None
        dashboard = self.settings.dashboard or cluster.dashboard
        if not dashboard:
            raise ProviderStartError(
                "The Ray cluster says of no dashboard, by which Serve tells where replicas are."
                " Start it with one (`ray start --include-dashboard=true`), or say where it is:"
                " `scale: {dashboard: http://HOST:8265}`."
            )
        token = cluster.token or await asyncio.to_thread(cluster_token)
        self._api = ServeAPI(dashboard, token, is_here=self._driver.own)
        await self._api.start()
        self._following = asyncio.create_task(going_on("replicas", self._follow), name="replicas")

    async def stop(self) -> None:
        """Follow it no more; a cluster that was started here ends."""
        if self._following is not None:
            self._following.cancel()
            with suppress(asyncio.CancelledError):
                await self._following
        if self._api is not None:
            await self._api.stop()
        await self._driver.stop()

    def replicas(self, application: ServeApplication) -> Replicas:
        """Those of one application, which `Replicas.start` deploys."""
        return Replicas(self, application)

    # Deploying ------------------------------------------------------------------------------------

    async def hold(self, application: ServeApplication) -> None:
        """Have an application run as it is said here, until `release`.

        Raises:
            ProviderStartError: it does not start. What ran of the name before runs on.
        """
        name = application.name
        before = self._wanted.get(name)
        self._holders[name] = self._holders.get(name, 0) + 1
        self._wanted[name] = application
        try:
            await self._run(application)
        except ProviderStartError:
            if before is not None and before.version != application.version:
                self._wanted[name] = before
                await self._deploy(before)
            raise

    async def release(self, application: ServeApplication) -> None:
        """The end of what `hold` began. The last one takes it down, if it was deployed here."""
        name = application.name
        self._holders[name] -= 1
        if self._holders[name]:
            return
        del self._holders[name]
        self._wanted.pop(name, None)
        if name in self._made_here and not (self.settings.keep or self._driver.own):
            self._made_here.discard(name)
            try:
                await self._driver.delete(name)
            except DriverError as error:
                log.error("the replicas of %s are not taken down: %s", name, error)

    async def _run(self, application: ServeApplication) -> None:
        state = await self.state(application.name)
        is_there = state is not None and state.version == application.version
        if not (is_there and state is not None and state.status in GOOD):
            await self._deploy(application)
        seconds = application.replicas.start_seconds
        told = ""
        try:
            async with asyncio.timeout(seconds):
                while True:
                    state = await self.state(application.name)
                    if state is not None and state.version in (application.version, ""):
                        told = state.message
                        if state.status == "DEPLOY_FAILED":
                            raise ProviderStartError(
                                f"The replicas of {application.name} do not start: {_short(told)}"
                            )
                        if state.status == "RUNNING" and state.version:
                            return
        except TimeoutError:
            raise ProviderStartError(
                f"No replica of {application.name} has started within {seconds:g} s"
                f" (`replicas.start_seconds`). {_short(told) or NO_ROOM}"
            ) from None

    async def _deploy(self, application: ServeApplication) -> None:
        self._deployed_at[application.name] = time.monotonic()
        self._made_here.add(application.name)
        log.info("deploying %s on Ray Serve", application.name)
        try:
            await self._driver.deploy(application.config)
        except DriverError as error:
            raise ProviderStartError(
                f"{application.name} can't be deployed on Ray Serve: {error}"
            ) from None

    # Following ------------------------------------------------------------------------------------

    def known(self, name: str) -> ApplicationState | None:
        """What was heard last of an application."""
        return self._known.get(name)

    async def state(self, name: str) -> ApplicationState | None:
        """What is heard of an application next; None if there is none."""
        self._waiting += 1
        try:
            self.look()
            async with self._looked:
                await self._looked.wait()
        finally:
            self._waiting -= 1
        return self._known.get(name)

    def look(self) -> None:
        """Ask Serve now."""
        self._look_now.set()

    def when_moved(self, tell: Callable[[], None]) -> Callable[[], None]:
        """Have `tell` called whenever replicas came or went, until what is returned is called."""
        return self._followers.add(tell)

    async def _follow(self) -> None:
        assert self._api is not None
        while True:
            self._look_now.clear()
            try:
                self._heard(await self._api.applications())
            except APIError as error:
                if not self.is_away:
                    log.warning(
                        "Ray can't be asked where replicas are; those that are known are asked: %s",
                        error.message,
                    )
                self.is_away = True
            async with self._looked:
                self._looked.notify_all()
            await self._repair()
            await asyncio.sleep(STARTING_LOOK_SECONDS)
            if not self._waiting:
                await first_of(self._look_now, LOOK_SECONDS - STARTING_LOOK_SECONDS)

    def _heard(self, states: Mapping[str, ApplicationState]) -> None:
        before = {name: self._places(name) for name in self._wanted}
        self.is_away, self._known = False, states
        if before != {name: self._places(name) for name in self._wanted}:
            self._followers.tell()

    def _places(self, name: str) -> Sequence[str]:
        state = self._known.get(name)
        return () if state is None else tuple(state.places)

    async def _repair(self) -> None:
        """Deploy what the cluster has lost, as with its head."""
        if self.is_away:
            return
        for name, application in list(self._wanted.items()):
            since = time.monotonic() - self._deployed_at.get(name, time.monotonic())
            if name not in self._known and since > AGAIN_SECONDS:
                with suppress(ProviderStartError):
                    await self._deploy(application)


class Replicas:
    """The replicas of one application, as a provider has them.

    Args:
        cluster: all of them.
        application: what they are.
    """

    def __init__(self, cluster: ReplicaCluster, application: ServeApplication) -> None:
        self._cluster = cluster
        self._application = application
        self._is_held = False

    @property
    def may_sleep(self) -> bool:
        """Whether there may be none."""
        return self._application.replicas.min == 0

    @property
    def places(self) -> Sequence[str]:
        """The addresses of those that take requests now."""
        state = self._cluster.known(self._application.name)
        return () if state is None else state.places

    async def start(self) -> None:
        """Have them run.

        Raises:
            ProviderStartError: they do not start.
        """
        self._is_held = True
        await self._cluster.hold(self._application)

    async def stop(self) -> None:
        """They are not needed any more."""
        if self._is_held:
            self._is_held = False
            await self._cluster.release(self._application)

    async def awake(self) -> str:
        """The address of one; where there is none now, Serve is told that somebody waits.

        Raises:
            APIError: 503, none starts.
        """
        seconds = self._application.replicas.start_seconds
        call: asyncio.Task[None] | None = None
        try:
            async with asyncio.timeout(seconds):
                while not self.places:
                    state = await self._cluster.state(self._application.name)
                    if call is None and state is not None and state.doors:
                        call = asyncio.create_task(_knock(state.doors[0]))
        except TimeoutError:
            raise APIError(
                503,
                f"No replica of {self._application.name} has started within {seconds:g} s.",
                code="no_replica",
            ) from None
        finally:
            if call is not None:
                call.cancel()
                with suppress(asyncio.CancelledError):
                    await call
        return self.places[0]

    def lost(self, place: str) -> None:
        """The replica at `place` could not be reached: Serve may know more."""
        self._cluster.look()

    def when_moved(self, tell: Callable[[], None]) -> Callable[[], None]:
        """As `ReplicaCluster.when_moved`."""
        return self._cluster.when_moved(tell)


async def _knock(door: str) -> None:
    """A request by Serve's proxy, which waits there for a replica, and so has one started."""
    upstream = Upstream("ray", RemoteConfig(base_url=door), {})
    await upstream.start()
    try:
        while True:
            with suppress(APIError):
                async with upstream.get("/health") as response:
                    await response.read()
                    return
            await asyncio.sleep(LOOK_SECONDS)
    finally:
        await upstream.stop()


def _short(told: str) -> str:
    """The last lines of what Serve says, which is where a traceback has its error."""
    return " ".join(line.strip() for line in told.strip().splitlines()[-6:])[-1000:]
