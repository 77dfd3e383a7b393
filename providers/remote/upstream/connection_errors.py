"""What goes wrong between this server and a vendor's, as the error that the client is told."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from llama_compat.errors import APIError, StaleConnection, upstream_error
from providers.remote import http1


def sending_error(provider: str, error: http1.HTTPError, base_url: str) -> APIError:
    """502 or 504 for a request that got no answer: not even a status and headers."""
    said = _first_match(_NO_ANSWER, error)(_Server(base_url), error)
    if isinstance(error, http1.HTTPTimeout):
        return _timeout(provider, said)
    if isinstance(error, http1.StaleError):
        return StaleConnection(provider, said)
    return upstream_error(provider, said, code="upstream_connection_failed")


def reading_error(provider: str, error: http1.HTTPError) -> APIError:
    """502 or 504 for an answer that broke off."""
    said, code = _first_match(_BROKEN_OFF, error)
    said = said.format(error=error)
    if isinstance(error, http1.HTTPTimeout):
        return _timeout(provider, said)
    return upstream_error(provider, said, code=code)


class _Server:
    """Where a request was to go, in words."""

    def __init__(self, base_url: str) -> None:
        self._base_url = base_url

    @property
    def name(self) -> str:
        return urlsplit(self._base_url).hostname or ""

    def __str__(self) -> str:
        parts = urlsplit(self._base_url)
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        return f"{host}:{parts.port or (443 if parts.scheme == 'https' else 80)}"


_NO_ANSWER: list[tuple[type[http1.HTTPError], Callable[[_Server, Any], str]]] = [
    (
        http1.ConnectTimeout,
        lambda server, error: f"no connection to {server} within {error.seconds:g} s",
    ),
    (http1.HTTPTimeout, lambda server, error: f"no answer from {server} within {_limit(error)}"),
    (
        http1.CertificateError,
        lambda server, error: (
            f"the certificate of {server} is not trusted ({error.reason.verify_message})."
            " Set `ca_file` if it is your own CA's."
        ),
    ),
    (
        http1.UnknownHostError,
        lambda server, error: f"the host name '{server.name}' is not known. Check `base_url`.",
    ),
    (
        http1.ProxyRefusedError,
        lambda server, error: f"the proxy refused to connect to {server} (HTTP {error.status}).",
    ),
    (
        http1.ProxyError,
        lambda server, error: f"can't connect to the proxy: {_reason(error.reason)}.",
    ),
    (
        http1.TLSError,
        lambda server, error: f"the TLS handshake with {server} failed: {_reason(error.reason)}.",
    ),
    (
        http1.ConnectError,
        lambda server, error: f"can't connect to {server}: {_reason(error.reason)}.",
    ),
    (http1.ProtocolError, lambda server, error: f"{server} did not answer in HTTP ({error})."),
    (
        http1.InvalidURLError,
        lambda server, error: f"the URL is not valid ({error}). Check `base_url`.",
    ),
    (http1.ClosedError, lambda server, error: "the provider is being shut down."),
    (
        http1.StaleError,
        lambda server, error: (
            f"{server} closed a connection that was kept, without an answer. Whether it has read"
            " the request is not known."
        ),
    ),
    (
        http1.HTTPError,
        lambda server, error: f"{server} closed the connection without an answer.",
    ),
]
"""What is said of an error, the special before the general."""

_BROKEN_OFF: list[tuple[type[http1.HTTPError], tuple[str, str]]] = [
    (
        http1.TotalTimeout,
        (
            "the answer stopped and did not go on within the {error.seconds:g} s that a whole"
            " exchange may take",
            "",
        ),
    ),
    (
        http1.HTTPTimeout,
        ("the answer stopped and did not go on within {error.seconds:g} s", ""),
    ),
    (
        http1.AnswerTooLargeError,
        (
            "the answer is larger than {error.limit} bytes. `max_reply_bytes` in the template, for"
            " a list of models `max_list_bytes`, says how large it may be.",
            "upstream_reply_too_large",
        ),
    ),
    (
        http1.ContentEncodingError,
        (
            "the answer is compressed, unasked, in a way that can't be read here ({error}).",
            "upstream_error",
        ),
    ),
    (
        http1.HTTPError,
        ("the connection broke before the answer was complete.", "upstream_connection_lost"),
    ),
]


def _first_match(table: list[tuple[type[http1.HTTPError], Any]], error: http1.HTTPError) -> Any:
    return next(value for kind, value in table if isinstance(error, kind))


def _limit(error: http1.HTTPTimeout) -> str:
    whole = isinstance(error, http1.TotalTimeout)
    return f"{'the ' * whole}{error.seconds:g} s{' that a whole exchange may take' * whole}"


def _timeout(provider: str, what: str) -> APIError:
    return APIError(
        504,
        f"Provider '{provider}': {what}. Its `timeouts` in the template say how long to wait.",
        code="upstream_timeout",
    )


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        reason = (error.reason or str(error)).replace("_", " ")
    else:
        # asyncio has words of its own; the system's for the number say more.
        known = os.strerror(error.errno) if error.errno else ""
        reason = known or error.strerror or str(error) or _NAMELESS.get(type(error), "")
    return (reason or type(error).__name__).lower()


_NAMELESS: dict[type[OSError], str] = {
    ConnectionResetError: "the connection was closed",
    ConnectionAbortedError: "the connection was closed",
}
"""What asyncio raises without a number and a word."""
