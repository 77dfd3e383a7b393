"""Settings of the cache: which replies are kept, for how long, and who is given them again."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field


class _Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class ExactCacheSettings(_Settings):
    """Replies that are given again to requests that ask for the same."""

    ttl: Annotated[float, Field(gt=0, le=365 * 86400)] = 3600
    """Seconds after which a reply is forgotten."""

    max_bytes: Annotated[int, Field(ge=64 * 1024)] = 64 * 1024 * 1024
    """What all replies may come to; those that nobody asked for for longest make room."""

    store: Literal["memory"] = "memory"
    """Where they are kept: in the memory of the process that answered. Each worker has its own."""

    share: Literal["key", "team", "all"] = "key"
    """Who is given a reply again: the key that asked for it, all keys of its team, or everybody
    who may ask for the model. Where there are no keys, everybody is one."""

    sampled: bool = False
    """Keep replies that are another each time as well: of a `temperature` above 0, which is what
    models have where a request says nothing, and no `seed`."""

    tools: bool = False
    """Keep replies to requests with tools as well."""

    choices: bool = False
    """Keep several choices to one prompt (`n`) as well."""


class CacheSettings(_Settings):
    """Which replies are kept, to be given again."""

    exact: ExactCacheSettings | None = None
    """To requests that are the same; `{}` for the usual way, `null` for none."""
