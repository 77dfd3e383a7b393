"""Settings of engines that run as replicas on a Ray cluster."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from llama_compat.settings.model import TemplateSettings


class ReplicaSettings(TemplateSettings):
    """How many processes run each model of a local provider, and what each needs."""

    min: Annotated[int, Field(ge=0)] = 1
    """There are never fewer; with 0 the last one ends when nobody asks, and the next request waits
    for another to start."""

    max: Annotated[int, Field(ge=1)] | None = None
    """There are never more; None for as many as `min`, or one."""

    cpus: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1
    """Cores that Ray keeps free for each. It is also how many threads an engine on the CPU has."""

    gpus: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0
    """GPUs for each; 0.5 puts two of them on one."""

    target_ongoing_requests: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 16
    """Where `max` is more than `min`: one is added when each has more requests than this."""

    idle_seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 600
    """So long there have to be too many of them before one ends."""

    drain_seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 600
    """How long one that is to end has for the requests that it has."""

    update: Literal["start_first", "stop_first"] = "start_first"
    """How those of another template come in the place of these: each is started before one ends,
    which needs room for one more; or after, where there is no such room, as with all GPUs in use,
    and one less answers meanwhile."""

    start_seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 600
    """How long the first may take to start: its place in the cluster, its imports, its model."""

    @model_validator(mode="after")
    def _check_order(self) -> ReplicaSettings:
        if self.max is not None and self.max < self.min:
            raise ValueError(f"'max' ({self.max}) is less than 'min' ({self.min})")
        return self

    @property
    def most(self) -> int:
        """How many there may be."""
        return max(self.min, 1) if self.max is None else self.max


def _check_address(address: str) -> str:
    address = address.strip()
    if "://" in address and not address.startswith("ray://"):
        raise ValueError(
            "expected the address of a Ray cluster: 'auto', host:port or ray://host:port"
        )
    return address


class ScaleSettings(TemplateSettings):
    """The Ray cluster on which replicas run."""

    ray: Annotated[str, Field(min_length=1), AfterValidator(_check_address)] | None = None
    """The cluster's address: `auto` for one that runs on this machine, `host:6379`, or
    `ray://host:10001`. Without it, what the variable `RAY_ADDRESS` says; without that, a cluster is
    started on this machine that ends with the server."""

    dashboard: Annotated[str, Field(pattern="^https?://")] | None = None
    """Where the cluster's dashboard is, which tells where replicas are; None for where the cluster
    says that it is."""

    keep: bool = False
    """Leave the replicas running when the server ends, for its next start or for other gateways."""
