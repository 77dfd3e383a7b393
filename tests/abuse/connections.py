"""Connections that say what the tests want, to the byte."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from tests.integration.server_process import ServerProcess

PATIENCE_SECONDS = 60

HEALTH = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"


def connect(server: ServerProcess) -> socket.socket:
    """A connection to the server."""
    return socket.create_connection(("127.0.0.1", server.port), PATIENCE_SECONDS)


@contextmanager
def connected(server: ServerProcess, count: int) -> Iterator[list[socket.socket]]:
    """So many connections, closed in the end."""
    with ExitStack() as stack:
        yield [stack.enter_context(connect(server)) for _ in range(count)]


def post(body: bytes, path: str = "/v1/chat/completions", *, length: int | None = None) -> bytes:
    """The bytes of a request; `length` is what it claims, if not the truth."""
    claimed = len(body) if length is None else length
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {claimed}\r\n\r\n"
    return head.encode() + body


def send_until_closed(connection: socket.socket, data: bytes) -> int:
    """Send as much of `data` as the server takes; how much that was."""
    sent = 0
    try:
        while sent < len(data):
            sent += connection.send(data[sent : sent + 65536])
    except OSError:
        pass
    return sent


def send_until_it_waits(connection: socket.socket, data: bytes, seconds: float) -> int:
    """Send `data` again and again until the server takes no more of it for `seconds`; how much it
    took."""
    connection.settimeout(seconds)
    sent = 0
    try:
        while True:
            sent += connection.send(data)
    except TimeoutError:
        return sent


def read_all(connection: socket.socket) -> bytes:
    """What comes until the server closes the connection, in order or not."""
    pieces = []
    try:
        while piece := connection.recv(65536):
            pieces.append(piece)
    except ConnectionError:
        pass
    return b"".join(pieces)


def read_answer(connection: socket.socket) -> bytes:
    """The head of the next answer, and what came with it."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(65536)
        if not piece:
            break
        data += piece
    return data
