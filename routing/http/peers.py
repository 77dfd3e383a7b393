"""What the system knows of the other end of a connection."""

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
