"""Takes the bytes of answers apart, however they are cut, without any I/O."""

from __future__ import annotations

from functools import lru_cache
from itertools import chain

import httptools

from providers.remote.http1.errors import ProtocolError
from providers.remote.http1.headers import shown

MAX_HEAD_BYTES = 1 << 16
"""Status line and headers; also trailers, and all else that is no body, in one go."""

MAX_HEADERS = 200

MAX_INTERIM_ANSWERS = 32
"""1xx answers before the answer proper."""

_NO_BODY = frozenset({204, 304})


@lru_cache(maxsize=512)  # a vendor sends the same names with every answer
def _lower(name: bytes) -> str:
    return name.decode("latin-1").lower()


class ResponseParser:
    """Parses the answers of one connection, one after another.

    Attributes:
        status: of the answer; there once `has_head` is true, as are the `headers`.
        headers: by name in lower case; joined by commas where a name came twice.
        body: what has come of the body; whoever reads it empties the list.
        begun: whether anything has come since the request.
        has_head: whether status and headers are there.
        complete: whether the answer has come to its end.
        keep_alive: whether another request may follow on the connection; known when complete.
    """

    __slots__ = (
        "_interim",
        "_overhead",
        "_parser",
        "_problem",
        "_read",
        "_until_close",
        "begun",
        "body",
        "complete",
        "has_head",
        "headers",
        "keep_alive",
        "status",
    )

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        # What old servers do and nothing can be smuggled with.
        self._parser.set_dangerous_leniencies(
            lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True
        )
        self.expect()

    def expect(self) -> None:
        """A request has been sent: what comes now is its answer."""
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body: list[bytes] = []
        self.begun = self.has_head = self.complete = False
        self.keep_alive = True
        self._until_close = False
        self._read: list[tuple[bytes, bytes]] = []
        self._overhead = 0
        self._interim = 0
        self._problem: ProtocolError | None = None

    def feed(self, data: bytes) -> None:
        """Take what has arrived.

        Raises:
            ProtocolError: it is no answer in HTTP/1.1, or exceeds a bound.
        """
        self.begun = True
        parts = len(self.body)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if self.complete:
                self.keep_alive = False  # the answer is whole; what follows is nobody's
                return
            raise self._problem or ProtocolError(str(error).rstrip(".")) from None
        if len(self.body) == parts and not self.complete:
            self._overhead += len(data)
            if self._overhead > MAX_HEAD_BYTES:
                raise ProtocolError(f"more than {MAX_HEAD_BYTES} bytes without a body")

    def end(self) -> bool:
        """The connection has ended in order. Whether the answer is whole: some end so."""
        if self.has_head and self._until_close:
            self.complete = True
            self.keep_alive = False
        return self.complete

    def _refuse(self, what: str) -> ProtocolError:
        self._problem = self._problem or ProtocolError(what)
        return self._problem

    # Called by httptools --------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """An answer begins; behind a whole one that is one too many."""
        if self.complete:
            self.keep_alive = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header; behind the body, a trailer, which means nothing here."""
        if self.has_head:
            return
        self._read.append((name, value))
        if len(self._read) > MAX_HEADERS:
            raise self._refuse(f"more than {MAX_HEADERS} headers")

    def on_headers_complete(self) -> None:
        """Status and headers are there, of the answer or of one before it."""
        if self.complete:
            return
        status = self._parser.get_status_code()
        if not 100 <= status < 1000:
            raise self._refuse(f"status {status}")
        if status < 200:
            self._interim += 1
            self._read.clear()
            if status == 101 or self._interim > MAX_INTERIM_ANSWERS:
                raise self._refuse(f"too many answers with status {status}")
            return
        self.headers = self._headers_by_name()
        coding = self.headers.get("transfer-encoding")
        if coding is not None and coding.lower() != "chunked":
            raise self._refuse(f"transfer-encoding {shown(coding)}")
        self._until_close = (
            coding is None and "content-length" not in self.headers and status not in _NO_BODY
        )
        if self.headers.get("content-encoding", "").lower() in ("", "identity"):
            self.headers.pop("content-encoding", None)
        self.status = status
        self.has_head = True

    def _headers_by_name(self) -> dict[str, str]:
        read, self._read = self._read, []
        if sum(map(len, chain.from_iterable(read))) + 4 * len(read) > MAX_HEAD_BYTES:
            raise self._refuse(f"more than {MAX_HEAD_BYTES} bytes of headers")
        headers: dict[str, str] = {}
        for name, value in read:
            key, text = _lower(name), value.decode("latin-1").rstrip(" \t")
            headers[key] = f"{headers[key]}, {text}" if key in headers else text
        return headers

    def on_body(self, data: bytes) -> None:
        """A piece of the body."""
        if self.complete:
            return
        self._overhead = 0
        self.body.append(data)

    def on_message_complete(self) -> None:
        """The answer's end, or that of one before it."""
        if self.has_head and not self.complete:
            self.complete = True
            self.keep_alive = self._parser.should_keep_alive()
