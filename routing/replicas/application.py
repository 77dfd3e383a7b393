"""What Ray Serve is told of one model: data, so that it can be sent, compared and written down."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from llama_compat.distribution import Distribution, ProviderSettings, ReplicaSettings
from providers.base import ProviderModel

IMPORT_PATH = "routing.replicas.replica:build"
"""What the cluster's machines make an application with."""

DEPLOYMENT = "engine"
"""What the one deployment of each application is called."""

VERSION = "LLAMA_COMPAT_REPLICA"
"""The variable in each replica's environment that says which application it is of, by a hash."""

MAX_ONGOING = 100_000
"""Requests that Ray Serve lets a replica have. It is the engine that knows how many it can take,
and how many may wait."""


LEAST_LOOK_BACK, MOST_LOOK_BACK = 10.5, 30.0
"""Over so many seconds Serve takes a mean of how busy replicas are, so that what was asked in them
keeps one that is idle. Its own are 30; they have to be more than the 10 between two reports."""

HEALTH_CHECK_SECONDS = 2.0
"""How often Serve looks whether a replica is there: so long it takes until another is started for
one that died."""


SURGE_PERCENT = 20
"""So many more replicas there may be while others take their place, but one at least."""


@dataclass(frozen=True, slots=True)
class ServeApplication:
    """One model of one provider as an application of Ray Serve.

    Attributes:
        name: in the cluster, and in the path of its requests.
        template: what a replica serves, as YAML has it.
        replicas: how many of them, and what each needs.
    """

    name: str
    template: Mapping[str, Any]
    replicas: ReplicaSettings

    @property
    def route_prefix(self) -> str:
        """What the paths of its requests begin with."""
        return f"/{self.name}"

    @property
    def version(self) -> str:
        """The same for the same application, another for another."""
        told = json.dumps([self.template, self.replicas.model_dump()], sort_keys=True)
        return blake2b(told.encode(), digest_size=8).hexdigest()

    @property
    def deployment(self) -> dict[str, Any]:
        """The options of its deployment, as `serve.schema.DeploymentSchema` has them."""
        wanted = self.replicas
        options: dict[str, Any] = {
            "name": DEPLOYMENT,
            "max_ongoing_requests": MAX_ONGOING,
            "graceful_shutdown_timeout_s": wanted.drain_seconds,
            "health_check_period_s": HEALTH_CHECK_SECONDS,
            "max_surge_percent": SURGE_PERCENT if wanted.update == "start_first" else 0,
            "ray_actor_options": {
                "num_cpus": wanted.cpus,
                "num_gpus": wanted.gpus,
                "runtime_env": {"env_vars": {VERSION: self.version}},
            },
        }
        if wanted.most == wanted.min:
            return {**options, "num_replicas": wanted.min}
        scaling = {
            "min_replicas": wanted.min,
            "max_replicas": wanted.most,
            "target_ongoing_requests": wanted.target_ongoing_requests,
            "upscale_delay_s": 5,
            "downscale_delay_s": wanted.idle_seconds,
            "look_back_period_s": min(max(LEAST_LOOK_BACK, wanted.idle_seconds), MOST_LOOK_BACK),
        }
        return {**options, "autoscaling_config": scaling}

    @property
    def config(self) -> dict[str, Any]:
        """The whole of it, as `serve.schema.ServeApplicationSchema` has it."""
        return {
            "name": self.name,
            "route_prefix": self.route_prefix,
            "import_path": IMPORT_PATH,
            "args": {"template": self.template},
            "deployments": [self.deployment],
        }


def applications_of(
    settings: ProviderSettings, models: Sequence[ProviderModel]
) -> dict[str, ServeApplication]:
    """The application of each of a provider's models, by the provider's name for it."""
    assert settings.replicas is not None
    return {
        each.name: ServeApplication(
            _name(settings.id, each.name), _template(settings, each), settings.replicas
        )
        for each in models
    }


def all_applications(
    distribution: Distribution, models: Mapping[str, Sequence[ProviderModel]]
) -> list[ServeApplication]:
    """The applications of all of a template's providers that have replicas.

    Args:
        distribution: the template.
        models: those that it wants from each provider, by its id.
    """
    return [
        application
        for settings in distribution.providers
        if settings.replicas is not None
        for application in applications_of(settings, models.get(settings.id, ())).values()
    ]


_TOLD_BY_ITS_HYPHENS = re.compile(r"[a-z0-9]+/[a-z0-9]+(-[a-z0-9]+)*")
"""A provider and a model that a hyphen may stand between: before the first one is the provider."""


def _name(provider: str, model: str) -> str:
    """A name of letters, digits and hyphens; two models never share one."""
    told = f"{provider}/{model}"
    plain = re.sub(r"[^a-z0-9]+", "-", told.lower()).strip("-")
    if _TOLD_BY_ITS_HYPHENS.fullmatch(told):
        return f"llama-compat-{plain}"
    return f"llama-compat-{plain}-{blake2b(told.encode(), digest_size=3).hexdigest()}"


def _template(settings: ProviderSettings, model: ProviderModel) -> dict[str, Any]:
    """A template of that provider, in the process itself, and that one model under any name."""
    config = settings.config.model_dump(mode="json", exclude_unset=True)
    listed: dict[str, Any] = {
        "id": model.name,
        "provider": settings.id,
        "aliases": ["*"],
    }
    if model.context_length is not None:
        listed["context_length"] = model.context_length
    return {
        "version": 1,
        "providers": [{"id": settings.id, "type": settings.type, "config": config}],
        "models": [listed],
    }
