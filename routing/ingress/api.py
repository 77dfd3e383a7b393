"""What a client API is to the router: where its calls are, and the language of its errors."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from llama_compat.dialects.base import Dialect
from routing.asgi import Scope
from routing.ingress.endpoint import Endpoint

if TYPE_CHECKING:
    from routing.app import Application


def _add_nothing(app: Application) -> None:
    """For an API that is its calls alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientAPI:
    """One way in.

    Attributes:
        name: what the template calls it, in `server.apis`.
        dialect: in which it is told what goes wrong.
        owns: whether a request that is none of `endpoints` is this API's all the same.
        endpoints: the calls, by path.
        patterns: calls whose path has parameters, which are the pattern's named groups.
        add_routes: adds what is no call of a model, such as the list of models.
        summaries: what the calls do, by path, for those that `/docs` does not describe itself.
        bodies: JSON Schemas of what those calls are sent, by path, where more is said of it than
            that it is an object.
        streams: the media types of those calls' streams, by path, for calls that have one.
    """

    name: str
    dialect: Dialect
    owns: Callable[[Scope], bool]
    endpoints: Mapping[str, Endpoint] = field(default_factory=dict)
    patterns: Sequence[tuple[re.Pattern[str], Endpoint]] = ()
    add_routes: Callable[[Application], None] = _add_nothing
    summaries: Mapping[str, str] = field(default_factory=dict)
    bodies: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    streams: Mapping[str, str] = field(default_factory=dict)
