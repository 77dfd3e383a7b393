"""The other end of a connection: what the system knows of it, and whether it is read."""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
from typing import Any, NamedTuple


def address(name: Any) -> tuple[str, int] | None:
    """Host and port of what a socket's name is, if it has them."""
    return (str(name[0]), int(name[1])) if isinstance(name, tuple | list) else None


_CLOSE, _CLOSE_WAIT = 7, 8
"""Of Linux's `tcp_states.h`: reset, or closed by the client, which may read on all the same."""

_STATE_AND_UNACKED = struct.Struct("=B23xI")
"""Where both are in `struct tcp_info` of Linux's `tcp.h`."""


class PeerState(NamedTuple):
    """What the system knows of the other end.

    Attributes:
        has_closed: it sends no more, or has reset the connection.
        has_reset: it has reset it, so that it reads nothing either.
        is_behind: it has not said that it has all that it was sent.
    """

    has_closed: bool
    has_reset: bool
    is_behind: bool


def peer_state(transport: asyncio.Transport) -> PeerState | None:
    """What is known of the other end; None where the system does not tell."""
    connection = transport.get_extra_info("socket")
    if connection is None or sys.platform != "linux":
        return None
    size = _STATE_AND_UNACKED.size
    try:
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, size)
        state, unacked = _STATE_AND_UNACKED.unpack(info)
    except (OSError, struct.error):
        return None
    return PeerState(state in (_CLOSE, _CLOSE_WAIT), state == _CLOSE, unacked > 0)


def has_left(transport: asyncio.Transport) -> bool:
    """Whether the client has closed a connection that is not read, as far as the system tells."""
    state = peer_state(transport)
    return state is not None and state.has_closed


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
