"""Asks servers for `/health` over and over, each on one connection, and tells the longest wait.

    python -m tests.abuse.prober PORT ...

A process of its own, so that the work of an attack in the tests' process is not taken for a slow
server. It says `ready` when every server has answered once, and ends when its standard input does,
with one JSON object: the longest wait for each port, in seconds. A connection that a server closes
is opened again, on the clock.
"""

from __future__ import annotations

import json
import select
import socket
import sys
import time

PAUSE_SECONDS = 0.005
TIMEOUT_SECONDS = 120.0
REQUEST = b"GET /health HTTP/1.1\r\nHost: prober\r\n\r\n"


class Client:
    """One client of the server at `port`."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.longest = 0.0
        self._connection: socket.socket | None = None

    def ask(self) -> None:
        begun = time.monotonic()
        while not self._answered():
            if time.monotonic() - begun > TIMEOUT_SECONDS:
                break
            time.sleep(PAUSE_SECONDS)
        self.longest = max(self.longest, time.monotonic() - begun)

    def _answered(self) -> bool:
        try:
            if self._connection is None:
                address = ("127.0.0.1", self.port)
                self._connection = socket.create_connection(address, TIMEOUT_SECONDS)
            self._connection.sendall(REQUEST)
            if self._connection.recv(65536).startswith(b"HTTP/1.1 200"):
                return True
        except OSError:
            pass
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        return False


def main() -> None:
    clients = [Client(int(port)) for port in sys.argv[1:]]
    for client in clients:
        client.ask()
        client.longest = 0.0
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], PAUSE_SECONDS)[0]:
        for client in clients:
            client.ask()
    for client in clients:
        client.ask()
    print(json.dumps({client.port: client.longest for client in clients}))


if __name__ == "__main__":
    main()
