"""uvicorn's HTTP protocol, with what one turn of the event loop has to say sent at once."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class CoalescingProtocol(HttpToolsProtocol):
    """Answers over a transport that gathers what is written.

    uvicorn writes the headers of an answer and its body one after the other, each a system call,
    which is a tenth of what a relayed request costs; and events of a stream that come together
    leave together.
    """

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a new connection."""
        super().connection_made(_GatheringTransport(transport))  # type: ignore[arg-type]


class _GatheringTransport:
    """What uvicorn uses of a transport; writes wait for the end of the loop's turn."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._call_soon = asyncio.get_running_loop().call_soon
        self._gathered: list[bytes] = []
        self.is_closing = transport.is_closing
        self.get_extra_info = transport.get_extra_info
        self.pause_reading = transport.pause_reading
        self.resume_reading = transport.resume_reading

    def write(self, data: bytes) -> None:
        """Have `data` sent when the event loop comes round."""
        if not data:
            return
        if not self._gathered:
            self._call_soon(self._send)
        self._gathered.append(data)

    def close(self) -> None:
        """Send what was written, and close the connection."""
        self._send()
        self._transport.close()

    def abort(self) -> None:
        """Close the connection at once."""
        self._gathered.clear()
        self._transport.abort()

    def set_protocol(self, protocol: Any) -> None:
        """Give the connection to another protocol, which writes for itself."""
        self._send()
        self._transport.set_protocol(protocol)

    def _send(self) -> None:
        gathered = self._gathered
        if not gathered:
            return
        self._gathered = []
        if not self._transport.is_closing():
            self._transport.write(gathered[0] if len(gathered) == 1 else b"".join(gathered))
