"""A vendor that does what no vendor should: the model that is asked for says what."""

from __future__ import annotations

import gzip
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import repeat

KEY = "sk-key-of-the-vendor-0123456789"

CHUNKED = b"transfer-encoding: chunked\r\n"
JSON = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
EVENTS = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
LIMIT = 2 << 30
"""Nothing sends more than this, so that a test that fails comes to its end."""

_CHUNK = (
    b'data: {"id":"a","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index"'
    b':0,"delta":%b,"finish_reason":%b}]}\n\n'
)
_CALL = _CHUNK % (
    b'{"tool_calls":[{"type":"function","function":{"name":"find","arguments":""}}]}',
    b"null",
)
_END = _CHUNK % (b"{}", b'"stop"') + b"data: [DONE]\n\n"


def chunked(parts: Iterator[bytes]) -> Iterator[bytes]:
    for part in parts:
        yield b"%x\r\n%b\r\n" % (len(part), part)
    yield b"0\r\n\r\n"


def many(part: bytes, total: int = LIMIT) -> Iterator[bytes]:
    """`part` over and over."""
    block = part * max(1, (1 << 16) // len(part))
    return repeat(block, total // len(block))


def whole(body: bytes, status: bytes = b"200 OK", headers: bytes = b"") -> Iterator[bytes]:
    yield b"HTTP/1.1 %b\r\n%bcontent-length: %d\r\n\r\n%b" % (status, headers, len(body), body)


def endless_body() -> Iterator[bytes]:
    yield JSON + CHUNKED + b"\r\n"
    yield from chunked(many(b'{"a":1},'))


def bomb() -> Iterator[bytes]:
    body = gzip.compress(bytes(1 << 20), 9) * 512
    return whole(body, headers=b"content-encoding: gzip\r\n")


def one_bomb() -> Iterator[bytes]:
    return whole(gzip.compress(b" " * (512 << 20), 1), headers=b"content-encoding: gzip\r\n")


def endless_models() -> Iterator[bytes]:
    yield JSON + CHUNKED + b'\r\nb\r\n{"data": [\r\n\r\n'
    yield from chunked(many(b'{"id":"model"},'))


def endless_continue() -> Iterator[bytes]:
    return many(b"HTTP/1.1 100 Continue\r\n\r\n")


def endless_blank_lines() -> Iterator[bytes]:
    return many(b"\r\n")


def endless_header() -> Iterator[bytes]:
    yield b"HTTP/1.1 200 OK\r\na: "
    yield from many(b"a")


def endless_line() -> Iterator[bytes]:
    yield EVENTS + CHUNKED + b"\r\n"
    yield from chunked(many(b"data: " + b"a" * 1000))


def titles() -> Iterator[bytes]:
    return whole(b"<title" * 11_000, b"502 Bad Gateway")


def call_fragments() -> Iterator[bytes]:
    body = _CALL * 30_000 + _END
    return whole(body, headers=b"content-type: text/event-stream\r\n")


def key_everywhere() -> Iterator[bytes]:
    key = KEY.encode()
    headers = b"content-type: text/event-stream\r\nx-request-id: %b\r\nx-ratelimit-of: %b\r\n"
    said = _CHUNK % (b'{"role":"assistant","content":"It is %b"}' % key, b"null")
    body = b"%b: asked with Bearer %b\n\n%b" % (said, key, said)
    return whole(body + _END, headers=headers % (key, key))


def key_cut_in_an_error() -> Iterator[bytes]:
    return whole(b"x" * 485 + KEY.encode() + b"x" * 1000, b"500 Oops")


BEHAVIOURS: dict[str, Callable[[], Iterator[bytes]]] = {
    name.replace("_", "-"): behaviour
    for name, behaviour in globals().items()
    if callable(behaviour) and name in (
        "endless_body", "bomb", "one_bomb", "endless_models", "endless_continue", "titles",
        "endless_blank_lines", "endless_header", "endless_line", "call_fragments",
        "key_everywhere", "key_cut_in_an_error",
    )
}  # fmt: skip


class _Handler(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        head = b""
        while line := self.rfile.readline():
            head += line
            if line in (b"\r\n", b"\n"):
                break
        length = next(
            (
                int(line[15:])
                for line in head.lower().splitlines()
                if line[:15] == b"content-length:"
            ),
            0,
        )
        body = self.rfile.read(length)
        name = b"endless-models" if head.startswith(b"GET") else body.partition(b'"model":"')[2]
        behaviour = BEHAVIOURS[name.partition(b'"')[0].decode()]
        server = self.server
        assert isinstance(server, BadVendor)
        server.asked += 1
        with suppress(OSError):
            for part in behaviour():
                self.wfile.write(part)


class BadVendor(socketserver.ThreadingTCPServer):
    """Entered as a context, it answers in threads.

    Attributes:
        url: its base URL.
        asked: how many requests have come.
    """

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}/v1"
        self.asked = 0

    def __enter__(self) -> BadVendor:
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.shutdown()
        self.server_close()
