"""The types of an ASGI application (https://asgi.readthedocs.io/en/latest/specs/www.html)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

Scope = Mapping[str, Any]
"""What is known of a request before its body: method, path, headers."""

Receive = Callable[[], Awaitable[Any]]
"""The next message from the client: a part of the body, or that it went away."""

Send = Callable[[dict[str, Any]], Awaitable[None]]
"""Sends the next message to the client: status and headers, or a part of the body."""

RawHeaders = Sequence[tuple[bytes, bytes]]
"""Headers as they come, names in lower case; one may come more than once."""

ASGIApplication = Callable[[Any, Receive, Send], Awaitable[None]]
"""What answers a request."""

WATCH = "llama_compat.watch"
"""The name of an extension of a scope: `watch(f)` has `f()` called when the client goes away, which
costs nothing until then, as waiting for `receive` in a task of its own would; `watch(None)` ends
that."""

Watch = Callable[[Callable[[], None] | None], None]
"""What the scope has under that name."""

UPGRADE = "llama_compat.upgrade"
"""The name of another: `upgrade(request_id, limit, room)` makes a WebSocket of the connection of a
request that offers it. `routing.http.websocket` says the rest."""

REPEAT = "llama_compat.repeat"
"""And of a third: `repeat(again)`, called before an answer is begun, has the same bytes answered as
this request is, should they come again and `again` agree. `routing.http.repeats` says the rest."""

HEADERS = "llama_compat.headers"
"""What a scope has its headers by name under, where the server has looked at them already."""


def headers_by_name(scope: Scope) -> Mapping[bytes, bytes]:
    """A request's headers; of one that came twice the last."""
    found: Mapping[bytes, bytes] | None = scope.get(HEADERS)
    return dict(scope["headers"]) if found is None else found
