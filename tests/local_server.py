"""A small HTTP server in a thread of the tests: one function answers everything."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Handler = http.server.BaseHTTPRequestHandler


@contextmanager
def serving(answer: Callable[[Handler], None]) -> Iterator[str]:
    """Give every request to `answer`, each connection in a thread of its own; the server's URL."""

    class Answering(Handler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            answer(self)

        do_HEAD = do_POST = do_GET

        def log_message(self, format: str, *args: object) -> None:
            pass

    class Server(http.server.ThreadingHTTPServer):
        request_queue_size = 128  # whoever comes while there is no room tries again in a second

    server = Server(("127.0.0.1", 0), Answering)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def send(
    handler: Handler,
    status: int,
    body: bytes,
    content_type: str = "application/json",
    **headers: str,
) -> None:
    """Answer with a whole body; a HEAD request gets its headers alone."""
    handler.send_response(status)
    headers = {"content-type": content_type, "content-length": str(len(body)), **headers}
    for name, value in headers.items():
        handler.send_header(name, value)
    handler.end_headers()
    if handler.command != "HEAD":
        handler.wfile.write(body)
