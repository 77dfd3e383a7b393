"""How much of everything one client may ask for, and all of them together."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

from llama_compat.distribution.server import ServerSettings, WebSocketSettings

log = logging.getLogger(__name__)

RESERVED_DESCRIPTORS = 32
"""Files and sockets that the process needs besides: the event loop's, the log, a store."""

DESCRIPTORS_PER_CONNECTION = 2
"""A client's connection, and the one to a vendor that answers it."""

PROGRESS_BYTES = 16 * 1024
"""Who sends a body, or takes an answer, moves so much in `body_seconds` or `write_seconds`, unless
less is left. A bound on each pause alone would let a byte a minute hold a request for months."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The template's bounds, under the same names; README.md says what each is.

    Seconds are on the event loop's clock and are looked at once a second.
    """

    max_connections: int
    max_header_bytes: int
    max_headers: int
    header_seconds: float
    body_seconds: float
    idle_seconds: float
    write_seconds: float
    websockets: WebSocketSettings | None = None

    @classmethod
    def of(cls, settings: ServerSettings) -> Limits:
        """Those of the template."""
        return cls(
            max_connections=settings.max_connections,
            max_header_bytes=settings.max_header_bytes,
            max_headers=settings.max_headers,
            header_seconds=settings.header_seconds,
            body_seconds=settings.body_seconds,
            idle_seconds=settings.idle_seconds,
            write_seconds=settings.write_seconds,
            websockets=settings.websockets,
        )

    def fitting(self) -> Limits:
        """These, with no more connections than the process has descriptors for.

        The soft limit on descriptors is raised as far as that is needed and allowed. Where the
        system knows no such limit nothing changes.
        """
        try:
            import resource
        except ImportError:  # Windows
            return self
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        needed = self.max_connections * DESCRIPTORS_PER_CONNECTION + RESERVED_DESCRIPTORS
        if soft != resource.RLIM_INFINITY and soft < needed:
            soft = needed if hard == resource.RLIM_INFINITY else max(soft, min(needed, hard))
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        if soft == resource.RLIM_INFINITY or soft >= needed:
            return self
        fits = max(1, (soft - RESERVED_DESCRIPTORS) // DESCRIPTORS_PER_CONNECTION)
        log.warning(
            "no more than %s connections at a time instead of %s (max_connections): this process"
            " may open %s files and sockets; raise the limit (ulimit -n) to have more",
            fits,
            self.max_connections,
            soft,
        )
        return replace(self, max_connections=fits)
