"""What goes wrong between this server and a vendor's, as the error that the client is told."""

from __future__ import annotations

import asyncio
import os
import ssl

import aiohttp
from yarl import URL

from llama_compat.errors import APIError, upstream_error
from providers.remote.config import Timeouts

ConnectionProblem = (aiohttp.ClientError, OSError, asyncio.TimeoutError)
"""What aiohttp raises when an exchange fails."""


def sending_error(provider: str, error: Exception, url: URL, timeouts: Timeouts) -> APIError:
    """502 or 504 for a request that got no answer: not even a status and headers."""
    host = f"{url.host}:{url.port}"
    match error:
        case aiohttp.ConnectionTimeoutError():
            return _timeout(provider, f"no connection to {host} within {timeouts.connect:g} s")
        case TimeoutError():
            limit = _limit(error, timeouts, timeouts.first_byte)
            return _timeout(provider, f"no answer from {host} within {limit}")
        case aiohttp.ClientConnectorCertificateError():
            what = f"the certificate of {host} is not trusted ({_certificate_problem(error)})"
            return upstream_error(provider, f"{what}. Set `ca_file` if it is your own CA's.")
        case aiohttp.ClientConnectorDNSError():
            what = f"the host name '{url.host}' is not known. Check `base_url`."
        case aiohttp.ClientHttpProxyError():
            what = f"the proxy refused to connect to {host} (HTTP {error.status})."
        case aiohttp.ClientProxyConnectionError():
            what = f"can't connect to the proxy: {_reason(error.os_error)}."
        case aiohttp.ClientConnectorSSLError():
            what = f"the TLS handshake with {host} failed: {_reason(error.os_error)}."
        case aiohttp.ClientConnectorError():
            what = f"can't connect to {host}: {_reason(error.os_error)}."
        case aiohttp.ClientResponseError() if "content-encoding" in error.message:
            what = f"{host} compressed its answer unasked, in a way that can't be read here."
        case aiohttp.ClientResponseError():
            what = f"{host} did not answer in HTTP ({error.message.splitlines()[0]})."
        case aiohttp.InvalidURL():
            what = "the URL is not valid. Check `base_url`."
        case _:
            what = f"{host} closed the connection without an answer."
    return upstream_error(provider, what)


def reading_error(provider: str, error: Exception, timeouts: Timeouts) -> APIError:
    """502 or 504 for an answer that broke off."""
    if isinstance(error, TimeoutError):
        limit = _limit(error, timeouts, timeouts.between_bytes)
        return _timeout(provider, f"the answer stopped and did not go on within {limit}")
    return upstream_error(
        provider,
        "the connection broke before the answer was complete.",
        code="upstream_connection_lost",
    )


def _timeout(provider: str, what: str) -> APIError:
    return APIError(
        504,
        f"Provider '{provider}': {what}. Its `timeouts` in the template say how long to wait.",
        code="upstream_timeout",
    )


def _limit(error: TimeoutError, timeouts: Timeouts, silence: float) -> str:
    if isinstance(error, aiohttp.SocketTimeoutError) or timeouts.total is None:
        return f"{silence:g} s"
    return f"the {timeouts.total:g} s that a whole exchange may take"


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        reason = (error.reason or str(error)).replace("_", " ")
    else:
        # asyncio has words of its own; the system's for the number say more.
        known = os.strerror(error.errno) if error.errno else ""
        reason = known or error.strerror or str(error) or type(error).__name__
    return reason.lower()


def _certificate_problem(error: aiohttp.ClientConnectorCertificateError) -> str:
    cause = error.certificate_error
    return cause.verify_message if isinstance(cause, ssl.SSLCertVerificationError) else str(cause)
