"""A client for HTTP/1.1: pooled connections, exchanges on them, and what can go wrong with either.

It knows nothing of vendors and models. `urls` says where a request goes, `parser` and `decoding`
take answers apart without any I/O, `connection` runs one exchange after another, `dialing` opens
connections, and `client` owns them all.
"""

from providers.remote.http1.client import Client, PoolCounts
from providers.remote.http1.dialing import default_tls_context, new_tls_context
from providers.remote.http1.errors import (
    AnswerTooLargeError,
    CertificateError,
    ClosedError,
    ConnectError,
    ConnectTimeout,
    ContentEncodingError,
    DisconnectedError,
    HTTPError,
    HTTPTimeout,
    InvalidURLError,
    ProtocolError,
    ProxyError,
    ProxyRefusedError,
    SilenceTimeout,
    StaleError,
    TLSError,
    TotalTimeout,
    UnknownHostError,
)
from providers.remote.http1.headers import (
    USER_AGENT,
    HeaderBlock,
    encode_header,
    encode_headers,
    is_header_name,
)
from providers.remote.http1.response import Response
from providers.remote.http1.timeouts import Seconds, Timeouts
from providers.remote.http1.urls import URL, NetworkRoute, Origin, parse_url

__all__ = [
    "URL",
    "USER_AGENT",
    "AnswerTooLargeError",
    "CertificateError",
    "Client",
    "ClosedError",
    "ConnectError",
    "ConnectTimeout",
    "ContentEncodingError",
    "DisconnectedError",
    "HTTPError",
    "HTTPTimeout",
    "HeaderBlock",
    "InvalidURLError",
    "NetworkRoute",
    "Origin",
    "PoolCounts",
    "ProtocolError",
    "ProxyError",
    "ProxyRefusedError",
    "Response",
    "Seconds",
    "SilenceTimeout",
    "StaleError",
    "TLSError",
    "Timeouts",
    "TotalTimeout",
    "UnknownHostError",
    "default_tls_context",
    "encode_header",
    "encode_headers",
    "is_header_name",
    "new_tls_context",
    "parse_url",
]
