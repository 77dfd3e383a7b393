"""Settings of models that share the memory of this machine: how much there is, who stays in it."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from pydantic import AfterValidator, ByteSize, Field, StringConstraints

from llama_compat.settings.model import TemplateSettings
from llama_compat.text.durations import seconds_of

_IDLE = "idle "


def _check_keep(keep: str) -> str:
    if keep not in ("always", "on_demand"):
        try:
            seconds_of(keep.removeprefix(_IDLE) if keep.startswith(_IDLE) else "")
        except ValueError:
            raise ValueError("expected always, on_demand or a time, such as 'idle 10m'") from None
    return keep


Keep = Annotated[str, AfterValidator(_check_keep)]
"""`always`, `on_demand`, or `idle` and a time."""

Device = Annotated[str, StringConstraints(pattern=r"^(cpu|cuda:\d+)$")]
"""Where a model's memory is: `cpu`, `cuda:0` and so on."""

MemoryBounds = Annotated[dict[Device, ByteSize], Field(min_length=1)]
"""By the device, what all models there may have together: `12GB`, `70GiB`."""


def idle_seconds(keep: str) -> float | None:
    """After how long without a request a model that is kept so goes; None for never."""
    return seconds_of(keep.removeprefix(_IDLE)) if keep.startswith(_IDLE) else None


def longest_keep(one: str, other: str) -> str:
    """Of two ways of keeping one model the one that keeps it longer."""

    def length(keep: str) -> float:
        seconds = idle_seconds(keep)
        return (float("inf") if keep == "always" else 1e15) if seconds is None else seconds

    return max(one, other, key=length)


class ResidencySettings(TemplateSettings):
    """How models take turns in the memory that `memory` gives them."""

    stay_seconds: Annotated[float, Field(ge=0, le=86400)] = 5
    """A model that was loaded makes no room for another before this, nor before it has been there
    for as long as loading it took: otherwise two that are asked in turn would do nothing else."""

    wait_seconds: Annotated[float, Field(gt=0, le=86400)] = 600
    """How long a request waits for its model; then it is answered with 503."""

    max_waiting: Annotated[int, Field(ge=1)] = 1024
    """Requests that wait for models that are not there, for all of them together; more are answered
    with 429."""


class ModelStay(NamedTuple):
    """How long a model stays in memory.

    Attributes:
        keep: see `Keep`.
        preload: it is loaded when the server starts, if there is room.
        park: when it makes room, its weights go to the main memory rather than away.
    """

    keep: str = "on_demand"
    preload: bool = False
    park: bool = False

    @property
    def is_pinned(self) -> bool:
        """Whether it makes room for nobody."""
        return self.keep == "always"

    def joined(self, other: ModelStay) -> ModelStay:
        """How one model stays that is offered as two, of which one stays so and one otherwise."""
        return ModelStay(
            longest_keep(self.keep, other.keep),
            self.preload or other.preload,
            self.park or other.park,
        )
