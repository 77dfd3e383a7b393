"""The other end of a connection: what the system knows of it, and whether it is read."""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
from typing import Any


def address(name: Any) -> tuple[str, int] | None:
    """Host and port of what a socket's name is, if it has them."""
    return (str(name[0]), int(name[1])) if isinstance(name, tuple | list) else None


_TCP_GONE = frozenset({7, 8})
"""CLOSE and CLOSE_WAIT of Linux's `tcp_states.h`: reset, or closed by the client."""


def has_left(transport: asyncio.Transport) -> bool:
    """Whether the client has closed a connection that is not read, as far as the system tells."""
    connection = transport.get_extra_info("socket")
    if connection is None or sys.platform != "linux":
        return False
    try:
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)
    except OSError:
        return False
    return bool(struct.unpack("B", info)[0] in _TCP_GONE)


class Intake:
    """Whether a connection is read. A client that sends more than is taken is made to wait.

    Attributes:
        paused: it is not; nor is it seen then that the client closes it, see `has_left`.
    """

    __slots__ = ("_transport", "paused")

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self.paused = False

    def begin(self, transport: asyncio.Transport) -> None:
        """There is a connection to read."""
        self._transport = transport

    def pause(self) -> None:
        """Read nothing more for now."""
        if not self.paused and self._transport is not None and not self._transport.is_closing():
            self.paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read on."""
        if self.paused:
            self.paused = False
            if self._transport is not None and not self._transport.is_closing():
                self._transport.resume_reading()
