"""WebSockets that say what the tests want, to the byte."""

from __future__ import annotations

import json
import os
import socket
import struct
from typing import Any

from tests.abuse.connections import connect
from tests.integration.server_process import ServerProcess

TEXT, CLOSE, PING, PONG = 1, 8, 9, 10

HANDSHAKE = (
    b"GET /v1/responses HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n%b\r\n"
)


def upgraded(server: ServerProcess, headers: bytes = b"") -> socket.socket:
    """A connection that is a WebSocket."""
    connection = connect(server)
    connection.sendall(HANDSHAKE % headers)
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        piece = connection.recv(1)
        assert piece, head
        head += piece
    assert head.startswith(b"HTTP/1.1 101 "), head
    return connection


def frame(data: bytes = b"", opcode: int = TEXT, *, fin: bool = True) -> bytes:
    """A client's frame; its mask is zeros, so that large ones are quickly made."""
    size, mask = len(data), b"\0\0\0\0"
    head = bytes([opcode | (0x80 if fin else 0)])
    if size < 126:
        head += bytes([0x80 | size])
    elif size < 1 << 16:
        head += struct.pack("!BH", 0x80 | 126, size)
    else:
        head += struct.pack("!BQ", 0x80 | 127, size)
    return head + mask + data


def create(**members: Any) -> bytes:
    """The frame of a request."""
    return frame(json.dumps({"type": "response.create", **members}).encode())


def read(connection: socket.socket) -> tuple[int, bytes]:
    """The server's next frame: opcode and data; `CLOSE` and nothing where there is none."""
    head = _exactly(connection, 2)
    if len(head) < 2:
        return CLOSE, b""
    size = head[1]
    if size == 126:
        (size,) = struct.unpack("!H", _exactly(connection, 2))
    elif size == 127:
        (size,) = struct.unpack("!Q", _exactly(connection, 8))
    return head[0] & 0x0F, _exactly(connection, size)


def read_text(connection: socket.socket) -> dict[str, Any]:
    """The next event."""
    opcode, data = read(connection)
    while opcode == PING:
        opcode, data = read(connection)
    assert opcode == TEXT, (opcode, data)
    event = json.loads(data)
    assert isinstance(event, dict)
    return event


def close_code(connection: socket.socket) -> int:
    """Why the server closes, which it has to, whatever comes before; 0: it did not say."""
    while True:
        opcode, data = read(connection)
        if opcode == CLOSE:
            return int(struct.unpack("!H", data[:2])[0]) if data else 0


def _exactly(connection: socket.socket, size: int) -> bytes:
    pieces = bytearray()
    try:
        while len(pieces) < size and (piece := connection.recv(min(65536, size - len(pieces)))):
            pieces += piece
    except ConnectionError:
        pass
    return bytes(pieces)


NONSENSE = os.urandom(64 * 1024)
