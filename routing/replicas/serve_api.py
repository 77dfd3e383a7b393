"""What Ray Serve tells of its applications, by its REST API (`GET /api/serve/applications/`,
https://docs.ray.io/en/latest/serve/api/index.html#serve-rest-api): how they are, and where their
replicas listen."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from pydantic import SecretStr

from llama_compat.errors import upstream_error
from providers.remote.config import RemoteConfig
from providers.remote.http1 import Timeouts
from providers.remote.upstream.exchanges import Upstream
from routing.replicas.application import VERSION

APPLICATIONS = "/api/serve/applications/"

MAX_BYTES = 16 * 1024 * 1024


class _Target(Struct):
    ip: str
    port: int
    name: str = ""


class _Group(Struct):
    route_prefix: str
    protocol: str
    targets: Sequence[_Target] = ()
    app_name: str = ""


class _Replica(Struct):
    replica_id: str
    state: str
    node_ip: str | None = None
    node_id: str | None = None
    actor_name: str | None = None


class _Deployment(Struct):
    replicas: Sequence[_Replica] = ()
    deployment_config: Mapping[str, Any] = {}
    message: str = ""


class _Application(Struct):
    status: str
    message: str = ""
    route_prefix: str | None = None
    deployments: Mapping[str, _Deployment] = {}


class _Instance(Struct):
    applications: Mapping[str, _Application] = {}
    target_groups: Sequence[_Group] = ()


class ApplicationState(Struct, frozen=True):
    """One application as it is now.

    Attributes:
        status: as `serve.schema.ApplicationStatus`: DEPLOYING, RUNNING, DEPLOY_FAILED, UNHEALTHY.
        message: what is wrong, in Serve's words.
        version: of what runs, or is to run, as `ServeApplication.version`; empty if unknown.
        places: where requests for it go: to its replicas; where Serve does not tell those, to its
            proxies (Python's, or HAProxy).
        doors: Serve's proxies, where that is all there is as no replica runs.
    """

    status: str
    message: str
    version: str
    places: Sequence[str]
    doors: Sequence[str]


class ServeAPI:
    """Asks the dashboard of a Ray cluster.

    Args:
        dashboard: its address.
        token: the cluster's; empty for none.
        is_here: whether the cluster is this machine alone, and listens for nobody else.
    """

    def __init__(self, dashboard: str, token: str = "", *, is_here: bool = False) -> None:
        self._is_here = is_here
        config = RemoteConfig(
            base_url=dashboard,
            api_key=SecretStr(token) if token else None,
            timeouts=Timeouts(connect=2, first_byte=10, between_bytes=10, total=15),
        )
        headers = {"authorization": f"Bearer {token}"} if token else {}
        self._upstream = Upstream("ray", config, headers)

    async def start(self) -> None:
        """Open the pool of connections."""
        await self._upstream.start()

    async def stop(self) -> None:
        """Close it."""
        await self._upstream.stop()

    async def applications(self) -> Mapping[str, ApplicationState]:
        """All applications by name.

        Raises:
            APIError: the cluster can't be asked, or answers with something else.
        """
        async with self._upstream.get(APPLICATIONS) as response:
            body = await response.read(MAX_BYTES)
        try:
            told = msgspec.json.decode(body, type=_Instance)
        except msgspec.MsgspecError as error:
            raise upstream_error(
                "ray", f"what {APPLICATIONS} says makes no sense: {error}"
            ) from None
        return {
            name: _state(name, each, told, is_here=self._is_here)
            for name, each in told.applications.items()
        }


def _state(
    name: str, application: _Application, told: _Instance, *, is_here: bool
) -> ApplicationState:
    prefix = (application.route_prefix or "").rstrip("/")
    groups = [each for each in told.target_groups if each.protocol == "HTTP"]
    own = [each for each in groups if each.app_name == name]
    # One that no application has is of proxies, which have the way to all.
    found = own or [each for each in groups if not each.app_name]
    targets = [target for group in found for target in group.targets]
    running = {
        replica.actor_name
        for deployment in application.deployments.values()
        for replica in deployment.replicas
        if replica.state == "RUNNING"
    }
    places = [_place(each, prefix, is_here=is_here) for each in targets]
    is_awake = any(each.name in running for each in targets) if own else bool(running)
    return ApplicationState(
        application.status,
        _told_of(application),
        _version(application),
        places if is_awake else (),
        () if is_awake else places,
    )


def _place(target: _Target, prefix: str, *, is_here: bool) -> str:
    if is_here:  # which Ray calls by the address of its network all the same
        return f"http://127.0.0.1:{target.port}{prefix}"
    host = f"[{target.ip}]" if ":" in target.ip else target.ip
    return f"http://{host}:{target.port}{prefix}"


def _version(application: _Application) -> str:
    for deployment in application.deployments.values():
        options = deployment.deployment_config.get("ray_actor_options") or {}
        variables = (options.get("runtime_env") or {}).get("env_vars") or {}
        if VERSION in variables:
            return str(variables[VERSION])
    return ""


def _told_of(application: _Application) -> str:
    told = [application.message, *(each.message for each in application.deployments.values())]
    return "\n".join(dict.fromkeys(filter(None, told)))


def cluster_token(environment: Mapping[str, str] = os.environ) -> str:
    """The token that a cluster of this machine or its user wants, where Ray itself looks for it
    (https://docs.ray.io/en/latest/ray-security/token-auth.html); empty if there is none. Blocks."""
    if token := environment.get("RAY_AUTH_TOKEN", "").strip():
        return token
    path = environment.get("RAY_AUTH_TOKEN_PATH") or "~/.ray/auth_token"
    try:
        return Path(path).expanduser().read_text("utf-8").strip()
    except (OSError, ValueError):
        return ""
