"""Requests, taken apart as they come."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol
from urllib.parse import unquote

import httptools

from llama_compat.connection_errors import headers_too_large, malformed_request
from llama_compat.errors import APIError
from routing.asgi import HEADERS
from routing.http.limits import Limits

CHUNKED_STEP_BYTES = 1024
"""Nobody knows where a body in chunks ends: no more than this is looked at past its end."""

LARGEST_FRAMING = 8
"""Bytes of framing for a byte of a body in chunks; a chunk of one byte has five. More is chunk
extensions or trailers without an end, beyond what a request's headers may come to."""

_ASGI = {"version": "3.0", "spec_version": "2.3"}
_VERSIONS = frozenset({"1.0", "1.1"})

PeerAddress = tuple[str, int]


class Requests(Protocol):
    """Whose requests they are: what is told of each, in this order."""

    def head_begins(self) -> None:
        """The first byte of a request has come."""

    def head_ends(self, scope: dict[str, Any], *, keep_alive: bool, expects_continue: bool) -> None:
        """Its head has been read.

        Args:
            scope: ASGI's.
            keep_alive: whether the client wants the connection kept.
            expects_continue: whether it waits for `100 Continue` before it sends the body.
        """

    def body_comes(self, part: bytes) -> None:
        """A part of its body has come."""

    def message_ends(self) -> None:
        """All of it has come."""

    def upgrade_offered(self) -> None:
        """It offers to go on in another protocol."""


class RequestReader:
    """Reads requests with httptools' parser, one at a time.

    Where a message ends within what came is looked for first, and the parser is fed up to there:
    what is behind a request that has not been answered stays bytes.

    Args:
        requests: is told of them.
        limits: what a head may come to.

    Attributes:
        in_head: whether the next byte is one of a head.
        framed_bytes: of the head, or of the body with its framing, that is read now.
        client, local: the addresses of the two ends.
    """

    __slots__ = (
        "_body_bytes",
        "_body_left",
        "_headers",
        "_max_head_bytes",
        "_max_headers",
        "_parser",
        "_refusal",
        "_requests",
        "_unparsed_left",
        "_url",
        "client",
        "framed_bytes",
        "in_head",
        "local",
    )

    def __init__(self, requests: Requests, limits: Limits) -> None:
        self._requests = requests
        self._max_headers = limits.max_headers
        self._max_head_bytes = limits.max_header_bytes
        self._parser = httptools.HttpRequestParser(self)
        # After "Connection: close" llhttp would take more data for an error, even in its own turn.
        self._parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self.client: PeerAddress | None = None
        self.local: PeerAddress | None = None
        self.in_head = True
        self.framed_bytes = 0
        self._url: list[bytes] = []
        self._headers: list[tuple[bytes, bytes]] = []
        self._body_left: int | None = None
        self._unparsed_left = 0
        self._body_bytes = 0
        self._refusal: APIError | None = None

    @property
    def is_between(self) -> bool:
        """Whether the next byte begins a request."""
        return self.in_head and not self.framed_bytes

    def read(self, data: bytes, view: memoryview, at: int) -> int:
        """Read on in `data`, which `view` shows, from the place `at`: no further than the message
        goes that begins or goes on there.

        Returns:
            The place up to which it was read.

        Raises:
            APIError: 400, 413 or 431: it is no request, or too much of one.
        """
        if self._unparsed_left:
            end = min(len(data), at + self._unparsed_left)
            self._take_unparsed(data[at:end])
            return end
        return at + self._parse(view[at : self._next_end(data, at)])

    def _next_end(self, data: bytes, at: int) -> int:
        size = len(data)
        if self.in_head:
            found = data.find(b"\r\n\r\n", at)
            room = self._max_head_bytes - self.framed_bytes
            return min(size if found < 0 else found + 4, at + room + 1)
        if self._body_left is None:
            return min(size, at + CHUNKED_STEP_BYTES)
        return min(size, at + max(1, self._body_left))

    def _parse(self, data: memoryview) -> int:
        """Have the parser read `data`; how much of it was read."""
        head_before, read = self.in_head, len(data)
        self.framed_bytes += read
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            read = offer.args[0]
            self._read_on()
        except httptools.HttpParserError:
            raise self._refusal or malformed_request() from None
        if self.in_head:
            # What the parser keeps of a header that does not end is in no callback yet.
            if head_before and self.framed_bytes > self._max_head_bytes:
                raise headers_too_large(self._max_head_bytes)
        elif self.framed_bytes > self._max_head_bytes + (LARGEST_FRAMING + 1) * self._body_bytes:
            raise malformed_request("its chunks are more framing than body")
        return read

    def _read_on(self) -> None:
        # An upgrade is an offer, which need not be taken (RFC 9110, section 7.8): Java's client
        # offers HTTP/2 with every first request. But the parser takes it for given, and what
        # follows for another protocol's, which a body is not.
        if self._body_left:
            self._unparsed_left = self._body_left
        elif self._body_left is None:
            raise malformed_request("a body in chunks and an upgrade don't go together")
        else:
            self._requests.upgrade_offered()

    def _take_unparsed(self, data: bytes) -> None:
        self._unparsed_left -= len(data)
        self.on_body(data)
        if not self._unparsed_left:
            self._message_ends()

    def _refused(self, error: APIError) -> APIError:
        # The parser tells of what its callbacks raise, but not what it was.
        self._refusal = error
        return error

    # httptools' callbacks -------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """A request begins."""
        self.in_head = True
        self._url = []
        self._headers = []
        self._body_left = 0
        self._requests.head_begins()

    def on_url(self, url: bytes) -> None:
        """A piece of the request's target."""
        self._url.append(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a trailer, of which nothing is wanted."""
        headers = self._headers
        headers.append((name.lower(), value))
        if len(headers) > self._max_headers:
            raise self._refused(headers_too_large(self._max_headers, "headers"))

    def on_headers_complete(self) -> None:
        """The body follows."""
        parser, url = self._parser, b"".join(self._url)
        headers, self._headers = self._headers, []  # a trailer is none of these
        by_name = dict(headers)
        self._look_at_framing(by_name)
        self.in_head = False
        self._body_bytes = self.framed_bytes = 0
        version = parser.get_http_version()
        if version not in _VERSIONS:
            raise self._refused(malformed_request(f"HTTP/{version} is not spoken here"))
        # `in` would try the bytes as a number first, and make an error of each.
        if url.startswith(b"/") and url.find(b"?") < 0 and url.find(b"#") < 0:
            raw_path, query = url, b""
        else:
            parsed = httptools.parse_url(url)
            raw_path, query = parsed.path or b"/", parsed.query or b""
        path = raw_path.decode("ascii")
        scope = {
            "type": "http",
            "asgi": _ASGI,
            "http_version": version,
            "server": self.local,
            "client": self.client,
            "scheme": "http",
            "root_path": "",
            "headers": headers,
            HEADERS: by_name,
            "method": parser.get_method().decode("ascii"),
            "path": unquote(path) if "%" in path else path,
            "raw_path": raw_path,
            "query_string": query,
        }
        self._requests.head_ends(
            scope,
            keep_alive=version == "1.1" and parser.should_keep_alive(),
            expects_continue=by_name.get(b"expect", b"").lower() == b"100-continue",
        )

    def _look_at_framing(self, headers: Mapping[bytes, bytes]) -> None:
        """How the body comes, by the headers, of which the parser has refused two that differ."""
        length = headers.get(b"content-length")
        if b"transfer-encoding" in headers:
            self._body_left = None
        elif length is not None:
            if len(length) > 20:
                raise self._refused(malformed_request("its content-length has too many digits"))
            self._body_left = int(length)

    def on_body(self, body: bytes) -> None:
        """A piece of a request's body."""
        size = len(body)
        self._body_bytes += size
        if self._body_left:
            self._body_left -= size
        self._requests.body_comes(body)

    def on_message_complete(self) -> None:
        """A request has come whole."""
        if not (self._parser.should_upgrade() and self._body_left != 0):
            self._message_ends()

    def _message_ends(self) -> None:
        self.in_head = True
        self.framed_bytes = 0
        self._requests.message_ends()
