"""What a client API is to the router: where its calls are, and the language of its errors."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from llama_compat.dialects.base import Dialect, Operation
from routing.asgi import Scope

if TYPE_CHECKING:
    from fastapi import APIRouter

    from routing.runtime import Runtime


def is_below(path: str, root: str) -> bool:
    """Whether `path` is `root` or something in it."""
    return path == root or path.startswith(f"{root}/")


def is_shared(path: str) -> bool:
    """Whether `path` may be of any of the APIs that have their calls in `/v1`: what a client says
    of itself tells whose."""
    return is_below(path, "/v1") and not is_below(path, "/v1/openai")


def _add_nothing(router: APIRouter) -> None:
    """For an API that is its calls alone."""


class PathPattern(NamedTuple):
    """An operation whose path has parameters.

    Attributes:
        path: the whole path; its named groups are the parameters.
        operation: what is asked there.
        query: a name and a value that the query has to have besides; None for any query.
    """

    path: re.Pattern[str]
    operation: Operation
    query: tuple[str, str] | None = None


OpenWebSocket = Callable[[Scope, "Callable[[], Runtime]"], Awaitable[None]]
"""Makes a WebSocket of the connection of a request whose key is good, and gives what serves it. The
function tells from what to answer now. Raises APIError: it can't be made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientAPI:
    """One way in.

    Attributes:
        name: what the template calls it, in `server.apis`.
        dialect: in which its clients read what went wrong.
        owns: whether a request that is none of any API's calls is this API's all the same: one for
            a path that there is not, say.
        operations: the calls, by path.
        patterns: calls whose path has parameters; of those that fit, the first is meant.
        websockets: what serves the WebSockets at these paths, each the path of one of the calls.
        add_routes: adds what is no call of a model, such as the list of models.
        summaries: what the calls do, by path, for those that `/docs` does not describe itself.
        bodies: JSON Schemas of what those calls are sent, by path, where more is said of it than
            that it is an object.
        streams: the media types of those calls' streams, by path, for calls that have one.
    """

    name: str
    dialect: Dialect
    owns: Callable[[Scope], bool]
    operations: Mapping[str, Operation] = field(default_factory=dict)
    patterns: Sequence[PathPattern] = ()
    websockets: Mapping[str, OpenWebSocket] = field(default_factory=dict)
    add_routes: Callable[[APIRouter], None] = _add_nothing
    summaries: Mapping[str, str] = field(default_factory=dict)
    bodies: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    streams: Mapping[str, str] = field(default_factory=dict)
