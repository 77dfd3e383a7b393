"""The types of an ASGI application (https://asgi.readthedocs.io/en/latest/specs/www.html)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

Scope = Mapping[str, Any]
"""What is known of a request before its body: method, path, headers."""

Receive = Callable[[], Awaitable[Any]]
"""The next message from the client: a part of the body, or that it went away."""

Send = Callable[[dict[str, Any]], Awaitable[None]]
"""Sends the next message to the client: status and headers, or a part of the body."""

App = Callable[[Scope, Receive, Send], Awaitable[None]]
"""An application, or a part of one."""
