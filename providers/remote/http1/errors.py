"""What goes wrong in an exchange, in one tree.

HTTPError
    InvalidURLError         no request was made
    ClosedError             the client was closed
    ConnectError            no connection
        UnknownHostError
        TLSError
            CertificateError
        ProxyError
    DisconnectedError       the connection ended before the answer did
        StaleError          it was kept from an earlier exchange, and ended at once
    ProtocolError           what came is no HTTP, or out of bounds
        ContentEncodingError
    AnswerTooLargeError
    HTTPTimeout
        ConnectTimeout
        SilenceTimeout
        TotalTimeout
"""

from __future__ import annotations


class HTTPError(Exception):
    """An exchange failed."""


class InvalidURLError(HTTPError):
    """A URL that no request can be made of."""


class ClosedError(HTTPError):
    """The client was closed, or is not to be used any more."""


class ConnectError(HTTPError):
    """No connection could be had.

    Attributes:
        reason: what the system said.
    """

    def __init__(self, reason: OSError) -> None:
        super().__init__(str(reason) or type(reason).__name__)
        self.reason = reason


class UnknownHostError(ConnectError):
    """The host's name leads to no address."""


class TLSError(ConnectError):
    """The TLS handshake failed."""


class CertificateError(TLSError):
    """The certificate is not trusted, or another host's."""


class ProxyError(ConnectError):
    """The proxy can't be reached, or makes no sense."""


class ProxyRefusedError(ProxyError):
    """The proxy does not connect.

    Attributes:
        status: what it answered.
    """

    def __init__(self, status: int) -> None:
        super().__init__(OSError(f"it refused with HTTP {status}"))
        self.status = status


class DisconnectedError(HTTPError):
    """The connection ended before the answer did.

    Attributes:
        begun: whether anything of an answer had come.
    """

    def __init__(self, message: str, *, begun: bool) -> None:
        super().__init__(message)
        self.begun = begun


class StaleError(DisconnectedError):
    """A connection that was kept from an earlier exchange ended under a request, at once and
    without a word. Most likely the server had closed it as idle in the same moment; but nobody here
    can know that it has not read the request."""

    def __init__(self, message: str) -> None:
        super().__init__(message, begun=False)


class ProtocolError(HTTPError):
    """What came is not HTTP/1.1, or exceeds a bound."""


class ContentEncodingError(ProtocolError):
    """The body is compressed in a way that can't be undone here."""


class AnswerTooLargeError(HTTPError):
    """The body is larger than it may be.

    Attributes:
        limit: the bytes that it may have, decompressed.
    """

    def __init__(self, limit: int) -> None:
        super().__init__(f"the body has more than {limit} bytes")
        self.limit = limit


class HTTPTimeout(HTTPError):
    """It took too long.

    Attributes:
        seconds: the limit that was exceeded.
    """

    what = "it took over {seconds:g} s"

    def __init__(self, seconds: float) -> None:
        super().__init__(self.what.format(seconds=seconds))
        self.seconds = seconds


class ConnectTimeout(HTTPTimeout):
    """No connection in time."""

    what = "no connection within {seconds:g} s"


class SilenceTimeout(HTTPTimeout):
    """Nothing came in time, or nothing of the request was taken."""

    what = "nothing came for {seconds:g} s"


class TotalTimeout(HTTPTimeout):
    """The whole exchange took too long."""

    what = "the exchange took over {seconds:g} s"
